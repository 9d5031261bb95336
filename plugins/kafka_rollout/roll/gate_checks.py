"""Gates: check the conditions of the next step and record the check; wait until the gate passes or fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import Finding
from kafka_rollout.control import lock
from kafka_rollout.control.approval import accepted_doubts
from kafka_rollout.control.claims import recording_lockout, refuse_other_claims
from kafka_rollout.control.holds import check_begin, check_outside, end_if_stopped, outside_conditions
from kafka_rollout.gates import node as node_gates
from kafka_rollout.gates import whole_cluster as cluster_gates
from kafka_rollout.gates.counters import no_metadata_errors
from kafka_rollout.gates.gate import (
    HELD_INTERVAL_S,
    BeforeStop,
    Gate,
    GateCheck,
    GateCondition,
    GateKind,
    GatePolicy,
    GateRef,
    GateWatch,
    WatchState,
    WatchStatus,
)
from kafka_rollout.gates.reasons import PROCESS, name_once
from kafka_rollout.gates.whole_cluster import check_before_controllers_stop
from kafka_rollout.groups.findings import find_unserved_on_path
from kafka_rollout.groups.group_records import conversion_conditions, no_members_condition
from kafka_rollout.model.contents import SERVED_BY
from kafka_rollout.model.plan import Direction, Lowering, Plan, ReleaseStep
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.model.unclean_elections import UNKNOWN_ELECTIONS
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, observe_some, read_current_levels
from kafka_rollout.observation.node_logs import read_broker_log, read_error_line, read_log_excerpt, with_log_errors
from kafka_rollout.observation.node_steps import (
    NodeStepState,
    check_coordinators,
    check_remote_storage,
    check_written_lines,
    is_rollback_step,
    node_step_state,
)
from kafka_rollout.observation.outage import check_service, stop_of_all_is_under_way
from kafka_rollout.observation.planned_coordinators import planned_group_coordinator
from kafka_rollout.observation.run import NodeRun, ReadRun, Run
from kafka_rollout.planning.findings.configuration import SNAPSHOT_INTERVAL, snapshot_interval_ms
from kafka_rollout.planning.findings.dynamic_configs import is_long_stop, retention_of
from kafka_rollout.planning.findings.unreachable import IDLE_INTERVAL, writes_nothing_when_idle
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.metadata_errors import expected_of, read_logs
from kafka_rollout.preparation.node_checks import observe_elections, read_dynamic, readable_configs
from kafka_rollout.preparation.proved_roll import check_running_nodes
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.roll.log_starts import check_log_starts, describe_uncompared
from kafka_rollout.roll.metadata_logs import check_metadata_logs
from kafka_rollout.roll.moved_coordinators import StopObservation, check_moved_coordinators
from kafka_rollout.run.projections.nodes import behind_s
from kafka_rollout.run.projections.observations import finalization, last_failing_offset
from kafka_rollout.run.projections.offline import describe_lost_disk, describe_unreached
from kafka_rollout.run.projections.runs import run_of
from kafka_rollout.run.step_events import GateChecked, GateFailed, GatePassed

GATE = "groups"


def check_groups(run: ReadRun) -> GateCheck:
    """Check what the plan's next step needs of groups.

    An upgrade lowers no feature. But a release can require a feature that is not finalized before all nodes run it:
    groups of an earlier release's preview then lose their coordinator when the first node starts.
    """
    releases = [release_step.to_release for release_step in run.plan.release_steps]
    if run.plan.direction is Direction.DOWNGRADE:
        lowered = [c for c in run.plan.feature_changes if c.feature in SERVED_BY and c.target < 1 <= c.current]
        kinds = frozenset() if run.plan.unsafe else frozenset(SERVED_BY[change.feature] for change in lowered)
        return check_conversion(run.ports, kinds, releases, before_stops=True)
    finalized = read_current_levels(run.ports) if releases else {}
    unserved = find_unserved_on_path(run.ports.catalogue, finalized, releases)
    conditions = (no_members_condition(run.ports.admin.groups(), unserved),) if unserved else ()
    return GateCheck(gate=GATE, at=run.ports.clock.now(), conditions=conditions)


def check_conversion(
    ports: ReadPorts, kinds: Collection[str], releases: Sequence[Release], *, before_stops: bool = False
) -> GateCheck:
    """Check whether groups of these types are converted, and whether the releases can load their records.

    `before_stops`: as for conversion_conditions.
    """
    if not (kinds or releases):
        return GateCheck(gate=GATE, at=ports.clock.now(), conditions=())
    planned = planned_group_coordinator(ports, releases)

    def check(*, incremental: bool) -> tuple[GateCheck, bool]:
        groups = ports.admin.groups() if kinds else ()
        records = ports.logs.group_records(planned=planned, by_spark=True, incremental=incremental)
        conditions = conversion_conditions(
            groups,
            records,
            kinds,
            catalogue=ports.catalogue,
            releases=tuple(dict.fromkeys(releases)),
            before_stops=before_stops,
        )
        return GateCheck(gate=GATE, at=ports.clock.now(), conditions=conditions), records.is_whole

    seen, is_whole = check(incremental=True)
    # A gate waits by what was added to a reading, and passes by a reading of the whole log.
    return seen if is_whole or not seen.passes else check(incremental=False)[0]


MIN_ISR_AGE_S = 60.0  # of min.insync.replicas while a gate waits


class RecentChecks:
    """Limits the run history to the first checks of each outcome, every change, and then one check per minute.

    It remembers per process only. A new process records its first check again, which shows the resume.
    """

    SAME_IN_A_ROW = 5
    EVERY_S = 60.0
    HELD_EVERY_S = 3600.0  # a pause can last for days

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], tuple[tuple[tuple[str, bool], ...], int, float]] = {}

    def record(self, ports: ClusterPorts, ref: GateRef, seen: GateCheck, *, last: bool = False) -> None:
        """Record the check if it is needed. `last`: it ended the watch."""
        key = (ports.cluster.name, ports.run_id, f"{ref.release_step} {ref}")
        outcome = tuple((condition.name, condition.is_met) for condition in seen.conditions)
        before, in_a_row, recorded_at = self._last.get(key, ((), 0, 0.0))
        if last:
            self._last.pop(key, None)
            if recorded_at != seen.at:
                ports.run.record(GateChecked(at=seen.at, ref=ref, check=seen))
            return
        in_a_row = in_a_row + 1 if outcome == before else 1
        every_s = self.HELD_EVERY_S if seen.is_held else self.EVERY_S
        if in_a_row > (1 if seen.is_held else self.SAME_IN_A_ROW) and seen.at - recorded_at < every_s:
            self._last[key] = (outcome, in_a_row, recorded_at)
            return
        ports.run.record(GateChecked(at=seen.at, ref=ref, check=seen))
        self._last[key] = (outcome, in_a_row, seen.at)


RECENT = RecentChecks()
_PROVE_LEVELS = frozenset({GateKind.FINALIZED, GateKind.SNAPSHOT, GateKind.METADATA_VERSION})
_PROVE_DOWNGRADE = frozenset({GateKind.LEVELS, GateKind.FINAL_METADATA_VERSION})


def follows_changes(kind: GateKind, run_of: RunOf) -> bool:
    """Return whether a gate comes after the last change of a run, so that the run holds no lock any more."""
    return kind in _PROVE_DOWNGRADE or (kind in _PROVE_LEVELS and run_of is not RunOf.DOWNGRADE)


def check_gate(
    run: Run,
    gate: Gate,
    observed: Callable[[], StopObservation] | None = None,
    *,
    not_before: float = 0.0,
) -> GateCheck:
    """Check a gate once and record it. Raises StoppedError as `end_if_stopped`.

    It acquires or renews the cluster's lock, unless it only observes after the last change of the run.

    `observed`: of all nodes, which gates before a stop share if they are checked at the same time. `not_before`: epoch
    seconds; a gate before a stop counts no value from outside that was read before.

    After a start it requests preferred leader elections if other nodes lead the node's own partitions. A missing
    response of the cluster is an unmet condition, not an error: only LockHeldError, RefusedError and UserError are
    raised.
    """
    end_if_stopped(run, gate)
    if not follows_changes(gate.kind, run_of(run.history.events())):
        lock.acquire_lock(run.ports, f"Gate {gate.ref} of the {run.plan.direction.value} to {run.plan.target}.")
    try:
        with recording_lockout(run.ports):
            if gate.kind is GateKind.BEFORE_STOP:
                seen = _before_stop(run, gate, observed, not_before)
            else:
                seen = CHECKS[gate.kind](run, gate)
    except TransientError as error:
        condition = GateCondition(name="the cluster responds", is_met=False, evidence=error.sentence)
        begin = _begins_without_response(run, gate)
        seen = replace(begin, conditions=(*begin.conditions, condition))
    RECENT.record(run.ports, gate.ref, seen)
    return seen


def load_before_stop(run: ReadRun, release_step: ReleaseStep, node_id: int) -> BeforeStop | None:
    """Return the state of the node before this run stopped it.

    In a rollback, the state before the upgrade counts too, because a node that failed to start was in no ISR.
    """
    before = run.history.load_before_stop(release_step.key, node_id)
    if is_rollback_step(run.plan, release_step):
        return run.history.load_before_stop(release_step.reversed().key, node_id) or before
    return before


def observe_all(ports: ReadPorts, *, min_isr_age_s: float = 0.0) -> ClusterState:
    """Observe what the gates before a stop need. `min_isr_age_s`: as for `ClusterQueries.partitions`."""
    return with_log_errors(ports, observe_some(ports, ports.cluster.nodes, metrics=False, min_isr_age_s=min_isr_age_s))


def _before_stop(
    run: Run,
    gate: Gate,
    observed: Callable[[], StopObservation] | None = None,
    not_before: float = 0.0,
) -> GateCheck:
    release_step, node = gate.subject
    if node_step_state(NodeRun(run, release_step, node)) is not NodeStepState.NEEDED:
        return _nothing_to_wait_for(
            run.ports, gate, f"node {node.node_id} already runs {release_step.to_release} and is not stopped"
        )
    before = load_before_stop(run, release_step, node.node_id)
    if before is not None and run.ports.runtime.process(node).pid is None:
        return _nothing_to_wait_for(
            run.ports, gate, f"this run already stopped node {node.node_id}; the next action is its start"
        )
    begin = check_begin(run, gate, not_before=not_before)
    if begin.is_held:
        return begin
    of_stop = StopObservation(observe_all(run.ports)) if observed is None else observed()
    seen = _check_stop(run, of_stop.state, node, gate.together)
    leaving = frozenset(one.node_id for one in (node, *gate.together))
    moved = check_moved_coordinators(run, of_stop, leaving) if seen.passes else ()
    return replace(seen, conditions=(*begin.conditions, *seen.conditions, *moved))


def _begins_without_response(run: Run, gate: Gate) -> GateCheck:
    """Return what holds the stop while its nodes do not respond: the gate timeout does not run in a pause."""
    nothing = GateCheck(gate=gate.name, at=run.ports.clock.now(), conditions=())
    if gate.kind not in {GateKind.BEFORE_STOP, GateKind.CONTROLLERS_STOP}:
        return nothing
    try:
        return check_begin(run, gate)
    except TransientError:  # of the planned pause, which reads the racks from the hosts
        return nothing


def check_stop_is_safe(run: ReadRun, node: NodeSpec, together: Sequence[NodeSpec] = ()) -> GateCheck:
    """Check whether the rest of the cluster can spare the node, whatever the node itself runs; not recorded.

    `together`: the other nodes that stop at the same time.
    """
    return _check_stop(run, observe_all(run.ports), node, together)


def check_stops_are_safe(
    run: ReadRun, nodes: Sequence[NodeSpec], state: ClusterState | None = None
) -> tuple[GateCheck, ...]:
    """Check whether the nodes can be stopped together, one check for each, from one observation; not recorded."""
    seen = state or observe_all(run.ports)
    return tuple(_check_stop(run, seen, node, [one for one in nodes if one != node]) for node in nodes)


def _check_stop(run: ReadRun, state: ClusterState, node: NodeSpec, together: Sequence[NodeSpec]) -> GateCheck:
    refuse_other_claims(run.ports, state)
    accepted, others = run.plan.accept_unavailable, [one.node_id for one in together]
    is_asked = node_gates.find_stale_leaders(state, node, accepted, others)
    # A node that is down or hangs can be stopped, even if it does not respond.
    return node_gates.check_before_stop(
        run.cluster,
        state,
        node,
        accept_unavailable=accepted,
        unchecked=run.plan.unchecked,
        together=others,
        elections=observe_elections(run.ports) if is_asked else UNKNOWN_ELECTIONS,
        max_under_replicated=None if run.plan.terms is None else run.plan.terms.max_under_replicated,
    )


def _after_start(run: Run, gate: Gate) -> GateCheck:
    release_step, node = gate.subject
    if _is_past(NodeRun(run, release_step, node)):
        return _nothing_to_wait_for(run.ports, gate, f"node {node.node_id} runs the release of a later release step")
    outside = check_outside(run, release_step, "after_start")
    seen = _is_back(run, gate)
    return replace(seen, conditions=(*seen.conditions, *outside))


def _is_back(run: Run, gate: Gate) -> GateCheck:
    release_step, node = gate.subject
    before = load_before_stop(run, release_step, node.node_id)
    # What the node must have again is in these topics. Without a record of it, all its partitions count. After the last
    # start no gate before a stop compares the counts of all partitions.
    is_last = node.node_id == release_step.order[-1].node_id
    topics = None if before is None or is_last else before.topics
    state = observe_some(run.ports, (node,), metrics=True, topics=topics, min_isr_age_s=MIN_ISR_AGE_S)
    # At each check, from the first one on: what the start has logged can be rotated away later.
    log, accepted = read_broker_log(run.ports, node), accepted_doubts(run)
    seen = node_gates.check_after_start(
        run.cluster,
        state,
        node,
        before=before,
        expected=release_step.to_release,
        restarts=release_step.restarts,
        unchecked=run.plan.unchecked,
        expected_errors=expected_of(run, release_step.to_release, state, {node.node_id: log} if log else {}),
        together=[one.node_id for one in gate.together],
    )
    read_config = cache(lambda: run.ports.runtime.config(node))  # of a host: by SSH
    # A node can catch up for hours. Its file is read when nothing else is missing, and while it does not come up, which
    # lost lines can explain.
    if seen.passes or state.nodes[node.node_id].features is None:
        lines = check_written_lines(NodeRun(run, release_step, node), state, before, read_config)
        seen = replace(seen, conditions=(*seen.conditions, *lines))
    if run.plan.lowering is Lowering.OFFLINE:
        check_service(run.ports)
    process = state.nodes[node.node_id].process
    if process.pid is None or process.restarts:
        seen = _with_last_error(run, node, seen)
    elsewhere = node_gates.find_lost_leaderships(state, node.node_id, before)
    missed = _missed_deletions(run, node, state, accepted) if node_gates.is_back_in_isrs(seen) else ()
    if elsewhere and (doubts := tuple(doubt for one in missed for doubt in one.doubts)):
        return replace(seen, conditions=(*node_gates.without_election(seen.conditions, doubts), *missed))
    if not elsewhere:
        if not (seen.passes and node.is_broker):
            return seen
        loaded = check_coordinators(run.ports, state, node, before, log=log, accepted=accepted)
        tiered = check_remote_storage(
            run.ports,
            state,
            node,
            release_step.to_release,
            config=read_config(),
            unchecked=run.plan.unchecked,
            log=log,
            accepted=accepted,
        )
        starts = check_log_starts(run, gate, accepted)
        seen = replace(seen, conditions=(*seen.conditions, loaded, *tiered, *missed, *starts))
        # No gate before a stop follows, which would ask the others. After a stop of all nodes, no broker of the newer
        # release has written since each of them was asked.
        if seen.passes and is_last and release_step.starts_older and run.plan.lowering is not Lowering.OFFLINE:
            of_others = StopObservation(observe_all(run.ports))
            moved = check_moved_coordinators(run, of_others, frozenset({node.node_id}))
            seen = replace(seen, conditions=(*seen.conditions, *moved))
        uncompared = describe_uncompared(run, gate)
        return replace(seen, details={**seen.details, "not compared": uncompared}) if uncompared else seen
    asked = f"preferred leaders of {len(elsewhere)} partitions"
    try:
        run.ports.admin.elect_preferred_leaders(elsewhere)
    except TransientError as error:
        asked = f"{asked}: {error.sentence}"  # the next check requests it again
    return replace(seen, details={**seen.details, "elected": asked})


def _missed_deletions(
    run: ReadRun, node: NodeSpec, state: ClusterState, accepted: Mapping[str, str]
) -> tuple[GateCondition, ...]:
    """Return the condition about deletions if the node was down or behind for longer than any approver of a plan
    expects. `state`: in which it is in the ISRs.
    """
    behind = behind_s(run.history.events(), node.node_id, state.observed_at)
    if not is_long_stop(behind):
        return ()
    # Without another replica, no cleaner ran.
    here = {one.topic for one in state.partitions if node.node_id in one.replicas and len(one.replicas) > 1}
    dynamic = read_dynamic(run.ports)
    # What cannot be read is taken for a topic that keeps deletions for no time.
    known = dict.fromkeys(here, 0)
    if not isinstance(dynamic, Finding):
        known = retention_of(dynamic, readable_configs(run.ports, run.cluster.brokers)[0], here)
    kept = {topic: ms for topic, ms in known.items() if topic in here}
    return (node_gates.deletions_seen(node.node_id, behind, kept, accepted),)


def _with_last_error(run: ReadRun, node: NodeSpec, seen: GateCheck) -> GateCheck:
    """The log of an exited process shows the reason, which the decision request needs."""
    line, without = read_error_line(run.ports, node)
    events = run.history.events()
    more = [without] if without else []
    if run.plan.lowering is Lowering.OFFLINE and (
        advice := describe_lost_disk(events, run.plan, node.node_id) or describe_unreached(events, node.node_id)
    ):
        more.append(advice)
    conditions = tuple(
        replace(one, evidence="; ".join([one.evidence, *more]), log=line) if one.name == PROCESS else one
        for one in seen.conditions
    )
    return replace(seen, conditions=conditions)


def _is_past(at: NodeRun) -> bool:
    try:
        return node_step_state(at) is NodeStepState.PAST
    except (TransientError, RefusedError):
        return False  # the gate's own conditions show what runs


def _finalized(run: ReadRun, gate: Gate) -> GateCheck:
    asked = finalization(run.history.events())
    # The quorum too: older controllers report no levels, so their logs are compared.
    state = replace(_nodes_alone(run.ports, metrics=False), quorum=run.ports.admin.quorum())
    targets = {change.feature: change.target for change in run.plan.online_changes}
    return cluster_gates.check_finalized(
        run.cluster, state, targets, after_epoch=asked.epoch_before if asked is not None else None
    )


def _all_levels(run: ReadRun, gate: Gate) -> GateCheck:
    state = replace(_nodes_alone(run.ports, metrics=False), quorum=run.ports.admin.quorum())  # as in _finalized
    return replace(cluster_gates.check_finalized(run.cluster, state, run.plan.levels), gate=gate.name)


def _snapshot(run: ReadRun, gate: Gate) -> GateCheck:
    events = run.history.events()
    asked = finalization(events)
    behind = [offset for offset in (asked.epoch_after if asked else None, last_failing_offset(events)) if offset]
    if run.plan.direction is Direction.DOWNGRADE and run.plan.release_steps and asked is None and not behind:
        return _nothing_to_wait_for(run.ports, gate, "no level was changed, and every log can be read")
    configs = {node.node_id: run.ports.runtime.config(node) for node in run.cluster.nodes}
    intervals = {node_id: snapshot_interval_ms(config) for node_id, config in configs.items()}
    seen = cluster_gates.check_snapshots(
        run.cluster,
        _nodes_alone(run.ports, metrics=True),
        {node.node_id: run.ports.runtime.checkpoints(node) for node in run.cluster.nodes},
        finalized_at=asked.asked_at if asked else 0.0,
        after_offset=max(behind, default=None),
        interval_ms={node_id: interval for node_id, interval in intervals.items() if interval > 0},
    )
    since = asked.asked_at if asked else seen.at
    due = since + max(intervals.values()) / 1000
    never = {cluster_gates.snapshot_condition(node_id) for node_id, interval in intervals.items() if interval == 0}
    details = {
        "interval": ", ".join(
            f"node {node_id}: {SNAPSHOT_INTERVAL} {interval}" for node_id, interval in sorted(intervals.items())
        ),
        "due": f"{datetime.fromtimestamp(due, UTC):%Y-%m-%d %H:%M:%S} UTC",
    }
    expected = f"expected by {details['due']} at the latest"
    if any(writes_nothing_when_idle(configs[node.node_id]) for node in run.cluster.controllers):
        expected = f"needs a change of the metadata after {details['due']} ({IDLE_INTERVAL} is 0)"
    conditions = (
        c if c.is_met else replace(c, evidence=f"{c.evidence}, {_NEVER if c.name in never else expected}")
        for c in seen.conditions
    )
    return replace(seen, conditions=tuple(conditions), details=details)


_NEVER = f"not expected: {SNAPSHOT_INTERVAL} is 0, so no snapshot is written by time"


def _metadata_version(run: Run, gate: Gate) -> GateCheck:
    state = replace(_nodes_alone(run.ports, metrics=True), quorum=run.ports.admin.quorum())  # as in _finalized
    planned = run.plan.levels
    level = (planned if METADATA_VERSION in planned else state.finalized.known())[METADATA_VERSION]
    seen = cluster_gates.check_metadata_version(run.cluster, run.ports.catalogue, state, level)
    expected = expected_of(run, run.plan.target, state, read_logs(run, run.plan.target, state, run.cluster.brokers))
    errors = no_metadata_errors(run.cluster.nodes, state, run.plan.unchecked, expected=expected)
    return replace(seen, gate=gate.name, conditions=(*seen.conditions, errors))


def _controllers_stop(run: Run, gate: Gate) -> GateCheck:
    if stop_of_all_is_under_way(run):
        return _nothing_to_wait_for(run.ports, gate, "this run has already stopped the controllers")
    begin = check_begin(run, gate)
    if begin.is_held:
        return begin
    state = observe_some(run.ports, run.cluster.nodes, metrics=False)
    refuse_other_claims(run.ports, state)
    seen = check_before_controllers_stop(run.cluster, state, run.ports.admin.movements())
    return replace(seen, conditions=(*begin.conditions, *seen.conditions))


def _begins(run: Run, gate: Gate) -> GateCheck:
    seen = check_begin(run, gate)
    return seen if seen.conditions else _nothing_to_wait_for(run.ports, gate, "nothing holds the run")


def _groups(run: ReadRun, gate: Gate) -> GateCheck:
    seen = check_groups(run)
    return seen if seen.conditions else _nothing_to_wait_for(run.ports, gate, "no group loses its type by this plan")


CHECKS: Mapping[GateKind, Callable[[Run, Gate], GateCheck]] = {
    GateKind.BEFORE_STOP: _before_stop,
    GateKind.AFTER_START: _after_start,
    GateKind.FINALIZED: _finalized,
    GateKind.SNAPSHOT: _snapshot,
    GateKind.METADATA_VERSION: _metadata_version,
    GateKind.FINAL_METADATA_VERSION: _metadata_version,
    GateKind.GROUPS: _groups,
    GateKind.CONTROLLERS_STOP: _controllers_stop,
    GateKind.NODES_STOP: _begins,
    GateKind.NEXT_CHANGE: _begins,
    GateKind.METADATA_LOG: lambda run, gate: check_metadata_logs(run),
    GateKind.LEVELS: _all_levels,
    GateKind.NODES: lambda run, gate: check_running_nodes(run),
}


def _nodes_alone(ports: ReadPorts, *, metrics: bool) -> ClusterState:
    return observe_some(ports, ports.cluster.nodes, metrics=metrics, brokers=False)


def _nothing_to_wait_for(ports: ReadPorts, gate: Gate, evidence: str) -> GateCheck:
    condition = GateCondition(name="nothing to wait for", is_met=True, evidence=evidence)
    return GateCheck(gate=gate.name, at=ports.clock.now(), conditions=(condition,))


_GROUPS_INTERVALS = 10  # one check reads a whole log


def policy_of(ports: ReadPorts, kind: GateKind, request: Request, plan: Plan | None = None) -> GatePolicy:
    """Return the policy of a kind of gate, the same for the DAG and the command line.

    Only a node that was just started must pass several consecutive checks and soak. A snapshot gets the longest
    snapshot interval of the nodes in addition to the gate timeout. Groups are checked every tenth interval. Soak,
    checks and interval are those of the pace in this cluster, and at least those that were approved with the plan.
    """
    numbers = request.gates(ports.cluster, None if plan is None else plan.terms)
    after_start = kind is GateKind.AFTER_START
    timeout_s = ports.cluster.gate_timeout_s
    if kind is GateKind.SNAPSHOT:
        timeout_s += max(snapshot_interval_ms(ports.runtime.config(node)) for node in ports.cluster.nodes) / 1000
    return GatePolicy(
        checks=numbers.checks if after_start else 1,
        interval_s=numbers.interval_s * (_GROUPS_INTERVALS if kind is GateKind.GROUPS else 1),
        timeout_s=timeout_s,
        soak_s=numbers.soak_s if after_start else 0.0,
    )


def watch_of(run: ReadRun, gate: Gate, policy: GatePolicy) -> GateWatch:
    """Return a new watch of a gate. Every check passes at least as long as the conditions from outside require."""
    times = [one.for_s for one in outside_conditions(run, gate)]
    return GateWatch(policy=replace(policy, soak_s=max(policy.soak_s, *times, 0.0)))


def wait_for_gate(
    run: Run,
    gate: Gate,
    policy: GatePolicy,
    on_check: Callable[[GateCheck, str], None] | None = None,
) -> None:
    """Check until the gate passes by its policy. `on_check` receives every check and the watch's message.

    For the command line; the DAG's sensors defer instead. Raises RefusedError if the gate fails or its timeout expires.
    """

    def on_check_of(gate: Gate, seen: GateCheck, message: str) -> None:
        if on_check is not None:
            on_check(seen, message)

    wait_for_gates(run, (gate,), policy, on_check_of)


def wait_for_gates(
    run: Run,
    gates: Sequence[Gate],
    policy: GatePolicy,
    on_check: Callable[[Gate, GateCheck, str], None],
) -> None:
    """Check gates in turn until each passes.

    A gate that fails does not end the wait for the others. Raises RefusedError if one has failed.
    """
    watches = [watch_of(run, gate, policy) for gate in gates]
    while not check_gates(run, gates, watches, on_check).done:
        held = any(watch.is_held for watch in watches)
        run.ports.clock.sleep(HELD_INTERVAL_S if held else policy.interval_s)
    if any(watch.status is not None and watch.status.state is WatchState.FAILED for watch in watches):
        raise gate_failure(run.plan, gates, watches)


def gate_failure(plan: Plan, gates: Sequence[Gate], watches: Sequence[GateWatch]) -> RefusedError:
    """Return the error about the gates that have failed, with the ways to continue."""
    failed = [
        (gate.name, watch.status.message)
        for gate, watch in zip(gates, watches, strict=True)
        if watch.status is not None and watch.status.state is WatchState.FAILED
    ]
    ways = "wait on, or retry the node" if not plan.changes_release else "wait on, retry the node, or roll back"
    if plan.lowering is Lowering.OFFLINE:
        ways = "fix the cause, then continue the same run"
    what = "The gate" if len(failed) == 1 else "Gates"
    return RefusedError(f"{what} {name_once(failed)}.", remedy=f"No other node is changed. Next: {ways}.")


def log_of(node_id: int) -> str:
    """Return the name of the document with the log of a node when its gate failed last."""
    return f"logs/node-{node_id}.json"


def check_gates(
    run: Run,
    gates: Sequence[Gate],
    watches: Sequence[GateWatch],
    on_check: Callable[[Gate, GateCheck, str], None] | None = None,
) -> WatchStatus:
    """Check once each gate whose watch is not over, and record the result of each that ends.

    Return the status of all: it waits until every watch is over, and then fails if one has failed.
    """
    # The gates before the stops of a batch are of one moment. Older values can only make a gate pass or wait: the check
    # right before the stop reads all of them again.
    observed = cache(lambda: StopObservation(observe_all(run.ports, min_isr_age_s=MIN_ISR_AGE_S)))
    for gate, watch in zip(gates, watches, strict=True):
        if watch.is_done:
            continue
        seen = check_gate(run, gate, observed)
        status = watch.add(seen, run.ports.clock.now())
        if on_check is not None:
            on_check(gate, seen, status.message)
        record_outcome(run.ports, gate.ref, seen, status)
    return _joined(gates, watches)


def _joined(gates: Sequence[Gate], watches: Sequence[GateWatch]) -> WatchStatus:
    found = [(gate, watch.status) for gate, watch in zip(gates, watches, strict=True) if watch.status is not None]
    for state in (WatchState.WAITING, WatchState.FAILED, WatchState.PASSED):
        of_state = [(gate, status) for gate, status in found if status.state is state]
        if of_state and len(gates) == 1:
            return of_state[0][1]
        if of_state:
            message, reason = (
                name_once([(gate.name, text) for gate, text in texts])
                for texts in (
                    [(gate, status.message) for gate, status in of_state],
                    [(gate, status.reason) for gate, status in of_state if status.reason],
                )
            )
            return WatchStatus(state=state, message=message, reason=reason)
    raise ValueError("No gate was checked.")


def record_outcome(ports: ClusterPorts, ref: GateRef, seen: GateCheck, status: WatchStatus) -> None:
    """Record that the watch is over, with its last check; does nothing while it waits."""
    if not status.done:
        return
    RECENT.record(ports, ref, seen, last=True)
    if status.state is WatchState.FAILED and ref.node_id is not None:  # a retry or a rollback writes on into the log
        ports.run.attach(log_of(ref.node_id), read_log_excerpt(ports, ports.cluster.node(ref.node_id)))
    ports.run.record(
        GatePassed(ref=ref, gate=seen.gate, message=status.message)
        if status.state is WatchState.PASSED
        else GateFailed(ref=ref, gate=seen.gate, message=status.message, reason=status.reason)
    )
