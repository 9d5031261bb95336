"""The files of a node that a rehearsal copies: metadata log, coordinator logs, and empty folders of other partitions.

A running node writes to these files. The copy of a segment can end in the middle of a batch: the node that starts on
it truncates it, as after a power cut. If a segment disappears (cleaner, retention), the folder is copied again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS, METADATA_LOG
from kafka_rollout.base.system.files import open_regular, read_regular, reading
from kafka_rollout.base.wording import size as size_text
from kafka_rollout.formats.checkpoint_files import LEADER_EPOCHS
from kafka_rollout.formats.files import server_properties
from kafka_rollout.formats.log_files import CLEANED, SWAP
from kafka_rollout.metadata_log.disk.folder import META, QUORUM_STATE, checkpoint_of
from kafka_rollout.model.configs import unresolved_settings
from kafka_rollout.model.host_state import BOOTSTRAP
from kafka_rollout.model.log_directories import PARTITION, log_directories, obeyed_keys
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import (
    LIST_S,
    MISSING,
    HostCommands,
    limit_sink,
    rights_of,
    service_of,
    transfer_s,
)
from kafka_rollout.nodes.runtimes.hosts.rights import HostRight, MetadataRights, RehearsalRights

CONFIG = "server.properties"
PARTITION_METADATA = "partition.metadata"
_ALWAYS = (PARTITION_METADATA, LEADER_EPOCHS)
_SEGMENTS = (".log", f".log{SWAP}", f".log{CLEANED}")
_TRIES = 5


@dataclass(frozen=True, slots=True)
class FilesHere:
    """Where the files of a node are read. `directory`: a log directory. Names are below it."""

    def folders(self, directory: Path) -> Mapping[str, Mapping[str, int]]:
        """Return each partition folder → the sizes in bytes of the files of its log, by name. A rehearsal has no folder
        and no file with another name: planning/findings/log_folders.py judges them.

        The files of a folder that is copied empty can be missing.
        """
        with reading(directory), os.scandir(directory) as entries:
            names = [entry.name for entry in entries if PARTITION.fullmatch(entry.name) and entry.is_dir()]
            return {name: _sizes(directory / name) if is_copied(name) else {} for name in names}

    def partition_metadata(self, directory: Path, folders: Collection[str]) -> Mapping[str, bytes]:
        """Return folder → content of partition.metadata, as far as it exists."""
        paths = {name: directory / name / PARTITION_METADATA for name in folders}
        return {name: read_regular(path) for name, path in paths.items() if path.exists()}

    def read(self, directory: Path, name: str) -> bytes:
        """Return meta.properties or bootstrap.checkpoint. Raises FileNotFoundError if it does not exist."""
        return read_regular(directory / name)

    def fetch(self, directory: Path, name: str, size: int, target: Path) -> None:
        """Copy a file to a new one with mode 0600. Raises FileNotFoundError if the node has removed it."""
        with os.fdopen(open_regular(directory / name), "rb") as read, new_file(target) as write:
            shutil.copyfileobj(read, write, 1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """The files of one node.

    The two paths are equal for a running node; a backup is read elsewhere.
    """

    node: NodeSpec
    config: Mapping[str, str]
    """Its server.properties."""
    directories: Mapping[str, Path]
    """Each directory in it → where it is read."""
    source: FilesHere | HostFiles = field(default_factory=FilesHere)

    def size(self) -> tuple[int, int]:
        """Return the number of partition folders and the bytes that would be copied."""
        of_each = [self.source.folders(path) for path in self.directories.values()]
        copied = (files[name] for folders in of_each for files in folders.values() for name in _copied(files))
        return sum(map(len, of_each)), sum(copied)

    def cluster_id(self) -> str:
        """Return the cluster id in meta.properties.

        Raises UserError for directories of different clusters, or of another node.
        """
        ids: dict[str, Path] = {}
        for path in self.directories.values():
            with reading(path):
                meta = server_properties.parse(self.source.read(path, META))
            if (node_id := server_properties.node_id_of(meta)) != self.node.node_id:
                of = "an unknown node" if node_id is None else f"node {node_id}"
                raise UserError(
                    f"{path} belongs to {of}, not to {self.node.name} ({self.node.node_id}).",
                    remedy="Name the directory of each node. Nothing was copied.",
                )
            ids[meta.get("cluster.id", "")] = path
        return _only(ids)

    def copy(self, home: Path, on_progress: Callable[[int], None]) -> dict[str, str]:
        """Copy the files into `home` and return each directory in the configuration → its copy.

        `on_progress` gets the number of copied partition folders from time to time.
        """
        copies: dict[str, str] = {}
        done = 0
        for number, (path, directory) in enumerate(self.directories.items()):
            target = home / "data" / str(number)
            target.mkdir(parents=True)
            with reading(directory):
                for folders in self._copy(directory, target):
                    done += folders
                    on_progress(done)
            copies[path] = str(target)
        return copies

    def _copy(self, directory: Path, target: Path) -> Iterator[int]:
        """Copy one directory. Yield numbers of partition folders that were copied."""
        _write(target / META, self.source.read(directory, META))
        folders = self.source.folders(directory)
        if METADATA_LOG in folders:
            with suppress(FileNotFoundError):
                _write(target / BOOTSTRAP, self.source.read(directory, BOOTSTRAP))
        logs = [name for name in folders if is_copied(name)]
        empty = folders.keys() - logs
        metadata = self.source.partition_metadata(directory, empty)
        for name in empty:
            (target / name).mkdir()
            if name in metadata:
                _write(target / name / PARTITION_METADATA, metadata[name])
        yield len(empty)
        yield from self._copy_logs(directory, target, logs, folders)

    def _copy_logs(
        self, directory: Path, target: Path, logs: Sequence[str], folders: Mapping[str, Mapping[str, int]]
    ) -> Iterator[int]:
        for _ in range(_TRIES):
            gone = set[str]()
            for name in logs:
                (target / name).mkdir(exist_ok=True)
                for copied in (target / name).iterdir():  # of the attempt before
                    copied.unlink()
                try:
                    for file in _copied(folders[name]):
                        self.source.fetch(directory, f"{name}/{file}", folders[name][file], target / name / file)
                except FileNotFoundError:
                    gone.add(name)
            before, folders = folders, self.source.folders(directory)
            changed = [
                name for name in logs if name in gone or not {*_copied(before[name])} <= folders.get(name, {}).keys()
            ]
            yield len(logs) - len(changed)
            logs = [name for name in changed if name in folders]
            if not logs:
                return
        raise TransientError(
            f"{directory / logs[0]} changed during each of {_TRIES} attempts to copy it.",
            remedy="Repeat the rehearsal later.",
        )


def node_files(
    node: NodeSpec,
    config: Mapping[str, str],
    locate: Callable[[str], Path] = Path,
    source: FilesHere | HostFiles | None = None,
) -> NodeFiles:
    """Return the files of a node. `locate`: where a directory of the configuration is read; default: its path."""
    if unknown := sorted(set(obeyed_keys(config)).intersection(unresolved_settings(config))):
        raise RefusedError(
            f"A config provider has {', '.join(unknown)} of {node.name}, so its directories are unknown.",
            remedy="Rehearse from a backup whose server.properties has the paths, or continue without a rehearsal.",
        )
    paths = log_directories(config)
    if not paths:
        raise UserError(
            f"The configuration of {node.name} contains no log.dirs.", remedy="Add log.dirs to its server.properties."
        )
    directories = {path: locate(path) for path in paths}
    return NodeFiles(node=node, config=config, directories=directories, source=source or FilesHere())


def backup_files(node: NodeSpec, backup: Path) -> NodeFiles:
    """Return the files of a node in a backup: `<backup>/<node name>/` is a copy of its home.

    A log directory outside of the home is at its full path below that folder (as `rsync --relative` copies it). Raises
    UserError if there is no server.properties.
    """
    home = backup / node.name
    config_file = home / CONFIG
    if not config_file.is_file():
        raise UserError(
            f"The backup has no {config_file}.", remedy="Copy the home of every node into a folder with its name."
        )
    real = Path(node.directory) if node.directory else None

    def locate(path: str) -> Path:
        if real is not None and Path(path).is_relative_to(real):
            return home / Path(path).relative_to(real)
        return home / path.lstrip("/")

    return node_files(node, server_properties.parse(read_regular(config_file)), locate)


def backup_release(node: NodeSpec, backup: Path) -> str | None:
    """Return the release in a node's backup; None without the file of the runtime local_process."""
    path = backup / node.name / "release"
    return read_regular(path).decode().strip() if path.is_file() else None


