"""The actions of an offline downgrade: stop all, choose the log, write the snapshot, install it, start again; and undo.

Every action first checks what is already done, so a killed run continues with the same calls in the same order. Until
the first broker has registered at the new level, `undo_offline` can undo everything: it restores every node's directory
from its backup, installs the old binary and starts all nodes. Every node's log shows whether it can; the history does
not count.

A host can be silent while the snapshot is installed. Then systemd can have started its node on its old release: it
follows the leader that was elected on the snapshot, and fetches the snapshot. Until then it has its old log, which the
target release may not be able to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.time_limits import LEASE_OF_LOGS_S, STOP_S, WITHOUT_QUORUM_S
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.control import lock
from kafka_rollout.control.approval import require_approval
from kafka_rollout.control.holds import refuse_held
from kafka_rollout.feature_updates.levels import pending_changes
from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.gates.node import check_before_stop, state_before_stop
from kafka_rollout.lowering.lowered_snapshot import (
    choose_once,
    host_of,
    install_on,
    quorum_lacks,
    refuse_running,
    runs,
    silent_hosts,
    write_once,
)
from kafka_rollout.metadata_log.log_choice import (
    ChosenLog,
    UnreadableLogError,
    describe_no_return,
    epoch_after_return,
    follows_snapshot,
    has_majority,
)
from kafka_rollout.metadata_log.outage import unwritable
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, at_once, observe_some, until
from kafka_rollout.observation.each_node import on_each
from kafka_rollout.observation.node_logs import read_last_error
from kafka_rollout.observation.node_steps import (
    coordinated_by,
    last_started_release,
    offline_release_step,
    record_start,
    run_commands_before_stop,
    stop_node,
)
from kafka_rollout.observation.outage import watch_service
from kafka_rollout.preparation.frozen_plan import check_plan, refuse_new_blockers, refuse_new_in_logs
from kafka_rollout.preparation.lost_metadata import refuse_new_losses
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import ApprovalOf, newest
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.run.projections.offline import (
    chosen_log,
    installed_on,
    is_undoing,
    restored_nodes,
    snapshot_is_written,
    stop_has_begun,
    unreached,
)
from kafka_rollout.run.step_events import (
    OfflineInstalled,
    OfflineLeftBehind,
    OfflineNoReturn,
    OfflineRestored,
    OfflineStopping,
    OfflineUndoing,
    OfflineUndone,
    OfflineUnreached,
    Started,
)

READY_WITHIN_S = 120.0
_GATE = Gate(kind=GateKind.NODES_STOP)


def stop_all(ports: ClusterPorts, plan: Plan) -> tuple[int, ...]:
    """Stop every node: brokers first, then controllers (combined nodes with them), each group in parallel.

    Before the first stop everything is checked again, and the state that cannot be read later is recorded. Raises
    HeldError while something holds this stop; once it has begun, nothing holds the run. A controller
    that hangs in its shutdown is killed after WITHOUT_QUORUM_S, as the approval shows. Returns the stopped ids.
    """
    plan, release_step = _begin(ports, plan, "Stop all nodes")
    with ports.lock.acting(ports.cluster.name, ports.run_id, "Stopping all nodes"):
        _refuse_after_undo(ports)
        if not projections.stop_has_begun(ports.run.events()):
            refuse_new_blockers(ports, plan)
            if left := pending_changes(ports, plan):
                raise RefusedError(
                    f"Some levels are not lowered yet: {', '.join(f'{c.feature} is not' for c in left)}.",
                    remedy="Lower the levels first.",
                )
            refuse_held(ports, plan, _GATE, "The stop of all nodes")  # before the commands
            at_once(lambda node: ports.runtime.bring(node, release_step.to_release), ports.cluster.nodes)
            at_once(lambda node: run_commands_before_stop(ports, release_step, node), ports.cluster.nodes)
            if any(node.commands_before_stop for node in ports.cluster.nodes):  # they can take an hour
                refuse_new_blockers(ports, plan)
            refuse_new_in_logs(ports, plan, release_step)
            refuse_new_losses(ports, plan)
            refuse_held(ports, plan, _GATE, "The stop of all nodes", is_prepared=True)
            _record_before(ports, release_step)
        stopped: list[int] = []
        for round_, force in ((ports.cluster.brokers_alone, False), (ports.cluster.controllers, True)):
            stopped += _stop_round(ports, plan, release_step, round_, force=force)
    return tuple(stopped)


def _stop_round(
    ports: ClusterPorts, plan: Plan, release_step: ReleaseStep, round_: Sequence[NodeSpec], *, force: bool
) -> Sequence[int]:
    """Stop nodes in parallel; return those that were stopped now.

    A host that does not respond is passed over if this run has already stopped or started its node. Else it raises
    TransientError after the others of the round, because its node can still run. When the brokers serve again, a node
    that something started on its old release is stopped only if the others can spare it.
    """
    done = projections.last_acts(ports.run.events())
    serves = projections.has_passed_no_return(ports.run.events())
    deadline_s = WITHOUT_QUORUM_S if force else STOP_S

    def stop(node: NodeSpec) -> bool:
        # A resumed run does not stop a node that it has already started on the target.
        if ports.runtime.process(node).pid is None or last_started_release(ports, node) == release_step.to_release:
            return False
        if serves:
            stop_late(ports, plan, node, deadline_s=STOP_S)
        else:
            stop_node(ports, release_step, node, deadline_s=deadline_s, force=force)
        return True

    acted = on_each(stop, round_)
    for node_id, error in acted.failed.items():
        if not (isinstance(error, TransientError) and node_id in done):
            raise error
    return [node_id for node_id, was_stopped in acted.done.items() if was_stopped]


def choose(ports: ClusterPorts, plan: Plan) -> ChosenLog:
    """Choose the log to continue from; the first choice of this attempt stays.

    Raises RefusedError unless the logs of a majority of voters are available, and for a log of another cluster.
    """
    plan, _ = _begin(ports, plan, "Choose the metadata log")
    with ports.runtime.short_timeouts():
        return choose_once(ports, plan, silent=silent_hosts(ports, ports.cluster.nodes))


def write_snapshot(ports: ClusterPorts, plan: Plan) -> Path:
    """Write the end of the chosen log as a snapshot at the planned levels, and load it with the target's classes.

    Every loss is recorded. Raises RefusedError if metadata would be lost and the plan is not `unsafe`.
    """
    plan, _ = _begin(ports, plan, "Write the snapshot")
    with ports.runtime.short_timeouts():
        return write_once(ports, plan, silent=silent_hosts(ports, ports.cluster.nodes))


def install_snapshot(ports: ClusterPorts, plan: Plan) -> dict[int, str]:
    """Install the snapshot on every node in parallel, backups first. Returns node id → what was done.

    A node whose host does not respond is recorded and not started until a repeated call has installed the snapshot
    there. Raises TransientError unless the snapshot is on a majority of the voters.
    """
    plan, _ = _begin(ports, plan, "Install the snapshot")
    with _acting(ports, "Installing the snapshot"):
        _refuse_after_undo(ports)
        done = projections.installed_on(ports.run.events())
        if left := [node for node in ports.cluster.nodes if node.node_id not in done]:
            _install_on_each(ports, plan, left)
    events = ports.run.events()
    installed = {node_id: one.sentence for node_id, one in projections.installed_on(events).items()}
    return {**installed, **projections.unreached(events)}


def _install_on_each(ports: ClusterPorts, plan: Plan, left: Sequence[NodeSpec]) -> None:
    silent = silent_hosts(ports, left)
    path = write_once(ports, plan, silent=silent)
    late = projections.unreached(ports.run.events())
    reached = [node for node in left if node.node_id not in silent]
    refuse_running(ports, plan, reached)

    def install(node: NodeSpec) -> None:
        ports.run.record((install_late if node.node_id in late else install_on)(ports, plan, node, path))

    failed = on_each(install, reached).failed
    for node_id, error in failed.items():
        if not (isinstance(error, TransientError) or node_id in late):
            raise error
    problems = {**silent, **{node_id: error.sentence for node_id, error in failed.items()}}
    for node_id, reason in problems.items():
        sentence = f"The snapshot is not installed on node {node_id}: {reason}"
        ports.run.record(OfflineUnreached(node_id=node_id, sentence=sentence))
    with_log = [node_id for node_id, one in projections.installed_on(ports.run.events()).items() if one.had_log]
    if problems and not has_majority(choose_once(ports, plan).voters, with_log):
        raise TransientError(
            f"The snapshot is not installed on a majority of the voters: {few(problems.values())}",
            remedy="Repeat the step when the hosts respond, or undo the downgrade with `kafka-rollout rollback`.",
        )


def install_binaries(ports: ClusterPorts, plan: Plan) -> None:
    """Set the target as the release that every stopped node starts next. A host that does not respond is left out."""
    plan, release_step = _begin(ports, plan, "Install the binary")
    with _acting(ports, "Installing the binary"):
        _refuse_not_installed(ports)

        def install(node: NodeSpec) -> None:
            process = ports.runtime.process(node)
            if process.pid is None:
                release = release_step.to_release
                ports.runtime.install(node, release, plan.config_changes_of(node.node_id, release))
            elif process.installed != release_step.to_release:
                raise runs(node, "Stop it first: something started it during this step.")

        acted = on_each(install, _with_snapshot(ports, ports.cluster.nodes), in_turn=host_of)
        for node_id, error in acted.failed.items():
            if not isinstance(error, TransientError):
                raise error
            _leave_out(ports, ports.cluster.node(node_id), error)


def start_controllers(ports: ClusterPorts, plan: Plan, *, ready_within_s: float = READY_WITHIN_S) -> tuple[int, ...]:
    """Start the controllers and wait until they form a quorum at the planned level. Returns the started ids.

    For combined nodes this is the point of no return. Raises TransientError while there is no quorum. Raises FatalError
    for a controller that does not stay up, unless its disk was lost: then its gate waits.
    """
    plan, release_step = _begin(ports, plan, "Start the controllers")
    with _acting(ports, "Starting the controllers"):
        _refuse_not_installed(ports)
        if any(node.is_broker for node in ports.cluster.controllers):
            _pass_no_return(ports)
        started = _start(ports, release_step, ports.cluster.controllers)
        unserved_at = _wait_for_quorum(ports, plan, ready_within_s)
        for node in _left_behind(ports, plan):
            sentence = f"The quorum continues without controller {node.node_id}, whose log was missing: "
            ports.run.record(OfflineLeftBehind(node_id=node.node_id, sentence=sentence + read_last_error(ports, node)))
        if not ports.cluster.brokers_alone:
            watch_service(ports, ready_within_s, unserved_at)
    return started


def start_again(ports: ClusterPorts, plan: Plan, node: NodeSpec) -> None:
    """Start every node of this node's kind that is down, also one whose host did not respond before.

    The steps before the start are repeated: they only do what is left.
    """
    stop_all(ports, plan)
    install_snapshot(ports, plan)
    install_binaries(ports, plan)
    (start_controllers if node.is_controller else start_brokers)(ports, plan)


def start_brokers(ports: ClusterPorts, plan: Plan, *, ready_within_s: float = READY_WITHIN_S) -> tuple[int, ...]:
    """Start the brokers; from here no undo is possible. Returns the started ids. The gates show when they are back."""
    plan, release_step = _begin(ports, plan, "Start the brokers")
    with _acting(ports, "Starting the brokers"):
        _refuse_not_installed(ports)
        _wait_for_quorum(ports, plan, ready_within_s)
        _pass_no_return(ports)
        started = _start(ports, release_step, ports.cluster.brokers_alone)
        watch_service(ports, ready_within_s)
    return started


def _begin(ports: ClusterPorts, plan: Plan, what: str) -> tuple[Plan, ReleaseStep]:
    plan = check_plan(ports, plan.hash)
    release_step = offline_release_step(plan)
    require_approval(ports, plan, ApprovalOf.ROLL)
    purpose = f"{what} of cluster {plan.cluster} (offline, {release_step.from_release} to {release_step.to_release})."
    lock.acquire_lock(ports, purpose, for_s=LEASE_OF_LOGS_S)
    return plan, release_step


@contextmanager
def _acting(ports: ClusterPorts, what: str) -> Iterator[None]:
    """Fence the changes, and give up hosts that do not respond early: the cluster is down."""
    with ports.lock.acting(ports.cluster.name, ports.run_id, what), ports.runtime.short_timeouts():
        yield


def _record_before(ports: ClusterPorts, release_step: ReleaseStep) -> None:
    state = observe_some(ports, ports.cluster.nodes, metrics=False)
    if state.quorum is None:
        raise TransientError("The quorum's voters were not reported.", remedy="Nothing was stopped. Repeat the step.")
    for node in ports.cluster.nodes:
        coordinated = coordinated_by(ports, state, node)
        before = state_before_stop(state, node.node_id, release_step.from_release, ports.clock.now(), coordinated)
        ports.run.save_before_stop(release_step.key, before)
    voters = tuple(voter.replica_id for voter in state.quorum.voters)
    sentence = f"All nodes are requested to stop; the quorum's voters are {', '.join(map(str, voters))}."
    ports.run.record(OfflineStopping(voters=voters, unwritable=tuple(unwritable(state)), sentence=sentence))


def _start(ports: ClusterPorts, release_step: ReleaseStep, chosen: Sequence[NodeSpec]) -> tuple[int, ...]:
    """Start the nodes that have the snapshot; one whose host does not respond is left out, and its gate waits."""
    acted = []
    for node in _with_snapshot(ports, chosen):
        try:
            process = ports.runtime.process(node)
            if process.pid is not None:
                continue
            if process.installed != release_step.to_release:
                raise RefusedError(
                    f"Node {node.node_id} has {process.installed} installed, not {release_step.to_release}.",
                    remedy="Install the binary first.",
                )
            ports.runtime.start(node)
            acted.append(node.node_id)
            record_start(ports, release_step, node)
        except TransientError as error:
            _leave_out(ports, node, error)
    return tuple(acted)


def _with_snapshot(ports: ReadPorts, chosen: Sequence[NodeSpec]) -> list[NodeSpec]:
    """Return the nodes without those whose hosts did not respond to the installation: they have their old logs."""
    unreached = projections.unreached(ports.run.events())
    return [node for node in chosen if node.node_id not in unreached]


def _leave_out(ports: ClusterPorts, node: NodeSpec, error: TransientError) -> None:
    ports.run.record(OfflineLeftBehind(node_id=node.node_id, sentence=f"Node {node.node_id}: {error.sentence}"))


def _wait_for_quorum(ports: ClusterPorts, plan: Plan, within_s: float) -> float:
    """Wait for a leader and the planned level; return the last time without them (epoch seconds)."""
    had_a_log, lacked_at = choose_once(ports, plan).read, 0.0
    started = [
        node
        for node in ports.cluster.controllers
        if node.node_id in had_a_log
        and isinstance(projections.last_acts(ports.run.events()).get(node.node_id), Started)
    ]

    def check() -> str:
        nonlocal lacked_at
        checked_at = ports.clock.now()
        waits_for = quorum_lacks(ports, plan)
        silent = silent_hosts(ports, started)
        for node in started:
            if node.node_id not in silent and ports.runtime.process(node).pid is None:
                raise FatalError(
                    f"Controller {node.node_id} does not stay up: {read_last_error(ports, node)}.",
                    remedy="No broker was started by this step. Fix the error in its log, or undo the downgrade with "
                    "`kafka-rollout rollback`.",
                )
        if waits_for:
            lacked_at = checked_at
        return waits_for

    waits_for = until(ports.clock, check, lambda found: not found, for_s=within_s)
    if waits_for:
        raise TransientError(
            f"The controllers are not ready after {within_s:.0f} s: {waits_for}",
            remedy="Repeat the step to wait longer, or undo it with `kafka-rollout rollback` if no broker runs.",
        )
    return lacked_at


def _left_behind(ports: ClusterPorts, plan: Plan) -> tuple[NodeSpec, ...]:
    """Return the controllers without a process whose log was already missing when the log was chosen."""
    had_a_log = choose_once(ports, plan).read
    lost = [node for node in ports.cluster.controllers if node.node_id not in had_a_log]
    silent = silent_hosts(ports, lost)
    return tuple(node for node in lost if node.node_id not in silent and ports.runtime.process(node).pid is None)


def _pass_no_return(ports: ClusterPorts) -> None:
    if not projections.has_passed_no_return(ports.run.events()):
        ports.run.record(OfflineNoReturn(sentence=describe_no_return(ports.cluster)))


def _refuse_after_undo(ports: ReadPorts) -> None:
    if projections.is_undoing(ports.run.events()):
        raise RefusedError("The undo of this downgrade has begun.", remedy="Finish it with `kafka-rollout rollback`.")


def _refuse_not_installed(ports: ReadPorts) -> None:
    _refuse_after_undo(ports)
    events = ports.run.events()
    known = projections.installed_on(events).keys() | projections.unreached(events).keys()
    left = {node.node_id for node in ports.cluster.nodes} - known
    if left:
        raise RefusedError(f"The snapshot is not installed on {nodes(left)}.", remedy="Install it there first.")


def stop_late(ports: ClusterPorts, plan: Plan, node: NodeSpec, *, deadline_s: float) -> None:
    """Stop a node that runs its old release while the others serve. Raises RefusedError if they cannot spare it."""
    if node.commands_before_stop:  # before the gate: they can take an hour
        ports.runtime.prepare_stop(node)
    state = observe_some(ports, ports.cluster.nodes, metrics=False)
    seen = check_before_stop(
        ports.cluster, state, node, accept_unavailable=plan.accept_unavailable, unchecked=plan.unchecked
    )
    if not seen.passes:
        raise RefusedError(
            f"Node {node.node_id} runs its old release and cannot be stopped safely yet: {seen.waits_for}",
            remedy="Wait until the conditions are met, then repeat the step.",
        )
    ports.runtime.stop(node, deadline_s=deadline_s)


def install_late(ports: ClusterPorts, plan: Plan, node: NodeSpec, snapshot: Path) -> OfflineInstalled:
    """Give a stopped node the snapshot, or keep the one that it has fetched from the leader.

    A controller that voted since the choice of the log, but has not fetched the snapshot, is started again on its old
    release to fetch it. Raises TransientError then.
    """
    level = plan.levels[METADATA_VERSION]
    serves = projections.has_passed_no_return(ports.run.events()) and not quorum_lacks(ports, plan)
    if serves and has_fetched_snapshot(ports, plan, node):
        ports.metadata_logs.replace_bootstrap(node, level=level, release=plan.target, cluster_id=plan.cluster_id)
        sentence = "The node was started on its old release and has fetched the snapshot from the leader."
        return OfflineInstalled(node_id=node.node_id, sentence=sentence, had_log=True)
    try:
        return install_on(ports, plan, node, snapshot)
    except RefusedError as error:
        if not serves:
            raise
        ports.runtime.install(node, offline_release_step(plan).from_release)
        ports.runtime.start(node)
        raise TransientError(f"{error.sentence} It was started on its old release to fetch the snapshot.") from error


def has_fetched_snapshot(ports: ReadPorts, plan: Plan, node: NodeSpec) -> bool:
    """Return whether a stopped node's log continues the snapshot of this try."""
    chosen = projections.chosen_log(ports.run.events())
    try:
        log = ports.metadata_logs.node_log(node, cluster_id=plan.cluster_id)
    except UnreadableLogError:
        return False
    return chosen is not None and follows_snapshot(log, chosen)


