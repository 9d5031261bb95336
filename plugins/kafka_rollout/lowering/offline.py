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
from kafka_rollout.control.claims import claim_nodes, claiming, refuse_other_claims
from kafka_rollout.control.holds import refuse_held
from kafka_rollout.feature_updates.levels import pending_changes
from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.gates.node import check_before_stop
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
from kafka_rollout.lowering.ordered_start import start_in_order
from kafka_rollout.metadata_log.log_choice import (
    ChosenLog,
    UnreadableLogError,
    describe_no_return,
    epoch_after_return,
    follows_snapshot,
    has_majority,
)
from kafka_rollout.metadata_log.outage import unwritable
from kafka_rollout.model.plan import ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, at_once, observe_some, until
from kafka_rollout.observation.each_node import on_each
from kafka_rollout.observation.node_logs import read_last_error
from kafka_rollout.observation.node_starts import Starts, finish_starts, starting
from kafka_rollout.observation.node_steps import (
    install_release,
    last_started_release,
    observe_before_stop,
    offline_release_step,
    record_start,
    refuse_other_release,
    run_commands_before_stop,
    stop_node,
)
from kafka_rollout.observation.outage import stop_of_all_is_under_way, watch_service, were_started_again
from kafka_rollout.observation.run import NodeRun, ReadRun, Run
from kafka_rollout.preparation.frozen_plan import check_run, refuse_new_blockers, refuse_new_in_logs
from kafka_rollout.preparation.lost_metadata import refuse_new_losses
from kafka_rollout.preparation.node_checks import observe_elections, refuse_unclean_in_outage
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


def stop_all(run: Run) -> tuple[int, ...]:
    """Stop every node: brokers first, then controllers (combined nodes with them), each group in parallel.

    Before the first stop everything is checked again, and the state that cannot be read later is recorded; also if all
    nodes run again since an earlier one. Raises HeldError while something holds this stop; while nodes are down by it,
    nothing does. Raises RefusedError if the controllers were started again after the log was chosen, and TransientError
    while that is unknown. A controller that hangs in its shutdown is killed after WITHOUT_QUORUM_S, as the approval
    shows. Returns the stopped ids.
    """
    run, release_step = _begin(run, "Stop all nodes")
    acting = run.ports.lock.acting(run.cluster.name, run.ports.run_id, "Stopping all nodes")
    with acting, claiming(run.ports, run.cluster.nodes):
        _refuse_after_undo(run.ports)
        _refuse_other_logs(run)
        if not stop_of_all_is_under_way(run):
            refuse_new_blockers(run)
            if left := pending_changes(run):
                raise RefusedError(
                    f"Some levels are not lowered yet: {', '.join(f'{c.feature} is not' for c in left)}.",
                    remedy="Lower the levels first.",
                )
            refuse_held(run, _GATE, "The stop of all nodes")  # before the commands
            to, back = release_step.to_release, release_step.from_release
            brought = on_each(
                lambda node: run.ports.runtime.bring(node, to, back=back), run.cluster.nodes, in_turn=host_of
            )
            for error in brought.failed.values():
                raise error
            if any(brought.done.values()):  # what a start reads there was expected before, and is seen now
                refuse_new_blockers(run)
            at_once(
                lambda node: run_commands_before_stop(NodeRun(run, release_step, node)),
                run.cluster.nodes,
                most=len(run.cluster.nodes),
            )
            if any(node.commands_before_stop for node in run.cluster.nodes):  # they can take an hour
                refuse_new_blockers(run)
            refuse_new_in_logs(run, release_step)
            refuse_new_losses(run)
            refuse_held(run, _GATE, "The stop of all nodes", is_prepared=True)
            _record_before(run, release_step)
        stopped: list[int] = []
        for round_, force in ((run.cluster.brokers_alone, False), (run.cluster.controllers, True)):
            stopped += _stop_round(run, release_step, round_, force=force)
    return tuple(stopped)


