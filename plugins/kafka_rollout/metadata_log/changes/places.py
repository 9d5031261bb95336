"""The metadata directories of nodes, as folders that this process can read, and the changes of them.

A change can be killed at any time: files are whole, and a backup has a manifest. A backup is a folder inside the folder
of the log, which Kafka ignores. (A broker does not start with an unknown folder next to the log.) It has copies of
every file that is removed or changed. The manifest is written last, when all copies are on disk; a backup without a
manifest is incomplete and is not used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self, TypeVar, cast

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.lease import Fence, unfenced
from kafka_rollout.base.system.files import (
    give_to_owner,
    open_regular,
    read_regular,
    reading,
    sha256_of,
    sync_folder,
    take_rights,
)
from kafka_rollout.base.system.own_folders import remove_files_of
from kafka_rollout.formats.log_files import MAYBE_SEGMENT
from kafka_rollout.metadata_log.disk.folder import META, MetadataFolder, open_folder, stopped_node
from kafka_rollout.metadata_log.metadata_scan import space_for_backup
from kafka_rollout.model.host_state import BOOTSTRAP
from kafka_rollout.model.topology import NodeSpec

MANIFEST = "manifest.json"
_DRAFT = ".kafka-rollout"
_END_OF_NAME = re.compile(r"\d{20}(-\d{10})?")  # of a backup: an offset and an epoch
_ROOT = 0


@dataclass
class DiskChanges:
    """Every change of a node's disk, and what a change must know of it.

    Tests replace it by one that ends the process at a chosen change, hosts by one that changes their files too.
    """

    fence: Fence = field(default=unfenced, kw_only=True)
    """Checked right before each change."""

    def stopped(self, folder: MetadataFolder) -> AbstractContextManager[None]:
        """Keep the node stopped during the block. Raises UserError while it runs."""
        return stopped_node(folder)

    def free_bytes(self, folder: Path) -> int:
        return shutil.disk_usage(folder).free

    def copy(self, source: Path, target: Path, *, position: int = 0, like: Path | None = None) -> None:
        """Copy a file from a byte on, whole or not at all, with the owner and rights of the source or of `like`."""
        with (
            os.fdopen(open_regular(source, follow_links=False), "rb") as read,
            _draft(target, like or source, self.fence) as write,
        ):
            read.seek(position)
            shutil.copyfileobj(read, write, 1 << 20)

    def copy_all(self, copies: Iterable[tuple[Path, Path]]) -> None:
        """Copy files in this order: source, target."""
        for source, target in copies:
            self.copy(source, target)

    def write(self, target: Path, text: str, *, like: Path) -> None:
        with _draft(target, like, self.fence) as file:
            file.write(text.encode())

    def make_folder(self, path: Path) -> None:
        """Make a folder that only the owner of its parent can read: the files in it hold password verifiers."""
        self.fence()
        with _folder_of(path) as parent:
            os.mkdir(path.name, mode=0o700, dir_fd=parent)
            with _opened_folder(path.name, parent) as folder:
                give_to_owner(folder, os.fstat(parent), path)

    def remove(self, path: Path) -> None:
        self.fence()
        with _folder_of(path) as parent, suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=parent)

    def remove_all(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self.remove(path)

    def remove_folder(self, path: Path) -> None:
        """Remove the manifest first: without it the backup is incomplete."""
        self.remove(path / MANIFEST)
        self.sync(path)
        self.fence()
        with _folder_of(path) as parent:
            with _opened_folder(path.name, parent) as folder:
                remove_files_of(folder)
            os.rmdir(path.name, dir_fd=parent)

    def sync(self, folder: Path) -> None:
        sync_folder(folder)


HERE = DiskChanges()
"""Changes on this machine without a fence."""

COPY_TRIES = 5
_NOT_COPIED = (".index", ".timeindex", ".txnindex", ".snapshot", ".deleted")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node's directory."""

    root: Path
    """The folder to read here."""
    path: str
    """The directory on the node's host."""
    files: DiskChanges
    """Changes it."""

    def folder(self, cluster_id: str | None = None) -> MetadataFolder:
        """Open the metadata log; errors as `open_folder`."""
        return open_folder(self.root, cluster_id=cluster_id)

    def shown(self, result: _T) -> _T:
        """Return a result with paths on the node's host."""
        return cast(_T, _with_paths(result, str(self.root), self.path))


class Places(Protocol):
    """The directories of a cluster's nodes. Errors inside a block show the paths on the node's host."""

    def copy(self, node: NodeSpec) -> AbstractContextManager[Place]:
        """A copy of the files that a node reads at its start; the node can run. Raises TransientError if the node
        removes files faster than they are copied."""
        ...

    def in_place(self, node: NodeSpec) -> AbstractContextManager[Place]:
        """All files of the metadata log. What `files` changes in `root` it changes on the node's host first."""
        ...

    def sizes(self, node: NodeSpec) -> Mapping[str, int]:
        """Name → bytes of the files in the folder of the log."""
        ...

    def free_bytes(self, node: NodeSpec) -> int:
        """Free bytes of the file system of the log."""
        ...