def undo_offline(ports: ClusterPorts, plan: Plan) -> tuple[int, ...]:
    """Stop the nodes that run the target, restore every byte, install the old binary, start. Return the restored nodes.

    Each node is handled on its own. Idempotent and resumable. Raises RefusedError, with nothing changed, if it is too
    late, and TransientError if it is unknown; TransientError or FatalError, with the other nodes started, if a node
    could not be restored. The gates after the start show when the nodes are back.
    """
    plan = check_plan(ports, plan.hash)
    release_step = offline_release_step(plan)
    require_approval(ports, plan, ApprovalOf.ROLL_BACK)
    lock.acquire_lock(ports, f"Undo the offline downgrade of cluster {plan.cluster}.")
    acting = ports.lock.acting(ports.cluster.name, ports.run_id, "Undoing the offline downgrade")
    with acting, ports.runtime.short_timeouts():
        if not stop_has_begun(ports.run.events()):
            return ()
        if not is_undoing(ports.run.events()):
            _begin_undo(ports, plan, release_step)
        failed = dict(on_each(lambda node: _restore_node(ports, plan, node), ports.cluster.nodes).failed)
        if any(ports.cluster.node(node_id).is_controller for node_id in failed):
            failed |= _raise_epochs(ports, plan, failed)
        for group in (ports.cluster.controllers, ports.cluster.brokers_alone):  # controllers first
            left = [node for node in group if node.node_id not in failed]
            failed |= on_each(lambda node: _start_on_source(ports, release_step, node), left, in_turn=host_of).failed
        restored = sorted(restored_nodes(ports.run.events()))
        if failed:
            _raise_for(failed, release_step)
        sentence = f"Nodes started on {release_step.from_release}; restored: {', '.join(map(str, restored)) or 'none'}."
        ports.run.record(OfflineUndone(nodes=tuple(restored), sentence=sentence))
        watch_service(ports, READY_WITHIN_S)
    return tuple(restored)