def _stop_round(run: Run, release_step: ReleaseStep, round_: Sequence[NodeSpec], *, force: bool) -> Sequence[int]:
    """Stop nodes in parallel; return those that were stopped now.

    A host that does not respond is passed over if this run has already stopped or started its node. Else it raises
    TransientError after the others of the round, because its node can still run. When the brokers serve again, a node
    that something started on its old release is stopped only if the others can spare it.
    """
    done = projections.last_acts(run.history.events())
    serves = projections.has_passed_no_return(run.history.events())
    deadline_s = WITHOUT_QUORUM_S if force else STOP_S

    def stop(node: NodeSpec) -> bool:
        # A resumed run does not stop a node that it has already started on the target.
        if (
            run.ports.runtime.process(node).pid is None
            or last_started_release(run.ports, node) == release_step.to_release
        ):
            return False
        if serves:
            stop_late(run, node, deadline_s=STOP_S)
        else:
            stop_node(NodeRun(run, release_step, node), deadline_s=deadline_s, force=force)
        return True

    # All at the same time: a broker that is asked later acknowledges records that the others no longer get.
    acted = on_each(stop, round_, most=len(round_))
    for node_id, error in acted.failed.items():
        if not (isinstance(error, TransientError) and node_id in done):
            raise error
    return [node_id for node_id, was_stopped in acted.done.items() if was_stopped]


def choose(run: Run) -> ChosenLog:
    """Choose the log to continue from; the first choice of this attempt stays.

    Raises RefusedError unless the logs of a majority of voters are available, and for a log of another cluster.
    """
    run, _ = _begin(run, "Choose the metadata log")
    with run.ports.runtime.short_timeouts():
        return choose_once(run, silent=silent_hosts(run.ports, run.cluster.nodes))


def write_snapshot(run: Run) -> Path:
    """Write the end of the chosen log as a snapshot at the planned levels, and load it with the target's classes.

    Every loss is recorded. Raises RefusedError if metadata would be lost and the plan is not `unsafe`.
    """
    run, _ = _begin(run, "Write the snapshot")
    with run.ports.runtime.short_timeouts():
        return write_once(run, silent=silent_hosts(run.ports, run.cluster.nodes))


def install_snapshot(run: Run) -> dict[int, str]:
    """Install the snapshot on every node in parallel, backups first. Returns node id → what was done.

    A node whose host does not respond is recorded and not started until a repeated call has installed the snapshot
    there. Raises TransientError unless the snapshot is on a majority of the voters.
    """
    run, _ = _begin(run, "Install the snapshot")
    with _acting(run.ports, "Installing the snapshot"):
        _refuse_after_undo(run.ports)
        done = projections.installed_on(run.history.events())
        if left := [node for node in run.cluster.nodes if node.node_id not in done]:
            _install_on_each(run, left)
    events = run.history.events()
    installed = {node_id: one.sentence for node_id, one in projections.installed_on(events).items()}
    return {**installed, **projections.unreached(events)}


def _install_on_each(run: Run, left: Sequence[NodeSpec]) -> None:
    silent = silent_hosts(run.ports, left)
    path = write_once(run, silent=silent)
    late = projections.unreached(run.history.events())
    reached = [node for node in left if node.node_id not in silent]
    refuse_running(run, reached)

    with starting(run, reached) as starts:

        def install(node: NodeSpec) -> None:
            is_late = node.node_id in late
            run.history.record(install_late(run, node, path, starts) if is_late else install_on(run, node, path))

        failed = on_each(install, reached).failed
    for node_id, error in failed.items():
        if not (isinstance(error, TransientError) or node_id in late):
            raise error
    problems = {**silent, **{node_id: error.sentence for node_id, error in failed.items()}}
    for node_id, reason in problems.items():
        sentence = f"The snapshot is not installed on node {node_id}: {reason}"
        run.history.record(OfflineUnreached(node_id=node_id, sentence=sentence))
    with_log = [node_id for node_id, one in projections.installed_on(run.history.events()).items() if one.had_log]
    if problems and not has_majority(choose_once(run).voters, with_log):
        raise TransientError(
            f"The snapshot is not installed on a majority of the voters: {few(problems.values())}",
            remedy="Repeat the step when the hosts respond, or undo the downgrade with `kafka-rollout rollback`.",
        )


