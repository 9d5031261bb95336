"""The settings in the command line of a node's next start, which count more than its file.

The unit and the scripts with which it starts Kafka can have been changed since the process started, so they count. The
process is the second witness: its values are whole where those of the unit lose quotes and blanks, and it alone shows
what a script makes of variables that are not known.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from kafka_rollout.model.starts import MAIN_CLASS, overrides_of

_START = re.compile(r"(?:kafka-server-start(?:\.sh)?|\bkafka\.Kafka)['\"]?(?=\s|$)")
_OF_SHELL = re.compile(r"\s-\w*c\s")
_OVERRIDE = re.compile(r"\s+--override(?:=|\s+)")
_VARIABLE = re.compile(r"(?<!\$)\$(?:\w+|\{\w+\})")
_FILE = re.compile(r"\S*/\S+|\S+\.properties")
_ENDS = re.compile(r"&|[;|()]+|&&|\|\|")
_REDIRECTS = re.compile(r"[<>&|]*[<>][<>&|]*")
_OF_QUOTES = re.compile(r"[\s\"'\\]+")


def next_overrides(process: Sequence[str], commands: Sequence[str], wrapper: Sequence[str]) -> dict[str, str]:
    """Return the settings in `--override KEY=VALUE` of the next start.

    `process`: the command line of the process. `commands`: those of ExecStart, as systemd shows them, without quotes.
    `wrapper`: lines of the scripts that they execute. Both have the values of the variables that are known.
    """
    of_process = overrides_of(process[process.index(MAIN_CLASS) :]) if MAIN_CLASS in process else None
    found = [one for text in commands for one in _all_overrides(text, is_of_shell=is_of_shell(text))]
    found += [one for line in wrapper for one in _all_overrides(line, is_of_shell=True)]
    if of_process is None:
        return next((one for one in reversed(found) if one is not None), {})
    is_same = any(one is None or _plain(one) == _plain(of_process) for one in found)
    return of_process if is_same or not found else found[-1] or {}


def is_of_shell(command: str) -> bool:
    """Return whether a command of a unit is a line for a shell, such as `sh -c`."""
    return _OF_SHELL.search(command) is not None


def starts_directly(command: str) -> bool:
    """Return whether a command of a unit is a start of Kafka, without a shell."""
    return _START.search(command) is not None and not is_of_shell(command)


def starts_alone(command: str) -> bool:
    """Return whether a command of a unit shows all settings of the start, without variables and scripts."""
    return starts_directly(command) and _VARIABLE.search(command) is None


def _all_overrides(text: str, *, is_of_shell: bool) -> Iterator[dict[str, str] | None]:
    """Yield the settings of each start in a command or a line; None if they have a variable that is not known."""
    for match in _START.finditer(text):
        rest = text[match.end() :]
        words = _words(rest) if is_of_shell else rest.split()
        if not any(_FILE.fullmatch(word) for word in words):
            if "$" in rest:
                yield None
            continue  # a test of the script, or its name in a variable
        if is_of_shell:
            yield None if any("$" in word for word in words) else overrides_of(words)
        elif _VARIABLE.search(rest):
            yield None
        else:
            _, *settings = _OVERRIDE.split(f" {rest}")
            yield overrides_of([f"--override={one.strip().replace('$$', '$')}" for one in settings])


def _words(text: str) -> list[str]:
    """Return the words of a shell up to the end of the command, without what it writes."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # the end of a text in quotes, as in `su kafka -c '…'`
        words = text.replace('"', " ").replace("'", " ").split()
    command = list(takewhile(lambda word: not _ENDS.fullmatch(word), words))
    return [word for before, word in zip(["", *command], command, strict=False) if not _is_output(before, word)]


def _is_output(before: str, word: str) -> bool:
    return _REDIRECTS.fullmatch(before) is not None or _REDIRECTS.fullmatch(word) is not None


def _plain(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: _OF_QUOTES.sub("", value) for key, value in settings.items()}
