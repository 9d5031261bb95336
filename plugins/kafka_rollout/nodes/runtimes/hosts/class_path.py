"""Which entries the scripts of a start can have in the class path of its JVM, as far as their text shows it.

kafka-run-class.sh begins with CLASSPATH of its environment, and adds the jars of its own release in loops over files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from kafka_rollout.nodes.runtimes.hosts.installing import JAR
from kafka_rollout.nodes.runtimes.hosts.shell_lines import COMMAND, REFERENCE, assignments, names_anywhere, unquoted

VARIABLE = "CLASSPATH"
OF_SCRIPT = "/bin/../"
"""In the entries that a script makes from its own place."""
OPTIONS = ("-cp", "-classpath", "--class-path")
_WORD = rf"(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|{COMMAND}|[^\s\"'`;|&<>()])+"
_OPTION = re.compile(rf"(?:^|\s)(?:{'|'.join(OPTIONS)})[=\s]\s*({_WORD})")
_LOOP = re.compile(r"\bfor\s+([A-Za-z_]\w*)\s+in\s+([^;]*)")
_WORDS = re.compile(_WORD)
_WHOLE = re.compile(r"[\"']*\$\{?(\w+)\}?[\"']*")
_MOST = 400  # entries


def loops(line: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the variables of loops, with the words whose values they get: patterns of files, too."""
    for match in _LOOP.finditer(line):
        yield match[1], _WORDS.findall(match[2])


def sets_class_path(line: str) -> bool:
    return _OPTION.search(line) is not None or any(name == VARIABLE for name, _ in assignments(line))


def foreign_entries(class_path: str, own: str) -> list[str]:
    """Return the entries of a class path that are not in the folder of Kafka's own jar, nor below the folder `own`."""
    entries = [entry for entry in class_path.split(":") if entry]
    folders = {_folder(entry) for entry in entries if JAR.search(entry)} | {own}
    return [entry for entry in entries if not any(f"{_folder(entry)}/".startswith(f"{one}/") for one in folders)]


def _folder(entry: str) -> str:
    return posixpath.normpath(posixpath.dirname(entry))


class ClassPaths:
    """The entries that texts can give to a JVM."""

    def __init__(self, lines: Sequence[str], variables: Mapping[str, str], pattern: Callable[[str], str]) -> None:
        """`variables`: of the unit. `pattern`: an expression for what a shell makes of a word."""
        self._values: dict[str, list[str]] = {name: [value] for name, value in variables.items()}
        found = [variables[VARIABLE]] if VARIABLE in variables else []
        current: dict[str, list[str]] = {}  # of the loop before a line
        for line in lines:
            current |= loops(line)
            set_ = assignments(line)
            for name, value in set_:
                self._values.setdefault(name, []).append(value)
            for value in (*(value for name, value in set_ if name == VARIABLE), *_OPTION.findall(line)):
                found += _in_loops(value, current)
        entries = list(dict.fromkeys(self._entries(found)))[:_MOST]
        self._patterns = [re.compile(pattern(one).replace(r"\*", "[^/:]*")) for one in entries]

    def explains(self, entry: str) -> bool:
        return any(pattern.fullmatch(entry) for pattern in self._patterns)

    def _entries(self, values: list[str]) -> Iterator[str]:
        """Yield the parts of values, and of those of a variable that is a whole part."""
        seen = {VARIABLE}
        for value in values:  # which becomes longer
            for part in _parts(value):
                whole = _WHOLE.fullmatch(part)
                if whole is None or not self._values.get(whole[1]):
                    yield part
                elif whole[1] not in seen:
                    seen.add(whole[1])
                    values += self._values[whole[1]]


def _in_loops(value: str, current: Mapping[str, list[str]]) -> list[str]:
    for name in sorted(names_anywhere(value) & current.keys()):
        here = re.compile(rf"\$\{{{name}\}}|\${name}(?!\w)")
        return [here.sub(lambda _, word=word: word, value) for word in current[name]]  # type: ignore[misc]
    return [value]


def _parts(value: str) -> Iterator[str]:
    """Split at colons outside of references, without references to the class path itself."""

    def kept(match: re.Match[str]) -> str:
        return "" if VARIABLE in names_anywhere(match[0]) else match[0].replace(":", "\0")

    for part in REFERENCE.sub(kept, value).split(":"):
        if unquoted(part).strip():
            yield part.replace("\0", ":").strip()
