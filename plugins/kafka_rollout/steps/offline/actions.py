"""The actions of an offline downgrade: stop all, choose the log, write the snapshot, install it, start again.

Every action first checks what is already done, so a killed run continues with the same calls in the same order. Until
the first broker starts at the new level, undo.py can undo everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.gates.check import Gate, GateKind
from kafka_rollout.gates.node import state_before_stop
from kafka_rollout.metadata_log.log_choice import (
    ChosenLog,
    describe_no_return,
    has_majority,
)
from kafka_rollout.metadata_log.outage import WITHOUT_QUORUM_S, unwritable
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import ApprovalOf
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.run.step_events import (
    OfflineLeftBehind,
    OfflineNoReturn,
    OfflineStopping,
    OfflineUnreached,
    Started,
)
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe_some
from kafka_rollout.steps.common.control import refuse_held
from kafka_rollout.steps.common.coordinators import coordinated_by
from kafka_rollout.steps.common.node_steps import (
    last_started_release,
    offline_release_step,
    read_last_error,
    record_start,
    run_commands_before_stop,
    stop_node,
)
from kafka_rollout.steps.common.until import until
from kafka_rollout.steps.features.levels import pending_changes
from kafka_rollout.steps.offline.late_nodes import install_late, stop_late
from kafka_rollout.steps.offline.outage import watch_service
from kafka_rollout.steps.offline.snapshot import (
    at_once,
    choose_once,
    host_of,
    install_on,
    on_each,
    quorum_lacks,
    refuse_running,
    runs,
    silent_hosts,
    write_once,
)
from kafka_rollout.steps.planning.check import check_plan, refuse_new_blockers, refuse_new_in_logs

STOP_DEADLINE_S = 180.0
READY_WITHIN_S = 120.0
_GATE = Gate(kind=GateKind.NODES_STOP)
_LONGEST_S = 3600.0  # limit of a single call: the largest metadata logs are read, written and copied in less time


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
    deadline_s = WITHOUT_QUORUM_S if force else STOP_DEADLINE_S

    def stop(node: NodeSpec) -> bool:
        # A resumed run does not stop a node that it has already started on the target.
        if ports.runtime.process(node).pid is None or last_started_release(ports, node) == release_step.to_release:
            return False
        if serves:
            stop_late(ports, plan, node, deadline_s=STOP_DEADLINE_S)
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
    lock.acquire_lock(ports, purpose, for_s=lock.LEASE_S + _LONGEST_S)
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


def _with_snapshot(ports: ClusterPorts, chosen: Sequence[NodeSpec]) -> list[NodeSpec]:
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
        waits_for = quorum_lacks(ports, plan.levels[METADATA_VERSION])
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


def _refuse_after_undo(ports: ClusterPorts) -> None:
    if projections.is_undoing(ports.run.events()):
        raise RefusedError("The undo of this downgrade has begun.", remedy="Finish it with `kafka-rollout rollback`.")


def _refuse_not_installed(ports: ClusterPorts) -> None:
    _refuse_after_undo(ports)
    events = ports.run.events()
    known = projections.installed_on(events).keys() | projections.unreached(events).keys()
    left = {node.node_id for node in ports.cluster.nodes} - known
    if left:
        raise RefusedError(f"The snapshot is not installed on {nodes(left)}.", remedy="Install it there first.")
