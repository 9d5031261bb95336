"""What belongs to a cluster and not to one run, as its inventory sets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from kafka_rollout.clusters.inventory import dump_cluster, load_cluster
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.topology import ClusterSpec

_NAMES = {one.name for one in fields(ClusterSpec)}


def with_pace(spec: ClusterSpec, pace: Pace = Pace.NORMAL, **numbers: Any) -> ClusterSpec:
    """Return the cluster with other numbers of a pace, by default of the one that a request has by default."""
    return replace(spec, paces={**spec.paces, pace: replace(spec.pace(pace), **numbers)})


def set_in_file(inventory: Path, **own: Any) -> None:
    """Set keys of the cluster of an inventory file."""
    inventory.write_text(dump_cluster(replace(load_cluster(inventory), **own)))


def parted(spec: ClusterSpec, given: Mapping[str, Any]) -> tuple[ClusterSpec, dict[str, Any]]:
    """Return the cluster with what its inventory sets, and the rest, which is of one run."""
    own = {name: value for name, value in given.items() if name in _NAMES and name != "nodes"}
    return replace(spec, **own), {name: value for name, value in given.items() if name not in own}