@dataclass(frozen=True, slots=True)
class LocalPlaces:
    """Directories on this machine."""

    directory_of: Callable[[NodeSpec], Path | None]
    """NodeRuntime.metadata_log_dir."""
    fence: Fence = unfenced
    """Of each change."""

    @contextmanager
    def copy(self, node: NodeSpec) -> Iterator[Place]:
        original = open_folder(self._directory(node))
        with temporary_copy(original) as folder, paths_shown(folder.root, str(original.root)):
            yield Place(root=folder.root, path=str(original.root), files=DiskChanges())

    @contextmanager
    def in_place(self, node: NodeSpec) -> Iterator[Place]:
        directory = self._directory(node)
        yield Place(root=directory, path=str(directory), files=DiskChanges(fence=self.fence))

    def sizes(self, node: NodeSpec) -> Mapping[str, int]:
        log = open_folder(self._directory(node)).log
        with reading(log):
            return {path.name: path.stat().st_size for path in log.iterdir()}

    def free_bytes(self, node: NodeSpec) -> int:
        return shutil.disk_usage(self._directory(node)).free

    def _directory(self, node: NodeSpec) -> Path:
        directory = self.directory_of(node)
        if directory is None:
            raise RefusedError(
                f"The files on node {node.node_id} cannot be read from here.",
                remedy="Use `kafka-rollout metadata` on its host.",
            )
        return directory


@contextmanager
def temporary_copy(folder: MetadataFolder) -> Iterator[MetadataFolder]:
    """Copy the files that a node reads at its start to a folder with mode 0700: they contain password verifiers.

    Snapshots are copied first, because the log never begins after the newest snapshot, and segments last, because the
    log never ends before what the other files say. Raises TransientError if the node removes files faster than they are
    copied.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        for attempt in range(COPY_TRIES):
            root = Path(name) / str(attempt)
            with reading(folder.log):
                if _copy(folder, root):
                    break
        else:
            raise too_fast(str(folder.log))
        yield open_folder(root)


def start_files(names: Iterable[str]) -> list[str]:
    """Return those of some files that a node reads at its start, snapshots first and segments last."""
    copied = [name for name in names if not name.endswith(_NOT_COPIED)]
    return sorted(
        copied, key=lambda name: (not name.endswith(".checkpoint"), MAYBE_SEGMENT.search(name) is not None, name)
    )


def too_fast(log: str) -> TransientError:
    return TransientError(f"The files in {log} change faster than they can be copied.")


@contextmanager
def paths_shown(root: Path, path: str) -> Iterator[None]:
    """Show the paths on the node's host in the errors of a block."""
    try:
        yield
    except RolloutError as error:
        error.sentence, error.remedy = (text.replace(str(root), path) for text in (error.sentence, error.remedy))
        error.args = (error.sentence,)
        raise


def _copy(folder: MetadataFolder, root: Path) -> bool:
    """Return whether every file still existed when it was copied."""
    log = root / folder.log.name
    log.mkdir(parents=True)
    for name in (META, BOOTSTRAP):
        if (folder.root / name).is_file():
            shutil.copy2(folder.root / name, root / name)
    for name in start_files(path.name for path in folder.log.iterdir() if path.is_file()):
        try:
            shutil.copy2(folder.log / name, log / name)
        except FileNotFoundError:
            return False
    return True


def _with_paths(value: Any, root: str, path: str) -> Any:
    if type(value) is str:
        return value.replace(root, path)
    if isinstance(value, Path):
        return Path(str(value).replace(root, path))
    if isinstance(value, tuple):
        return tuple(_with_paths(one, root, path) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _with_paths(getattr(value, one.name), root, path) for one in fields(value)})
    return value


# The node's user owns the folder of a metadata log and can change every name in it at any time, while this process can
# run as root. So no name is followed that can be a link, and rights are set on the open file, not on its name.


