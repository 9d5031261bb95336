"""The gates before a node stops and after it starts.

The invariants:
- A stop never removes the last in-sync replica of a partition, and never takes a partition below min.insync.replicas,
  except in topics whose unavailability the approved plan accepts, and there only if no unclean leader is elected.
- A stop never removes the majority of caught-up voters of the metadata quorum.
- No node stops while another node is down, except the nodes of its own batch. A batch with two or more brokers of a
  partition leaves one in-sync replica more than min.insync.replicas.
- No answer of a broker counts whose metadata is old: every broker has fetched and applied the newest metadata, and the
  active controller counts nothing worse (`counters`).
- A node is back when it runs the release, would start on it again, is registered and unfenced, and is in every ISR of
  before its stop. It must also be caught up with the quorum, lead its previous preferred partitions, have applied all
  metadata, and have loaded the coordinator partitions that it leads (`coordinators`). An unknown value never meets a
  condition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.gates.coordinators import CoordinatorAnswers
from kafka_rollout.gates.counters import (
    NONE_EXPECTED,
    ExpectedErrors,
    Unchecked,
    controller_agrees,
    directories_online,
    no_metadata_errors,
)
from kafka_rollout.gates.gate import (
    BeforeStop,
    GateCheck,
    GateCondition,
    doubtful,
    join_of_nodes,
    none_left,
)
from kafka_rollout.gates.reasons import (
    ALL_SERVED,
    ANSWERS,
    CAUGHT_UP,
    IN_ISRS,
    LEADS,
    NEW_PROCESS,
    NEXT_START,
    OTHERS_UP,
    PROCESS,
    QUORUM,
    QUORUM_WITHOUT,
    RELEASE,
    SPARE_ISR,
    SPARE_OF_BATCH,
    SPARE_REPLICA,
    UNFENCED,
)
from kafka_rollout.model.host_state import Installation
from kafka_rollout.model.node_log import SeenLog
from kafka_rollout.model.plan import accepts_no_quorum, find_acceptance
from kafka_rollout.model.state import (
    ClusterState,
    NodeState,
    PartitionState,
    ProcessState,
    check_current,
    check_spare_voters,
)
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.model.unclean_elections import ENABLE, UNKNOWN_ELECTIONS, UncleanElections
from kafka_rollout.releases.facts import Release

RESTART_LOOP_S = 60.0  # a process that its service manager restarted counts when it is older


def state_before_stop(
    state: ClusterState,
    node_id: int,
    release: Release,
    at: float,
    coordinated: CoordinatorAnswers | None = None,
    *,
    installation: Installation | None = None,
) -> BeforeStop:
    """Return the state to store before a node stops. `release`: the release it runs; `at`: epoch seconds.

    `coordinated`: what it coordinates; None if it did not answer, or has no broker.
    """
    return BeforeStop(
        node_id=node_id,
        release=str(release),
        at=at,
        in_isr=frozenset(p.name for p in state.partitions if node_id in p.isr),
        leads=frozenset(p.name for p in state.partitions if p.leader == node_id),
        was_active_controller=state.quorum is not None and state.quorum.leader_id == node_id,
        was_voter=state.quorum is None or node_id in state.quorum.voter_ids,
        groups=(coordinated and coordinated.groups) or frozenset(),
        transactional_ids=(coordinated and coordinated.transactional_ids) or frozenset(),
        has_answered=coordinated is not None and None not in (coordinated.groups, coordinated.transactional_ids),
        pid=state.nodes[node_id].process.pid,
        started_at=state.nodes[node_id].process.started_at,
        installation=installation or Installation(),
    )


def check_before_stop(
    cluster: ClusterSpec,
    state: ClusterState,
    node: NodeSpec,
    *,
    accept_unavailable: Sequence[str] = (),
    unchecked: Unchecked = None,
    together: Collection[int] = (),
    max_under_replicated: int | None = None,
    elections: UncleanElections = UNKNOWN_ELECTIONS,
) -> GateCheck:
    """Check whether `node` can be stopped now. `accept_unavailable`, `unchecked`: as in Plan.

    `together`: ids of the other nodes that are stopped at the same time, or are down for this reason already.
    `max_under_replicated`: as in RunTerms. `elections`: needed only for `find_stale_leaders`.
    """
    stopping = frozenset({node.node_id, *together})
    conditions = [
        _answered_but(state, stopping),
        _others_up(cluster, state, stopping),
        _quorum_without(state, node, accepts_none=accepts_no_quorum(accept_unavailable)),
        _brokers_caught_up(state, [other for other in cluster.brokers if other.node_id not in stopping]),
        controller_agrees(cluster, state, unchecked),
    ]
    kept = [p for p in state.partitions if not find_acceptance(accept_unavailable, p.topic)]
    conditions.append(_all_served(kept, node.node_id))
    if node.is_broker:
        unfenced = state.registered.unfenced
        conditions += _isr_without(kept, node.node_id, unfenced, stopping)
        if together:
            conditions.append(_spare_without(state.partitions, unfenced, stopping))
    if stale := find_stale_leaders(state, node, accept_unavailable, together):
        conditions.append(_no_unclean_leader(stale, elections))
    if max_under_replicated is not None:
        conditions.append(_few_under_replicated(kept, stopping, max_under_replicated))
    if accepted := sorted(p.name for p in state.partitions if find_acceptance(accept_unavailable, p.topic)):
        evidence = f"{count(len(accepted), 'partition')}, not checked: {few(accepted)}"
        conditions.append(GateCondition(name="accepted as unavailable", is_met=True, evidence=evidence))
    return GateCheck(gate=f"before node {node.node_id}", at=state.observed_at, conditions=tuple(conditions))


def check_after_start(
    cluster: ClusterSpec,
    state: ClusterState,
    node: NodeSpec,
    *,
    before: BeforeStop | None,
    expected: Release,
    restarts: bool = False,
    unchecked: Unchecked = None,
    expected_errors: ExpectedErrors = NONE_EXPECTED,
    together: Collection[int] = (),
) -> GateCheck:
    """Check whether `node` is back on release `expected`.

    `before`: its state before the stop; without it, every replica of the node must be in sync. `restarts`: the release
    does not change, so it is no proof of a new process. `cluster`: the inventory of the node. `unchecked`: as in Plan.
    `expected_errors`: of settings that the release ignores, as the plan says, with the log of the node. `together`: ids
    of the other nodes that restart at the same time; each has a gate of its own.
    """
    seen = state.nodes.get(node.node_id)
    conditions = [
        _process(seen, state.observed_at),
        _release(seen, expected),
        _next_start(seen, expected),
        _answers(seen),
        _quorum_of(state, cluster.node(node.node_id), before),
        _brokers_caught_up(state, _serving(cluster, state, {node.node_id, *together})),
        controller_agrees(cluster, state, unchecked),
        no_metadata_errors([node], state, unchecked, expected=expected_errors),
    ]
    if state.is_partial:  # partitions that were not read are in no ISR and have no leader
        conditions.append(_answered_but(state, {node.node_id}))
    if restarts:
        conditions.append(_is_new(seen, before))
    if node.is_broker:
        conditions += [
            _registered(state, node, expected_errors.logs.get(node.node_id)),
            _in_isrs(state, node, before),
            _leads(state, node, before),
        ]
        conditions.append(directories_online(node, state, unchecked))
    return GateCheck(gate=f"after node {node.node_id}", at=state.observed_at, conditions=tuple(conditions))


def check_running(
    cluster: ClusterSpec,
    state: ClusterState,
    expected: Release,
    *,
    unchecked: Unchecked = None,
    expected_errors: ExpectedErrors = NONE_EXPECTED,
    lagging: Collection[str] = (),
) -> tuple[GateCondition, ...]:
    """Return the conditions that every node runs `expected` and serves, whoever started it.

    `state`: of all nodes, with metrics. `lagging`: topics whose replicas out of sync the plan lists. Which node leads
    is no condition: the broker that leads a coordinator partition shows its load (`coordinators`).
    """
    seen = state.nodes
    names: list[Callable[[NodeSpec], GateCondition]] = [
        lambda node: _answers(seen.get(node.node_id)),
        lambda node: _quorum_of(state, node, None, votes=False),
    ]
    if cluster.manages_nodes:
        names += [
            lambda node: _process(seen.get(node.node_id), state.observed_at),
            lambda node: _release(seen.get(node.node_id), expected),
            lambda node: _next_start(seen.get(node.node_id), expected),
        ]
    of_brokers: list[Callable[[NodeSpec], GateCondition]] = [
        lambda node: _registered(state, node, expected_errors.logs.get(node.node_id)),
        lambda node: directories_online(node, state, unchecked),
    ]
    late = [p.name for p in state.partitions if set(p.replicas) - set(p.isr) and p.topic not in lagging]
    return (
        _answered_but(state, ()),
        *(join_of_nodes({node.node_id: check(node) for node in cluster.nodes}) for check in names),
        *(join_of_nodes({node.node_id: check(node) for node in cluster.brokers}) for check in of_brokers),
        _brokers_caught_up(state, cluster.brokers),
        controller_agrees(cluster, state, unchecked),
        no_metadata_errors(cluster.nodes, state, unchecked, expected=expected_errors),
        none_left(
            "every replica is in sync",
            late,
            unmet=f"not in sync: {few(late)}",
            met=f"{count(len(state.partitions), 'partition')}, without the topics that the plan lists",
        ),
    )


def is_back_in_isrs(check: GateCheck) -> bool:
    """Return whether a check after a start of a broker has seen it in the ISRs: it has read what it missed."""
    met = {one.name for one in check.conditions if one.is_met}
    return met >= {PROCESS, ANSWERS, UNFENCED, IN_ISRS, CAUGHT_UP}


def deletions_seen(
    node_id: int, down_s: float, retention_ms: Mapping[str, int], accepted: Mapping[str, str]
) -> GateCondition:
    """Return the condition that no log cleaner removed a tombstone that the node had not read.

    The node then keeps the older value of the key, and shows it when it leads. `down_s`: until it was in the ISRs.
    `retention_ms`: compacted topic with a replica on the node → delete.retention.ms. `accepted`: as for `doubtful`.
    """
    name, down = "no deletion was missed", f"node {node_id} was down or behind for {down_s / 60:.0f} min"
    missed = sorted(topic for topic, kept_ms in retention_ms.items() if kept_ms < 1000 * down_s)
    if not missed:
        return GateCondition(name=name, is_met=True, evidence=down)
    topics = f"delete.retention.ms of {count(len(missed), 'compacted topic')} with replicas on it"
    evidence = (
        f"{down}, longer than {topics}: {few(missed)}. It can have older values of keys that were deleted. To be sure, "
        "stop it, move its folders of those of these partitions away that another broker then leads, and start it: it "
        "copies them from the leader"
    )
    return doubtful(name, evidence, [f"node {node_id} was down or behind for longer than {topics}"], accepted)


def without_election(conditions: Iterable[GateCondition], doubts: tuple[str, ...]) -> Iterable[GateCondition]:
    """Return the conditions of a broker that must not lead before an approver accepts these doubts."""
    waits = "the run requests no election before an approver has accepted that deletions were missed"
    for one in conditions:
        yield replace(one, evidence=f"{one.evidence}; {waits}", doubts=doubts) if one.name == LEADS else one


def find_lost_leaderships(state: ClusterState, node_id: int, before: BeforeStop | None) -> tuple[PartitionState, ...]:
    """List the partitions that `node_id` must lead again: preferred leader, in sync, and led by it before its stop."""
    return tuple(
        p
        for p in state.partitions
        if p.preferred_leader == node_id
        and p.leader != node_id
        and node_id in p.isr
        and (before is None or p.name in before.leads)
    )


def _answers(seen: NodeState | None) -> GateCondition:
    if seen is not None and seen.features is not None:
        return GateCondition(name=ANSWERS, is_met=True, evidence="ApiVersions responded")
    return GateCondition(name=ANSWERS, is_met=False, evidence=(seen.problem if seen else "") or "no response")


def _process(seen: NodeState | None, now: float) -> GateCondition:
    """A process that its service manager has restarted counts when it has run for a while."""
    process = seen.process if seen else ProcessState(pid=None)
    without = process.problem.removesuffix(".") or "no process"
    evidence = without if process.pid is None else f"pid {process.pid}"
    is_met = process.pid is not None
    if process.restarts:
        evidence += f"; systemd has restarted it {count(process.restarts, 'time')} since its start"
        is_met = is_met and process.started_at is not None and now - process.started_at >= RESTART_LOOP_S
    return GateCondition(name=PROCESS, is_met=is_met, evidence=evidence)


def _release(seen: NodeState | None, expected: Release) -> GateCondition:
    """Compare every source of the running release with the expected one. It lasts if none reports that."""
    reported = {
        "app-info reports": seen.metrics.release if seen and seen.metrics else None,
        "the process has loaded the jars of": seen.process.running if seen else None,
    }
    known = {source: release for source, release in reported.items() if release is not None}
    return GateCondition(
        name=RELEASE,
        is_met=set(known.values()) == {expected},
        is_lasting=bool(known) and expected not in known.values(),
        evidence=", ".join(f"{source} {release}" for source, release in known.items())
        or f"app-info did not respond, {expected} is expected",
    )


def _next_start(seen: NodeState | None, expected: Release) -> GateCondition:
    """Software that manages the host can switch the link or the package back while the process runs."""
    installed = seen.process.installed if seen else None
    evidence = f"on {installed or 'no known release'}"
    if installed != expected:
        evidence += f": switch the link, or install the package, of {expected}. Correct the software that manages it"
    is_lasting = installed is not None and installed != expected
    return GateCondition(name=NEXT_START, is_met=installed == expected, evidence=evidence, is_lasting=is_lasting)


def _is_new(seen: NodeState | None, before: BeforeStop | None) -> GateCondition:
    """Compare the process with the one before the stop."""
    process = seen.process if seen else ProcessState(pid=None)
    is_met, evidence = False, "the run has not stopped the node"
    if before is not None and (process.pid is None or before.is_of(process)):
        evidence = f"no process since pid {before.pid}, which ran before the stop"
    elif before is not None:
        is_met, evidence = True, f"pid {before.pid} before the stop, now {process.pid}"
    return GateCondition(name=NEW_PROCESS, is_met=is_met, evidence=evidence)


def _answered_but(state: ClusterState, stopping: Collection[int]) -> GateCondition:
    # The node itself may not respond: a node that failed to start must be stoppable for the rollback.
    own = {state.nodes[node_id].problem for node_id in stopping if node_id in state.nodes}
    return answered([question for question in state.unanswered if question not in own])


def answered(open_questions: Sequence[str]) -> GateCondition:
    """Return the condition that no query is open. `open_questions`: sentences of the failed queries."""
    unmet = f"no response: {few(open_questions)}"
    return none_left("every query answered", open_questions, unmet=unmet, met="all queries")


def _others_up(cluster: ClusterSpec, state: ClusterState, stopping: Collection[int]) -> GateCondition:
    down, fenced = [], []
    registered = state.registered
    for other in cluster.nodes:
        if other.node_id in stopping:
            continue
        seen = state.nodes.get(other.node_id)
        if seen is None or seen.features is None or seen.process.pid is None:
            shown = f" (its log: {seen.log_error})" if seen and seen.log_error else ""
            down.append(f"node {other.node_id} is down{shown}")
        elif other.is_broker and other.node_id not in registered.unfenced:
            fenced.append(other.node_id)
    others = len(cluster.nodes) - len(stopping)
    evidence = down + [f"broker {i} is fenced or not registered" for i in fenced]
    return none_left(OTHERS_UP, evidence, met=f"{count(others, 'node')} respond and are unfenced")


def _all_served(partitions: Sequence[PartitionState], node_id: int) -> GateCondition:
    """A partition without a leader and without a replica on the node is not affected by its stop.

    The plan's findings report it, and a new one before the stop invalidates the approval.
    """
    affected = [p for p in partitions if p.leader >= 0 or node_id in p.replicas]
    bad = [p.name for p in affected if p.leader < 0 or p.is_under_min_isr]
    elsewhere = len(partitions) - len(affected)
    met = f"{count(len(affected), 'partition')} have a leader and min ISR"
    if elsewhere:
        met += f"; {elsewhere} without a leader have no replica on node {node_id}"
    return none_left(ALL_SERVED, bad, unmet=f"no leader or under min ISR: {few(bad)}", met=met)


def _few_under_replicated(partitions: Sequence[PartitionState], stopping: frozenset[int], most: int) -> GateCondition:
    """Count partitions that lack a replica of a node which is not about to stop."""
    lacking = [p.name for p in partitions if set(p.replicas) - set(p.isr) - stopping]
    return GateCondition(
        name="under-replicated partitions",
        is_met=len(lacking) <= most,
        evidence=f"{count(len(lacking), 'partition')} of other nodes, at most {most}"
        + (f": {few(lacking)}" if lacking else ""),
    ).listing(lacking if len(lacking) > most else [])


def _isr_without(
    partitions: Sequence[PartitionState], node_id: int, unfenced: frozenset[int], stopping: frozenset[int]
) -> Iterable[GateCondition]:
    in_isr = [p for p in partitions if node_id in p.isr]
    lost, under = [], []
    for partition in in_isr:
        rest = (set(partition.isr) - stopping) & unfenced
        if not rest:
            lost.append(partition.name)
        elif len(rest) < partition.min_isr:
            under.append(f"{partition.name} ({len(rest)} of {partition.min_isr})")
    yield none_left(
        SPARE_REPLICA,
        lost,
        unmet=f"node {node_id} is the last in-sync replica of {few(lost)}",
        met=f"node {node_id} is in {count(len(in_isr), 'ISR')}; each has another unfenced in-sync replica",
    )
    unmet = f"without node {node_id} under min ISR: {few(under)}"
    yield none_left(SPARE_ISR, under, unmet=unmet, met=f"{count(len(in_isr), 'partition')} keep min ISR")


def _spare_without(
    partitions: Sequence[PartitionState], unfenced: frozenset[int], stopping: frozenset[int]
) -> GateCondition:
    """The rule of `PartitionState.can_stop_together`, with the replicas that are in sync now.

    Topics that are accepted as unavailable count too: what is accepted is the restart of one node.
    """
    short = []
    for partition in partitions:
        if len(stopping.intersection(partition.replicas)) > 1:
            rest = (set(partition.isr) - stopping) & unfenced
            if len(rest) <= partition.min_isr:
                short.append(f"{partition.name} ({len(rest)} in sync, min.insync.replicas {partition.min_isr})")
    return none_left(
        SPARE_OF_BATCH,
        short,
        unmet=f"without {nodes(stopping)} no spare replica: {few(short)}",
        met=f"{nodes(stopping)} stop together; partitions on two or more of them keep a spare replica",
    )


def find_stale_leaders(
    state: ClusterState, node: NodeSpec, accept_unavailable: Sequence[str], together: Collection[int] = ()
) -> tuple[PartitionState, ...]:
    """Return the partitions of accepted topics that keep only replicas out of sync when the node stops.

    A controller elects one of them with unclean.leader.election.enable=true, also while the node stops
    (ReplicationControlManager.handleBrokerInControlledShutdown): records are lost, and only unavailability is accepted.
    """
    stopping = {node.node_id, *together}
    running = state.registered.unfenced - stopping
    return tuple(
        one
        for one in state.partitions
        if node.node_id in one.isr
        and find_acceptance(accept_unavailable, one.topic)
        and not set(one.isr) & running
        and set(one.replicas) & running
    )


def _no_unclean_leader(stale: Sequence[PartitionState], elections: UncleanElections) -> GateCondition:
    bad = [one.name for one in stale if elections.of(one.topic) is not False]
    return none_left(
        "no unclean leader",
        bad,
        unmet=f"{ENABLE} is {'true' if all(elections.of(one.topic) for one in stale) else 'true or unknown'}: a "
        f"controller would elect a replica of {few(bad)} that is out of sync, and acknowledged records would be lost. "
        f"Wait until it is in sync, or set {ENABLE}=false for the topic",
        met=f"{ENABLE} is false for {few(one.name for one in stale)}, which will have no leader",
    )


def _quorum_without(state: ClusterState, node: NodeSpec, *, accepts_none: bool) -> GateCondition:
    if state.quorum is None or state.quorum.leader_id < 0:
        is_met, evidence = False, "no leader" if state.quorum else "the quorum is unknown"
    elif not node.is_controller:
        is_met, evidence = True, f"node {node.node_id} is not a voter"
    else:
        is_met, evidence = check_spare_voters(state.quorum, node.node_id, accepts_none=accepts_none)
    return GateCondition(name=QUORUM_WITHOUT, is_met=is_met, evidence=evidence)


def _quorum_of(state: ClusterState, node: NodeSpec, before: BeforeStop | None, *, votes: bool = True) -> GateCondition:
    """A controller is a voter again if it was one before its stop, or if this is unknown. Not `votes`: it can also be
    an observer.
    """
    quorum = state.quorum
    votes = votes and node.is_controller and (before is None or before.was_voter)
    if quorum is None:
        is_met, evidence = False, "the quorum is unknown"
    elif votes and node.node_id not in quorum.voter_ids:
        is_met, evidence = False, f"node {node.node_id} is not a voter of the quorum"
    else:
        seen = state.nodes.get(node.node_id) if node.is_broker else None
        is_met, evidence = check_current(quorum, node.node_id, seen)
    return GateCondition(name=QUORUM, is_met=is_met, evidence=evidence)


def _serving(cluster: ClusterSpec, state: ClusterState, restarting: Collection[int]) -> list[NodeSpec]:
    """Return the brokers without `restarting` that serve, or that fetched metadata in the last minutes.

    After a start, a broker that is down blocks nothing yet: the gate before the next stop requires it.
    """
    unfenced = state.registered.unfenced
    fetching = {replica.replica_id for replica in state.quorum.observers} if state.quorum else set()
    return [b for b in cluster.brokers if b.node_id not in restarting and b.node_id in unfenced | fetching]


def _brokers_caught_up(state: ClusterState, brokers: Sequence[NodeSpec]) -> GateCondition:
    """A broker that is cut off from the controllers still answers, with old registrations, leaders and ISRs."""
    if state.quorum is None:
        return GateCondition(name=CAUGHT_UP, is_met=False, evidence="the quorum is unknown")
    behind = []
    for broker in brokers:
        is_met, evidence = check_current(state.quorum, broker.node_id, state.nodes.get(broker.node_id))
        if not is_met:
            behind.append(f"broker {broker.node_id}: {evidence}")
    applied = f"fetched and applied the metadata of controller {state.quorum.leader_id}"
    return none_left(CAUGHT_UP, behind, met=f"{count(len(brokers), 'broker')} {applied}")


def _registered(state: ClusterState, node: NodeSpec, seen: SeenLog | None) -> GateCondition:
    """Quote the log of a broker whose registration the controller refuses: it asks again, and is refused again."""
    registered, node_id = state.registered, node.node_id
    known = node_id in registered.brokers or node_id in (registered.fenced or frozenset())
    unfenced = node_id in registered.unfenced
    status = "registered and unfenced" if unfenced else ("fenced" if known else "not registered, or fenced")
    refusal = seen.refusal if seen is not None and not unfenced else ""
    return GateCondition(name=UNFENCED, is_met=unfenced, evidence=f"broker {node_id} is {status}", log=refusal)


def _in_isrs(state: ClusterState, node: NodeSpec, before: BeforeStop | None) -> GateCondition:
    node_id = node.node_id
    # A partition that was deleted or reassigned since the stop is not expected.
    expected = [p for p in state.partitions if node_id in p.replicas and (before is None or p.name in before.in_isr)]
    missing = [p.name for p in expected if node_id not in p.isr]
    unmet = f"not yet in {count(len(missing), 'ISR')} of {len(expected)}: {few(missing)}"
    return none_left(IN_ISRS, missing, unmet=unmet, met=f"in all {len(expected)}")


def _leads(state: ClusterState, node: NodeSpec, before: BeforeStop | None) -> GateCondition:
    node_id = node.node_id
    own = [p for p in state.partitions if p.preferred_leader == node_id and (before is None or p.name in before.leads)]
    elsewhere = [p.name for p in own if p.leader != node_id]
    unmet = f"{count(len(elsewhere), 'partition')} of {len(own)} led by another node: {few(elsewhere)}"
    met = f"leads all {len(own)} that it led as preferred leader"
    return none_left(LEADS, elsewhere, unmet=unmet, met=met)
