"""The action of a live downgrade: the controllers stop and start at a lower metadata.version; the brokers serve.

The snapshot at the lower level is written and proved before the stop; after it only the end of the log is replayed. The
controllers start again on the same release. Running brokers fetch the snapshot, because it ends beyond their own logs.

Everything between the stop and the start is one action. Each controller is handled on its own: one that does not
respond is left out, and the others continue if they are a majority. If the action fails, undo.py decides from the files
of the stopped controllers whether they start with their old logs. A killed call is continued by the next one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

from kafka_rollout.base.errors import RefusedError, RolloutError, TransientError
from kafka_rollout.base.wording import few
from kafka_rollout.gates.check import Gate, GateKind
from kafka_rollout.metadata_log.log_choice import UnreadableLogError
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import majority
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.ports.cluster import PreparedSnapshot
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import ApprovalOf, newest
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.run.step_events import LiveLowered, OfflineLeftBehind, OfflineStopping
from kafka_rollout.steps.common import lock
from kafka_rollout.steps.common.approval import require_approval
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.control import refuse_held, refuse_unsafe_stop
from kafka_rollout.steps.common.until import until
from kafka_rollout.steps.features.levels import pending_changes
from kafka_rollout.steps.gates.checks import check_gate
from kafka_rollout.steps.live.controllers import READY_WITHIN_S, Controllers, serves_at_level
from kafka_rollout.steps.live.undo import finish_undo, undo_or_continue
from kafka_rollout.steps.offline.snapshot import (
    SNAPSHOTS,
    at_once,
    choose_once,
    chosen_node,
    install_on,
    nothing_was_stopped,
    on_each,
    other_levels,
    quorum_lacks,
    snapshot_path,
    write_once,
)
from kafka_rollout.steps.planning.check import check_plan, refuse_new_blockers

READY_EVERY_S = 0.1
OTHERS_AFTER_S, EXITED_EVERY_S = 20.0, 2.0
_GATE, _STOP = Gate(kind=GateKind.CONTROLLERS_STOP), "The stop of the controllers"
_LONGEST_S = 3600.0  # limit of a single call: the largest metadata logs are read, written and copied in less time


def lower_live(ports: ClusterPorts, plan: Plan) -> str:
    """Lower the planned levels on the controllers; return a sentence. The gates show when the brokers follow.

    A controller whose host does not respond is left out if the others are a majority; the sentence names it, the gate
    of the level waits for it, and a repeated call installs the snapshot there and starts it.

    Raises HeldError while something holds the stop. Raises RefusedError or TransientError, with every controller that
    responds running on its old log, if the levels were not lowered. Raises TransientError if a leader was elected at
    the new level, but the controllers do not serve yet, and if too few hosts respond to decide: repeat it.
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
            return " ".join([done.sentence, *_start_left_behind(ports, plan)])
        if projections.is_undoing(ports.run.events()):
            finish_undo(ports, plan)
        if nothing_was_stopped(ports):
            if not _lacks(ports, plan):
                return f"metadata.version is {plan.levels[METADATA_VERSION]} already."
            refuse_held(ports, plan, _GATE, _STOP)
            # Before the gate: the operator's commands can take an hour.
            at_once(ports.runtime.prepare_stop, [one for one in ports.cluster.controllers if one.commands_before_stop])
            _refuse_unready(ports, plan)
            prepared = opened.enter_context(_prepare(ports, plan))
            refuse_held(ports, plan, _GATE, _STOP, is_prepared=True)  # large logs can take many minutes
            return _lower(ports, plan, prepared, opened)
        return _lower(ports, plan, None, opened)


def _refuse_unready(ports: ClusterPorts, plan: Plan) -> None:
    refuse_new_blockers(ports, plan)
    if left := pending_changes(ports, plan):
        raise RefusedError(
            f"Some levels are not lowered yet: {', '.join(f'{c.feature} is not' for c in left)}.",
            remedy="Lower the levels first.",
        )
    seen = check_gate(ports, plan, replace(_GATE, is_prepared=True))
    refuse_unsafe_stop(ports, _GATE, seen, "The controllers cannot be stopped safely")


