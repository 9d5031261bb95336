"""The controllers of a live downgrade, each handled on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_rollout.base.errors import RolloutError, TransientError
from kafka_rollout.base.wording import few
from kafka_rollout.metadata_log.log_choice import has_majority
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.offline.snapshot import on_each

# The controllers are killed: the active one would wait in its shutdown for a new leader, which stopped controllers
# cannot elect. Kafka checks the whole metadata log at every start (KafkaRaftLog.createLog: no clean shutdown).
STOP_S = 0.0
READY_WITHIN_S = 60.0
T = TypeVar("T")


@dataclass(slots=True)
class Controllers:
    """The controllers during one call.

    `silent`: node id → reason, of controllers whose host did not respond. They are not asked again, so that a host is
    waited for once. `problems`: node id → the last error of a controller, also of those that respond.
    """

    ports: ClusterPorts
    plan: Plan
    silent: dict[int, str] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)

    @property
    def responding(self) -> tuple[NodeSpec, ...]:
        return tuple(node for node in self.ports.cluster.controllers if node.node_id not in self.silent)

    @property
    def without_snapshot(self) -> tuple[NodeSpec, ...]:
        """The controllers on which this try has not installed the snapshot, as far as their hosts respond."""
        done = projections.installed_on(self.ports.run.events())
        return tuple(node for node in self.responding if node.node_id not in done)

    @property
    def voters(self) -> tuple[int, ...]:
        """The quorum before the first stop."""
        before = projections.voters_before_stop(self.ports.run.events())
        return before or tuple(node.node_id for node in self.ports.cluster.controllers)

    @property
    def snapshot_has_majority(self) -> bool:
        """Whether the snapshot is on a majority of the voters, so no controller with an old log can be elected."""
        installed = projections.installed_on(self.ports.run.events())
        return has_majority(self.voters, [node_id for node_id, event in installed.items() if event.had_log])

    @property
    def problem_lines(self) -> list[str]:
        return [f"controller {node_id}: {reason}" for node_id, reason in sorted(self.problems.items())]

    def each(self, act: Callable[[NodeSpec], T], chosen: Iterable[NodeSpec]) -> Mapping[int, T]:
        """Act on controllers in parallel; return node id → result of those that succeeded. Errors become problems."""
        found = on_each(act, tuple(chosen))
        for node_id, error in found.failed.items():
            self.problems[node_id] = error.sentence
            if isinstance(error, TransientError):
                self.silent[node_id] = error.sentence
        return found.done

    def refuse_silent_hosts(self) -> None:
        """Raise TransientError, with nothing stopped, unless the host of every controller responds now."""
        silent = on_each(self.ports.runtime.process, self.ports.cluster.controllers).failed
        if silent:
            raise TransientError(
                f"Not every controller's host responds: {few(error.sentence for error in silent.values())}",
                remedy="Nothing was stopped. Repeat the step when every host responds.",
            )

    def stop(self, chosen: Iterable[NodeSpec]) -> None:
        """Kill controllers at once. One that cannot be stopped counts as one of a silent host: it can run."""
        stop, process = self.ports.runtime.stop, self.ports.runtime.process

        def kill(node: NodeSpec) -> None:
            try:
                stop(node, deadline_s=STOP_S, force=True)
                if process(node).pid is not None:
                    raise TransientError(f"Node {node.node_id} ({node.name}) was started again after its stop.")
            except RolloutError as error:
                self.silent[node.node_id] = error.sentence
                raise

        self.each(kill, chosen)

    def start(self, chosen: Iterable[NodeSpec], *, again: bool = False) -> Mapping[int, object]:
        """Start controllers that have no process; return those that run. `again`: also those of silent hosts."""

        def start(node: NodeSpec) -> None:
            if self.ports.runtime.process(node).pid is None:
                self.ports.runtime.start(node)
            self.silent.pop(node.node_id, None)

        return self.each(start, [node for node in chosen if again or node.node_id not in self.silent])

    def all_run(self, chosen: Sequence[NodeSpec]) -> bool:
        seen = self.each(self.ports.runtime.process, [node for node in chosen if node.node_id not in self.silent])
        return len(seen) == len(chosen) and all(process.pid is not None for process in seen.values())

    def left_behind(self) -> Mapping[int, str]:
        """Node id → reason, of the controllers without this try's snapshot, and of those whose host is silent."""
        installed = projections.installed_on(self.ports.run.events())
        left = {
            node.node_id: f"it was started with its old log and fetches the snapshot: {self.problems[node.node_id]}"
            for node in self.ports.cluster.controllers
            if node.node_id not in installed and node.node_id in self.problems
        }
        return dict(sorted({**left, **self.silent}.items()))


def serves_at_level(ports: ClusterPorts, plan: Plan) -> bool:
    """Return whether the active controller reports the planned metadata.version."""
    return served_level(ports) == plan.levels[METADATA_VERSION]


def served_level(ports: ClusterPorts) -> int | None:
    """Return metadata.version as the active controller reports it; None without a leader or an answer."""
    try:
        leader = ports.admin.quorum(through_brokers=False).leader_id
        return ports.admin.features(ports.cluster.node(leader)).finalized.get(METADATA_VERSION) if leader >= 0 else None
    except TransientError:
        return None
