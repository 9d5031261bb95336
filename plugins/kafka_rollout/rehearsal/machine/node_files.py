"""The files of a node that a rehearsal copies: metadata log, coordinator logs, and empty folders of other partitions.

A running node writes to these files. The copy of a segment can end in the middle of a batch: the node that starts on
it truncates it, as after a power cut. If a segment disappears (cleaner, retention), the folder is copied again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS, METADATA_LOG
from kafka_rollout.base.system.files import open_regular, read_regular, reading
from kafka_rollout.kafka.files import server_properties
from kafka_rollout.metadata_log.disk.folder import BOOTSTRAP, META, QUORUM_STATE, checkpoint_of
from kafka_rollout.model.config_providers import unresolved_settings
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.rehearsal.configuration import DIRECTORY_KEYS

CONFIG = "server.properties"
_PARTITION = re.compile(r"(.+)-(\d+)")  # folders of deleted, moving and stray partitions have a further ending
_PARTITION_METADATA = "partition.metadata"
_ALWAYS = (_PARTITION_METADATA, "leader-epoch-checkpoint")
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """The files of one node. `config`: its server.properties. `directories`: each directory in it → where it is read.

    The two paths are equal for a node of this machine; a backup is read elsewhere.
    """

    node: NodeSpec
    config: Mapping[str, str]
    directories: Mapping[str, Path]

    def size(self) -> tuple[int, int]:
        """Return the number of partition folders and the bytes that would be copied."""
        folders, size = 0, 0
        for path in self.directories.values():
            for folder, name in _partitions(path):
                folders += 1
                if name in COORDINATOR_TOPICS or folder.name == METADATA_LOG:
                    with reading(folder):
                        size += sum(file.stat().st_size for file in _copied(folder))
        return folders, size

    def cluster_id(self) -> str:
        """Return the cluster id in meta.properties.

        Raises UserError for directories of different clusters, or of another node.
        """
        found: dict[str, Path] = {}
        for path in self.directories.values():
            with reading(path):
                meta = server_properties.parse(read_regular(path / META))
            if meta.get("node.id") != str(self.node.node_id):
                raise UserError(
                    f"{path} belongs to node {meta.get('node.id')}, not to {self.node.name} ({self.node.node_id}).",
                    remedy="Name the directory of each node. Nothing was copied.",
                )
            found[meta.get("cluster.id", "")] = path
        return _only(found)

    def copy(self, home: Path, on_progress: Callable[[int], None]) -> dict[str, str]:
        """Copy the files into `home` and return each directory in the configuration → its copy.

        `on_progress` gets the number of copied partition folders from time to time.
        """
        copies: dict[str, str] = {}
        done = 0
        for number, (path, source) in enumerate(self.directories.items()):
            target = home / "data" / str(number)
            target.mkdir(parents=True)
            with reading(source):
                _copy(source / META, target / META)
                if (source / BOOTSTRAP).exists():
                    _copy(source / BOOTSTRAP, target / BOOTSTRAP)
                for folder, name in _partitions(source):
                    _copy_partition(folder, target / folder.name, whole=name in COORDINATOR_TOPICS)
                    done += 1
                    if done % 500 == 0:
                        on_progress(done)
            copies[path] = str(target)
        on_progress(done)
        return copies


def node_files(node: NodeSpec, config: Mapping[str, str], locate: Callable[[str], Path] = Path) -> NodeFiles:
    """Return the files of a node. `locate`: where a directory of the configuration is read."""
    if unknown := sorted(set(DIRECTORY_KEYS).intersection(unresolved_settings(config))):
        raise RefusedError(
            f"A config provider has {', '.join(unknown)} of {node.name}, so its directories are unknown.",
            remedy="Rehearse from a backup whose server.properties has the paths, or continue without a rehearsal.",
        )
    names = ",".join(config.get(key, "") for key in DIRECTORY_KEYS).split(",")
    paths = dict.fromkeys(path.strip() for path in names if path.strip())
    if not paths:
        raise UserError(
            f"The configuration of {node.name} contains no log.dirs.", remedy="Add log.dirs to its server.properties."
        )
    return NodeFiles(node=node, config=config, directories={path: locate(path) for path in paths})


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
    return _only({one.cluster_id(): next(iter(one.directories.values())) for one in files})


def _only(found: Mapping[str, Path]) -> str:
    if len(found) > 1:
        (first, a), (second, b) = list(found.items())[:2]
        raise UserError(
            f"{a} belongs to cluster {first}, and {b} to cluster {second}.",
            remedy="Name directories of one cluster. Nothing was copied.",
        )
    return next(iter(found))


def _partitions(directory: Path) -> Iterator[tuple[Path, str]]:
    """Yield each partition folder and its topic."""
    with reading(directory), os.scandir(directory) as entries:
        for entry in entries:
            match = _PARTITION.fullmatch(entry.name)
            if match is not None and entry.is_dir():
                yield Path(entry.path), match[1]


def _copied(folder: Path) -> list[Path]:
    """Return the files to copy of a log: segments, newest snapshot, quorum state; no indexes, which Kafka rebuilds."""
    with os.scandir(folder) as entries:
        files = [Path(entry.path) for entry in entries if entry.is_file()]
    found = [checkpoint for path in files if (checkpoint := checkpoint_of(path)) is not None]
    snapshots = sorted(found, key=lambda one: (one.end_offset, one.epoch))
    # One with end offset 0 has the voters with which a dynamic quorum was formatted.
    kept = {one.path for one in (*snapshots[-1:], *(one for one in snapshots if one.end_offset == 0))}
    names = {*_ALWAYS, QUORUM_STATE}
    return sorted(path for path in files if path.suffix == ".log" or path.name in names or path in kept)


def _copy_partition(folder: Path, target: Path, *, whole: bool) -> None:
    if not (whole or folder.name == METADATA_LOG):
        target.mkdir()
        metadata = folder / _PARTITION_METADATA
        if metadata.exists():
            _copy(metadata, target / _PARTITION_METADATA)
        return
    for _ in range(_TRIES):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        try:
            files = _copied(folder)
            for file in files:
                _copy(file, target / file.name)
            if {file.name for file in files} <= {file.name for file in _copied(folder)}:
                return
        except FileNotFoundError:
            continue
    raise TransientError(
        f"{folder} changed during each of {_TRIES} attempts to copy it.", remedy="Repeat the rehearsal later."
    )


def _copy(source: Path, target: Path) -> None:
    """Copy a file without waiting for the disk: the copy is not needed after a power cut."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as write, os.fdopen(open_regular(source), "rb") as read:
        shutil.copyfileobj(read, write, 1 << 20)
