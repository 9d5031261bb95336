"""Which commands of a start write a file as a whole, so that lines that were written into it before are gone.

ExecStartPre= or a script around the start script can make the configuration from a template: `envsubst <t >file`,
`sed … t | tee file`, `cp`, `install`, a program with `-o file`. Commands that change a part of the file (`>>`,
`sed -i`) keep the others. A program that is no shell script is not read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptScope
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFile

_SHOWN = 160
_WORD = r"((?:\"[^\"]*\"|'[^']*'|\$\{[^}]*\}|[^\s;&|<>()\"'`])+)"
_TO = re.compile(rf"(?<![>\d&-])>\|?\s*{_WORD}|\s(?:-o|-out|--out(?:put)?(?:[_-]file)?)[=\s]\s*{_WORD}")
_TEE = re.compile(rf"(?:^|[\s/|;&('\"])tee\s+(?!-a\b|--append\b)(?:-\S+\s+)*{_WORD}")
_COPY = re.compile(rf"(?:^|[\s/;&|('\"])(?:cp|mv|install|rsync|ln)((?:\s+{_WORD})+)")
_TEMPLATE = re.compile(rf"-template[=\s]\s*['\"]?[^\s:'\"]+:{_WORD}")


def find_writers(texts: Sequence[TextFile], variables: Mapping[str, str], path: str) -> tuple[str, ...]:
    """Return the commands that write the file `path`, each after the path of its text. `variables`: of the unit.

    A variable that is set nowhere can have each value, if the name of the file is beside it.
    """
    lines = [(text, line) for text in texts for line in text.lines if _may_write(line)]
    if not lines:
        return ()
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

    found = (
        f"{text.path}: {hide_credentials(line)[:_SHOWN]}"
        for text, line in lines
        if any(is_path(word, sources) for word, sources in _targets(line))
    )
    return tuple(dict.fromkeys(found))


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
