"""The output of a command between two marks that only the command line itself can print.

A login can print lines of its own before and after a command (.bashrc, banners). They are not part of the output.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable


class MarkedLine:
    """A line for a login shell that marks the output of a command, and gives it the C locale: messages of programs are
    compared with English texts, and sudo passes these variables on."""

    def __init__(self, line: str) -> None:
        nonce = secrets.token_hex(16)
        self.begin, self.end = f"{nonce} begin\n".encode(), f"{nonce} end\n".encode()
        mark = 'echo "{0} {1}"; echo "{0} {1}" >&2'
        # A subshell, so that `exit` in the line does not skip the second mark; on lines of its own, so that a comment
        # at the end of the line does not hide the bracket.
        self.text = (
            f"{mark.format(nonce, 'begin')}\n(\nexport LC_ALL=C LANGUAGE=C\n{line}\n)\n"
            f"code=$?; {mark.format(nonce, 'end')}; exit $code"
        )

    def output(self, take: Callable[[bytes], object]) -> MarkedOutput:
        return MarkedOutput(self.begin, self.end, take)


class MarkedOutput:
    """Passes on the bytes between two marks, in pieces. `seen`: all bytes before the first mark, or the last ones."""

    def __init__(self, begin: bytes, end: bytes, take: Callable[[bytes], object]) -> None:
        self.begun = self.ended = False
        self.seen = b""
        self._begin, self._end, self._take = begin, end, take

    def feed(self, data: bytes) -> None:
        if self.ended:
            return
        self.seen += data
        if not self.begun:
            _, found, rest = self.seen.partition(self._begin)
            if not found:
                return
            self.begun, self.seen = True, rest
        before, found, _ = self.seen.partition(self._end)
        if found:
            self.ended, self.seen = True, b""
        else:  # its end can be the beginning of the mark
            before, self.seen = self.seen[: 1 - len(self._end)], self.seen[1 - len(self._end) :]
        if before:
            self._take(before)

    def close(self) -> None:
        """Pass on what is left if the second mark is missing, because the command line was ended."""
        if self.begun and not self.ended and self.seen:
            self._take(self.seen)
