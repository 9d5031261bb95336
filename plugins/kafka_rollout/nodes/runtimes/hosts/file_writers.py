"""Which commands of a start write a file as a whole, so that lines that were written into it before are gone.

ExecStartPre=, a script around the start script, or another unit that the start runs, can make the configuration from a
template: `envsubst <t >file`, `sed … t | tee file`, `cp`, `install`, a program with `-o file`. Commands that change a
part of the file (`>>`, `sed -i`) keep the others. A program that is no shell script is not read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafka_rollout.base.wording import few
from kafka_rollout.formats.files import server_properties
from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.model.start_conditions import source_of
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptScope, ScriptsOfStart
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFile
from kafka_rollout.nodes.runtimes.hosts.times import read_times
from kafka_rollout.nodes.runtimes.hosts.unit_environment import put_in
from kafka_rollout.nodes.runtimes.start_files import paths_in

_SHOWN = 160
_WORD = r"((?:\"[^\"]*\"|'[^']*'|\$\{[^}]*\}|[^\s;&|<>()\"'`])+)"
_TO = re.compile(rf"(?<![>\d&-])>\|?\s*{_WORD}|\s(?:-o|-out|--out(?:put)?(?:[_-]file)?)[=\s]\s*{_WORD}")
_TEE = re.compile(rf"(?:^|[\s/|;&('\"])tee\s+(?!-a\b|--append\b)(?:-\S+\s+)*{_WORD}")
_COPY = re.compile(rf"(?:^|[\s/;&|('\"])(?:cp|mv|install|rsync|ln)((?:\s+{_WORD})+)")
_TEMPLATE = re.compile(rf"-template[=\s]\s*['\"]?[^\s:'\"]+:{_WORD}")


def find_writers(texts: Sequence[TextFile], variables: Mapping[str, str], path: str) -> tuple[str, ...]:
    """Return the commands that write the file `path`, each after the path of its text. `variables`: of the unit."""
    found = (f"{text.path}: {hide_credentials(line)[:_SHOWN]}" for text, line in _writers(texts, variables, path))
    return tuple(dict.fromkeys(found))


class WritingUnit(NamedTuple):
    """The unit of a node, or another one that its start runs."""

    start: ScriptsOfStart
    variables: Mapping[str, str]
    files: tuple[str, ...]
    """With its settings and its environment."""

    def find_writers(self, path: str) -> tuple[str, ...]:
        """As the function."""
        return find_writers(self.start.texts, self.variables, path)


class Doubt(NamedTuple):
    """Why the next start can write another file than the last one did."""

    newer: tuple[str, ...] = ()
    """What it makes the file from, and is newer than the process, as ends of sentences."""
    unknown: tuple[str, ...] = ()
    """What is unknown of that, as ends of sentences."""

    def __str__(self) -> str:
        return few(list(dict.fromkeys((*self.newer, *self.unknown))), limit=3) if self.newer or self.unknown else ""


def read_doubt(
    commands: HostCommands,
    node: NodeSpec,
    units: Iterable[WritingUnit],
    path: str,
    *,
    started: int | None,
    config: Mapping[str, str] | None = None,
) -> Doubt:
    """Return the doubt about a file. There is none if the start does not write it, or writes the same: what it makes it
    from is older than the process, or is the same text.

    `started`: when the process was. `config`: that of the node with its command line, if the file is its configuration.
    """
    newer: list[str] = []
    unknown: list[str] = []
    for unit in units:
        lines = [line for text in unit.start.wrappers for line in text.lines]
        values = dict(zip(lines, unit.start.wrapper_lines(unit.variables), strict=True))
        for text, line in _writers(unit.start.texts, unit.variables, path):
            command = put_in(values.get(line, line), unit.variables)
            source = source_of(command, path)
            if config and source and source.is_copy and _is_same(commands, node, source.paths[0], config):
                continue
            named = [one for one in paths_in(command) if "bin/" not in one] if source is None else source.paths
            script = [text.path] if text.path.startswith("/") else []
            times = read_times(commands, node, inputs := [*named, *script, *unit.files])
            if source is None:
                unknown.append(f"what `{hide_credentials(line)[:_SHOWN]}` writes is unknown")
                inputs = [one for one in inputs if one in times and one != path]
            for one in dict.fromkeys(inputs):
                if started is None or one not in times:
                    unknown.append(f"{one} can be newer than the process")
                elif times[one] >= started:
                    newer.append(f"{one} is newer than the process")
    return Doubt(tuple(dict.fromkeys(newer)), tuple(dict.fromkeys(unknown)))


def _is_same(commands: HostCommands, node: NodeSpec, path: str, config: Mapping[str, str]) -> bool:
    """Return whether a file has the lines of the configuration, and no others."""
    done = commands.run(node, ["cat", path])
    found = server_properties.parse(done.content) if done.code == 0 else {}
    return bool(found) and found == config


def _writers(texts: Sequence[TextFile], variables: Mapping[str, str], path: str) -> list[tuple[TextFile, str]]:
    """Return the lines that write the file, each after its text.

    A variable that is set nowhere can have each value, if the name of the file is beside it.
    """
    lines = [(text, line) for text in texts for line in text.lines if _may_write(line)]
    if not lines:
        return []
    known, open_ = (ScriptScope(texts, variables, is_whole=is_whole) for is_whole in (True, False))

    name = _name_of(path)

    def is_path(word: str, sources: Sequence[str]) -> bool:
        plain = word.strip("\"'")
        is_folder = plain.endswith("/") or plain == posixpath.dirname(path)
        if is_folder and name in map(_name_of, sources):  # it gets files with the names of the sources
            plain = f"{plain.rstrip('/')}/{name}"
        pattern = known.pattern(plain)
        if re.escape(name) in pattern and re.fullmatch(pattern, path):
            return True
        is_relative = plain[:1] not in ("/", "$", "~")
        return _name_of(plain) == name and (is_relative or re.fullmatch(open_.pattern(plain), path) is not None)

    return [(text, line) for text, line in lines if any(is_path(word, sources) for word, sources in _targets(line))]


def _may_write(line: str) -> bool:
    return next(_targets(line), None) is not None


def _targets(line: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the words that a line writes to, with the files that it copies there."""
    for expression in (_TO, _TEE, _TEMPLATE):
        for match in expression.finditer(line):
            yield next(filter(None, match.groups())), []
    for match in _COPY.finditer(line):
        words = [word for word in re.findall(_WORD, match[1]) if not word.startswith("-")]
        if len(words) > 1:
            yield words[-1], words[:-1]


def _name_of(path: str) -> str:
    return posixpath.basename(path.strip("\"'"))
