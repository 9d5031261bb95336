"""The metadata logs of nodes, by their directories.

Reads use a copy, because a running node writes and removes files at the same time. Changes are made in place.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_rollout.adapters.metadata_log.facts import known_releases
from kafka_rollout.adapters.metadata_log.folder import BOOTSTRAP, META, MetadataFolder, open_folder, stopped_node
from kafka_rollout.adapters.metadata_log.install import (
    install,
    is_installed,
    lower_bootstrap,
    refuse_used,
    replace_bootstrap,
    uninstall,
)
from kafka_rollout.adapters.metadata_log.loss_report import loss_report
from kafka_rollout.adapters.metadata_log.quorum import node_log
from kafka_rollout.adapters.metadata_log.scanner import scan_metadata_log
from kafka_rollout.adapters.metadata_log.snapshot import PreparedSnapshot, prepared_snapshot, write_snapshot
from kafka_rollout.adapters.metadata_log.trimmer import trim, undo_trim
from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.adapters.system.files import reading
from kafka_rollout.domain.metadata_log.losses import LossReport
from kafka_rollout.domain.metadata_log.scan import MetadataScan
from kafka_rollout.domain.metadata_log.trim import TrimResult
from kafka_rollout.domain.model.errors import TransientError, UserError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.offline.log_choice import NodeLog, UnreadableLogError, WrittenSnapshot

_TRIES = 5
_NOT_COPIED = (".index", ".timeindex", ".txnindex", ".snapshot", ".deleted")


@dataclass(frozen=True, slots=True)
class DirectoryMetadataLogs:
    """The port MetadataLogs on directories that this process can read."""

    cache: ReleaseCache

    def losses(self, directory: Path, to_level: int, *, cluster_id: str) -> LossReport:
        newest = known_releases(*self.cache.catalogue_folders)[-1]
        with temporary_copy(open_folder(directory, cluster_id=cluster_id)) as folder:
            return loss_report(folder, to_level, cache=self.cache, release=newest)

    def scan(
        self, directory: Path, release: Release, *, cluster_id: str, settings: Mapping[str, str] | None = None
    ) -> MetadataScan:
        original = open_folder(directory, cluster_id=cluster_id)
        with temporary_copy(original) as folder:
            found = scan_metadata_log(folder, release, cache=self.cache, settings=settings)
        remedies = tuple(remedy.replace(str(folder.root), str(original.root)) for remedy in found.remedies)
        return replace(found, directory=str(original.log), remedies=remedies)

    def trim(self, directory: Path, *, release: Release, cluster_id: str) -> TrimResult:
        return trim(open_folder(directory, cluster_id=cluster_id), release=release, cache=self.cache)

    def replace_bootstrap(self, directory: Path, *, level: int, release: Release, cluster_id: str) -> Path | None:
        return replace_bootstrap(
            open_folder(directory, cluster_id=cluster_id), level=level, target=release, cache=self.cache
        )

    def undo_trim(self, directory: Path, *, cluster_id: str) -> TrimResult:
        return undo_trim(open_folder(directory, cluster_id=cluster_id))

    def node_log(self, directory: Path, node_id: int, *, cluster_id: str) -> NodeLog:
        folder = _folder_in(directory, cluster_id)
        if folder.node_id not in (None, node_id):
            raise UserError(
                f"The metadata log in {folder.log} belongs to node {folder.node_id}, not to node {node_id}.",
                remedy="Correct the node's directory in the inventory.",
            )
        try:
            return node_log(folder, node_id)
        except UserError as error:
            raise UnreadableLogError(error.sentence, remedy=error.remedy) from error

    def log_bytes(self, directory: Path, *, cluster_id: str) -> int:
        folder = open_folder(directory, cluster_id=cluster_id)
        with reading(folder.log):
            # Without index files: they are allocated in advance and mostly empty.
            return sum(path.stat().st_size for path in (*folder.segments, *(c.path for c in folder.checkpoints)))

    def write_snapshot(
        self,
        directory: Path,
        out: Path,
        *,
        level: int,
        features: Mapping[str, int],
        epoch: int,
        target: Release,
        cluster_id: str,
    ) -> WrittenSnapshot:
        folder = open_folder(directory, cluster_id=cluster_id)
        with stopped_node(folder):
            return write_snapshot(
                folder,
                level,
                out,
                cache=self.cache,
                release=known_releases(*self.cache.catalogue_folders)[-1],
                target=target,
                features=features,
                epoch=epoch,
            )

    @contextmanager
    def prepared_snapshot(
        self, directory: Path, *, level: int, features: Mapping[str, int], target: Release, cluster_id: str
    ) -> Iterator[_Prepared]:
        original = open_folder(directory, cluster_id=cluster_id)
        with (
            temporary_copy(original) as folder,
            prepared_snapshot(
                folder,
                level,
                cache=self.cache,
                release=known_releases(*self.cache.catalogue_folders)[-1],
                target=target,
                features=features,
            ) as prepared,
        ):
            yield _Prepared(prepared, cluster_id)

    def prepare_install(self, directory: Path, out: Path, *, level: int, target: Release, cluster_id: str) -> None:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        lower_bootstrap(_folder_in(directory, cluster_id), out, level=level, target=target, cache=self.cache)

    def install(
        self,
        directory: Path,
        snapshot: Path,
        *,
        level: int,
        target: Release,
        cluster_id: str,
        candidate: bool = False,
    ) -> str:
        folder = _folder_in(directory, cluster_id)
        bootstrap = lower_bootstrap(folder, snapshot.parent, level=level, target=target, cache=self.cache)
        return install(folder, snapshot, bootstrap=bootstrap, candidate=candidate)

    def refuse_used(self, directory: Path, *, cluster_id: str) -> None:
        refuse_used(_folder_in(directory, cluster_id))

    def undo_install(self, directory: Path, *, cluster_id: str, keep_epoch: bool = False) -> str | None:
        folder = _folder_in(directory, cluster_id)
        return uninstall(folder, keep_epoch=keep_epoch) if is_installed(folder) else None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The port PreparedSnapshot on directories that this process can read."""

    prepared: PreparedSnapshot
    cluster_id: str

    def write(self, directory: Path, out: Path, *, epoch: int, end_offset: int) -> WrittenSnapshot:
        folder = open_folder(directory, cluster_id=self.cluster_id)
        with stopped_node(folder):
            return self.prepared.write(folder, out, epoch=epoch, end_offset=end_offset)


