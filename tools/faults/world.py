"""What a campaign runs on: a cluster whose nodes, network and disks can be broken."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kafka_rollout.clusters.inventory import dump_cluster, load_cluster
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from tools.faults.plan import Fault
from tools.faults.traffic import TOPIC

End = Callable[[], str]
"""Ends a fault; returns what happened, in a few words."""


GATE_TIMEOUT_S = 90.0  # so that a fault that stays ends a call soon


def shorten_gates(inventory: Path) -> None:
    """Let the gates of the cluster of an inventory file end soon: at their timeout, or by a snapshot."""
    inventory.write_text(
        dump_cluster(replace(load_cluster(inventory), gate_timeout_s=GATE_TIMEOUT_S, snapshot_interval_s=5.0))
    )


class NotPossibleError(Exception):
    """The fault cannot be injected now. The sentence says why."""


class World(ABC):
    """One cluster of a round. `folder`: files of the round; `inventory`: the folder of the cluster's inventory.

    `patience_s`: for this time a node may be down before its operator starts it.
    """

    spec: ClusterSpec
    folder: Path
    inventory: Path
    patience_s: float = 2.0

    @abstractmethod
    def inject(self, fault: Fault, node: NodeSpec) -> End:
        """Begin a fault of a node; return what ends it. Raises NotPossibleError."""

    @abstractmethod
    def has_process(self, node: NodeSpec) -> bool:
        """Return whether a Java process of the node runs."""

    @abstractmethod
    def start(self, node: NodeSpec) -> None:
        """Start a node that has no process, as its operator does."""

    @abstractmethod
    def restart(self, node: NodeSpec) -> None:
        """Stop a node that works in order, and start it."""

    @abstractmethod
    def keep_logs(self, folder: Path) -> None:
        """Copy the logs of every node, and its segments of the independent producer's topic, into a folder."""

    @abstractmethod
    def remove(self) -> None:
        """End every process of the cluster by its id, and remove its files."""


def keep_segments(data: Path, folder: Path) -> None:
    """Copy what a node stores of the independent producer's topic. Left out where the node's disk has a fault."""
    for partition in sorted(data.glob(f"{TOPIC}-*")):
        with suppress(OSError, shutil.Error):
            shutil.copytree(partition, folder / partition.name, dirs_exist_ok=True)
