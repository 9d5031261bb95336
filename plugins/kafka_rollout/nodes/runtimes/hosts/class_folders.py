"""The files that a site has put into folders of the class path which lead through the link of the release.

Plugins read such files by their names, such as ranger-kafka-security.xml and core-site.xml, so no option and no setting
names them. CLASSPATH=/opt/kafka/config is what their guides say, and a switch of the link leads to the folder of a
release that does not have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts import class_path
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of

_EACH = """\
while IFS= read -r folder; do if test -d "$folder" && ! test -r "$folder"; then echo "closed $folder"; fi;
for one in "$folder"/*; do if test -f "$one"; then echo "file $one"; fi; done; done
"""
_JARS = re.compile(r".*(?:\.jar|\.zip|\*)", re.IGNORECASE)
_OF_ARCHIVE = re.compile(
    r"(?:connect-[a-z0-9-]+|consumer|producer|server|broker|controller|reconfig-server|zookeeper|(?:tools-)?log4j2?)"
    r"\.(?:properties|yaml)|trogdor\.conf|LICENSE|NOTICE|.*\.(?:jar|sh)"
)
"""What archives of Kafka have in `config`, in one release or another, and programs."""


def read_class_files(commands: HostCommands, node: NodeSpec, arguments: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the files, and which folder cannot be listed, a sentence; empty without one. `arguments`: of the process.

    The paths are in the input of the shell. Needs no right.
    """
    service = service_of(node)
    folders = [one for one in dict.fromkeys(_folders(arguments)) if f"{one}/".startswith(f"{service.symlink}/")]
    text = "".join(f"{one}\n" for one in folders if one.isprintable())
    lines = commands.shell.run(service.host, _EACH, text=text).out.splitlines() if text else []
    files = (line.removeprefix("file ") for line in lines if line.startswith("file "))
    closed = [line.removeprefix("closed ") for line in lines if line.startswith("closed ")]
    problem = (
        f"The SSH user cannot list {', '.join(closed)} in the class path on host {service.host}." if closed else ""
    )
    return tuple(one for one in files if not _OF_ARCHIVE.fullmatch(one.rpartition("/")[2])), problem


def _folders(arguments: Sequence[str]) -> Iterator[str]:
    for option, value in pairwise(arguments):
        if option in class_path.OPTIONS:
            yield from (one.rstrip("/") for one in value.split(":") if one.startswith("/") and not _JARS.fullmatch(one))
