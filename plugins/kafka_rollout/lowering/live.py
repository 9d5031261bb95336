"""The action of a live downgrade: the controllers stop and start at a lower metadata.version; the brokers serve.

The snapshot at the lower level is written and proved before the stop; after it only the end of the log is replayed. The
controllers start again on the same release. Running brokers fetch the snapshot, because it ends beyond their own logs.

Everything between the stop and the start is one action. Each controller is handled on its own: one that does not
respond is left out, and the others continue if they are a majority. A killed call is continued by the next one.

If the action fails, `undo_or_continue` kills the controllers whose hosts respond, reads their files, reads the brokers'
files, and decides whether they start with their old logs. The files cannot change after the stop.
metadata_log/log_choice.py has the invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NoReturn, TypeVar

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.time_limits import LEASE_OF_LOGS_S
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.control import lock
from kafka_rollout.control.approval import require_approval
from kafka_rollout.control.claims import claiming
from kafka_rollout.control.holds import HeldError, refuse_held, refuse_unsafe_stop
from kafka_rollout.feature_updates.levels import pending_changes
from kafka_rollout.gates.gate import Gate, GateKind
from kafka_rollout.lowering.active_controller import ask_active, find_active
from kafka_rollout.lowering.lowered_snapshot import (
    SNAPSHOTS,
    choose_once,
    chosen_node,
    install_on,
    other_levels,
    quorum_lacks,
    snapshot_path,
    write_once,
)
from kafka_rollout.metadata_log.log_choice import (
    NodeLog,
    SnapshotUse,
    UnreadableLogError,
    decide_snapshot_use,
    epoch_after_return,
    has_majority,
    has_snapshot,
)
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.state import majority
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, at_once, until
from kafka_rollout.observation.each_node import on_each
from kafka_rollout.observation.node_logs import read_last_error
from kafka_rollout.observation.node_starts import Starts, starting
from kafka_rollout.observation.node_steps import refuse_other_release
from kafka_rollout.observation.outage import Restart, controllers_were_started_again, stop_of_all_is_under_way
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.ports.cluster import PreparedSnapshot
from kafka_rollout.preparation.frozen_plan import check_run, refuse_new_blockers
from kafka_rollout.preparation.lost_metadata import refuse_new_losses
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.roll.gate_checks import check_gate
from kafka_rollout.run.events import ApprovalOf, newest
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.run.step_events import (
    LiveFailed,
    LiveKept,
    LiveLowered,
    OfflineLeftBehind,
    OfflineRestored,
    OfflineStopping,
    OfflineUndoing,
    OfflineUndone,
)

# The controllers are killed: the active one would wait in its shutdown for a new leader, which stopped controllers
# cannot elect. Kafka checks the whole metadata log at every start (KafkaRaftLog.createLog: no clean shutdown).
_KILL_AT_ONCE_S = 0.0
READY_WITHIN_S = 60.0
T = TypeVar("T")
READY_EVERY_S = 0.1
OTHERS_AFTER_S, EXITED_EVERY_S = 20.0, 2.0
_GATE, _STOP = Gate(kind=GateKind.CONTROLLERS_STOP), "The stop of the controllers"


def lower_live(run: Run) -> str:
    """Lower the planned levels on the controllers; return a sentence. The gates show when the brokers follow.

    A controller whose host does not respond is left out if the others are a majority; the sentence names it, the gate
    of the level waits for it, and a repeated call installs the snapshot there and starts it.

    Raises HeldError while something holds the stop, and if it begins anew. Raises RefusedError or TransientError, with
    every controller that responds running on its old log, if the levels were not lowered, and FatalError if they do not
    serve then. Raises TransientError if a leader was elected at the new level, but the controllers do not serve yet,
    and if too few hosts respond to decide: repeat it. Raises FatalError if a command after a start failed: a repeated
    call runs it again.
    """
    run = check_run(run)
    if run.plan.lowering is not Lowering.LIVE:
        raise RefusedError(
            f"The plan of cluster {run.plan.cluster} is not a live downgrade.", remedy="Start a new run."
        )
    require_approval(run, ApprovalOf.ROLL)
    purpose = f"Lower metadata.version of cluster {run.plan.cluster} with the controllers stopped."
    lock.acquire_lock(run.ports, purpose, for_s=LEASE_OF_LOGS_S)
    with (
        run.ports.lock.acting(run.cluster.name, run.ports.run_id, "Lowering metadata.version live"),
        ExitStack() as opened,
    ):
        with starting(run, run.cluster.controllers) as starts:
            sentence = _lower_once(run, starts, opened)
        starts.raise_failed(leaves_out=True)
        return sentence


def _lower_once(run: Run, starts: Starts, opened: ExitStack) -> str:
    """Continue where the last call ended; return a sentence."""
    done = newest(projections.events_of_this_try(run.history.events()), LiveLowered)
    if done is not None:  # the nodes can be rolled since
        return " ".join([done.sentence, *_start_left_behind(run, starts)])
    opened.enter_context(claiming(run.ports, run.cluster.controllers))  # before the gate, and at once
    if projections.is_undoing(run.history.events()):
        finish_undo(run, starts)
    if not stop_of_all_is_under_way(run):
        if not quorum_lacks(run):
            return f"metadata.version is {run.plan.levels[METADATA_VERSION]} already."
        refuse_held(run, _GATE, _STOP)
        # Before the gate: the operator's commands can take an hour.
        with_commands = [one for one in run.cluster.controllers if one.commands_before_stop]
        at_once(run.ports.runtime.prepare_stop, with_commands, most=len(run.cluster.controllers))
        _refuse_unready(run)
        prepared = opened.enter_context(_prepare(run))
        refuse_held(run, _GATE, _STOP, is_prepared=True)  # large logs can take many minutes
        return _lower(run, starts, prepared, opened)
    again = controllers_were_started_again(run)
    if again.is_possible and quorum_lacks(run):
        _end_try(Controllers(run, starts), again)
    return _lower(run, starts, None, opened)


def _end_try(controllers: Controllers, again: Restart) -> None:
    """End the try of a killed call while a majority of the controllers runs, or can run, on the old logs: a log that
    was chosen lacks what they wrote since.

    Returns if a leader was elected on the snapshot in the meantime, and if no snapshot was written and no controller is
    active: the others can continue without a host that is dead. Else every controller is started on its old log, and
    HeldError is raised: another stop begins in its gate. Nothing holds this, because it stops no controller with
    an old log while one is active, and only the run can return the others to theirs. Raises as `finish_undo`.
    """
    run, why = controllers.run, "The controllers run again, or still run, after an earlier stop began."
    if again.unknown:
        why = f"The controllers can run again after an earlier stop began: {again.unknown}"
    with run.ports.runtime.short_timeouts():
        if (
            again.unknown
            and not projections.snapshot_is_written(run.history.events())
            and _wait_for_level(controllers) is None
            and find_active(run.ports, through_brokers=True).node is None
        ):
            return
        _finish_undo(controllers, why)
    if not projections.stop_has_begun(run.history.events()):
        raise HeldError(
            f"{why} All run on their old logs.", remedy="Repeat the step: the stop begins anew.", gate=_GATE
        )


def _refuse_unready(run: Run) -> None:
    refuse_new_blockers(run)
    if left := pending_changes(run):
        raise RefusedError(
            f"Some levels are not lowered yet: {', '.join(f'{c.feature} is not' for c in left)}.",
            remedy="Lower the levels first.",
        )
    refuse_new_losses(run)
    seen = check_gate(run, replace(_GATE, is_prepared=True))
    refuse_unsafe_stop(run.ports, _GATE, seen, "The controllers cannot be stopped safely")


def _prepare(run: Run) -> AbstractContextManager[PreparedSnapshot]:
    """Write and prove everything that does not need the end of the log.

    Raises TransientError for a host that does not respond before the first stop. Later such a controller is left out.
    """
    level, out = run.plan.levels[METADATA_VERSION], run.history.private_path(SNAPSHOTS)
    stopped = projections.stop_has_begun(run.history.events())
    for node in run.cluster.controllers:
        try:
            run.ports.metadata_logs.prepare_install(
                node, out, level=level, target=run.plan.target, cluster_id=run.plan.cluster_id
            )
        except UnreadableLogError:
            continue  # its disk was lost after the stop; the choice of the log reports it
        except TransientError:
            if not stopped:
                raise
    node = _readable_controller(run)
    return run.ports.metadata_logs.prepared_snapshot(
        node,
        level=level,
        features=other_levels(run.plan),
        source=run.plan.source,
        target=run.plan.target,
        settings=run.ports.runtime.config(node),
        cluster_id=run.plan.cluster_id,
    )


def _readable_controller(run: ReadRun) -> NodeSpec:
    """Return a controller with a readable log, the active one if there is one."""
    active = find_active(run.ports).node
    for node in sorted(run.cluster.controllers, key=lambda node: node != active):
        try:
            run.ports.metadata_logs.node_log(node, cluster_id=run.plan.cluster_id)
        except (UnreadableLogError, TransientError):
            continue
        return node
    raise RefusedError("No controller has a readable metadata log.", remedy="Restore the controllers' directories.")


def _lower(run: Run, starts: Starts, prepared: PreparedSnapshot | None, opened: ExitStack) -> str:
    """`prepared`: None in a continued call, which prepares the snapshot with the controllers stopped."""
    controllers = Controllers(run, starts)
    with run.ports.runtime.short_timeouts():
        if prepared is not None:
            controllers.refuse_silent_hosts()
            voters = tuple(voter.replica_id for voter in run.ports.admin.quorum().voters)
            sentence = f"The controllers are requested to stop; the quorum's voters are {', '.join(map(str, voters))}."
            run.history.record(OfflineStopping(voters=voters, unwritable=(), sentence=sentence))
        try:
            if controllers.snapshot_has_majority:
                _install_on_others(controllers)
            elif prepared is not None or not serves_at_level(run):  # else the others fetch it from the leader
                _install(controllers, prepared or opened.enter_context(_prepare(run)))
            waits_for = _start_until_ready(controllers)
            if waits_for:
                raise TransientError(f"The controllers do not serve after {READY_WITHIN_S:.0f} s: {waits_for}")
        except BaseException as error:
            undo_or_continue(controllers, error)
        return _lowered(controllers)


def _install(controllers: Controllers, prepared: PreparedSnapshot) -> None:
    """Stop the controllers and install the snapshot, each on its own. Raises RolloutError without a majority."""
    run = controllers.run
    controllers.stop(controllers.without_snapshot)
    path = write_once(run, prepared, silent=controllers.silent)
    controllers.each(lambda node: run.history.record(install_on(run, node, path)), controllers.without_snapshot)
    if not controllers.snapshot_has_majority:
        raise TransientError(
            f"The snapshot is not installed on a majority of the controllers: {few(controllers.problem_lines)}"
        )


def _install_on_others(controllers: Controllers) -> None:
    """Install the snapshot, which is on a majority, on the other controllers without a process."""
    run = controllers.run
    path = snapshot_path(run.ports, choose_once(run))

    def install(node: NodeSpec) -> None:
        if run.ports.runtime.process(node).pid is None:
            run.history.record(install_on(run, node, path))

    controllers.each(install, controllers.without_snapshot)


def _start_until_ready(controllers: Controllers) -> str:
    """Start a majority of the voters. Start the others when it serves, when one exits, or after a time limit.

    Controllers on one host start slower if all start at once, and one that starts during an election can repeat it.
    A controller without the snapshot starts with the others: it fetches the snapshot from the leader. Returns what is
    missing; empty if they serve.
    """
    run = controllers.run

    def wait(seconds: float) -> str:
        return until(
            run.ports.clock,
            lambda: quorum_lacks(run),
            lambda found: not found,
            for_s=seconds,
            every_s=READY_EVERY_S,
        )

    had_log = {node_id for node_id, event in projections.installed_on(run.history.events()).items() if event.had_log}
    candidate, voters = chosen_node(run.ports), controllers.voters
    ordered = sorted(
        controllers.responding,
        key=lambda node: (node.node_id not in voters, node.node_id not in had_log, node != candidate),
    )
    first = ordered[: majority(len(voters))]
    if len(controllers.start(first)) < len(first):
        controllers.start(ordered)
    for _ in range(int(OTHERS_AFTER_S / EXITED_EVERY_S)):
        if not wait(EXITED_EVERY_S) or not controllers.all_run(first):
            break
    controllers.start(ordered)
    lacks = wait(OTHERS_AFTER_S)
    if lacks:  # the quorum can need a command after a start; else they run when it serves (lower_live)
        controllers.starts.finish(ordered)
        lacks = wait(READY_WITHIN_S - OTHERS_AFTER_S)
    return lacks


def _lowered(controllers: Controllers) -> str:
    """Record the result with the controllers that were left out; return it as a sentence."""
    run = controllers.run
    level = run.plan.levels[METADATA_VERSION]
    stopping = newest(run.history.events(), OfflineStopping)  # of an earlier call, if that was killed
    seconds = 0.0 if stopping is None else run.ports.clock.now() - stopping.at
    # The leader is there: a host that responds again costs no time now.
    controllers.start(run.cluster.controllers, again=True)
    left = controllers.left_behind()
    for node_id, reason in left.items():
        run.history.record(OfflineLeftBehind(node_id=node_id, sentence=reason))
    sentence = f"metadata.version is {level} on the controllers. No controller was active for at most {seconds:.1f} s."
    if left:
        sentence += f" Left out: {few(f'controller {node_id} ({reason})' for node_id, reason in left.items())}."
    run.history.record(LiveLowered(without_controller_s=round(seconds, 1), sentence=sentence))
    return sentence


def _start_left_behind(run: Run, starts: Starts) -> list[str]:
    """Install the snapshot on the controllers that were left out, and start them; return what was done.

    Safe with any of their files: the snapshot's leader has a majority, and the controllers start on the release that
    the cluster runs. A controller that runs already fetches the snapshot by itself. The gate of the level waits for it.
    """
    left = projections.left_behind(run.history.events())
    waiting = [node for node in run.cluster.controllers if node.node_id in left]
    if not waiting or not serves_at_level(run):
        return []

    def start(node: NodeSpec) -> str:
        if run.ports.runtime.process(node).pid is not None:
            return f"Controller {node.node_id} runs again."
        try:
            path = snapshot_path(run.ports, choose_once(run))
            run.history.record(install_on(run, node, path))
        except TransientError:
            raise
        except RolloutError as error:
            run.history.record(OfflineLeftBehind(node_id=node.node_id, sentence=f"Started as it was: {error.sentence}"))
        _start_unless_it_runs(starts, node)
        return f"Controller {node.node_id} was started."

    with run.ports.runtime.short_timeouts():
        started = on_each(start, waiting)
    still = [f"Controller {node_id} is still left out: {reason}" for node_id, reason in started.problems.items()]
    return [*started.done.values(), *still]


def _start_unless_it_runs(starts: Starts, node: NodeSpec) -> None:
    """Start a controller that has no process, on the release that the cluster runs. Raises RefusedError if its link or
    its package was changed to another one since the check before the first stop."""
    process = starts.run.ports.runtime.process(node)
    if process.pid is None:
        refuse_other_release(node, starts.run.plan.source, process.installed)
        starts.start(node)


@dataclass(slots=True)
class Controllers:
    """The controllers during one call."""

    run: Run
    starts: Starts
    silent: dict[int, str] = field(default_factory=dict)
    """Node id → reason, of controllers whose host did not respond. They are not asked again, so that a host is waited
    for once."""
    problems: dict[int, str] = field(default_factory=dict)
    """Node id → the last error of a controller, also of those that respond."""

    not_started: dict[int, str] = field(default_factory=dict)
    """Node id → reason, of controllers that the last start did not start."""
    spare: Lock = field(default_factory=Lock)
    """Held from the decision that the others keep their majority without a controller until it was started again."""

    @property
    def responding(self) -> tuple[NodeSpec, ...]:
        return tuple(node for node in self.run.cluster.controllers if node.node_id not in self.silent)

    @property
    def without_snapshot(self) -> tuple[NodeSpec, ...]:
        """The controllers on which this try has not installed the snapshot, as far as their hosts respond."""
        done = projections.installed_on(self.run.history.events())
        return tuple(node for node in self.responding if node.node_id not in done)

    @property
    def voters(self) -> tuple[int, ...]:
        """The quorum before the first stop."""
        before = projections.voters_before_stop(self.run.history.events())
        return before or tuple(node.node_id for node in self.run.cluster.controllers)

    @property
    def snapshot_has_majority(self) -> bool:
        """Whether the snapshot is on a majority of the voters, so no controller with an old log can be elected."""
        installed = projections.installed_on(self.run.history.events())
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
        """Raise TransientError, with nothing stopped, unless the host of every controller responds now. Raise
        RefusedError if one would start on another release.
        """
        seen = on_each(self.run.ports.runtime.process, self.run.cluster.controllers)
        silent = seen.failed
        if silent:
            raise TransientError(
                f"Not every controller's host responds: {few(error.sentence for error in silent.values())}",
                remedy="Nothing was stopped. Repeat the step when every host responds.",
            )
        for node in self.run.cluster.controllers:
            refuse_other_release(node, self.run.plan.source, seen.done[node.node_id].installed)

    def stop(self, chosen: Iterable[NodeSpec]) -> None:
        """Kill controllers at once. One that cannot be stopped counts as one of a silent host: it can run."""
        stop, process = self.run.ports.runtime.stop, self.run.ports.runtime.process

        def kill(node: NodeSpec) -> None:
            try:
                stop(node, deadline_s=_KILL_AT_ONCE_S, force=True)
                if process(node).pid is not None:
                    raise TransientError(f"Node {node.node_id} ({node.name}) was started again after its stop.")
            except RolloutError as error:
                self.silent[node.node_id] = error.sentence
                raise

        self.each(kill, chosen)

    def start(self, chosen: Iterable[NodeSpec], *, again: bool = False) -> Mapping[int, object]:
        """Start controllers that have no process; return those that run. `again`: also those of silent hosts."""

        def start(node: NodeSpec) -> None:
            try:
                _start_unless_it_runs(self.starts, node)
            except RolloutError as error:
                self.not_started[node.node_id] = error.sentence
                raise
            self.not_started.pop(node.node_id, None)
            self.silent.pop(node.node_id, None)

        return self.each(start, [node for node in chosen if again or node.node_id not in self.silent])

    def all_run(self, chosen: Sequence[NodeSpec]) -> bool:
        seen = self.each(self.run.ports.runtime.process, [node for node in chosen if node.node_id not in self.silent])
        return len(seen) == len(chosen) and all(process.pid is not None for process in seen.values())

    def left_behind(self) -> Mapping[int, str]:
        """Node id → reason, of the controllers without this try's snapshot, of those that did not start, and of those
        whose host is silent."""
        installed = projections.installed_on(self.run.history.events())
        left = {
            node.node_id: f"it was started with its old log and fetches the snapshot: {self.problems[node.node_id]}"
            for node in self.run.cluster.controllers
            if node.node_id not in installed and node.node_id in self.problems
        }
        return dict(sorted({**left, **self.not_started, **self.silent}.items()))


def serves_at_level(run: ReadRun) -> bool:
    """Return whether the active controller reports the planned metadata.version."""
    return served_level(run.ports) == run.plan.levels[METADATA_VERSION]


def served_level(ports: ReadPorts) -> int | None:
    """Return metadata.version as the active controller reports it; None without a leader or an answer."""
    return ask_active(ports).level


def undo_or_continue(controllers: Controllers, error: BaseException) -> None:
    """React to a failure with controllers stopped.

    Returns if the controllers serve at the new level. Else raises, with every controller started that can serve:
    RefusedError if the old logs are used again, TransientError if they are not and if too few hosts respond.
    """
    run = controllers.run
    why = error.sentence if isinstance(error, RolloutError) else f"{type(error).__name__}."
    if serves_at_level(run):
        controllers.start(run.cluster.controllers, again=True)
    elif projections.snapshot_is_written(run.history.events()):
        _decide(controllers, why, error)
    else:
        run.history.record(OfflineUndoing(sentence="No controller has the snapshot."))
        _return_to_old_logs(controllers, why, error, epoch=None)
    if not isinstance(error, RolloutError):
        raise error


def finish_undo(run: Run, starts: Starts) -> None:
    """Finish an undo that was interrupted, or that did not reach every controller.

    Returns when every controller was restored, or when a leader was elected on the snapshot in the meantime: then the
    downgrade continues. Raises as undo_or_continue, and TransientError while a controller is active at a level that is
    unknown.
    """
    with run.ports.runtime.short_timeouts():
        _finish_undo(Controllers(run, starts), "The undo was interrupted.")


def _finish_undo(controllers: Controllers, why: str) -> None:
    run, events = controllers.run, controllers.run.history.events()
    can_be_used = projections.snapshot_is_written(events)
    if can_be_used and not has_majority(controllers.voters, projections.restored_nodes(events)):
        level = _wait_for_level(controllers)
        if level is None:
            _refuse_hidden_leader(run, why)
            _decide(controllers, why, None)
            return
    else:
        level = served_level(run.ports)
    if level == run.plan.levels[METADATA_VERSION]:
        run.history.record(LiveKept(sentence="A leader was elected on the snapshot before the undo was finished."))
        return
    if not projections.is_undoing(events):
        run.history.record(OfflineUndoing(sentence=why))
    _return_to_old_logs(controllers, why, None, epoch=None)


def _wait_for_level(controllers: Controllers) -> int | None:
    """Wait for a leader while a majority of the controllers runs, or can run; return metadata.version as it reports it,
    or None."""
    run = controllers.run
    seen = on_each(run.ports.runtime.process, run.cluster.controllers)
    running = {node_id for node_id, process in seen.done.items() if process.pid is not None}
    if not has_majority(controllers.voters, running | seen.failed.keys()):
        return None
    return until(
        run.ports.clock, lambda: served_level(run.ports), lambda found: found is not None, for_s=READY_WITHIN_S
    )


def _refuse_hidden_leader(run: ReadRun, why: str) -> None:
    """Raise TransientError, with nothing stopped, if a leader is known, and its level is not: a decision stops the
    controllers. The brokers know one on a host that does not respond to this tool."""
    active = find_active(run.ports, through_brokers=True).node
    if active is not None:
        raise TransientError(
            f"{why} Controller {active.node_id} is active. It is unknown which log it uses: {quorum_lacks(run)}",
            remedy="Nothing was stopped. Find out why in the logs of the controllers, and repeat the step when its "
            "host responds.",
        )


def _decide(controllers: Controllers, why: str, error: BaseException | None) -> None:
    """Decide whether the old logs can be used again. Returns if the controllers serve at the new level."""
    run = controllers.run
    answering = controllers.each(run.ports.runtime.process, run.cluster.controllers)
    for node_id in answering:
        controllers.silent.pop(node_id, None)
    if not has_majority(controllers.voters, answering):
        _wait_for_hosts(controllers, why)
    controllers.stop(node for node in run.cluster.controllers if node.node_id in answering)
    logs = controllers.each(_read_log(controllers), controllers.responding)
    of_brokers = on_each(_read_log(controllers), run.cluster.brokers_alone).done
    chosen = projections.chosen_log(run.history.events())
    if chosen is None:
        raise FatalError("The run history has a snapshot without its log.", remedy="Report this as a bug.") from error
    match decide_snapshot_use(chosen, controllers.voters, logs, of_brokers.values()):
        case SnapshotUse.UNUSED:
            run.history.record(OfflineUndoing(sentence="The controllers have no leader at the new level."))
            everything = [*logs.values(), *of_brokers.values()]
            _return_to_old_logs(controllers, why, error, epoch=epoch_after_return(chosen, everything))
        case SnapshotUse.USED:
            _continue_with_snapshot(controllers, why)
        case SnapshotUse.UNKNOWN:
            _wait_for_hosts(controllers, why)


def _read_log(controllers: Controllers) -> Callable[[NodeSpec], NodeLog]:
    return lambda node: controllers.run.ports.metadata_logs.node_log(node, cluster_id=controllers.run.plan.cluster_id)


def _continue_with_snapshot(controllers: Controllers, why: str) -> None:
    """Start the controllers again after a leader was elected on the snapshot; raise TransientError until they serve."""
    run = controllers.run
    run.history.record(LiveKept(sentence="A leader was elected on the snapshot, so the old logs are not used again."))
    controllers.start(run.cluster.controllers, again=True)
    if not until(run.ports.clock, lambda: serves_at_level(run), bool, for_s=READY_WITHIN_S):
        raise TransientError(
            f"A leader was elected at the new level, but the controllers do not serve yet: {why}",
            remedy="The controllers that respond were started. Repeat the step.",
        )


def _wait_for_hosts(controllers: Controllers, why: str) -> NoReturn:
    """Raise TransientError: too few controllers can be read to decide. Start what is safe whatever the others have."""
    started = "No controller was started, because it is unknown which log the others have."
    if controllers.snapshot_has_majority:
        controllers.start(controllers.run.ports.cluster.controllers, again=True)
        started = "The controllers that respond were started with the snapshot, which is on a majority of them."
    raise TransientError(
        f"Too few controllers could be read to decide which log continues: {few(controllers.problem_lines)} {why}",
        remedy=f"{started} Repeat the step when more hosts respond.",
    )


def _return_to_old_logs(controllers: Controllers, why: str, error: BaseException | None, *, epoch: int | None) -> None:
    """Restore the controllers, each on its own, and start them. Raises unless `error` is None and all are restored.

    `epoch`: the epoch that they store first; None if no controller with the snapshot can be elected anyway.
    """
    run = controllers.run

    def restore(node: NodeSpec) -> None:
        if node.node_id not in projections.restored_nodes(run.history.events()):
            runs = run.ports.runtime.process(node).pid is not None
            if runs and epoch is None and not _can_have_snapshot(run, node):
                _record_restored(run.ports, node, "It runs on its old log.")
                return
            with controllers.spare if runs else nullcontext():
                if runs:
                    _stop_spare(controllers, node)
                _restore(run, node, epoch)  # refuses one that was started in between
                _start_unless_it_runs(controllers.starts, node)
            return
        _start_unless_it_runs(controllers.starts, node)

    done = on_each(restore, run.cluster.controllers)
    problems = [f"controller {node_id}: {sentence}" for node_id, sentence in done.problems.items()]
    started = f"{nodes(done.done).capitalize()} run on their old logs"
    silent = all(isinstance(one, TransientError) for one in done.failed.values())
    wait_s = READY_WITHIN_S if has_majority(controllers.voters, done.done) else 0.0
    waits_for = until(run.ports.clock, lambda: find_active(run.ports).lacks, lambda found: not found, for_s=wait_s)
    if not done.failed:
        restored = sorted(projections.restored_nodes(run.history.events()))
        sentence = f"Controllers started on their old logs: {', '.join(map(str, restored)) or 'none'}."
        run.history.record(OfflineUndone(nodes=tuple(restored), sentence=sentence))
    if waits_for or done.failed:
        first = next((node for node in run.cluster.controllers if node.node_id in done.done), None)
        shown = (
            ""
            if first is None or not waits_for
            else f" Controller {first.node_id}: {read_last_error(run.ports, first)}."
        )
        serves = f" They do not serve: {waits_for}" if waits_for else ""
        kind = TransientError if done.failed and silent else FatalError
        raise kind(
            f"metadata.version was not lowered: {why} {started}.{serves} Not every controller runs on its old log "
            f"again: {few(problems)}"
            if problems
            else f"metadata.version was not lowered: {why} {started}, but they do not serve: {waits_for}",
            remedy="Fix the cause, or wait until the host responds, then repeat the step: it restores and starts this "
            f"controller first. Do not start it by hand.{shown}"
            if problems
            else f"Read the logs of the controllers.{shown}",
        ) from error
    if error is None:
        return
    failed = f"metadata.version was not lowered: {why} The controllers run on their old logs again."
    run.history.record(LiveFailed(sentence=failed))
    if isinstance(error, RolloutError):
        raise RefusedError(failed, remedy=error.remedy or "Fix the cause, then repeat the step.") from error


def _can_have_snapshot(run: ReadRun, node: NodeSpec) -> bool:
    """Return whether the snapshot of this try is on a controller, also if a kill came before the record of it."""
    events = run.history.events()
    chosen = projections.chosen_log(events)
    if chosen is None or not projections.snapshot_is_written(events):
        return False
    if node.node_id in projections.installed_on(events):
        return True
    return has_snapshot(run.ports.metadata_logs.node_log(node, cluster_id=run.plan.cluster_id), chosen)


def _stop_spare(controllers: Controllers, node: NodeSpec) -> None:
    """Stop a controller that is to be restored, unless the others would lose their majority by it. The caller holds
    `Controllers.spare`."""
    run = controllers.run
    others = [other for other in run.cluster.controllers if other != node]
    running = [one for one, seen in on_each(run.ports.runtime.process, others).done.items() if seen.pid is not None]
    if served_level(run.ports) is not None and not has_majority(controllers.voters, running):
        raise TransientError(f"Controller {node.node_id} runs, and the quorum has no other spare controller.")
    run.ports.runtime.stop(node, deadline_s=_KILL_AT_ONCE_S, force=True)


def _restore(run: Run, node: NodeSpec, epoch: int | None) -> None:
    chosen, sentence = projections.chosen_log(run.history.events()), None
    try:
        if chosen is not None:
            sentence = run.ports.metadata_logs.undo_install(
                node, chosen.snapshot, cluster_id=run.plan.cluster_id, keep_epoch=True
            )
        if epoch is not None:
            run.ports.metadata_logs.raise_epoch(node, epoch=epoch, cluster_id=run.plan.cluster_id)
    except UnreadableLogError:
        return  # its disk was lost: there is nothing to restore
    _record_restored(run.ports, node, sentence or "No snapshot was installed.")


def _record_restored(ports: ClusterPorts, node: NodeSpec, found: str) -> None:
    ports.run.record(OfflineRestored(node_id=node.node_id, sentence=f"node {node.node_id}: {found}"))
