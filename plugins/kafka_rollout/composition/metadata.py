"""Metadata logs in directories, without a cluster and without an inventory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.domain.metadata_log.losses import LossReport, with_paths
from kafka_rollout.domain.metadata_log.scan import MetadataScan
from kafka_rollout.domain.metadata_log.trim import TrimPlan, TrimResult
from kafka_rollout.domain.model.releases import METADATA_VERSION, Release
from kafka_rollout.domain.offline.log_choice import NodeLog, WrittenSnapshot
from kafka_rollout.settings import Settings

if TYPE_CHECKING:
    from kafka_rollout.adapters.metadata_log.folder import MetadataFolder
    from kafka_rollout.adapters.releases.cache import ReleaseCache


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """One metadata log, read in place; only `trim`, `undo_trim`, `install` and `uninstall` write into it."""

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
        """Bytes of its segments."""
        return sum(path.stat().st_size for path in self.folder.segments)

    def release(self, name: str | None) -> Release:
        """A release that the catalogue knows, the newest without a name. Raises UserError for an unknown one."""
        from kafka_rollout.adapters.metadata_log.facts import known_releases, metadata_facts

        release = known_releases(self.cache.include)[-1] if name is None else Release.parse(name)
        metadata_facts(self.cache.include, release)
        return release

    def losses(self, to_level: int, *, release: Release, properties: Mapping[str, str]) -> LossReport:
        """What a lower metadata.version would lose; directories of the node's `properties` are named by path."""
        from kafka_rollout.adapters.metadata_log.loss_report import loss_report
        from kafka_rollout.adapters.system.server_properties import directory_ids

        report = loss_report(self.folder, to_level, cache=self.cache, release=release)
        paths = directory_ids({"log.dirs": str(self.folder.root), **properties})
        return replace(
            report, losses=with_paths(report.losses, paths), default_only=with_paths(report.default_only, paths)
        )

    def scan(self, release: Release, *, properties: Mapping[str, str]) -> MetadataScan:
        """Whether the release can start on this log. `properties`: for the times in the remedies."""
        from kafka_rollout.adapters.metadata_log.scanner import scan_metadata_log

        return scan_metadata_log(self.folder, release, cache=self.cache, settings=properties)

    def write_snapshot(
        self, to_level: int, out: Path, *, target: Release | None, features: Mapping[str, int], epoch: int | None
    ) -> WrittenSnapshot:
        """Write a snapshot of the log's end at a metadata.version; `target` must be able to load it."""
        from kafka_rollout.adapters.metadata_log.snapshot import write_snapshot

        return write_snapshot(
            self.folder,
            to_level,
            out,
            cache=self.cache,
            release=self.release(None),
            target=target,
            features=features,
            epoch=epoch,
        )

    def plan_trim(self) -> TrimPlan | None:
        """What `trim` would remove; None if the log begins at its newest snapshot."""
        from kafka_rollout.adapters.metadata_log.trimmer import plan_of

        return plan_of(self.folder)

    def trim(self, *, release: Release | None) -> TrimResult:
        """Remove the log before its newest snapshot, with a backup; a repeated call finishes."""
        from kafka_rollout.adapters.metadata_log.trimmer import trim

        return trim(self.folder, release=release, cache=self.cache)

    def undo_trim(self) -> TrimResult:
        """Restore what the newest trim removed."""
        from kafka_rollout.adapters.metadata_log.trimmer import undo_trim

        return undo_trim(self.folder)

    def read_end(self, node_id: int) -> NodeLog:
        """How far the log goes, and what it holds of the quorum."""
        from kafka_rollout.adapters.metadata_log.quorum import node_log

        return node_log(self.folder, node_id)

    def install(self, snapshot: Path, target: Release) -> str:
        """Replace the log of a stopped node by a snapshot, with a backup. Returns a sentence with what was done."""
        from kafka_rollout.adapters.metadata_log.install import install, lower_bootstrap
        from kafka_rollout.adapters.metadata_log.kafka_classes import JvmKafkaClasses

        level = JvmKafkaClasses(self.cache).load_checkpoint(target, snapshot).features[METADATA_VERSION]
        with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
            bootstrap = lower_bootstrap(self.folder, Path(name), level=level, target=target, cache=self.cache)
            return install(self.folder, snapshot, bootstrap=bootstrap)

    def uninstall(self) -> str:
        """Restore everything as it was before the newest `install`."""
        from kafka_rollout.adapters.metadata_log.install import uninstall

        return uninstall(self.folder)


def open_metadata_log(
    directory: Path, *, cluster_id: str | None = None, settings: Settings | None = None
) -> MetadataLog:
    """Open a metadata.log.dir, or a copy of its __cluster_metadata-0.

    Raises UserError if there is no log, it is damaged, or it belongs to another cluster than `cluster_id`.
    """
    from kafka_rollout.adapters.metadata_log.folder import open_folder
    from kafka_rollout.adapters.releases.cache import ReleaseCache

    settings = settings or Settings.from_environment()
    return MetadataLog(open_folder(directory, cluster_id=cluster_id), ReleaseCache(settings.cache, settings.include))


def read_properties(file: Path | None) -> Mapping[str, str]:
    """A node's server.properties; empty without a file. Raises UserError if it cannot be read."""
    from kafka_rollout.adapters.system import server_properties
    from kafka_rollout.adapters.system.files import reading

    if file is None:
        return {}
    with reading(file):
        return server_properties.parse(file.read_text())
