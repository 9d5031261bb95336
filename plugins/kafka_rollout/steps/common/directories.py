"""Where nodes' directories lie, for steps that read or change what is in them, or name them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kafka_rollout.domain.metadata_log.losses import Loss, with_paths
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.topology import NodeSpec
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


def named_directories(ports: ClusterPorts, losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """The losses with directories by path as well, as far as the runtime sees the nodes' files."""
    paths = {id_: path for node in ports.cluster.brokers for id_, path in ports.runtime.log_directories(node).items()}
    return with_paths(losses, paths)


def metadata_directory(ports: ClusterPorts, node: NodeSpec) -> Path:
    """The node's metadata.log.dir; raises RefusedError where the runtime cannot see it."""
    directory = ports.runtime.metadata_log_dir(node)
    if directory is None:
        raise RefusedError(
            f"The runtime {ports.cluster.runtime} sees no files of node {node.node_id}.",
            remedy="Give the inventory's nodes their directories, or use `kafka-rollout metadata` on their hosts.",
        )
    return directory
