"""Text files of a host, read as the SSH user without a right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of

_READ = """\
export LC_ALL=C; while IFS= read -r file; do
if test -f "$file" && test -r "$file" && grep -qI '' "$file"; then echo "file $file";
head -c 200000 "$file" | tr -d '\\000\\r' |
sed 's/^/text /'; echo; elif test -d "$file" || test -r "$file"; then echo "none $file";
elif test -e "$file" || { above=${file%/*};
while test -n "$above" && ! test -e "$above"; do case $above in */*) above=${above%/*};; *) above=;; esac; done;
test -n "$above" && ! test -x "$above/"; }; then echo "unread $file"; else echo "none $file"; fi; done
"""
_COMMENT = re.compile(r"\s#.*")
_GOES_ON = re.compile(r"(?<!\\)(\\\\)*\\\Z")  # an odd number of backslashes


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """A script, a command or a file with settings."""

    path: str
    lines: tuple[str, ...]
    """Without comments and empty lines. A line goes on after a backslash at its end that no other one escapes."""
    interpreter: str = ""
    """The program that executes it, and its options: the first line after `#!`."""
    length: int = 0
    """Characters that were read, with comments."""


class TextFiles:
    """Files of the host of a node that were read."""

    def __init__(self, commands: HostCommands, node: NodeSpec) -> None:
        self._commands, self._node = commands, node
        self.texts: dict[str, TextFile] = {}
        """By path. A file that does not exist, or is none of text, is left out."""
        self.unread: set[str] = set()
        """Paths of files that exist, or can exist, and that the SSH user cannot read."""
        self.absent: set[str] = set()
        """Paths without a file of text, as the host reports."""
        self.asked: set[str] = set()

    def read(self, paths: Iterable[str]) -> list[TextFile]:
        """Return those of the files that were not read yet. Their paths are in the input of the shell.

        A path that is not absolute is not asked for: its folder is that of a process, which is not known here.
        """
        new = (path for path in dict.fromkeys(paths) if path not in self.asked)
        wanted = [path for path in new if path.startswith("/") and path.isprintable()]
        if not wanted:
            return []
        self.asked |= set(wanted)
        host = service_of(self._node).host
        done = self._commands.shell.run(host, _READ, text="".join(f"{path}\n" for path in wanted))
        lines: dict[str, list[str]] = {}
        path = ""
        for line in done.out.split("\n"):
            kind, _, rest = line.partition(" ")
            if kind == "file":
                path = rest
                lines[path] = []
            elif kind == "text" and path:
                lines[path].append(rest)
            elif kind == "unread":
                self.unread.add(rest)
            elif kind == "none":
                self.absent.add(rest)
        found = {path: text_of(path, "\n".join(content)) for path, content in lines.items()}
        self.texts |= found
        return list(found.values())


def text_of(path: str, content: str) -> TextFile:
    first = content.partition("\n")[0]
    interpreter = first.removeprefix("#!").strip() if first.startswith("#!") else ""
    return TextFile(
        path=path,
        lines=tuple(filter(None, map(str.strip, _lines(content)))),
        interpreter=interpreter,
        length=len(content),
    )


def _lines(content: str) -> Iterator[str]:
    """Yield the lines without comments. A comment does not go on after a backslash."""
    begun = ""
    for line in content.split("\n"):
        begun += line
        if _GOES_ON.search(begun) and _uncommented(begun) == begun:
            begun = begun[:-1]
        else:
            yield _uncommented(begun)
            begun = ""
    yield begun


def _uncommented(line: str) -> str:
    for match in _COMMENT.finditer(f" {line}"):
        before = line[: match.start()]
        if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            return before
    return line