def _prepare(ports: ClusterPorts, plan: Plan) -> AbstractContextManager[PreparedSnapshot]:
    """Write and prove everything that does not need the end of the log.

    Raises TransientError for a host that does not respond before the first stop. Later such a controller is left out.
    """
    level, out = plan.levels[METADATA_VERSION], ports.run.private_path(SNAPSHOTS)
    stopped = projections.stop_has_begun(ports.run.events())
    for node in ports.cluster.controllers:
        try:
            ports.metadata_logs.prepare_install(node, out, level=level, target=plan.target, cluster_id=plan.cluster_id)
        except UnreadableLogError:
            continue  # its disk was lost after the stop; the choice of the log reports it
        except TransientError:
            if not stopped:
                raise
    return ports.metadata_logs.prepared_snapshot(
        _readable_controller(ports, plan),
        level=level,
        features=other_levels(plan),
        source=plan.source,
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
        except (UnreadableLogError, TransientError):
            continue
        return node
    raise RefusedError("No controller has a readable metadata log.", remedy="Restore the controllers' directories.")


def _lower(ports: ClusterPorts, plan: Plan, prepared: PreparedSnapshot | None, opened: ExitStack) -> str:
    """`prepared`: None in a continued call, which prepares the snapshot with the controllers stopped."""
    controllers = Controllers(ports, plan)
    with ports.runtime.short_timeouts():
        if prepared is not None:
            controllers.refuse_silent_hosts()
            _record_stop(ports)
        try:
            if controllers.snapshot_has_majority:
                _install_on_others(controllers)
            else:
                _install(controllers, prepared or opened.enter_context(_prepare(ports, plan)))
            waits_for = _start_until_ready(controllers)
            if waits_for:
                raise TransientError(f"The controllers do not serve after {READY_WITHIN_S:.0f} s: {waits_for}")
        except BaseException as error:
            undo_or_continue(controllers, error)
        return _lowered(controllers)


def _record_stop(ports: ClusterPorts) -> None:
    quorum = ports.admin.quorum()
    voters = tuple(voter.replica_id for voter in quorum.voters)
    sentence = f"The controllers are requested to stop; the quorum's voters are {', '.join(map(str, voters))}."
    ports.run.record(OfflineStopping(voters=voters, unwritable=(), sentence=sentence))


def _install(controllers: Controllers, prepared: PreparedSnapshot) -> None:
    """Stop the controllers and install the snapshot, each on its own. Raises RolloutError without a majority."""
    ports, plan = controllers.ports, controllers.plan
    controllers.stop(controllers.without_snapshot)
    path = write_once(ports, plan, prepared, silent=controllers.silent)
    controllers.each(lambda node: ports.run.record(install_on(ports, plan, node, path)), controllers.without_snapshot)
    if not controllers.snapshot_has_majority:
        raise TransientError(
            f"The snapshot is not installed on a majority of the controllers: {few(controllers.problem_lines)}"
        )


def _install_on_others(controllers: Controllers) -> None:
    """Install the snapshot, which is on a majority, on the other controllers without a process."""
    ports, plan = controllers.ports, controllers.plan
    path = snapshot_path(ports, choose_once(ports, plan))

    def install(node: NodeSpec) -> None:
        if ports.runtime.process(node).pid is None:
            ports.run.record(install_on(ports, plan, node, path))

    controllers.each(install, controllers.without_snapshot)


def _start_until_ready(controllers: Controllers) -> str:
    """Start a majority of the controllers. Start the others when it serves, when one exits, or after a time limit.

    Controllers on one host start slower if all start at once, and one that starts during an election can repeat it.
    A controller without the snapshot starts with the others: it fetches the snapshot from the leader. Returns what is
    missing; empty if they serve.
    """
    ports, plan = controllers.ports, controllers.plan

    def wait(seconds: float) -> str:
        return until(
            ports.clock, lambda: _lacks(ports, plan), lambda found: not found, for_s=seconds, every_s=READY_EVERY_S
        )

    had_log = {node_id for node_id, event in projections.installed_on(ports.run.events()).items() if event.had_log}
    candidate = chosen_node(ports)
    ordered = sorted(controllers.responding, key=lambda node: (node.node_id not in had_log, node != candidate))
    first = ordered[: majority(len(ports.cluster.controllers))]
    if len(controllers.start(first)) < len(first):
        controllers.start(ordered)
    for _ in range(int(OTHERS_AFTER_S / EXITED_EVERY_S)):
        if not wait(EXITED_EVERY_S) or not controllers.all_run(first):
            break
    controllers.start(ordered)
    return wait(READY_WITHIN_S)


def _lowered(controllers: Controllers) -> str:
    """Record the result with the controllers that were left out; return it as a sentence."""
    ports, plan = controllers.ports, controllers.plan
    level = plan.levels[METADATA_VERSION]
    stopping = newest(ports.run.events(), OfflineStopping)  # of an earlier call, if that was killed
    seconds = 0.0 if stopping is None else ports.clock.now() - stopping.at
    # The leader is there: a host that responds again costs no time now.
    controllers.start(ports.cluster.controllers, again=True)
    left = controllers.left_behind()
    for node_id, reason in left.items():
        ports.run.record(OfflineLeftBehind(node_id=node_id, sentence=reason))
    sentence = f"metadata.version is {level} on the controllers. No controller was active for at most {seconds:.1f} s."
    if left:
        sentence += f" Left out: {few(f'controller {node_id} ({reason})' for node_id, reason in left.items())}."
    ports.run.record(LiveLowered(without_controller_s=round(seconds, 1), sentence=sentence))
    return sentence


def _start_left_behind(ports: ClusterPorts, plan: Plan) -> list[str]:
    """Install the snapshot on the controllers that were left out, and start them; return what was done.

    Safe with any of their files: the snapshot's leader has a majority, and the controllers start on the release that
    the cluster runs. A controller that runs already fetches the snapshot by itself. The gate of the level waits for it.
    """
    left = projections.left_behind(ports.run.events())
    waiting = [node for node in ports.cluster.controllers if node.node_id in left]
    if not waiting or not serves_at_level(ports, plan):
        return []

    def start(node: NodeSpec) -> str:
        if ports.runtime.process(node).pid is not None:
            return f"Controller {node.node_id} runs again."
        try:
            path = snapshot_path(ports, choose_once(ports, plan))
            ports.run.record(install_on(ports, plan, node, path))
        except TransientError:
            raise
        except RolloutError as error:
            ports.run.record(OfflineLeftBehind(node_id=node.node_id, sentence=f"Started as it was: {error.sentence}"))
        ports.runtime.start(node)
        return f"Controller {node.node_id} was started."

    with ports.runtime.short_timeouts():
        started = on_each(start, waiting)
    still = [f"Controller {node_id} is still left out: {reason}" for node_id, reason in started.problems.items()]
    return [*started.done.values(), *still]


def _lacks(ports: ClusterPorts, plan: Plan) -> str:
    return quorum_lacks(ports, plan.levels[METADATA_VERSION])
