"""The SELinux types of what a start executes and loads, in the folders of releases. No command needs a right.

A file keeps its label when it is moved, so a release that was unpacked in a home folder has the types of this folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.releases.facts import Release

FILES = ("bin/kafka-server-start.sh", "bin/kafka-run-class.sh", "libs")
_ENFORCED = 'test "$(cat /sys/fs/selinux/enforce 2>/dev/null)" = 1 || exit 0'


def read_labels(
    commands: HostCommands, node: NodeSpec, folders: Mapping[Release, str]
) -> dict[Release | None, dict[str, str]]:
    """Return file → type, of each release that is on the host and of the link (None); nothing if SELinux refuses
    nothing there."""
    service = service_of(node)
    if service.package is not None:
        return {}
    homes: dict[str, Release | None] = {folder: release for release, folder in folders.items()}
    homes[service.symlink] = None
    words = " ".join(f"{home}/{file}" for home in homes for file in FILES)
    lines = commands.run(node, f"{_ENFORCED}; stat -L -c '%C %n' {words} 2>/dev/null").out.splitlines()
    found: dict[Release | None, dict[str, str]] = {}
    for label, _, path in (line.partition(" ") for line in lines):
        home = next((one for one in homes if path.startswith(f"{one}/")), None)
        if home is not None and label.count(":") >= 2:
            found.setdefault(homes[home], {})[path.removeprefix(f"{home}/")] = label.split(":")[2]
    return found
