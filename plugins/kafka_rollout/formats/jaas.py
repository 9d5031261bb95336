"""Login modules of sasl.jaas.config, read as Kafka's JaasConfig reads them: with java.io.StreamTokenizer.

Its rules are followed to the letter, because a text that Kafka refuses must not pass here, and the other way round: a
number is not a word, a line break ends a quoted text, and a single slash begins a comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_FLAGS = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_QUOTES, _LINE_ENDS, _OCTAL, _DIGITS = "\"'", "\n\r", "01234567", "0123456789"
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class _Token:
    text: str | None
    """Of a word or of a quoted text; None for a number and for a single character."""
    mark: str = ""
    """That character."""


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return login module and options of `MODULE FLAG KEY=VALUE …;`.

    Raises ValueError for a text that Kafka refuses, and for one with several modules. The error does not quote it.
    """
    tokens = _tokens(text)
    module, flag = next(tokens, None), next(tokens, None)
    if module is None or flag is None or not module.text or (flag.text or "").upper() not in _FLAGS:
        raise ValueError("not a login module")
    options: dict[str, str] = {}
    for key in tokens:
        if key.mark == ";":
            break
        equals, value = next(tokens, None), next(tokens, None)
        if equals is None or equals.mark != "=" or value is None or value.text is None:
            raise ValueError("not an option")
        if key.text is not None:  # Kafka keeps a number or a sign as an option without a name
            options[key.text] = value.text
    else:
        raise ValueError("no semicolon at the end")
    if next(tokens, None) is not None:
        raise ValueError("not one login module")
    return module.text, options


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        first = text[at]
        if first <= " ":
            at += 1
        elif first in _DIGITS or first in "-.":
            end = _end_of_number(text, at)
            yield _Token(None) if end > at else _Token(None, first)
            at = max(end, at + 1)
        elif _is_letter(first):
            end = at
            while end < len(text) and (_is_letter(text[end]) or text[end] in _DIGITS or text[end] in "-."):
                end += 1
            yield _Token(text[at:end])
            at = end
        elif first in _QUOTES:
            content, at = _quoted(text, at)
            yield _Token(content)
        elif first == "/":
            at = _end_of_comment(text, at)
        else:
            yield _Token(None, first)
            at += 1


def _is_letter(character: str) -> bool:
    return (character.isascii() and character.isalpha()) or character in "_$" or ord(character) >= 160


def _end_of_number(text: str, at: int) -> int:
    """Return the end of `-12.5`; `at` if a sign stands alone."""
    end, has_digits, has_point = at + (text[at] == "-"), False, False
    while end < len(text):
        if text[end] == "." and not has_point:
            has_point = True
        elif text[end] in _DIGITS:
            has_digits = True
        else:
            break
        end += 1
    return end if has_digits or has_point else at


def _end_of_comment(text: str, at: int) -> int:
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return len(text) if end < 0 else end + 2
    at += 2  # a single slash hides the character after it, also the end of its line
    while at < len(text) and text[at] not in _LINE_ENDS:
        at += 1
    return min(at, len(text))


def _quoted(text: str, at: int) -> tuple[str, int]:
    """Return a quoted text and its end. The end of the line and of the whole text close it too."""
    quote, at, found = text[at], at + 1, []
    while at < len(text) and text[at] != quote and text[at] not in _LINE_ENDS:
        if text[at] != "\\":
            found.append(text[at])
            at += 1
            continue
        at += 1
        if at == len(text):  # Java keeps its mark for the end, which is not a character
            found.append("\uffff")
        elif text[at] in _OCTAL:
            end = at + 1
            while end < len(text) and text[end] in _OCTAL and end - at < (3 if text[at] <= "3" else 2):
                end += 1
            found.append(chr(int(text[at:end], 8)))
            at = end
        else:
            found.append(_ESCAPED.get(text[at], text[at]))
            at += 1
    return "".join(found), at + (at < len(text) and text[at] == quote)