def _folder_in(directory: Path, cluster_id: str) -> MetadataFolder:
    """Do the same as open_folder, but raise UnreadableLogError for a directory without a readable log."""
    try:
        open_folder(directory)
    except UserError as error:
        raise UnreadableLogError(error.sentence, remedy=error.remedy) from error
    return open_folder(directory, cluster_id=cluster_id)


@contextmanager
def temporary_copy(folder: MetadataFolder) -> Iterator[MetadataFolder]:
    """Copy the files that a node reads at its start to a folder with mode 0700: they contain password verifiers.

    Snapshots are copied first, because the log never begins after the newest snapshot. Raises TransientError if the
    node removes files faster than they are copied.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        for attempt in range(_TRIES):
            root = Path(name) / str(attempt)
            with reading(folder.log):
                if _copy(folder, root):
                    break
        else:
            raise TransientError(f"The files in {folder.log} change faster than they can be copied.")
        yield open_folder(root)


def _copy(folder: MetadataFolder, root: Path) -> bool:
    """Return whether every file still existed when it was copied."""
    log = root / folder.log.name
    log.mkdir(parents=True)
    for name in (META, BOOTSTRAP):
        if (folder.root / name).is_file():
            shutil.copy2(folder.root / name, root / name)
    files = [path for path in folder.log.iterdir() if path.is_file() and path.suffix not in _NOT_COPIED]
    for path in sorted(files, key=lambda path: (path.suffix != ".checkpoint", path.name)):
        try:
            shutil.copy2(path, log / path.name)
        except FileNotFoundError:
            return False
    return True
