"""Escapes text from outside the project: names of groups, topics and clients, log lines, errors of brokers.

Every client that can commit an offset chooses a group name. A name can contain a line break that forges a log line, an
escape sequence that rewrites a terminal, or a character that reverses the text direction. Records and JSON keep such
text unchanged. All code that shows it uses this module.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

NAME_LIMIT: Final = 256
TEXT_LIMIT: Final = 4000
REMEDY_LIMIT: Final = 100_000  # a remedy is complete: half a command would be worse than none

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_STACKED = 4  # combining marks on one character; more of them cover other lines
# Letters and marks without a visible glyph that are printable in Unicode.
_BLANK = frozenset(
    code
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for code in range(first, last + 1)
)

_NOT_PLAIN = re.compile(r"[^ -~\n]")  # a document of a megabyte has few of them
_MARKUP = re.compile(r"[\\`*\[\]<>|~&]")
_UNDERSCORES = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")  # between two letters they are not markup
_LINE_START = re.compile(r"^(?:[-+](?=[\s-]|$)|[=#]|(\d+)(?=[.)](?:\s|$)))")
_WORD = re.compile(r"\S+")
_IN_ADDRESS = re.compile(r"://|www\.|[\w.+-]@[\w-]", re.IGNORECASE)
_ENDING = re.compile(r"[.,;:!?]+$")


def escape_invisible(text: str, *, limit: int = TEXT_LIMIT) -> str:
    """Return the text as one line in which every invisible character is its code point, for example `\\u202e`.

    Invisible are line breaks, control characters, changes of direction, characters without width, and blanks other
    than the space. A text above `limit` characters is cut, with the number of omitted characters. A second call changes
    nothing.
    """
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    pieces = list(_show_each(text[: limit + 1]))
    if len(text) <= limit and sum(map(len, pieces)) <= limit:
        return "".join(pieces)
    room = limit - len(_left_out(len(text)))
    kept = sum(1 for end in accumulate(map(len, pieces)) if end <= room)
    return "".join(pieces[:kept]) + _left_out(len(text) - kept)


def escape_markdown(text: str, *, limit: int = TEXT_LIMIT) -> str:
    """Return Markdown (CommonMark with GitHub's additions) that shows the text unchanged, on one line.

    Emphasis, links, images, HTML, entities, code, lists and headings are escaped. An address becomes code, because
    renderers turn a bare one into a link.
    """
    line = escape_invisible(text, limit=limit).strip()
    parts: list[str] = []
    end = 0
    for found in _WORD.finditer(line):
        if _IN_ADDRESS.search(found[0]) is None:
            continue
        ending = _ENDING.search(found[0])
        stop = found.end() - (len(ending[0]) if ending else 0)
        parts += [_escape(line[end : found.start()], starts_line=not parts), quote_markdown(line[found.start() : stop])]
        end = stop
    parts.append(_escape(line[end:], starts_line=not parts))
    return "".join(parts)


def listed_line(sentence: str) -> str:
    """Return the Markdown line that lists a sentence for an approver."""
    return f"- {escape_markdown(sentence)}"


def is_listed(text: str, sentence: str) -> bool:
    """Return whether a text that an approver read lists the sentence, in a line of its own."""
    return listed_line(sentence) in text.splitlines()


def quote_markdown(text: str, *, limit: int = TEXT_LIMIT) -> str:
    """Return a Markdown code span that shows the text unchanged, on one line."""
    line = escape_invisible(text, limit=limit)
    if not line.strip():
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    padding = " " if line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def escape_json(dumped: str) -> str:
    """Return the same JSON with every invisible character inside its strings as an escape sequence of JSON."""
    return _NOT_PLAIN.sub(lambda one: one[0] if _is_visible(one[0]) else _json(one[0]), dumped)


def _show_each(text: str) -> Iterator[str]:
    stacked = 0
    for character in text:
        stacked = stacked + 1 if unicodedata.combining(character) else 0
        yield character if _is_visible(character) and stacked <= _STACKED else _code_point(character)


def _is_visible(character: str) -> bool:
    return character.isprintable() and ord(character) not in _BLANK


def _code_point(character: str) -> str:
    number = ord(character)
    return _SHORT.get(character) or (f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}")


def _left_out(number: int) -> str:
    return f"… ({number:,} more characters)"


def _escape(text: str, *, starts_line: bool) -> str:
    text = _MARKUP.sub(r"\\\g<0>", text)
    text = _UNDERSCORES.sub(lambda run: "\\_" * len(run[0]), text)
    return (
        _LINE_START.sub(lambda start: f"{start[1]}\\" if start[1] else f"\\{start[0]}", text) if starts_line else text
    )


def _json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


MOST_INT32, MOST_INT64 = 2**31 - 1, 2**63 - 1


def parse_number(text: str, most: int = MOST_INT64) -> int | None:
    """Return the number of a text with the digits 0 to 9; None for any other text, or above `most`.

    int() also accepts digits of other scripts, and raises ValueError at 4,300 digits.
    """
    if not (text.isascii() and text.isdigit() and len(text.lstrip("0")) <= len(str(most))):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None