def _begin_undo(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep) -> None:
    """Stop the nodes that run the target and record the undo, unless it is too late by the logs."""
    silent = silent_hosts(ports, ports.cluster.nodes)
    reached = [node for node in ports.cluster.nodes if node.node_id not in silent]
    for node in reached:
        if node.is_broker and _runs_target(ports, node, release_step):
            raise RefusedError(
                f"Broker {node.node_id} runs {release_step.to_release}, so the downgrade cannot be undone.",
                remedy="Finish the downgrade, then upgrade again.",
            )
    _refuse_used(ports, plan, reached)

    def stop(node: NodeSpec) -> None:
        if _runs_target(ports, node, release_step):
            if node.commands_before_stop:
                ports.runtime.prepare_stop(node)
            ports.runtime.stop(node, deadline_s=STOP_S, force=True)

    at_once(stop, reached)
    _refuse_used(ports, plan, reached)  # what was written until the stop
    logs = on_each(lambda node: ports.metadata_logs.node_log(node, cluster_id=plan.cluster_id), reached).done
    chosen = chosen_log(ports.run.events())
    epoch = 0 if chosen is None else epoch_after_return(chosen, logs.values())
    ports.run.record(OfflineUndoing(sentence="No broker has registered at the new level.", epoch=epoch))


