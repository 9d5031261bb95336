"""The action of a live downgrade: the controllers stop and start at a lower metadata.version; the brokers serve.

The snapshot at the lower level is written and proved before the stop; after it only the end of the log is replayed. The
controllers start again on the same release. Running brokers fetch the snapshot, because it ends beyond their own logs.

Everything between the stop and the start is one action. If it fails, the controllers start again with their old logs,
unless they have elected a leader on the snapshot. A killed call is continued by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

from kafka_rollout.domain.gates.check import GateKind, GateRef
from kafka_rollout.domain.model.cluster.topology import NodeSpec
from kafka_rollout.domain.model.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.model.releases import METADATA_VERSION
from kafka_rollout.domain.model.wording import few
from kafka_rollout.domain.offline.log_choice import UnreadableLogError
from kafka_rollout.domain.run.events import ApprovalOf, newest
from kafka_rollout.domain.run.offline_events import (
    LiveFailed,
    LiveLowered,
    OfflineRestored,
    OfflineStopping,
    OfflineUndoing,
    OfflineUndone,
)
from kafka_rollout.domain.run.projections import offline as projections
from kafka_rollout.ports.cluster import PreparedSnapshot
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import read_last_error
from kafka_rollout.steps.common.until import until
from kafka_rollout.steps.features.levels import pending_changes
from kafka_rollout.steps.gates.checks import check_gate
from kafka_rollout.steps.offline.snapshot import (
    SNAPSHOTS,
    at_once,
    chosen_node,
    install_on,
    other_levels,
    quorum_lacks,
    write_once,
)
from kafka_rollout.steps.planning.check import check_plan, refuse_new_blockers

# The controllers are killed: the active one would wait in its shutdown for a new leader, which stopped controllers
# cannot elect. Kafka checks the whole metadata log at every start (KafkaRaftLog.createLog: no clean shutdown).
STOP_S = 0.0
READY_WITHIN_S = 60.0
READY_EVERY_S = 0.1
OTHERS_AFTER_S, EXITED_EVERY_S = 20.0, 2.0
_LONGEST_S = 3600.0  # limit of a single call: the largest metadata logs are read, written and copied in less time


def lower_live(ports: ClusterPorts, plan: Plan) -> str:
    """Lower the planned levels on the controllers; return a sentence. The gates show when the brokers follow.

    Raises RefusedError or TransientError, with every controller running on its old log, if the levels were not lowered.
    Raises TransientError if a leader was elected at the new level, but the controllers do not serve yet: repeat it.
    """
    plan = check_plan(ports, plan.hash)
    if not plan.live:
        raise RefusedError(f"The plan of cluster {plan.cluster} is not a live downgrade.", remedy="Start a new run.")
    require_approval(ports, plan, ApprovalOf.ROLL)
    purpose = f"Lower metadata.version of cluster {plan.cluster} with the controllers stopped."
    lock.acquire_lock(ports, purpose, for_s=lock.LEASE_S + _LONGEST_S)
    with ports.lock.acting(ports.cluster.name, ports.run_id, "Lowering metadata.version live"), ExitStack() as opened:
        done = newest(projections.events_of_this_try(ports.run.events()), LiveLowered)
        if done is not None:  # the nodes can be rolled since
            return done.sentence
        if projections.is_undoing(ports.run.events()):
            _restore_controllers(ports, plan)
        if not projections.stop_has_begun(ports.run.events()):
            if not _lacks(ports, plan):
                return f"metadata.version is {plan.levels[METADATA_VERSION]} already."
            _refuse_unready(ports, plan)
        prepared = opened.enter_context(_prepare(ports, plan)) if _left(ports) else None
        return _lower(ports, plan, prepared)


def _refuse_unready(ports: ClusterPorts, plan: Plan) -> None:
    refuse_new_blockers(ports, plan)
    if left := pending_changes(ports, plan):
        raise RefusedError(
            f"Some levels are not lowered yet: {', '.join(f'{c.feature} is not' for c in left)}.",
            remedy="Lower the levels first.",
        )
    seen = check_gate(ports, plan, GateRef(kind=GateKind.CONTROLLERS_STOP))
    if not seen.passes:
        raise TransientError(
            f"The controllers cannot be stopped safely yet: {seen.waits_for}.",
            remedy="Nothing was stopped. Wait until the conditions are met, then repeat the step.",
        )


def _prepare(ports: ClusterPorts, plan: Plan) -> AbstractContextManager[PreparedSnapshot]:
    """Write and prove everything that does not need the end of the log."""
    level, out = plan.levels[METADATA_VERSION], ports.run.private_path(SNAPSHOTS)
    for node in ports.cluster.controllers:
        try:
            ports.metadata_logs.prepare_install(node, out, level=level, target=plan.target, cluster_id=plan.cluster_id)
        except UnreadableLogError:
            continue  # its disk was lost after the stop; the choice of the log reports it
    return ports.metadata_logs.prepared_snapshot(
        _readable_controller(ports, plan),
        level=level,
        features=other_levels(plan),
        target=plan.target,
        cluster_id=plan.cluster_id,
    )


def _readable_controller(ports: ClusterPorts, plan: Plan) -> NodeSpec:
    """Return a controller with a readable log, the active one if there is one."""
    try:
        leader = ports.admin.quorum().leader_id
    except TransientError:
        leader = -1
    for node in sorted(ports.cluster.controllers, key=lambda node: node.node_id != leader):
        try:
            ports.metadata_logs.node_log(node, cluster_id=plan.cluster_id)
        except UnreadableLogError:
            continue
        return node
    raise RefusedError("No controller has a readable metadata log.", remedy="Restore the controllers' directories.")


def _lower(ports: ClusterPorts, plan: Plan, prepared: PreparedSnapshot | None) -> str:
    if not projections.stop_has_begun(ports.run.events()):
        _record_stop(ports)
    try:
        if _left(ports):
            _install(ports, plan, prepared)
        waits_for = _start_until_ready(ports, plan)
        if waits_for:
            raise TransientError(f"The controllers do not serve after {READY_WITHIN_S:.0f} s: {waits_for}")
    except BaseException as error:
        if _has_elected(ports, plan):
            _start(ports, ports.cluster.controllers)
            raise
        ports.run.record(OfflineUndoing(sentence="The controllers have no leader at the new level."))
        _restore_controllers(ports, plan)
        why = error.sentence if isinstance(error, RolloutError) else f"{type(error).__name__}."
        failed = f"metadata.version was not lowered: {why} The controllers run on their old logs again."
        ports.run.record(LiveFailed(sentence=failed))
        if not isinstance(error, RolloutError):
            raise
        raise RefusedError(failed, remedy=error.remedy or "Fix the cause, then repeat the step.") from error
    stopping = newest(ports.run.events(), OfflineStopping)  # of an earlier call, if that was killed
    seconds = 0.0 if stopping is None else ports.clock.now() - stopping.at
    sentence = (
        f"metadata.version is {plan.levels[METADATA_VERSION]} on the controllers. "
        f"No controller was active for at most {seconds:.1f} s."
    )
    ports.run.record(LiveLowered(without_controller_s=round(seconds, 1), sentence=sentence))
    return sentence


def _record_stop(ports: ClusterPorts) -> None:
    quorum = ports.admin.quorum()
    voters = tuple(voter.replica_id for voter in quorum.voters)
    sentence = f"The controllers are requested to stop; the quorum's voters are {', '.join(map(str, voters))}."
    ports.run.record(OfflineStopping(voters=voters, unwritable=(), sentence=sentence))


def _left(ports: ClusterPorts) -> tuple[NodeSpec, ...]:
    """Return the controllers without the snapshot. None of them was started by this try."""
    done = projections.installed_on(ports.run.events())
    return tuple(node for node in ports.cluster.controllers if node.node_id not in done)


def _install(ports: ClusterPorts, plan: Plan, prepared: PreparedSnapshot | None) -> None:
    left = _left(ports)
    at_once(lambda node: ports.runtime.stop(node, deadline_s=STOP_S, force=True), left)
    path = write_once(ports, plan, prepared)
    at_once(lambda node: ports.run.record(install_on(ports, plan, node, path)), left)


def _start_until_ready(ports: ClusterPorts, plan: Plan) -> str:
    """Start a majority of the controllers. Start the others when it serves, when one exits, or after a time limit.

    Controllers on one host start slower if all start at once, and one that starts during an election can repeat it.
    Returns what is missing; empty if they serve.
    """

    def wait(seconds: float) -> str:
        return until(
            ports.clock, lambda: _lacks(ports, plan), lambda found: not found, for_s=seconds, every_s=READY_EVERY_S
        )

    had_log = {node_id for node_id, event in projections.installed_on(ports.run.events()).items() if event.had_log}
    candidate = chosen_node(ports)
    ordered = sorted(ports.cluster.controllers, key=lambda node: (node.node_id not in had_log, node != candidate))
    first = ordered[: len(ordered) // 2 + 1]
    _start(ports, first)
    for _ in range(int(OTHERS_AFTER_S / EXITED_EVERY_S)):
        if not wait(EXITED_EVERY_S) or any(ports.runtime.process(node).pid is None for node in first):
            break
    _start(ports, ordered)
    return wait(READY_WITHIN_S)


def _start(ports: ClusterPorts, controllers: Sequence[NodeSpec]) -> None:
    def start(node: NodeSpec) -> None:
        if ports.runtime.process(node).pid is None:
            ports.runtime.start(node)

    at_once(start, controllers)


def _lacks(ports: ClusterPorts, plan: Plan) -> str:
    return quorum_lacks(ports, plan.levels[METADATA_VERSION])


def _has_elected(ports: ClusterPorts, plan: Plan) -> bool:
    """Return whether a leader was elected on the snapshot: its first record has a higher epoch than the snapshot.

    Then brokers can have fetched the snapshot, and the old logs must not be used again. Unknown counts as elected once
    a controller was started on the snapshot.
    """
    events = ports.run.events()
    chosen = projections.chosen_log(events)
    if chosen is None:
        return False
    epoch = chosen.snapshot_epoch
    for node in ports.cluster.nodes:
        try:
            log = ports.metadata_logs.node_log(node, cluster_id=plan.cluster_id)
        except RolloutError:
            if node.node_id in projections.installed_on(events) and ports.runtime.process(node).pid is not None:
                return True
            continue
        if log.epoch > epoch or (log.epoch == epoch and not node.is_controller):
            return True
    return False


def _restore_controllers(ports: ClusterPorts, plan: Plan) -> None:
    """Start every controller on its old log. A repeated call finishes an interrupted one."""
    installed = projections.installed_on(ports.run.events())
    problems = []
    for node in ports.cluster.controllers:
        if node.node_id in installed and node.node_id not in projections.restored_nodes(ports.run.events()):
            ports.runtime.stop(node, deadline_s=STOP_S, force=True)
        if ports.runtime.process(node).pid is not None:
            continue
        try:
            sentence = ports.metadata_logs.undo_install(node, cluster_id=plan.cluster_id, keep_epoch=True)
            found = sentence or "No snapshot was installed."
            ports.run.record(OfflineRestored(node_id=node.node_id, sentence=f"node {node.node_id}: {found}"))
        except UnreadableLogError:
            pass  # its disk was lost: there is nothing to restore
        except RolloutError as error:
            problems.append(f"controller {node.node_id}: {error}")
            continue
        ports.runtime.start(node)
    if problems:
        raise FatalError(
            f"Not every controller runs on its old log again: {few(problems)}",
            remedy="The others were started. Fix the cause, then repeat the step.",
        )
    restored = sorted(projections.restored_nodes(ports.run.events()))
    sentence = f"Controllers started on their old logs: {', '.join(map(str, restored)) or 'none'}."
    ports.run.record(OfflineUndone(nodes=tuple(restored), sentence=sentence))
    waits_for = until(ports.clock, lambda: _unserved(ports), lambda found: not found, for_s=READY_WITHIN_S)
    if waits_for:
        first = ports.cluster.controllers[0]
        raise FatalError(
            f"The controllers were started on their old logs, but they do not serve: {waits_for}",
            remedy=f"Read the logs of the controllers. Controller {first.node_id}: {read_last_error(ports, first)}.",
        )


def _unserved(ports: ClusterPorts) -> str:
    try:
        return "" if ports.admin.quorum().leader_id >= 0 else "the quorum has no leader."
    except TransientError as error:
        return error.sentence