def install_binaries(run: Run) -> None:
    """Set the target as the release that every stopped node starts next. A host that does not respond is left out."""
    run, release_step = _begin(run, "Install the binary")
    with _acting(run.ports, "Installing the binary"):
        _refuse_not_installed(run.ports)

        def install(node: NodeSpec) -> None:
            process = run.ports.runtime.process(node)
            if process.pid is None:
                release = release_step.to_release
                at = NodeRun(run, release_step, node)
                install_release(at, release)
            elif process.installed != release_step.to_release:
                raise runs(node, "Stop it first: something started it during this step.")

        acted = on_each(install, _with_snapshot(run.ports, run.cluster.nodes), in_turn=host_of)
        for node_id, error in acted.failed.items():
            if not isinstance(error, TransientError):
                raise error
            _leave_out(run.ports, run.cluster.node(node_id), error)


def start_controllers(run: Run, *, ready_within_s: float = READY_WITHIN_S) -> tuple[int, ...]:
    """Start the controllers and wait until they form a quorum at the planned level. Returns the started ids.

    For combined nodes this is the point of no return. Raises TransientError while there is no quorum. Raises FatalError
    for a controller that does not stay up, unless its disk was lost: then its gate waits. A command after a start that
    fails runs again when the brokers were started (`finish_starts`).
    """
    run, release_step = _begin(run, "Start the controllers")
    with _acting(run.ports, "Starting the controllers"):
        _refuse_not_installed(run.ports)
        if any(node.is_broker for node in run.cluster.controllers):
            _pass_no_return(run.ports)
        started = _start(run, release_step, _with_snapshot(run.ports, run.cluster.controllers))
        unserved_at = _wait_for_quorum(run, ready_within_s)
        for node in _left_behind(run):
            sentence = f"The quorum continues without controller {node.node_id}, whose log was missing: "
            run.history.record(
                OfflineLeftBehind(node_id=node.node_id, sentence=sentence + read_last_error(run.ports, node))
            )
        if not run.cluster.brokers_alone:
            watch_service(run.ports, ready_within_s, unserved_at)
            finish_starts(run, run.cluster.nodes, leaves_out=True)
    return started


def start_again(run: Run, node: NodeSpec) -> None:
    """Start every node of this node's kind that is down, also one whose host did not respond before.

    The steps before the start are repeated: they only do what is left.
    """
    stop_all(run)
    install_snapshot(run)
    install_binaries(run)
    (start_controllers if node.is_controller else start_brokers)(run)


def start_brokers(run: Run, *, ready_within_s: float = READY_WITHIN_S) -> tuple[int, ...]:
    """Start the brokers; from here no undo is possible. Returns the started ids. The gates show when they are back.

    Raises FatalError, with every broker started, for a command after a start that fails also when the cluster serves.
    """
    run, release_step = _begin(run, "Start the brokers")
    with _acting(run.ports, "Starting the brokers"):
        _refuse_not_installed(run.ports)
        _wait_for_quorum(run, ready_within_s)
        _pass_no_return(run.ports)
        started: list[int] = []
        late = start_in_order(
            run,
            _with_snapshot(run.ports, run.cluster.brokers_alone),
            lambda ready: started.extend(_start(run, release_step, ready)),
            within_s=ready_within_s,
        )
        for error in late.values():
            raise error
        watch_service(run.ports, ready_within_s)
        finish_starts(run, run.cluster.nodes, leaves_out=True)
    return tuple(started)


def _begin(run: Run, what: str) -> tuple[Run, ReleaseStep]:
    run = check_run(run)
    release_step = offline_release_step(run.plan)
    require_approval(run, ApprovalOf.ROLL)
    purpose = (
        f"{what} of cluster {run.plan.cluster} (offline, {release_step.from_release} to {release_step.to_release})."
    )
    lock.acquire_lock(run.ports, purpose, for_s=LEASE_OF_LOGS_S)
    return run, release_step