def _raise_epochs(ports: ClusterPorts, plan: Plan, failed: Mapping[int, RolloutError]) -> Mapping[int, RolloutError]:
    """Store a later epoch on the controllers that were restored, because another one can still have the snapshot.

    It cannot win an election against them then (metadata_log/log_choice.py). Returns node id → error.
    """
    undoing, chosen = newest(ports.run.events(), OfflineUndoing), chosen_log(ports.run.events())
    if undoing is None or chosen is None or not snapshot_is_written(ports.run.events()):
        return {}
    epoch = undoing.epoch or epoch_after_return(chosen, ())

    def raise_epoch(node: NodeSpec) -> None:
        if ports.runtime.process(node).pid is None:
            with suppress(UnreadableLogError):  # its disk was lost
                ports.metadata_logs.raise_epoch(node, epoch=epoch, cluster_id=plan.cluster_id)

    return on_each(raise_epoch, [node for node in ports.cluster.controllers if node.node_id not in failed]).failed


def _start_on_source(ports: ClusterPorts, release_step: ReleaseStep, node: NodeSpec) -> None:
    if ports.runtime.process(node).pid is None:
        ports.runtime.install(node, release_step.from_release)
        ports.runtime.start(node)
        record_start(ports, release_step.reversed(), node)


def _raise_for(failed: Mapping[int, RolloutError], release_step: ReleaseStep) -> NoReturn:
    kind = TransientError if all(isinstance(one, TransientError) for one in failed.values()) else FatalError
    problems = [f"node {node_id}: {error.sentence}" for node_id, error in sorted(failed.items())]
    raise kind(
        f"The undo is not finished on every node: {few(problems)}",
        remedy=f"The other nodes were started on {release_step.from_release}. Fix the cause, or wait until the host "
        "responds, then repeat `kafka-rollout rollback`. Do not start this node by hand before.",
    )


