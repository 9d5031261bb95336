"""Configuration lines and folders of a node, for every runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.domain.model.cluster.topology import ClusterSpec, NodeSpec
from kafka_rollout.domain.model.plan import ConfigChange
from kafka_rollout.domain.model.releases import Release


def changed_lines(
    cluster: ClusterSpec, node: NodeSpec, release: Release, changes: Sequence[ConfigChange]
) -> dict[str, str | None]:
    """Return the lines of `changes` for this node and release (None: removed). Lines of the inventory's
    release_overrides replace them."""
    lines = {
        change.key: change.value for change in changes if change.node_id == node.node_id and change.release == release
    }
    return lines | dict(cluster.release_overrides.get(str(release), {}))


def metadata_directory(config: Mapping[str, str]) -> str:
    """Return metadata.log.dir, by default the first of log.dirs."""
    directories = config.get("metadata.log.dir") or config.get("log.dirs") or config.get("log.dir", "")
    return directories.split(",")[0].strip()
