"""A run: what travels together through its steps, and a node in one of its release steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts
from kafka_rollout.run.ports import RunQueries, RunStore


class ReadRun(Protocol):
    """A run for a function that only observes: no call of its ports changes the cluster or the history.

    A `Run` is also this.
    """

    @property
    def ports(self) -> ReadPorts: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def cluster(self) -> ClusterSpec: ...
    @property
    def history(self) -> RunQueries: ...


@dataclass(frozen=True, slots=True)
class Run:
    """A run with a frozen plan, to observe and to act."""

    ports: ClusterPorts
    plan: Plan

    @property
    def cluster(self) -> ClusterSpec:
        return self.ports.cluster

    @property
    def history(self) -> RunStore:
        """The events and documents of the run."""
        return self.ports.run


@dataclass(frozen=True, slots=True)
class NodeRun:
    """A node in a release step of a run, also of its rollback."""

    run: Run
    release_step: ReleaseStep
    node: NodeSpec

    @property
    def ports(self) -> ClusterPorts:
        return self.run.ports

    @property
    def plan(self) -> Plan:
        return self.run.plan

    @property
    def history(self) -> RunStore:
        return self.run.history

    @property
    def node_id(self) -> int:
        return self.node.node_id

    @property
    def key(self) -> str:
        """The key of the release step, by which events name it."""
        return self.release_step.key
