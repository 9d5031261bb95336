"""Files that other files name which a start reads: those of JMX, of an agent, of a logging configuration, of Java.

Only the paths leave the host, and no other word: these files can have passwords.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of

JMX_FILE = "-Dcom.sun.management.config.file="
# For each file of the input: the paths in it that exist, and those below the link. Comments are left out, and in a
# logging configuration (`log` before its path) lines that name the files of a log, which a start writes.
_READ = """\
export LC_ALL=C; while IFS=' ' read -r kind file; do
written='^$'; test "$kind" != log || written='(file(name|pattern)|[.]file)[[:space:]]*[=:]|name="file"';
if test -f "$file" && test -r "$file" && grep -qI '' "$file"; then echo "in $file";
head -c 200000 "$file" | grep -vE '^[[:space:]]*([#!]|//|<!--)' |
grep -viE "$written" |
grep -oE '(^|[^[:alnum:]_.@+/-])(file:/*)?/[[:alnum:]_.@+/-]+' | sed -E 's,^[^/]*/+,/,' | sort -u | head -n 200 |
while IFS= read -r path; do case $path in {link}/*) echo "path $path";;
/*/*) test ! -e "$path" || echo "path $path";; esac; done; fi; done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerFile:
    path: str
    is_needed: bool
    """The JVM ends without it."""


def read_inner_files(
    commands: HostCommands, node: NodeSpec, files: Mapping[str, bool], arguments: Sequence[str]
) -> tuple[InnerFile, ...]:
    """Return what the files name, as far as the SSH user can read them. `files`: path → whether it is a logging
    configuration. `arguments`: options of the JVM."""
    service = service_of(node)
    asked = [
        f"{'log' if is_log else 'file'} {path}\n"
        for path, is_log in files.items()
        if path.startswith("/") and path.isprintable()
    ]
    if not asked:
        return ()
    line = _READ.format(link=shlex.quote(service.symlink))
    done = commands.shell.run(service.host, line, text="".join(asked))
    of_jmx = {word.removeprefix(JMX_FILE) for word in arguments if word.startswith(JMX_FILE)}
    found: dict[str, bool] = {}
    file = ""
    for kind, _, path in (row.partition(" ") for row in done.out.splitlines()):
        if kind == "in":
            file = path
        elif kind == "path":
            found[path.rstrip("/")] = found.get(path.rstrip("/"), False) or file in of_jmx
    return tuple(InnerFile(path=path, is_needed=is_needed) for path, is_needed in found.items())
