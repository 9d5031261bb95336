"""The metadata logs of nodes, by their directories.

Reads of a node that can run use a copy, because the node writes and removes files at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.metadata_log.changes.install import (
    install,
    is_installed,
    lower_bootstrap,
    raise_epoch,
    refuse_used,
    replace_bootstrap,
    uninstall,
)
from kafka_rollout.metadata_log.changes.places import Place, Places
from kafka_rollout.metadata_log.changes.trimmer import trim
from kafka_rollout.metadata_log.classes.known_releases import known_releases
from kafka_rollout.metadata_log.classes.scanner import scan_metadata_log
from kafka_rollout.metadata_log.classes.snapshot import (
    FIRST_SNAPSHOT_WRITER,
    SnapshotWriter,
    loss_report,
    prepared_snapshot,
    write_snapshot,
)
from kafka_rollout.metadata_log.disk.folder import MetadataFolder, node_log
from kafka_rollout.metadata_log.log_choice import NodeLog, UnreadableLogError, WrittenSnapshot
from kafka_rollout.metadata_log.losses import LossReport
from kafka_rollout.metadata_log.metadata_scan import MetadataScan
from kafka_rollout.metadata_log.node_logs.newest_metadata import read_partitions, read_registrations
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.metadata_log.start_order import LoggedPartitions
from kafka_rollout.metadata_log.trim import TrimResult
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache


@dataclass(frozen=True, slots=True)
class DirectoryMetadataLogs:
    """The port MetadataLogs on the directories of nodes."""

    cache: ReleaseCache
    places: Places

    def losses(
        self,
        node: NodeSpec,
        to_level: int | None,
        *,
        source: Release,
        targets: Sequence[Release],
        features: Mapping[str, int],
        settings: Mapping[str, str],
        cluster_id: str,
    ) -> LossReport:
        with self.places.copy(node) as place:
            return loss_report(
                place.folder(cluster_id),
                to_level,
                cache=self.cache,
                release=self._writer(source),
                readers=targets,
                features=features,
                source=source,
                settings=settings,
            )

    def scan(
        self, node: NodeSpec, release: Release, *, cluster_id: str, settings: Mapping[str, str] | None = None
    ) -> MetadataScan:
        with self.places.copy(node) as place:
            found = scan_metadata_log(place.folder(cluster_id), release, cache=self.cache, settings=settings)
            return place.shown(found)

    def registrations(self, node: NodeSpec, *, cluster_id: str) -> MetadataRegistrations:
        with self.places.copy(node) as place:
            return read_registrations(place.folder(cluster_id), self.cache)

    def partitions(self, node: NodeSpec, *, cluster_id: str) -> LoggedPartitions:
        with self.places.copy(node) as place:
            return read_partitions(place.folder(cluster_id), self.cache)

    def trim(self, node: NodeSpec, *, release: Release, cluster_id: str) -> TrimResult:
        with self.places.in_place(node) as place:
            result = trim(place.folder(cluster_id), release=release, cache=self.cache, files=place.files)
            return place.shown(result)

    def replace_bootstrap(self, node: NodeSpec, *, level: int, release: Release, cluster_id: str) -> Path | None:
        with self.places.in_place(node) as place:
            folder = place.folder(cluster_id)
            backup = replace_bootstrap(folder, level=level, target=release, cache=self.cache, files=place.files)
            return place.shown(backup)

    def node_log(self, node: NodeSpec, *, cluster_id: str) -> NodeLog:
        with self.places.in_place(node) as place:
            folder = _folder_in(place, cluster_id)
            if folder.node_id not in (None, node.node_id):
                raise UserError(
                    f"The metadata log in {folder.log} belongs to node {folder.node_id}, not to node {node.node_id}.",
                    remedy="Correct the node's directory in the inventory.",
                )
            try:
                return node_log(folder, node.node_id)
            except UserError as error:
                raise UnreadableLogError(error.sentence, remedy=error.remedy) from error

    def log_bytes(self, node: NodeSpec) -> int:
        # Without index files: they are allocated in advance and mostly empty.
        sizes = self.places.sizes(node)
        return sum(size for name, size in sizes.items() if name.endswith((".log", ".checkpoint")))

    def free_bytes(self, node: NodeSpec) -> int:
        return self.places.free_bytes(node)

    def write_snapshot(
        self,
        node: NodeSpec,
        out: Path,
        *,
        level: int,
        features: Mapping[str, int],
        epoch: int,
        source: Release,
        target: Release,
        settings: Mapping[str, str],
        cluster_id: str,
    ) -> WrittenSnapshot:
        with self.places.in_place(node) as place:
            folder = place.folder(cluster_id)
            with place.files.stopped(folder):
                return write_snapshot(
                    folder,
                    level,
                    out,
                    cache=self.cache,
                    release=self._writer(source),
                    readers=(source, target),
                    features=features,
                    epoch=epoch,
                    source=source,
                    settings=settings,
                )

    @contextmanager
    def prepared_snapshot(
        self,
        node: NodeSpec,
        *,
        level: int,
        features: Mapping[str, int],
        source: Release,
        target: Release,
        settings: Mapping[str, str],
        cluster_id: str,
    ) -> Iterator[_Prepared]:
        with (
            self.places.copy(node) as place,
            prepared_snapshot(
                place.folder(cluster_id),
                level,
                cache=self.cache,
                release=self._writer(source),
                readers=(source, target),
                features=features,
                source=source,
                settings=settings,
            ) as prepared,
        ):
            yield _Prepared(prepared, self.places, cluster_id)

    def prepare_install(self, node: NodeSpec, out: Path, *, level: int, target: Release, cluster_id: str) -> None:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.places.in_place(node) as place:
            lower_bootstrap(_folder_in(place, cluster_id), out, level=level, target=target, cache=self.cache)

    def install(
        self,
        node: NodeSpec,
        snapshot: Path,
        *,
        level: int,
        target: Release,
        cluster_id: str,
        candidate: bool = False,
    ) -> str:
        with self.places.in_place(node) as place:
            folder = _folder_in(place, cluster_id)
            bootstrap = lower_bootstrap(folder, snapshot.parent, level=level, target=target, cache=self.cache)
            done = install(folder, snapshot, bootstrap=bootstrap, candidate=candidate, files=place.files)
            return place.shown(done)

    def refuse_used(self, node: NodeSpec, snapshot: str, *, cluster_id: str) -> None:
        with self.places.in_place(node) as place:
            refuse_used(_folder_in(place, cluster_id), snapshot)

    def undo_install(self, node: NodeSpec, snapshot: str, *, cluster_id: str, keep_epoch: bool = False) -> str | None:
        with self.places.in_place(node) as place:
            folder = _folder_in(place, cluster_id)
            if not is_installed(folder, snapshot):
                return None
            return place.shown(uninstall(folder, snapshot, keep_epoch=keep_epoch, files=place.files))

    def raise_epoch(self, node: NodeSpec, *, epoch: int, cluster_id: str) -> None:
        with self.places.in_place(node) as place:
            raise_epoch(_folder_in(place, cluster_id), epoch, files=place.files)

    def _writer(self, source: Release) -> Release:
        """Return the release that writes images of a log: the one that runs, or a newer one if it cannot write them."""
        return source if source >= FIRST_SNAPSHOT_WRITER else known_releases(*self.cache.catalogue_folders)[-1]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The port PreparedSnapshot on the directories of nodes."""

    prepared: SnapshotWriter
    places: Places
    cluster_id: str

    def write(self, node: NodeSpec, out: Path, *, epoch: int, end_offset: int) -> WrittenSnapshot:
        with self.places.in_place(node) as place:
            folder = place.folder(self.cluster_id)
            with place.files.stopped(folder):
                return self.prepared.write(folder, out, epoch=epoch, end_offset=end_offset)


def _folder_in(place: Place, cluster_id: str) -> MetadataFolder:
    """Open the metadata log, but raise UnreadableLogError for a directory without a readable log."""
    try:
        place.folder()
    except UserError as error:
        raise UnreadableLogError(error.sentence, remedy=error.remedy) from error
    return place.folder(cluster_id)
