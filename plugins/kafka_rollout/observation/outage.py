"""What a downgrade has stopped, and whether the cluster serves again; the first return of each part is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.wording import few
from kafka_rollout.metadata_log.log_choice import has_majority
from kafka_rollout.metadata_log.outage import (
    not_serving,
    unwritable,
)
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import (
    ClusterPorts,
    observe_some,
    until,
)
from kafka_rollout.observation.each_node import on_each
from kafka_rollout.observation.node_steps import last_started_release, offline_release_step, stop_is_under_way
from kafka_rollout.observation.run import NodeRun, ReadRun, Run
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.run.projections.nodes import unfinished_starts
from kafka_rollout.run.projections.offline import unwritable_before
from kafka_rollout.run.step_events import (
    LiveKept,
    LiveLowered,
    OfflineServed,
    OfflineUndoing,
    OfflineWritable,
    Started,
)
from kafka_rollout.run.view import RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Whether controllers with a majority run on their own logs after the stop of all nodes or controllers began."""

    is_seen: bool = False
    unknown: str = ""
    """Why it cannot be seen: controllers that do not respond would make it a majority."""

    @property
    def is_possible(self) -> bool:
        return self.is_seen or bool(self.unknown)


def stop_of_all_is_under_way(run: Run) -> bool:
    """Return whether nodes are down, or go down, by the stop of all nodes or controllers of this try: nothing holds it,
    because it must start them again.

    A stop that only the history shows did not happen, or its nodes were started again. Then everything is checked
    again, because the state of the cluster can have changed since. After the choice of the log, only the steps can
    return a node to its old log, so they decide. See `stop_of_all_is_over` for what follows them.
    """
    events = run.history.events()
    if not projections.stop_has_begun(events):
        return False
    if projections.chosen_log(events) is not None:
        return True
    is_live = run.plan.lowering is Lowering.LIVE  # it kills the controllers at once, and records no stop of a node

    def is_down(node: NodeSpec) -> bool:
        process = run.ports.runtime.process(node)
        if process.pid is None or process.is_stopping:
            return True
        return not is_live and stop_is_under_way(NodeRun(run, offline_release_step(run.plan), node))

    seen = on_each(is_down, run.cluster.controllers if is_live else run.cluster.nodes).done
    down = {node_id for node_id, is_found in seen.items() if is_found}
    # Without a broker nothing is served, and no check could pass: only the steps of this stop start them again.
    serves_none = down >= {node.node_id for node in run.cluster.brokers}
    return bool(down) and (is_live or serves_none or not were_started_again(run).is_possible)


def controllers_were_started_again(run: Run) -> Restart:
    """Return whether a majority of the voters run without the snapshot of a live downgrade, so that they can serve.

    A log is chosen while a majority is stopped, so something else has started them since. Before the choice, they were
    started again or not stopped yet. The undo starts them, too, and what it decided stays.
    """
    events = run.history.events()
    if any(projections.has_event(events, kind) for kind in (OfflineUndoing, LiveKept, LiveLowered)):
        return Restart()
    return _find_restart(run, lambda node: run.ports.runtime.process(node).pid is not None)


def stop_of_all_is_over(run: ReadRun) -> bool:
    """Return whether the steps after the stop of all nodes or controllers of this try have started every node again, so
    that a pause leaves none of them down."""
    events = run.history.events()
    if run.plan.lowering is Lowering.LIVE:
        return projections.has_event(events, LiveLowered)
    acts = projections.last_acts(events)
    return (
        projections.has_passed_no_return(events)
        and all(isinstance(acts.get(node.node_id), Started) for node in run.cluster.nodes)
        and not unfinished_starts(events)
    )


def were_started_again(run: Run) -> Restart:
    """Return whether a majority of the voters run their old release and their own logs again, in processes that were
    started since the stop of all nodes of this try."""
    step = offline_release_step(run.plan)

    def is_new(node: NodeSpec) -> bool:
        before, process = run.history.load_before_stop(step.key, node.node_id), run.ports.runtime.process(node)
        if before is None or process.pid is None or before.is_of(process):
            return False
        return last_started_release(run.ports, node) != step.to_release

    return _find_restart(run, is_new)


def _find_restart(run: Run, is_again: Callable[[NodeSpec], bool]) -> Restart:
    """Ask each voter without the snapshot. One that does not respond can run."""
    events = run.history.events()
    voters, installed = projections.voters_before_stop(events) or (), projections.installed_on(events)
    asked = [one for one in run.cluster.controllers if one.node_id in voters and one.node_id not in installed]
    seen = on_each(is_again, asked)
    again = {node_id for node_id, is_found in seen.done.items() if is_found}
    is_seen = has_majority(voters, again)
    is_unknown = not is_seen and has_majority(voters, again | seen.failed.keys())
    return Restart(is_seen=is_seen, unknown=few(list(seen.problems.values())) if is_unknown else "")


def check_service(ports: ClusterPorts, unserved_at: float = 0.0) -> bool:
    """Return whether all service that can return without an operator is back.

    A node without a process, and partitions that need it, do not count. The first return of each part is recorded.
    `unserved_at`: the last time at which this caller saw that something was missing.
    """
    events = ports.run.events()
    seen = RunView.of(events).outages
    if not seen or seen[-1].served_at is not None:
        return True
    try:
        state = observe_some(ports, ports.cluster.brokers, metrics=False)
    except RolloutError:
        return False  # no broker responds, or those that were just started refuse the user of this tool
    blocked, away = unwritable(state, unwritable_before(events)), not_serving(ports.cluster, state)
    if not blocked and seen[-1].writable_at is None:
        ports.run.record(OfflineWritable(sentence="Every partition has a leader and its min ISR again."))
    if not blocked and not away:
        ports.run.record(OfflineServed(unserved_at=unserved_at, sentence="Every broker serves requests again."))
    return (not blocked or bool(away)) and all(state.nodes[node_id].process.pid is None for node_id in away)


def watch_service(ports: ClusterPorts, for_s: float, unserved_at: float = 0.0) -> None:
    """Check until the cluster serves again, for at most `for_s` seconds; later the gates' checks record it.

    `unserved_at`: the last time at which the caller saw that it did not serve.
    """

    def check() -> bool:
        nonlocal unserved_at
        checked_at = ports.clock.now()
        serves = check_service(ports, unserved_at)
        unserved_at = checked_at
        return serves

    until(ports.clock, check, bool, for_s=for_s)
