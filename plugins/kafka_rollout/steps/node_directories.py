"""Where a node's metadata log lies, for steps that read or change it."""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.domain.errors import RefusedError
from kafka_rollout.domain.topology import NodeSpec
from kafka_rollout.steps.workbench import Workbench


def metadata_directory(bench: Workbench, node: NodeSpec) -> Path:
    """The node's metadata.log.dir; raises RefusedError where the runtime cannot see it."""
    directory = bench.runtime.metadata_log_dir(node)
    if directory is None:
        raise RefusedError(
            f"The runtime {bench.cluster.runtime} sees no files of node {node.node_id}.",
            remedy="Give the inventory's nodes their directories, or use `kafka-rollout metadata` on their hosts.",
        )
    return directory
