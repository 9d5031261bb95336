"""The directories of nodes, for steps that read, change or show them."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_rollout.metadata_log.losses import Loss, with_paths
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


def named_directories(ports: ClusterPorts, losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Return the losses with directories also shown by path, if the runtime can read the files."""
    paths = {id_: path for node in ports.cluster.brokers for id_, path in ports.runtime.log_directories(node).items()}
    return with_paths(losses, paths)