@contextmanager
def _acting(ports: ClusterPorts, what: str) -> Iterator[None]:
    """Fence the changes, and give up hosts that do not respond early: the cluster is down."""
    with ports.lock.acting(ports.cluster.name, ports.run_id, what), ports.runtime.short_timeouts():
        yield


def _record_before(run: Run, release_step: ReleaseStep) -> None:
    ports = run.ports
    state = observe_some(ports, ports.cluster.nodes, metrics=False)
    if state.quorum is None:
        raise TransientError("The quorum's voters were not reported.", remedy="Nothing was stopped. Repeat the step.")
    refuse_other_claims(ports, state)
    refuse_unclean_in_outage(run, state)
    for node in ports.cluster.nodes:
        before = observe_before_stop(NodeRun(run, release_step, node), state)
        ports.run.save_before_stop(release_step.key, before, replace=True)
    voters = tuple(voter.replica_id for voter in state.quorum.voters)
    sentence = f"All nodes are requested to stop; the quorum's voters are {', '.join(map(str, voters))}."
    ports.run.record(OfflineStopping(voters=voters, unwritable=tuple(unwritable(state)), sentence=sentence))


def _start(run: Run, release_step: ReleaseStep, chosen: Sequence[NodeSpec]) -> tuple[int, ...]:
    """Start nodes that have the snapshot; one whose host does not respond is left out, and its gate waits."""
    with starting(run, chosen) as starts:

        def start(node: NodeSpec) -> bool:
            process = run.ports.runtime.process(node)
            if process.pid is not None:
                return False
            refuse_other_release(node, release_step.to_release, process.installed)
            starts.start(node)
            record_start(NodeRun(run, release_step, node))
            return True

        acted = on_each(start, chosen, in_turn=host_of)
        refused = [error for error in acted.failed.values() if not isinstance(error, TransientError)]
        for node_id, error in acted.failed.items():
            if isinstance(error, TransientError):
                _leave_out(run.ports, run.cluster.node(node_id), error)
        if refused:
            raise refused[0]
    return tuple(node_id for node_id, was_started in acted.done.items() if was_started)


def _with_snapshot(ports: ReadPorts, chosen: Sequence[NodeSpec]) -> list[NodeSpec]:
    """Return the nodes without those whose hosts did not respond to the installation: they have their old logs."""
    unreached = projections.unreached(ports.run.events())
    return [node for node in chosen if node.node_id not in unreached]


def _leave_out(ports: ClusterPorts, node: NodeSpec, error: TransientError) -> None:
    ports.run.record(OfflineLeftBehind(node_id=node.node_id, sentence=f"Node {node.node_id}: {error.sentence}"))


def _wait_for_quorum(run: Run, within_s: float) -> float:
    """Wait for a leader and the planned level; return the last time without them (epoch seconds)."""
    had_a_log, lacked_at = choose_once(run).read, 0.0
    started = [
        node
        for node in run.cluster.controllers
        if node.node_id in had_a_log
        and isinstance(projections.last_acts(run.history.events()).get(node.node_id), Started)
    ]

    def check() -> str:
        nonlocal lacked_at
        checked_at = run.ports.clock.now()
        waits_for = quorum_lacks(run)
        for node_id, process in on_each(run.ports.runtime.process, started).done.items():
            if process.pid is None:
                node = run.cluster.node(node_id)
                raise FatalError(
                    f"Controller {node_id} does not stay up: {read_last_error(run.ports, node)}.",
                    remedy="No broker was started by this step. Fix the error in its log, or undo the downgrade with "
                    "`kafka-rollout rollback`.",
                )
        if waits_for:
            lacked_at = checked_at
        return waits_for

    waits_for = until(run.ports.clock, check, lambda found: not found, for_s=within_s)
    if waits_for:
        raise TransientError(
            f"The controllers are not ready after {within_s:.0f} s: {waits_for}",
            remedy="Repeat the step to wait longer, or undo it with `kafka-rollout rollback` if no broker runs.",
        )
    return lacked_at