def _refuse_used(ports: ReadPorts, plan: Plan, reached: Sequence[NodeSpec]) -> None:
    """Raise RefusedError if a broker has registered on the snapshot.

    The registration is a committed record, so it is in a log of any majority of the controllers. Raises TransientError
    if fewer logs can be read.
    """
    chosen = chosen_log(ports.run.events())
    if chosen is None:
        return  # this run has installed nothing
    read = []
    for node in reached:
        try:
            ports.metadata_logs.refuse_used(node, chosen.snapshot, cluster_id=plan.cluster_id)
        except UnreadableLogError:
            continue  # no log, so no file was replaced
        read.append(node.node_id)
    if not snapshot_is_written(ports.run.events()) or has_majority(chosen.voters, read):
        return
    found = len(set(chosen.voters) & set(read))
    raise TransientError(
        f"The logs of {found} of {len(chosen.voters)} controllers could be read. A majority is needed to know that no "
        "broker has registered at the new level.",
        remedy="Nothing was changed. Repeat the command when more hosts respond.",
    )


def _runs_target(ports: ReadPorts, node: NodeSpec, release_step: ReleaseStep) -> bool:
    is_up = ports.runtime.process(node).pid is not None
    return is_up and last_started_release(ports, node) == release_step.to_release


def _restore_node(ports: ClusterPorts, plan: Plan, node: NodeSpec) -> None:
    events = ports.run.events()
    if ports.runtime.process(node).pid is not None:
        has_snapshot = node.node_id in installed_on(events) or node.node_id in unreached(events)
        if node.node_id in restored_nodes(events) or not has_snapshot:
            return  # it was not stopped, or it is already started again
        ports.runtime.stop(node, deadline_s=STOP_S, force=True)  # something else started it
    chosen, sentence = chosen_log(events), None
    try:
        if chosen is not None:
            sentence = ports.metadata_logs.undo_install(node, chosen.snapshot, cluster_id=plan.cluster_id)
    except UnreadableLogError:
        return
    if sentence is None and has_fetched_snapshot(ports, plan, node):
        raise RefusedError(
            f"Node {node.node_id} was started during the downgrade and has fetched the snapshot, and no backup of its "
            "own log exists.",
            remedy="Empty its metadata log directory and format it, then repeat the command.",
        )
    if sentence is not None:
        ports.run.record(OfflineRestored(node_id=node.node_id, sentence=f"node {node.node_id}: {sentence}"))
