"""The directories of nodes, for steps that read, change or show them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kafka_rollout.domain.metadata_log.losses import Loss, with_paths
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.topology import NodeSpec
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


def named_directories(ports: ClusterPorts, losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Return the losses with directories also shown by path, if the runtime can read the files."""
    paths = {id_: path for node in ports.cluster.brokers for id_, path in ports.runtime.log_directories(node).items()}
    return with_paths(losses, paths)


def metadata_directory(ports: ClusterPorts, node: NodeSpec) -> Path:
    """Return the node's metadata.log.dir. Raises RefusedError if the runtime cannot read it."""
    directory = ports.runtime.metadata_log_dir(node)
    if directory is None:
        raise RefusedError(
            f"The runtime {ports.cluster.runtime} cannot read files on node {node.node_id}.",
            remedy="Add the directories of the nodes to the inventory, or use `kafka-rollout metadata` on their hosts.",
        )
    return directory
