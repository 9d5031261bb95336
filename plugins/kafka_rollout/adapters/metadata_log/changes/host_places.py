"""Metadata directories on hosts that are reached by SSH: read through a copy on this machine, changed on the host.

A change is made on the host first, then in the copy. A killed run loses only the copy: the next one reads the host
again. Copies here have mode 0600 in a folder with mode 0700.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.adapters.metadata_log.changes.backup import MANIFEST, Files
from kafka_rollout.adapters.metadata_log.changes.places import COPY_TRIES, Place, paths_shown, start_files, too_fast
from kafka_rollout.adapters.metadata_log.disk.folder import MetadataFolder
from kafka_rollout.adapters.runtimes.hosts.directory import Entry, HostDirectory
from kafka_rollout.adapters.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.adapters.system.files import sha256_of
from kafka_rollout.domain.model.cluster.topology import NodeSpec
from kafka_rollout.domain.model.errors import FatalError, RefusedError, TransientError
from kafka_rollout.domain.model.internal_topics import METADATA_LOG


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
                yield Place(root=root, path=directory.path, files=HostFiles(directory, root, entries))


@dataclass
class HostFiles(Files):
    """Changes on a host. `root`: the copy of the directory, which is changed in the same way. `seen`: at its time."""

    directory: HostDirectory
    root: Path
    seen: tuple[Entry, ...]

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
        rights, to = self.directory.rights, self._name(target)
        if source.is_relative_to(self.root) and position == 0 and like in (None, source):
            self.directory.change((rights.copy, {"file": self._name(source), "to": to}))
        else:
            self._upload(source.read_bytes()[position:], to, like=like or source)
        self._finish(to, sha256_of(source, position))
        super().copy(source, target, position=position, like=like)

    def write(self, target: Path, text: str, *, like: Path) -> None:
        content, to = text.encode(), self._name(target)
        self._upload(content, to, like=like)
        self._finish(to, hashlib.sha256(content).hexdigest())
        super().write(target, text, like=like)

    def make_folder(self, path: Path) -> None:
        self.directory.change((self.directory.rights.make_folder, {"backup": path.name}))
        super().make_folder(path)

    def remove(self, path: Path) -> None:
        self.directory.change((self.directory.rights.remove, {"to": self._name(path)}))
        super().remove(path)

    def remove_folder(self, path: Path) -> None:
        """Remove the manifest first: without it the backup is incomplete."""
        rights = self.directory.rights
        self.directory.change(
            (rights.remove, {"to": self._name(path / MANIFEST)}),
            (rights.sync, {"place": f"/{self._name(path)}"}),
            (rights.remove_folder, {"backup": path.name}),
        )
        shutil.rmtree(path)

    def sync(self, folder: Path) -> None:
        place = "" if folder == self.root else f"/{self._name(folder)}"
        self.directory.change((self.directory.rights.sync, {"place": place}))

    def _upload(self, content: bytes, to: str, *, like: Path) -> None:
        """Write a draft that has the rights of a file from its first byte on."""
        rights = self.directory.rights
        take = (rights.take_rights, {"file": self._name(like), "to": to})
        self.directory.change(take, (rights.write, {"to": to}), data=content)

    def _finish(self, to: str, sha256: str) -> None:
        """Give a draft that was written whole its name."""
        rights = self.directory.rights
        done = self.directory.change((rights.digest, {"file": to}))
        if done.out.split()[:1] != [sha256]:
            raise FatalError(
                f"The copy of {to} in {self.directory.path} differs from its source.",
                remedy="Check the disk of the host.",
            )
        draft = {"place": f"/{to}.kafka-rollout"}
        self.directory.change((rights.sync, draft), (rights.rename, {"to": to}))

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
