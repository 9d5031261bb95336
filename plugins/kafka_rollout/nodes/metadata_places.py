"""Metadata directories on hosts that are reached by SSH: read through a copy on this machine, changed on the host.

A change is made on the host first, then in the copy. A killed run loses only the copy: the next one reads the host
again. Copies here have mode 0600 in a folder with mode 0700.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.system.files import sha256_of
from kafka_rollout.base.system.own_folders import remove_files_of
from kafka_rollout.metadata_log.changes.places import (
    COPY_TRIES,
    MANIFEST,
    DiskChanges,
    Place,
    paths_shown,
    start_files,
    too_fast,
)
from kafka_rollout.metadata_log.disk.folder import MetadataFolder
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import Entry, HostDirectory
from kafka_rollout.nodes.runtimes.hosts.rights import DRAFT, HostRight
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime

_BATCH_BYTES = 32 << 20  # copied by one command line; a larger file has a line of its own
_LINE_CHARACTERS = 64 << 10  # Linux limits a command line of a shell to 128 KiB
_FILE_CHARACTERS = 1300  # of the commands that copy one file, without the path of the directory
_Step = tuple[HostRight, dict[str, str]]


@dataclass(frozen=True, slots=True)
class HostPlaces:
    """Directories of nodes with the runtime ssh_service."""

    runtime: SshServiceRuntime

    def copy(self, node: NodeSpec) -> AbstractContextManager[Place]:
        return self._mirrored(node, start_only=True)

    def in_place(self, node: NodeSpec) -> AbstractContextManager[Place]:
        return self._mirrored(node, start_only=False)

    def sizes(self, node: NodeSpec) -> Mapping[str, int]:
        files = {Path(entry.name): entry.size for entry in self._directory(node).entries() if not entry.is_folder}
        return {path.name: size for path, size in files.items() if path.parent.name == METADATA_LOG}

    def free_bytes(self, node: NodeSpec) -> int:
        return self._directory(node).free_bytes()

    def _directory(self, node: NodeSpec) -> HostDirectory:
        directory = self.runtime.metadata_log_dir(node)
        if directory is None:
            raise RefusedError(
                f"A config provider has the path of the metadata log of {node.name}, so it cannot be read.",
                remedy="Set metadata.log.dir of the node to the path.",
            )
        return HostDirectory(self.runtime, node, str(directory))

    @contextmanager
    def _mirrored(self, node: NodeSpec, *, start_only: bool) -> Iterator[Place]:
        directory = self._directory(node)
        with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
            for attempt in range(COPY_TRIES):
                root = Path(name) / str(attempt)
                entries = directory.entries()
                try:
                    _fetch(directory, entries, root, start_only=start_only)
                except FileNotFoundError:
                    continue
                break
            else:
                raise too_fast(f"{directory.path}/{METADATA_LOG}")
            with paths_shown(root, directory.path):
                yield Place(root=root, path=directory.path, files=HostDiskChanges(directory, root, entries))


@dataclass
class HostDiskChanges(DiskChanges):
    """Changes on a host.

    A command line with several changes needs one round trip. It also syncs the folders that it changes (`synced`).
    """

    directory: HostDirectory
    root: Path
    """The copy of the directory, which is changed in the same way."""
    seen: tuple[Entry, ...]
    """At its time."""
    synced: set[Path] = field(default_factory=set)

    @contextmanager
    def stopped(self, folder: MetadataFolder) -> Iterator[None]:
        """Raise UserError while the unit runs; each change checks this again on the host."""
        self.directory.refuse_running()
        if self.directory.entries() != self.seen:
            raise TransientError(
                f"The files in {folder.log} have changed since they were read.", remedy="Repeat the step."
            )
        yield

    def free_bytes(self, folder: Path) -> int:
        return self.directory.free_bytes()

    def copy(self, source: Path, target: Path, *, position: int = 0, like: Path | None = None) -> None:
        if source.is_relative_to(self.root) and position == 0 and like in (None, source):
            self.copy_all([(source, target)])
        else:
            self._upload(source.read_bytes()[position:], target, like=like or source)
            super().copy(source, target, position=position, like=like)

    def copy_all(self, copies: Iterable[tuple[Path, Path]]) -> None:
        """As `copy`, in few command lines. The sources are in the directory."""
        rights = self.directory.rights
        for batch in self._batches(copies):
            names = [(self._name(source), self._name(target)) for source, target in batch]
            sha256 = [sha256_of(source) for source, _ in batch]
            self._change(
                *((rights.copy, {"file": name, "to": to}) for name, to in names),
                *self._finish([to for _, to in names], sha256),
                folders=[target.parent for _, target in batch],
                size=sum(source.stat().st_size for source, _ in batch),
            )
            for source, target in batch:
                super().copy(source, target)

    def write(self, target: Path, text: str, *, like: Path) -> None:
        self._upload(text.encode(), target, like=like)
        super().write(target, text, like=like)

    def make_folder(self, path: Path) -> None:
        self._change((self.directory.rights.make_folder, {"backup": path.name}), folders=[path.parent])
        super().make_folder(path)

    def remove(self, path: Path) -> None:
        self.remove_all([path])

    def remove_all(self, paths: Iterable[Path]) -> None:
        wanted, right = list(paths), self.directory.rights.remove
        for at in range(0, len(wanted), self._most):
            batch = wanted[at : at + self._most]
            steps = ((right, {"to": self._name(path)}) for path in batch)
            self._change(*steps, folders=[path.parent for path in batch])
            for path in batch:
                super().remove(path)

    def remove_folder(self, path: Path) -> None:
        """Remove the manifest first: without it the backup is incomplete."""
        rights = self.directory.rights
        self._change(
            (rights.remove, {"to": self._name(path / MANIFEST)}),
            self._sync_of(path),
            (rights.remove_folder, {"backup": path.name}),
            folders=[path.parent],
        )
        self.synced.discard(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            remove_files_of(descriptor)
        finally:
            os.close(descriptor)
        path.rmdir()

    def sync(self, folder: Path) -> None:
        """Nothing to do after a change by this object. An interrupted one before can have left a folder unsynced."""
        if folder not in self.synced:
            self._change(folders=[folder])

    def _upload(self, content: bytes, target: Path, *, like: Path) -> None:
        """Write a file whose draft has the rights of `like` from its first byte on."""
        rights, to = self.directory.rights, self._name(target)
        self._change(
            (rights.take_rights, {"file": self._name(like), "to": to}),
            (rights.write, {"to": to}),
            *self._finish([to], [hashlib.sha256(content).hexdigest()]),
            folders=[target.parent],
            data=content,
            size=len(content),
        )

    def _finish(self, names: list[str], sha256: list[str]) -> list[_Step]:
        """Give drafts their names, after the host has compared all of them with their sources."""
        rights = self.directory.rights
        steps = [(rights.digest, {"file": to, "sha256": digest}) for to, digest in zip(names, sha256, strict=True)]
        for to in names:
            steps += [(rights.sync, {"place": f"/{to}{DRAFT}"}), (rights.rename, {"to": to})]
        return steps

    def _change(self, *steps: _Step, folders: Iterable[Path], data: bytes | None = None, size: int = 0) -> None:
        """Run commands and then sync the folders, in one command line."""
        changed = dict.fromkeys(folders)
        self.synced.difference_update(changed)
        self.directory.change(*steps, *(self._sync_of(folder) for folder in changed), data=data, size=size)
        self.synced.update(changed)

    def _sync_of(self, folder: Path) -> _Step:
        return self.directory.rights.sync, {"place": "" if folder == self.root else f"/{self._name(folder)}"}

    def _batches(self, copies: Iterable[tuple[Path, Path]]) -> Iterator[list[tuple[Path, Path]]]:
        """Split copies for command lines of bounded length, which take a time far below CHANGE_WITHIN_S."""
        batch: list[tuple[Path, Path]] = []
        left = _BATCH_BYTES
        for copy in copies:
            size = copy[0].stat().st_size
            if batch and (size > left or len(batch) == self._most):
                yield batch
                batch, left = [], _BATCH_BYTES
            batch.append(copy)
            left -= size
        if batch:
            yield batch

    @property
    def _most(self) -> int:
        """Files in one command line. Each path of a file is in it up to 7 times."""
        return max(1, _LINE_CHARACTERS // (_FILE_CHARACTERS + 7 * len(self.directory.path)))

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root))


def _fetch(directory: HostDirectory, entries: tuple[Entry, ...], root: Path, *, start_only: bool) -> None:
    """Copy files to `root`, snapshots before the log. `start_only`: without indexes and backups.

    Raises FileNotFoundError if the node has removed one.
    """
    root.mkdir(mode=0o700)
    for entry in entries:
        if entry.is_folder:
            (root / entry.name).mkdir(mode=0o700)
    sizes = {entry.name: entry.size for entry in entries if not entry.is_folder}
    names = start_files([name for name in sizes if name.count("/") < 2])
    names += [] if start_only else [name for name in sizes if name not in names]
    for name in names:
        descriptor = os.open(root / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            directory.read(name, sizes[name], file.write)