def _left_behind(run: Run) -> tuple[NodeSpec, ...]:
    """Return the controllers without a process whose log was already missing when the log was chosen."""
    had_a_log = choose_once(run).read
    lost = [node for node in run.cluster.controllers if node.node_id not in had_a_log]
    seen = on_each(run.ports.runtime.process, lost).done
    return tuple(run.cluster.node(node_id) for node_id, process in seen.items() if process.pid is None)


def _pass_no_return(ports: ClusterPorts) -> None:
    if not projections.has_passed_no_return(ports.run.events()):
        ports.run.record(OfflineNoReturn(sentence=describe_no_return(ports.cluster)))


def _refuse_after_undo(ports: ReadPorts) -> None:
    if projections.is_undoing(ports.run.events()):
        raise RefusedError("The undo of this downgrade has begun.", remedy="Finish it with `kafka-rollout rollback`.")


def _refuse_other_logs(run: Run) -> None:
    """Raise RefusedError if the controllers write their own logs again: the chosen one can lack what they wrote. Raise
    TransientError while that is unknown."""
    events = run.history.events()
    if chosen_log(events) is None or projections.has_passed_no_return(events):
        return
    again = were_started_again(run)
    if again.unknown:
        raise TransientError(
            f"It is unknown whether the controllers were started again after the log was chosen: {again.unknown}",
            remedy="Nothing was stopped. Repeat the step when every host responds. If one does not return, end this "
            "try with `kafka-rollout rollback`: it starts the others.",
        )
    if again.is_seen:
        raise RefusedError(
            "The controllers were started again after the log was chosen, so it can lack newer records. Nothing was "
            "stopped.",
            remedy="End this try with `kafka-rollout rollback`, then start the downgrade again.",
        )


def _refuse_not_installed(ports: ReadPorts) -> None:
    _refuse_after_undo(ports)
    events = ports.run.events()
    known = projections.installed_on(events).keys() | projections.unreached(events).keys()
    left = {node.node_id for node in ports.cluster.nodes} - known
    if left:
        raise RefusedError(f"The snapshot is not installed on {nodes(left)}.", remedy="Install it there first.")


def stop_late(run: Run, node: NodeSpec, *, deadline_s: float) -> None:
    """Stop a node that runs its old release while the others serve. Raises RefusedError if they cannot spare it."""
    if node.commands_before_stop:  # before the gate: they can take an hour
        run.ports.runtime.prepare_stop(node)
    state = observe_some(run.ports, run.cluster.nodes, metrics=False)
    seen = check_before_stop(
        run.cluster,
        state,
        node,
        accept_unavailable=run.plan.accept_unavailable,
        unchecked=run.plan.unchecked,
        elections=observe_elections(run.ports),
    )
    if not seen.passes:
        raise RefusedError(
            f"Node {node.node_id} runs its old release and cannot be stopped safely yet: {seen.waits_for}",
            remedy="Wait until the conditions are met, then repeat the step.",
        )
    run.ports.runtime.stop(node, deadline_s=deadline_s)


def install_late(run: Run, node: NodeSpec, snapshot: Path, starts: Starts) -> OfflineInstalled:
    """Give a stopped node the snapshot, or keep the one that it has fetched from the leader.

    A controller that voted since the choice of the log, but has not fetched the snapshot, is started again on its old
    release to fetch it. Raises TransientError then.
    """
    level = run.plan.levels[METADATA_VERSION]
    serves = projections.has_passed_no_return(run.history.events()) and not quorum_lacks(run)
    if serves and has_fetched_snapshot(run, node):
        run.ports.metadata_logs.replace_bootstrap(
            node, level=level, release=run.plan.target, cluster_id=run.plan.cluster_id
        )
        sentence = "The node was started on its old release and has fetched the snapshot from the leader."
        return OfflineInstalled(node_id=node.node_id, sentence=sentence, had_log=True)
    try:
        return install_on(run, node, snapshot)
    except RefusedError as error:
        if not serves:
            raise
        step = offline_release_step(run.plan)
        install_release(NodeRun(run, step, node), step.from_release)
        starts.start(node)
        raise TransientError(f"{error.sentence} It was started on its old release to fetch the snapshot.") from error


