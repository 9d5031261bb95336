"""The files of a node on its host, which a rehearsal copies over SSH, file by file, as the user of the node.

The commands are those of `RehearsalRights`, and `cat` for the metadata log. A copy has limits of bytes and of time,
because the user of the node can list other sizes than those of the files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.wording import size as size_text
from kafka_rollout.metadata_log.disk.folder import BOOTSTRAP
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import (
    MISSING,
    HostCommands,
    limit_sink,
    rights_of,
    service_of,
    transfer_s,
)
from kafka_rollout.nodes.runtimes.hosts.rights import MetadataRights, RehearsalRights, Right
from kafka_rollout.rehearsal.machine.node_files import PARTITION, PARTITION_METADATA, is_copied, new_file

_ENTRY = re.compile(r"([df])/(\d+)/([^/]+)(?:/([^/]+))?")
_LIST_S = 300.0  # a directory with many partitions on a slow disk
_NO_MATCH, _VANISHED = 1, 2  # exit codes of grep: no file has a topic id; a file disappeared
MORE_BYTES = (
    "Set KAFKA_ROLLOUT_REHEARSE_GIB to a higher number, rehearse from a backup (rehearse --backup), or continue "
    "without a rehearsal."
)


@dataclass(slots=True, kw_only=True)
class CopyLimit:
    """What one rehearsal copies from all hosts: `most` bytes, in `within_s` seconds (`monotonic`) from now on.

    A file that is copied again counts again.
    """

    most: int
    within_s: float
    monotonic: Callable[[], float]
    began: float = field(init=False)
    copied: int = 0

    def __post_init__(self) -> None:
        self.began = self.monotonic()

    @property
    def is_over(self) -> bool:
        return self.monotonic() - self.began > self.within_s

    def add(self, number: int) -> None:
        self.copied += number
        if self.copied > self.most:
            raise RefusedError(f"The hosts sent more than the limit of {size_text(self.most)}.", remedy=MORE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFiles:
    """Source for the files of a node with the runtime ssh_service. `limit`: shared by all nodes."""

    commands: HostCommands
    node: NodeSpec
    limit: CopyLimit

    def folders(self, directory: Path) -> Mapping[str, Mapping[str, int]]:
        done = self.commands.sudo(self.node, self._rights(directory).list, within_s=_LIST_S)
        if MISSING not in done.err:  # a file disappeared while its folder was read
            self.commands.expect(self.node, self._rights(directory).list, done)
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for match in filter(None, map(_ENTRY.fullmatch, done.out.split("|"))):
            kind, size, folder, file = match.groups()
            if PARTITION.fullmatch(folder) is None:
                continue
            if kind == "d" and file is None:
                found[folder].update()
            elif kind == "f" and file is not None and is_copied(folder):
                found[folder][file] = int(size)
        return found

    def partition_metadata(self, directory: Path, folders: Collection[str]) -> Mapping[str, bytes]:
        """Return what Kafka writes (PartitionMetadataFile): the version 0 and the topic id."""
        right = self._rights(directory).topic_ids
        done = self.commands.sudo(self.node, right, within_s=_LIST_S)
        if done.code not in (_NO_MATCH, _VANISHED):
            self.commands.expect(self.node, right, done)
        self.commands.refuse_missing_right(self.node, right, done)
        line = re.compile(rf"{re.escape(str(directory))}/([^/]+)/{re.escape(PARTITION_METADATA)}:(topic_id: \S+)")
        found = {match[1]: match[2] for match in filter(None, map(line.fullmatch, done.out.splitlines()))}
        return {name: f"version: 0\n{found[name]}\n".encode() for name in folders if name in found}

    def read(self, directory: Path, name: str) -> bytes:
        right = (
            MetadataRights(self._user, str(directory)).read
            if name == BOOTSTRAP
            else rights_of(self.node).read_directory_id(str(directory))
        )
        return self._cat(right, f"{directory}/{name}", {"file": name}, 0)

    def fetch(self, directory: Path, name: str, size: int, target: Path) -> None:
        if self.limit.is_over:
            raise RefusedError(
                f"The files of {self.node.name} were not copied within {duration(self.limit.within_s)}.",
                remedy="Set KAFKA_ROLLOUT_REHEARSE_MINUTES to a higher number, or continue without a rehearsal.",
            )
        is_metadata = name.startswith(f"{METADATA_LOG}/")
        right = MetadataRights(self._user, str(directory)).read if is_metadata else self._rights(directory).read
        with new_file(target) as file:

            def write(data: bytes) -> None:
                self.limit.add(len(data))
                file.write(data)

            sink = limit_sink(write, self.node, f"{directory}/{name}", size)
            self._cat(right, f"{directory}/{name}", {"file" if is_metadata else "log": name}, size, sink)

    def _cat(
        self,
        right: Right,
        path: str,
        values: Mapping[str, object],
        size: int,
        sink: Callable[[bytes], object] | None = None,
    ) -> bytes:
        done = self.commands.sudo(self.node, right, sink=sink, within_s=transfer_s(size), **values)
        if MISSING in done.err:
            raise FileNotFoundError(path)
        self.commands.expect(self.node, right, done)
        return done.content

    def _rights(self, directory: Path) -> RehearsalRights:
        return RehearsalRights(self._user, str(directory))

    @property
    def _user(self) -> str:
        return service_of(self.node).user
