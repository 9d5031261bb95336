"""Metadata logs that stopped nodes do not find, as after the loss of their disks, until they are put back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kafka_rollout.model.topology import NodeSpec


def take_metadata_logs_away(nodes: Iterable[NodeSpec]) -> list[Path]:
    """Return the folders that were taken away."""
    found = [path for node in nodes for path in Path(str(node.directory)).rglob("__cluster_metadata-0")]
    for path in found:
        path.rename(path.with_name("taken-away"))
    return found


def put_back(folders: Iterable[Path]) -> None:
    for path in folders:
        path.with_name("taken-away").rename(path)