def has_fetched_snapshot(run: ReadRun, node: NodeSpec) -> bool:
    """Return whether a stopped node's log continues the snapshot of this try."""
    chosen = projections.chosen_log(run.history.events())
    try:
        log = run.ports.metadata_logs.node_log(node, cluster_id=run.plan.cluster_id)
    except UnreadableLogError:
        return False
    return chosen is not None and follows_snapshot(log, chosen)


def undo_offline(run: Run) -> tuple[int, ...]:
    """Stop the nodes that run the target, restore every byte, install the old binary, start. Return the restored nodes.

    Each node is handled on its own. Idempotent and resumable. Raises RefusedError, with nothing changed, if it is too
    late, and TransientError if it is unknown; TransientError or FatalError, with the other nodes started, if a node
    could not be restored. The gates after the start show when the nodes are back.
    """
    run = check_run(run)
    release_step = offline_release_step(run.plan)
    require_approval(run, ApprovalOf.ROLL_BACK)
    lock.acquire_lock(run.ports, f"Undo the offline downgrade of cluster {run.plan.cluster}.")
    acting = run.ports.lock.acting(run.cluster.name, run.ports.run_id, "Undoing the offline downgrade")
    with acting, run.ports.runtime.short_timeouts():
        if not stop_has_begun(run.history.events()):
            return ()
        if not is_undoing(run.history.events()):
            _begin_undo(run, release_step)
        failed: dict[int, RolloutError] = dict(on_each(lambda node: _restore_node(run, node), run.cluster.nodes).failed)
        if any(run.cluster.node(node_id).is_controller for node_id in failed):
            failed |= _raise_epochs(run, failed)

        def start(ready: Sequence[NodeSpec]) -> None:
            failed.update(_start_on_source(run, release_step, ready))

        start([node for node in run.cluster.controllers if node.node_id not in failed])
        brokers = [node for node in run.cluster.brokers_alone if node.node_id not in failed]
        failed |= start_in_order(run, brokers, start, within_s=READY_WITHIN_S)
        restored = sorted(restored_nodes(run.history.events()))
        if failed:
            _raise_for(failed, release_step)
        finish_starts(run, run.cluster.nodes)  # an undo that has ended does not repeat them
        sentence = f"Nodes started on {release_step.from_release}; restored: {', '.join(map(str, restored)) or 'none'}."
        run.history.record(OfflineUndone(nodes=tuple(restored), sentence=sentence))
        watch_service(run.ports, READY_WITHIN_S)
    return tuple(restored)


def _begin_undo(run: Run, release_step: ReleaseStep) -> None:
    """Stop the nodes that run the target and record the undo, unless it is too late by the logs."""
    silent = silent_hosts(run.ports, run.cluster.nodes)
    reached = [node for node in run.cluster.nodes if node.node_id not in silent]
    for node in reached:
        if node.is_broker and _runs_target(run.ports, node, release_step):
            raise RefusedError(
                f"Broker {node.node_id} runs {release_step.to_release}, so the downgrade cannot be undone.",
                remedy="Finish the downgrade, then upgrade again.",
            )
    _refuse_used(run, reached)

    def stop(node: NodeSpec) -> None:
        if _runs_target(run.ports, node, release_step):
            if node.commands_before_stop:
                run.ports.runtime.prepare_stop(node)
            run.ports.runtime.stop(node, deadline_s=STOP_S, force=True)

    claim_nodes(run.ports, reached)
    at_once(stop, reached)
    _refuse_used(run, reached)  # what was written until the stop
    logs = on_each(lambda node: run.ports.metadata_logs.node_log(node, cluster_id=run.plan.cluster_id), reached).done
    chosen = chosen_log(run.history.events())
    epoch = 0 if chosen is None else epoch_after_return(chosen, logs.values())
    run.history.record(OfflineUndoing(sentence="No broker has registered at the new level.", epoch=epoch))


