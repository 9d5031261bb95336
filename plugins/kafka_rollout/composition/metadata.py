"""Metadata logs in directories, without a cluster and without an inventory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.metadata_log.log_choice import NodeLog, WrittenSnapshot
from kafka_rollout.metadata_log.losses import LossReport, with_paths
from kafka_rollout.metadata_log.scan import MetadataScan
from kafka_rollout.metadata_log.trim import TrimPlan, TrimResult
from kafka_rollout.releases.facts import METADATA_VERSION, Release

if TYPE_CHECKING:
    from kafka_rollout.metadata_log.disk.folder import MetadataFolder
    from kafka_rollout.releases.jars.cache import ReleaseCache


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """One metadata log, read in place. Only `trim`, `undo_trim`, `install` and `uninstall` change it."""

    folder: MetadataFolder
    cache: ReleaseCache

    @property
    def root(self) -> Path:
        return self.folder.root

    @property
    def path(self) -> Path:
        return self.folder.log

    @property
    def cluster_id(self) -> str | None:
        return self.folder.cluster_id

    @property
    def node_id(self) -> int | None:
        return self.folder.node_id

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its segments."""
        return sum(path.stat().st_size for path in self.folder.segments)

    def release(self, name: str | None) -> Release:
        """Return a release of the catalogue; without a name the newest. Raises UserError for an unknown release."""
        from kafka_rollout.metadata_log.classes.known_releases import known_releases, metadata_facts

        release = known_releases(*self.cache.catalogue_folders)[-1] if name is None else Release.parse(name)
        metadata_facts(release, *self.cache.catalogue_folders)
        return release

    def losses(self, to_level: int, *, release: Release, properties: Mapping[str, str]) -> LossReport:
        """Return the metadata that a lower metadata.version would lose. `properties`: shows log directories by path."""
        from kafka_rollout.kafka.files.server_properties import directory_ids
        from kafka_rollout.metadata_log.classes.loss_report import loss_report

        report = loss_report(self.folder, to_level, cache=self.cache, release=release)
        paths = directory_ids({"log.dirs": str(self.folder.root), **properties})
        return replace(
            report, losses=with_paths(report.losses, paths), default_only=with_paths(report.default_only, paths)
        )

    def scan(self, release: Release, *, properties: Mapping[str, str]) -> MetadataScan:
        """Check whether the release can start on this log. `properties`: for the waiting times in the remedies."""
        from kafka_rollout.metadata_log.classes.scanner import scan_metadata_log

        return scan_metadata_log(self.folder, release, cache=self.cache, settings=properties)

    def write_snapshot(
        self, to_level: int, out: Path, *, target: Release | None, features: Mapping[str, int], epoch: int | None
    ) -> WrittenSnapshot:
        """Write a snapshot of the metadata at the log end, at a metadata.version. `target` must be able to load it."""
        from kafka_rollout.metadata_log.classes.snapshot import write_snapshot

        return write_snapshot(
            self.folder,
            to_level,
            out,
            cache=self.cache,
            release=self.release(None),
            readers=() if target is None else (target,),
            features=features,
            epoch=epoch,
        )

    def plan_trim(self) -> TrimPlan | None:
        """Return the plan of `trim`; None if the log already begins at its newest snapshot."""
        from kafka_rollout.metadata_log.changes.trimmer import plan_of

        return plan_of(self.folder)

    def trim(self, *, release: Release | None) -> TrimResult:
        """Remove the log before its newest snapshot, with a backup. A repeated call continues an interrupted trim."""
        from kafka_rollout.metadata_log.changes.trimmer import trim

        return trim(self.folder, release=release, cache=self.cache)

    def undo_trim(self) -> TrimResult:
        """Restore the files that the newest trim removed."""
        from kafka_rollout.metadata_log.changes.trimmer import undo_trim

        return undo_trim(self.folder)

    def read_end(self, node_id: int) -> NodeLog:
        """Read the end of the log and its records about the quorum."""
        from kafka_rollout.metadata_log.disk.quorum import node_log

        return node_log(self.folder, node_id)

    def install(self, snapshot: Path, target: Release) -> str:
        """Replace the log of a stopped node by a snapshot, with a backup. Returns a sentence about the result."""
        from kafka_rollout.metadata_log.changes.install import install, lower_bootstrap
        from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses

        level = JvmKafkaClasses(self.cache).load_checkpoint(target, snapshot).features[METADATA_VERSION]
        with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
            bootstrap = lower_bootstrap(self.folder, Path(name), level=level, target=target, cache=self.cache)
            return install(self.folder, snapshot, bootstrap=bootstrap)

    def uninstall(self) -> str:
        """Restore the files that the newest `install` replaced."""
        from kafka_rollout.metadata_log.changes.install import uninstall

        return uninstall(self.folder)


def open_metadata_log(
    directory: Path, *, cluster_id: str | None = None, settings: Settings | None = None
) -> MetadataLog:
    """Open a metadata.log.dir, or a copy of its __cluster_metadata-0.

    Raises UserError if there is no log, it is damaged, or it belongs to another cluster than `cluster_id`.
    """
    from kafka_rollout.metadata_log.disk.folder import open_folder
    from kafka_rollout.releases.jars.cache import ReleaseCache

    settings = settings or Settings.from_environment()
    return MetadataLog(open_folder(directory, cluster_id=cluster_id), ReleaseCache.from_settings(settings))


def read_properties(file: Path | None) -> Mapping[str, str]:
    """Read a node's server.properties; empty without a file. Raises UserError if the file cannot be read."""
    from kafka_rollout.base.system.files import reading
    from kafka_rollout.kafka.files import server_properties

    if file is None:
        return {}
    with reading(file):
        return server_properties.parse(file.read_bytes())