def same_cluster(files: Sequence[NodeFiles]) -> str:
    """Return the cluster id of all nodes. Raises UserError for copies of different clusters."""
    return _only({of_node.cluster_id(): next(iter(of_node.directories.values())) for of_node in files})


def _only(directories: Mapping[str, Path]) -> str:
    if len(directories) > 1:
        (first, a), (second, b) = list(directories.items())[:2]
        raise UserError(
            f"{a} belongs to cluster {first}, and {b} to cluster {second}.",
            remedy="Name directories of one cluster. Nothing was copied.",
        )
    return next(iter(directories))


def is_copied(folder: str) -> bool:
    """Return whether the log of a partition folder is copied; the folders of others are copied empty."""
    match = PARTITION.fullmatch(folder)
    return folder == METADATA_LOG or (match is not None and match[1] in COORDINATOR_TOPICS)


def new_file(path: Path) -> IO[bytes]:
    """Open a new file with mode 0600. It is not synced: the copy is not needed after a power cut."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _sizes(folder: Path) -> Mapping[str, int]:
    sizes = {}
    with reading(folder), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # the node has removed it
                if entry.is_file():
                    sizes[entry.name] = entry.stat().st_size
    return sizes


def _copied(files: Collection[str]) -> list[str]:
    """Return the files to copy of a log: segments, newest snapshot, quorum state; no indexes, which Kafka rebuilds.

    Segments include those between two renames of the log cleaner: the node of the copy decides about them as it starts.
    """
    checkpoints = [checkpoint for name in files if (checkpoint := checkpoint_of(Path(name))) is not None]
    snapshots = sorted(checkpoints, key=lambda one: (one.end_offset, one.epoch))
    # One with end offset 0 has the voters with which a dynamic quorum was formatted.
    kept = {one.path.name for one in (*snapshots[-1:], *(one for one in snapshots if one.end_offset == 0))}
    names = {*_ALWAYS, QUORUM_STATE, *kept}
    return sorted(name for name in files if name.endswith(_SEGMENTS) or name in names)


def _write(target: Path, content: bytes) -> None:
    with new_file(target) as file:
        file.write(content)


_NO_MATCH = 1  # exit code of find if that of grep is not 0: no file of one call has a topic id
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
    """As FilesHere, for a node with the runtime ssh_service: over SSH, file by file, as the user of the node.

    The commands are those of `RehearsalRights`, and some of a plan. A copy has limits of bytes and of time, because the
    user of the node can list other sizes than those of the files.
    """

    commands: HostCommands
    node: NodeSpec
    limit: CopyLimit
    """Shared by all nodes."""

    def folders(self, directory: Path) -> Mapping[str, Mapping[str, int]]:
        right = self._rights(directory).list_files
        listed = list(self.commands.list_directory(self.node, right, str(directory)))
        if not any((kind, name, file) == ("f", META, "") for kind, _, name, file, _ in listed):
            raise TransientError(
                f"The list of {directory} on host {service_of(self.node).host} does not contain {META}, which each log "
                "directory has.",
                remedy="Check the mount and the rights of the directory, then repeat the rehearsal.",
            )
        sizes: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for kind, size, folder, file, _ in listed:
            if PARTITION.fullmatch(folder) is None:
                continue
            if kind == "d" and not file:
                sizes[folder].update()
            elif kind == "f" and file and is_copied(folder):
                sizes[folder][file] = size
        return sizes

    def partition_metadata(self, directory: Path, folders: Collection[str]) -> Mapping[str, bytes]:
        """Return what Kafka writes (PartitionMetadataFile): the version 0 and the topic id."""
        right = self._rights(directory).topic_ids
        done = self.commands.sudo(self.node, right, within_s=LIST_S)
        self.commands.refuse_missing_right(self.node, right, done)
        if "find: " in done.err or done.code not in (0, _NO_MATCH):
            self.commands.expect_listed(self.node, right, done, str(directory))
        line = re.compile(rf"{re.escape(str(directory))}/([^/]+)/{re.escape(PARTITION_METADATA)}:(topic_id: \S+)")
        topic_ids = {match[1]: match[2] for match in filter(None, map(line.fullmatch, done.out.splitlines()))}
        return {name: f"version: 0\n{topic_ids[name]}\n".encode() for name in folders if name in topic_ids}

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
        right: HostRight,
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