def _raise_epochs(run: Run, failed: Mapping[int, RolloutError]) -> Mapping[int, RolloutError]:
    """Store a later epoch on the controllers that were restored, because another one can still have the snapshot.

    It cannot win an election against them then (metadata_log/log_choice.py). Returns node id → error.
    """
    undoing, chosen = newest(run.history.events(), OfflineUndoing), chosen_log(run.history.events())
    if undoing is None or chosen is None or not snapshot_is_written(run.history.events()):
        return {}
    epoch = undoing.epoch or epoch_after_return(chosen, ())

    def raise_epoch(node: NodeSpec) -> None:
        if run.ports.runtime.process(node).pid is None:
            with suppress(UnreadableLogError):  # its disk was lost
                run.ports.metadata_logs.raise_epoch(node, epoch=epoch, cluster_id=run.plan.cluster_id)

    return on_each(raise_epoch, [node for node in run.cluster.controllers if node.node_id not in failed]).failed


def _start_on_source(run: Run, release_step: ReleaseStep, ready: Sequence[NodeSpec]) -> Mapping[int, RolloutError]:
    """Start the nodes that have no process, in parallel; return node id → error."""
    with starting(run, ready) as starts:

        def start(node: NodeSpec) -> None:
            if run.ports.runtime.process(node).pid is None:
                install_release(NodeRun(run, release_step, node), release_step.from_release)
                starts.start(node)
                record_start(NodeRun(run, release_step.reversed(), node))

        return on_each(start, ready, in_turn=host_of).failed


def _raise_for(failed: Mapping[int, RolloutError], release_step: ReleaseStep) -> NoReturn:
    kind = TransientError if all(isinstance(one, TransientError) for one in failed.values()) else FatalError
    problems = [f"node {node_id}: {error.sentence}" for node_id, error in sorted(failed.items())]
    remedies = dict.fromkeys(error.remedy for error in failed.values() if error.remedy)
    raise kind(
        f"The undo is not finished on every node: {few(problems)}",
        remedy=" ".join(
            (
                f"The other nodes were started on {release_step.from_release}.",
                *remedies,
                "Fix the cause, or wait until the host responds, then repeat `kafka-rollout rollback`. Do not start "
                "these nodes by hand before.",
            )
        ),
    )


def _refuse_used(run: ReadRun, reached: Sequence[NodeSpec]) -> None:
    """Raise RefusedError if a broker has registered on the snapshot.

    The registration is a committed record, so it is in a log of any majority of the controllers. Raises TransientError
    if fewer logs can be read.
    """
    chosen = chosen_log(run.history.events())
    if chosen is None:
        return  # this run has installed nothing
    read = []
    for node in reached:
        try:
            run.ports.metadata_logs.refuse_used(node, chosen.snapshot, cluster_id=run.plan.cluster_id)
        except UnreadableLogError:
            continue  # no log, so no file was replaced
        read.append(node.node_id)
    if not snapshot_is_written(run.history.events()) or has_majority(chosen.voters, read):
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


def _restore_node(run: Run, node: NodeSpec) -> None:
    events = run.history.events()
    if run.ports.runtime.process(node).pid is not None:
        has_snapshot = node.node_id in installed_on(events) or node.node_id in unreached(events)
        if node.node_id in restored_nodes(events) or not has_snapshot:
            return  # it was not stopped, or it is already started again
        run.ports.runtime.stop(node, deadline_s=STOP_S, force=True)  # something else started it
    chosen, sentence = chosen_log(events), None
    try:
        if chosen is not None:
            sentence = run.ports.metadata_logs.undo_install(node, chosen.snapshot, cluster_id=run.plan.cluster_id)
    except UnreadableLogError:
        return
    if sentence is None and has_fetched_snapshot(run, node):
        raise RefusedError(
            f"Node {node.node_id} was started during the downgrade and has fetched the snapshot, and no backup of its "
            "own log exists.",
            remedy="Empty its metadata log directory and format it, then repeat the command.",
        )
    if sentence is not None:
        run.history.record(OfflineRestored(node_id=node.node_id, sentence=f"node {node.node_id}: {sentence}"))
