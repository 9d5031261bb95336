"""Variables in the lines of shell scripts, as far as their text shows what a shell makes of them. Nothing is executed.

A script of a start can set a variable that the unit's environment has too. The value of the unit then counts only if
the script uses it: in the new value, or in the condition under which it sets the variable, as Kafka's own scripts do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# A command in a word: `$(…)`, `$((…))` with parentheses in it, or in backquotes.
COMMAND = r"\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|`[^`]*`"
_BALANCED = r"(?>(?:\\.|[^\\{}]|\{(?:\\.|[^\\{}]|\{(?:\\.|[^\\{}]|\{[^{}]*\})*\})*\})*)"
BRACES = rf"\$\{{{_BALANCED}\}}"
"""A reference such as `${NAME:-word}`, with others in its word."""
_ASSIGN = re.compile(
    rf"(?:^|[\s;&|({{])([A-Za-z_]\w*)\+?=((?:\"(?:\\.|[^\"\\])*\"|'[^']*'|{COMMAND}|{BRACES}|[^\s;&|\"'`$()]|\$)*)"
)
REFERENCE = re.compile(
    rf"{COMMAND}|\$\{{(\w+)(?!\w)(?:\[[\w@*]+\])?(?:(:?[-=+?])({_BALANCED})|({_BALANCED}))\}}|{BRACES}|"
    r"\$([A-Za-z_]\w*|\d|[@*#?$!])"
)
"""A command, or a variable: 1 its name in braces, 2 the operator before a word, 3 the word, 4 what follows the name
otherwise, as in `${NAME%x}`, 5 its name without braces."""
SOURCE = re.compile(r"(?:^|[;&|({!]|\b(?:then|do|else|if|elif|while|until))\s*(?:source|\.)\s+['\"]?([^\s'\";&|)]+)")
"""A file that a shell reads as a part of itself. At the place of a command: `find .` and `tar -C .` read no file."""
STARTS_KAFKA = re.compile(r"(?:^|[\s/'\"])kafka-(?:server-start|run-class)(?:\.sh)?(?=$|[\s'\"])")
OUTPUT = re.compile(r">{1,2}\|?\s*[\"']?(/[^\s\"'`;|&<>()]+)")
"""The absolute path to which a command writes its output."""
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'[^']*'")
_HERE = re.compile(r"<<-?\s*[\"'\\]?(\w+)")
_UNSET = re.compile(r"(?:^|[;&|({]|\b(?:then|do|else)\b)\s*(?:unset|export\s+-n)\s+(?:-v\s+)?([\w ]+)")
# Where a command begins, and what begins and ends a block there.
_BLOCK = re.compile(
    r"(?:^|[;&|(){}!]|\b(?:then|do|else))\s*(if|elif|while|until|for|case|fi|done|esac|[{}])(?=[\s;)]|$)"
)
_OPENS, _CLOSES = frozenset({"if", "while", "until", "for", "case", "{"}), frozenset({"fi", "done", "esac", "}"})
_END = re.compile(r"[;&|(){}]|(?:^|\s)(?:then|do|else|elif|if|while|until)(?=\s)")
_LIST_END = re.compile(r"(?<![;&|]);(?!;)|\b(?:then|do|else)\b")
# Before an assignment of the script itself.
_DECLARES = re.compile(r"\s*(?:export|declare|typeset|readonly|local)(?:\s+-\w+)*\s*")
# Before one that only another command gets: a shell of the unit, env.
_FOR_COMMAND = re.compile(r"\s*(?:exec\s+)?(?:(?:\S*/)?(?:(?:ba|da|k|z)?sh(?:\s+-\w+)*\s+-\w*c|env(?:\s+-\S+)*)\s*)?")
_REDIRECTION = re.compile(r"\d*[<>]+&?\s*\S+")
_IF_EMPTY = re.compile(
    r"(?:-z\s+[\"']?\$\{?(\w+)\}?[\"']?|\"x\$\{?(\w+)\}?\"\s*==?\s*\"x\")\s*\]{1,2}\s*;?\s*(?:then|&&)\s*(?:export\s+)?"
    r"(?:\1|\2)="
)
_ANY_NAME = re.compile(r"\$\{?[#!]?(\w+)|(?<=-v )(\w+)")
_DEPTH = 5
_LONGEST, _MOST = 2000, 30  # characters and assignments of a line that is understood, and blocks around it


def assignments(line: str) -> list[tuple[str, str]]:
    """Return the variables that a line sets, also by `${NAME:=value}`, with their values as it writes them. What is
    appended (`NAME+=value`) comes after the variable."""
    found = []
    for match in _ASSIGN.finditer(line):
        appends = line[match.end(1)] == "+"
        found.append((match[1], f"${{{match[1]}}}{match[2]}" if appends else match[2]))
    return found + [(match[1], match[3]) for match in references(line) if match[2] in (":=", "=")]


def references(text: str) -> Iterator[re.Match[str]]:
    """Yield the references in a text, and those in their words."""
    for match in REFERENCE.finditer(text):
        yield match
        if match[3]:
            yield from references(match[3])


def set_alone(line: str) -> dict[str, str | None]:
    """Return the variables that a line sets, with their values as it writes them, or only exports (None); none if it
    does more."""
    rest = _ASSIGN.sub(" ", line).replace(";", " ").split()
    names = [word for word in rest if word != "export"]
    if any(re.fullmatch(r"[A-Za-z_]\w*", word) is None for word in names) or (names and "export" not in rest):
        return {}
    return {**dict.fromkeys(names), **dict(assignments(line))}


def names_in(text: str) -> set[str]:
    """Return the variables that a text uses. Those in a command that it contains are left out."""
    return {match[1] or match[5] for match in references(text)} - {None}


def unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text.replace('"', "").replace("'", ""))


class _Set(NamedTuple):
    """An assignment at the place of a command."""

    name: str
    uses: frozenset[str]
    """Variables in its value, and itself if the value is appended."""
    conditions: frozenset[str]
    """Variables that decide whether it is executed."""
    is_certain: bool
    """Nothing decides that."""
    value: str = ""


@dataclass(frozen=True, slots=True)
class ReplacedVariables:
    """What scripts do with the variables that they get."""

    _sets: tuple[_Set, ...]

    @classmethod
    def of(cls, scripts: Iterable[Sequence[str]]) -> ReplacedVariables:
        """`scripts`: lines, without comments, of each script of a start."""
        return cls(tuple(one for lines in scripts for one in _sets_of(lines)))

    def is_replaced(self, name: str) -> bool | None:
        """Return whether the value that a variable has before is lost; None: that depends on what the scripts find."""
        with_value = frozenset({name})
        for _ in range(_DEPTH):
            with_value |= {one.name for one in self._sets if one.uses & with_value}
        # Kafka sets GC_LOG_ENABLED only without KAFKA_GC_LOG_OPTS, and that one only with GC_LOG_ENABLED.
        deciding = frozenset({name} | {one.name for one in self._sets if name in one.conditions})
        sets = [one for one in self._sets if one.name == name]
        losing = [one for one in sets if not (one.uses & with_value or one.conditions & deciding)]
        return any(one.is_certain for one in losing) or (None if losing else False)


def set_always(scripts: Iterable[Sequence[str]]) -> frozenset[str]:
    """Return the variables that scripts set at each start, or if they are empty."""
    scripts = tuple(scripts)
    certain = frozenset(one.name for lines in scripts for one in _sets_of(lines) if one.is_certain)
    return certain | {match[1] or match[2] for lines in scripts for match in _IF_EMPTY.finditer("\n".join(lines))}


def additions(scripts: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """Return what each start adds to the values of variables: their names, and the values with these variables in them.

    What a later line can replace is left out.
    """
    found: list[tuple[str, str]] = []
    for one in (one for lines in scripts for one in _sets_of(lines)):
        if one.name in one.uses and one.is_certain:
            found.append((one.name, one.value))
        elif one.name not in one.uses | one.conditions:
            found = [(name, value) for name, value in found if name != one.name]
    return found


def _sets_of(lines: Sequence[str]) -> Iterator[_Set]:
    blocks: list[frozenset[str]] = []  # variables in the conditions of those that are open
    here = ""
    for line in lines:
        if here:
            here = "" if line.strip() == here else here
            continue
        names = [name for name, _ in assignments(line)]
        if len(line) > _LONGEST or len(names) > _MOST or len(blocks) > _MOST:
            yield from (_Set(name, frozenset(), frozenset(), False) for name in dict.fromkeys(names))
            continue
        plain = _hidden(line)
        if (document := _HERE.search(plain)) and "<<<" not in plain:
            here = document[1]
        found = [*_BLOCK.finditer(plain), *_ASSIGN.finditer(line), *_UNSET.finditer(plain)]
        for match in sorted(found, key=lambda match: match.start(1)):
            if match.re is not _BLOCK:
                yield from _set_at(line, plain, match, blocks)
            elif match[1] in _OPENS:
                blocks.append((blocks[-1] if blocks else frozenset()) | names_anywhere(line[match.start(1) :]))
            elif match[1] == "elif" and blocks:
                blocks[-1] |= names_anywhere(line[match.start(1) :])
            elif match[1] in _CLOSES and blocks:
                blocks.pop()


def _hidden(line: str) -> str:
    """Return the line without its references and texts in quotes, in the same length."""
    for expression in (REFERENCE, _QUOTED):
        line = expression.sub(lambda match: "\0" * len(match[0]), line)
    return line


def _set_at(line: str, plain: str, match: re.Match[str], blocks: Sequence[frozenset[str]]) -> Iterator[_Set]:
    at = match.start(1)
    in_list = _LIST_END.split(plain[:at])[-1]
    decides = line[at - len(in_list) : at] if re.search(r"&&|\|\|", in_list) else ""
    conditions = (blocks[-1] if blocks else frozenset()) | names_anywhere(decides)
    is_certain = not blocks and not decides
    if match.re is _UNSET:
        yield from (_Set(name, frozenset(), conditions, is_certain) for name in match[1].split())
        return
    if plain[at] == "\0":
        return  # in quotes: a text
    name, value, rest = match[1], match[2], line[match.end() :]
    if rest[:1] in ('"', "'"):  # a value of several lines
        value, rest, is_certain = value + rest, "", False
    before = _ASSIGN.sub(lambda one: one[0][: one.start(1) - one.start()], line[:at])
    before = before[max((end.end() for end in _END.finditer(_hidden(before))), default=0) :]
    command = rest[: len(_END.split(_hidden(rest), maxsplit=1)[0])]
    command = _REDIRECTION.sub("", _ASSIGN.sub("", f" {command}")).strip()
    if not _DECLARES.fullmatch(before):
        if not _FOR_COMMAND.fullmatch(before):
            return  # a word of another command
        if command and not STARTS_KAFKA.search(command):
            if not command.startswith(("exec ", "$", '"$')):
                return  # only this command gets it
            is_certain = False
    appends = frozenset({name}) if line[at + len(name)] == "+" else frozenset()
    yield _Set(name, names_anywhere(value) | appends, conditions, is_certain, value)


def names_anywhere(text: str) -> frozenset[str]:
    """Return the variables in a text, also those in a command, such as `$(echo "$KAFKA_OPTS")`."""
    return frozenset(found[1] or found[2] for found in _ANY_NAME.finditer(text))
