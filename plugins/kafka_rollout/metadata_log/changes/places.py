"""The metadata directories of nodes, as folders that this process can read, and the changes of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError
from kafka_rollout.base.fence import Fence, unfenced
from kafka_rollout.base.system.files import reading
from kafka_rollout.metadata_log.changes.backup import Files
from kafka_rollout.metadata_log.disk.folder import BOOTSTRAP, META, MetadataFolder, open_folder
from kafka_rollout.model.topology import NodeSpec

COPY_TRIES = 5
_NOT_COPIED = (".index", ".timeindex", ".txnindex", ".snapshot", ".deleted")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node's directory. `root`: the folder to read here. `path`: the directory on the node's host. `files`: changes
    it."""

    root: Path
    path: str
    files: Files

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
    """Directories on this machine. `directory_of`: NodeRuntime.metadata_log_dir. `fence`: of each change."""

    directory_of: Callable[[NodeSpec], Path | None]
    fence: Fence = unfenced

    @contextmanager
    def copy(self, node: NodeSpec) -> Iterator[Place]:
        original = open_folder(self._directory(node))
        with temporary_copy(original) as folder, paths_shown(folder.root, str(original.root)):
            yield Place(root=folder.root, path=str(original.root), files=Files())

    @contextmanager
    def in_place(self, node: NodeSpec) -> Iterator[Place]:
        directory = self._directory(node)
        yield Place(root=directory, path=str(directory), files=Files(fence=self.fence))

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

    Snapshots are copied first, because the log never begins after the newest snapshot. Raises TransientError if the
    node removes files faster than they are copied.
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
    """Return those of some files that a node reads at its start, snapshots first."""
    copied = [name for name in names if not name.endswith(_NOT_COPIED)]
    return sorted(copied, key=lambda name: (not name.endswith(".checkpoint"), name))


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
