"""What must have been seen before levels are raised, which Kafka may not undo.

A task of Airflow that was marked as successful proves nothing: the history has what each gate and the comparison saw.
It has nothing of nodes that another run, or an operator, has started. So the running nodes are observed, too: what
their gates would show now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS
from kafka_rollout.gates import node as node_gates
from kafka_rollout.gates.counters import ExpectedErrors
from kafka_rollout.gates.gate import (
    BeforeStop,
    GateCheck,
    GateCondition,
    GateKind,
    GatePolicy,
    GateRef,
    join_of_nodes,
)
from kafka_rollout.model.node_log import SeenLog
from kafka_rollout.model.plan import Direction
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, at_once, observe_some
from kafka_rollout.observation.node_logs import read_broker_log
from kafka_rollout.observation.node_steps import check_coordinators, check_remote_storage
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.findings.cluster_state import LACKING_REPLICAS
from kafka_rollout.preparation.metadata_errors import expected_of
from kafka_rollout.preparation.proved_traffic import accepted_of_traffic
from kafka_rollout.run.events import events_of
from kafka_rollout.run.projections.observations import unserved_since
from kafka_rollout.run.projections.runs import run_of
from kafka_rollout.run.proofs import find_failed_traffic, find_unproved_roll
from kafka_rollout.run.step_events import GateChecked, GatePassed, LogSeen

NODES = GateRef(kind=GateKind.NODES)
_PAUSES_S = (1.0, 3.0, 6.0, 10.0)


def refuse_unproved_nodes(run: Run, *, asks: bool = False) -> None:
    """Raise RefusedError unless the roll of this run is proved, and every node serves now as after its gate.

    What is in flight, such as an ISR or a response, raises TransientError, until it has been so in every check for the
    gate timeout. What was seen to stay, such as a release, is refused at once.

    `asks`: the approval that follows lists what is in doubt, and accepts it; else a log that alone is in doubt raises
    RefusedError, because no later try reads another one. A downgrade lowers levels before its roll, and a change of
    levels alone asks for no log (feature_updates/open_gates.py): neither needs this.
    """
    if run.plan.direction is not Direction.UPGRADE or run_of(run.history.events()) is RunOf.FEATURES:
        return
    refuse_unproved_roll(run)
    seen = _check_until_sure(run)
    if seen.passes or (asks and seen.doubts):
        return
    waited_s = seen.at - unserved_since(run.history.events(), seen.at)
    terms = run.plan.terms
    is_over = waited_s >= (GatePolicy().timeout_s if terms is None else terms.gate_timeout_s)
    kind = RefusedError if seen.doubts or seen.is_lasting or is_over else TransientError
    raise kind(
        f"No level is raised: {seen.waits_for}{f' (for {duration(waited_s)}: the gate timeout)' if is_over else ''}.",
        remedy="Read the log of the node and correct the cause. A restart of the node loads everything again. Then "
        "clear approve_finalize with all downstream tasks, or repeat the command of the run with --as NAME: this "
        "approval lists what only a log is in doubt about, and accepts it.",
    )


def refuse_unproved_roll(run: Run) -> None:
    """Raise RefusedError unless the gate after the start of each node has passed, and the cluster was compared with its
    state before the run since the last start. Test records that were lost before refuse it, too, unless an approver
    accepted them.
    """
    events = run.history.events()
    if run.plan.direction is not Direction.UPGRADE:
        return
    gap = find_unproved_roll(events, run.plan) or find_failed_traffic(events, accepted_of_traffic(run))
    if gap is not None:
        raise RefusedError(f"No level is raised: {gap.sentence}.", remedy=gap.remedy)


def _check_until_sure(run: Run) -> GateCheck:
    """Check until the nodes serve, or until an unmet condition stays for several checks. Record the last check.

    What lasts is seen twice: two values of one node are not of the same moment.
    """
    was_lasting = False
    for pause_s in (*_PAUSES_S, None):
        seen = check_running_nodes(run)
        if seen.passes or seen.doubts or pause_s is None or (seen.is_lasting and was_lasting):
            break
        was_lasting = seen.is_lasting
        run.ports.clock.sleep(pause_s)
    run.history.record(GateChecked(at=seen.at, ref=NODES, check=seen))
    if seen.passes:
        run.history.record(GatePassed(ref=NODES, gate=seen.gate, message="every node serves"))
    return seen


def check_running_nodes(run: Run) -> GateCheck:
    """Check the conditions of the gates after a start on all nodes, of the processes that run now."""
    ports, plan = run.ports, run.plan
    state = observe_some(ports, ports.cluster.nodes, metrics=True)
    expected = expected_of(run, plan.target, state, read_broker_logs(ports))
    subjects = {found.subject for found in plan.findings if found.code in LACKING_REPLICAS}
    conditions = node_gates.check_running(
        ports.cluster,
        state,
        plan.target,
        unchecked=plan.unchecked,
        expected_errors=expected,
        lagging=[one.topic for one in state.partitions if f"topic {one.topic}" in subjects],
    )
    of_brokers = _check_brokers(run, state, expected)
    return GateCheck(gate=NODES.kind.value, at=ports.clock.now(), conditions=(*conditions, *of_brokers))


def read_broker_logs(ports: ClusterPorts) -> dict[int, SeenLog]:
    """Read on in the log of each broker; return node id → what it has shown. What another run of the cluster has seen
    of the same process counts, because its log can be rotated since.
    """
    brokers, own = ports.cluster.brokers, {event.node_id for event in events_of(ports.run.events(), LogSeen)}
    # The histories of other runs are long.
    others = () if own >= {node.node_id for node in brokers} else ports.run.events_of_other_runs(LogSeen)
    earlier = {event.node_id: event.seen for event in others}
    found = zip(brokers, at_once(lambda node: read_broker_log(ports, node, earlier), brokers), strict=True)
    return {node.node_id: seen for node, seen in found if seen is not None}


def _check_brokers(run: Run, state: ClusterState, expected: ExpectedErrors) -> Iterable[GateCondition]:
    ports, found = run.ports, dict[str, dict[int, GateCondition]]()
    coordinators = replace(state, partitions=tuple(p for p in state.partitions if p.topic in COORDINATOR_TOPICS))

    def check(node: NodeSpec) -> tuple[GateCondition, ...]:
        log = expected.logs.get(node.node_id)
        before = _before_last_stop(run, node.node_id)
        loaded = check_coordinators(ports, coordinators, node, before, log=log, accepted=expected.accepted)
        tiered = check_remote_storage(
            ports,
            state,
            node,
            run.plan.target,
            config=ports.runtime.config(node),
            unchecked=run.plan.unchecked,
            log=log,
            accepted=expected.accepted,
        )
        return (loaded, *tiered)

    for node, conditions in zip(ports.cluster.brokers, at_once(check, ports.cluster.brokers), strict=True):
        for one in conditions:
            found.setdefault(one.name, {})[node.node_id] = one
    return map(join_of_nodes, found.values())


def _before_last_stop(run: Run, node_id: int) -> BeforeStop | None:
    """Return the state of the node before its last stop in this run; None if this run has not stopped it."""
    found = (run.history.load_before_stop(step.key, node_id) for step in reversed(run.plan.release_steps))
    return next((one for one in found if one is not None), None)