@contextmanager
def _opened_folder(name: str | Path, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _folder_of(path: Path) -> AbstractContextManager[int]:
    """A descriptor of the folder that contains the path, which is not a link."""
    return _opened_folder(path.parent)


@contextmanager
def _draft(target: Path, like: Path, fence: Fence) -> Iterator[BinaryIO]:
    """A new file next to the target. At the end it gets the rights, owner and times of `like` and replaces the target.

    Until then only this process's user can read it. The fence is checked right before the target is replaced.

    Raises UserError if the folder belongs to another user than `like`: it was replaced by another folder. `like` can be
    a file of root in the folder of the node's user, because root often formats the directory. Such a file has one name:
    by a second name, the node's user could choose any file of root, with its mode.
    """
    draft = target.name + _DRAFT
    with _folder_of(target) as folder, os.fdopen(open_regular(like, follow_links=False), "rb") as example:
        of = os.fstat(example.fileno())
        is_of_root = of.st_uid == _ROOT and of.st_nlink == 1
        if os.fstat(folder).st_uid != of.st_uid and not is_of_root:
            raise UserError(
                f"{target.parent} does not belong to the owner of {like}.",
                remedy="Nothing was changed in it. Check the owners of the directory and its files.",
            )
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        created = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        with os.fdopen(created, "wb") as file:
            yield file
            file.flush()
            take_rights(created, example.fileno(), target)
            os.utime(created, ns=(of.st_atime_ns, of.st_mtime_ns))
            os.fsync(created)
        fence()
        os.rename(draft, target.name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Turn an error of the operating system during a change into a FatalError."""
    try:
        yield
    except OSError as error:
        raise FatalError(
            f"{error.filename or folder}: {error.strerror}.",
            remedy="Fix the cause, then repeat the command: it continues where it stopped.",
        ) from error


def _backups(log: Path, prefix: str) -> list[Path]:
    """Return the folders with exactly the name of a backup, in the order of their names: others are the operator's."""
    return [path for path in sorted(log.glob(f"{prefix}*")) if _END_OF_NAME.fullmatch(path.name.removeprefix(prefix))]


def remove_remains(log: Path, prefix: str, files: DiskChanges) -> bool:
    """Remove drafts and incomplete backups of an interrupted call; return whether there were any.

    `prefix`: of the backups' names.
    """
    drafts = [*log.glob(f"*{_DRAFT}"), *log.parent.glob(f"*{_DRAFT}")]
    backups = [path for path in _backups(log, prefix) if not (path / MANIFEST).exists()]
    files.remove_all(drafts)
    for path in backups:
        files.remove_folder(path)
    return bool(drafts or backups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A complete backup and its manifest."""

    folder: Path
    state: str
    """Of the change."""
    sha256: Mapping[str, str]
    """File name → hex digest before the change."""
    details: Mapping[str, Any]
    """The other entries."""

    @classmethod
    def all(cls, log: Path, prefix: str) -> list[Self]:
        """Return the backups in the folder of the log, in the order of their names. `prefix`: of their names."""
        found = []
        for folder in _backups(log, prefix):
            if not (folder / MANIFEST).exists():
                continue
            data = parse_json(read_regular(folder / MANIFEST))
            one = cls(folder=folder, state=data.pop("state"), sha256=data.pop("sha256"), details=data)
            found.append(one)
        return found

    @classmethod
    def newest(cls, log: Path, prefix: str) -> Self | None:
        """Return the backup with the last name."""
        return next(reversed(cls.all(log, prefix)), None)

    def check(self, names: Iterable[str]) -> None:
        """Raise FatalError if the copy of one of these files is missing or has another digest than the manifest."""
        for name in names:
            path = self.folder / name
            if not path.exists() or sha256_of(path) != self.sha256[name]:
                raise FatalError(
                    f"The backup file {path} is missing or was changed after the backup.",
                    remedy="This call changed nothing. Restore the file from another copy, then repeat the command.",
                )

    @property
    def example(self) -> Path:
        """A copy, for the owner and the rights of new files."""
        return self.folder / next(iter(self.sha256))

    def record(self, state: str, files: DiskChanges) -> Self:
        """Write the manifest with a new state."""
        data = {"state": state, **self.details, "sha256": dict(self.sha256)}
        files.write(self.folder / MANIFEST, json.dumps(data, indent=1), like=self.example)
        files.sync(self.folder)
        return replace(self, state=state)


def back_up(sources: Iterable[Path], backup: Path, files: DiskChanges) -> dict[str, str]:
    """Copy files into a new folder and compare each copy with its source; return file name → SHA-256 (hex).

    The caller writes the manifest.
    """
    wanted = list(sources)
    _check_space(files.free_bytes(backup.parent), backup.parent, wanted)
    if backup.exists():
        files.remove_folder(backup)
    files.make_folder(backup)
    files.copy_all((source, backup / source.name) for source in wanted)
    sha256 = {source.name: sha256_of(backup / source.name) for source in wanted}
    for source in wanted:
        if sha256_of(source) != sha256[source.name]:
            raise UserError(f"The copy of {source} differs from the file.", remedy="Check the disk.")
    return sha256


def _check_space(free: int, folder: Path, sources: Iterable[Path]) -> None:
    needed = space_for_backup(sum(path.stat().st_size for path in sources))
    if needed > free:
        raise RefusedError(
            f"The backup in {folder} needs up to {needed >> 20} MiB, but only {free >> 20} MiB are free.",
            remedy="Free disk space, then repeat the command.",
        )
