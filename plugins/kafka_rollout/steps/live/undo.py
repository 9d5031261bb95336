"""The decision after a failed live downgrade, and the return of the controllers to their old logs.

Order: kill the controllers whose hosts respond, read their files, read the brokers' files, decide. The files cannot
change after the stop. metadata_log/log_choice.py has the invariants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.metadata_log.log_choice import (
    NodeLog,
    SnapshotUse,
    UnreadableLogError,
    decide_snapshot_use,
    epoch_after_return,
    has_majority,
)
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.run.step_events import (
    LiveFailed,
    LiveKept,
    OfflineRestored,
    OfflineUndoing,
    OfflineUndone,
)
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.node_steps import read_last_error
from kafka_rollout.steps.common.until import until
from kafka_rollout.steps.live.controllers import READY_WITHIN_S, STOP_S, Controllers, served_level, serves_at_level
from kafka_rollout.steps.offline.snapshot import on_each


def undo_or_continue(controllers: Controllers, error: BaseException) -> None:
    """React to a failure with controllers stopped.

    Returns if the controllers serve at the new level. Else raises, with every controller started that can serve:
    RefusedError if the old logs are used again, TransientError if they are not and if too few hosts respond.
    """
    ports, plan = controllers.ports, controllers.plan
    why = error.sentence if isinstance(error, RolloutError) else f"{type(error).__name__}."
    if serves_at_level(ports, plan):
        controllers.start(ports.cluster.controllers, again=True)
    elif projections.snapshot_is_written(ports.run.events()):
        _decide(controllers, why, error)
    else:
        ports.run.record(OfflineUndoing(sentence="No controller has the snapshot."))
        _return_to_old_logs(controllers, why, error, epoch=None)
    if not isinstance(error, RolloutError):
        raise error


def finish_undo(ports: ClusterPorts, plan: Plan) -> None:
    """Finish an undo that was interrupted, or that did not reach every controller.

    Returns when every controller was restored, or when a leader was elected on the snapshot in the meantime: then the
    downgrade continues. Raises as undo_or_continue.
    """
    controllers = Controllers(ports, plan)
    why = "The undo was interrupted."
    with ports.runtime.short_timeouts():
        level = served_level(ports)
        restored = projections.restored_nodes(ports.run.events())
        if level == plan.levels[METADATA_VERSION]:
            ports.run.record(LiveKept(sentence="A leader was elected on the snapshot before the undo was finished."))
        elif level is not None or has_majority(controllers.voters, restored):
            _return_to_old_logs(controllers, why, None, epoch=None)
        elif projections.snapshot_is_written(ports.run.events()):
            _decide(controllers, why, None)
        else:
            _return_to_old_logs(controllers, why, None, epoch=None)


def _decide(controllers: Controllers, why: str, error: BaseException | None) -> None:
    """Decide whether the old logs can be used again. Returns if the controllers serve at the new level."""
    ports = controllers.ports
    answering = controllers.each(ports.runtime.process, ports.cluster.controllers)
    for node_id in answering:
        controllers.silent.pop(node_id, None)
    if not has_majority(controllers.voters, answering):
        _wait_for_hosts(controllers, why)
    controllers.stop(node for node in ports.cluster.controllers if node.node_id in answering)
    logs = controllers.each(_read_log(controllers), controllers.responding)
    of_brokers = on_each(_read_log(controllers), ports.cluster.brokers_alone).done
    chosen = projections.chosen_log(ports.run.events())
    if chosen is None:
        raise FatalError("The run history has a snapshot without its log.", remedy="Report this as a bug.") from error
    match decide_snapshot_use(chosen, controllers.voters, logs, of_brokers.values()):
        case SnapshotUse.UNUSED:
            ports.run.record(OfflineUndoing(sentence="The controllers have no leader at the new level."))
            everything = [*logs.values(), *of_brokers.values()]
            _return_to_old_logs(controllers, why, error, epoch=epoch_after_return(chosen, everything))
        case SnapshotUse.USED:
            _continue_with_snapshot(controllers, why)
        case SnapshotUse.UNKNOWN:
            _wait_for_hosts(controllers, why)


def _read_log(controllers: Controllers) -> Callable[[NodeSpec], NodeLog]:
    return lambda node: controllers.ports.metadata_logs.node_log(node, cluster_id=controllers.plan.cluster_id)


def _continue_with_snapshot(controllers: Controllers, why: str) -> None:
    """Start the controllers again after a leader was elected on the snapshot; raise TransientError until they serve."""
    ports, plan = controllers.ports, controllers.plan
    ports.run.record(LiveKept(sentence="A leader was elected on the snapshot, so the old logs are not used again."))
    controllers.start(ports.cluster.controllers, again=True)
    if not until(ports.clock, lambda: serves_at_level(ports, plan), bool, for_s=READY_WITHIN_S):
        raise TransientError(
            f"A leader was elected at the new level, but the controllers do not serve yet: {why}",
            remedy="The controllers that respond were started. Repeat the step.",
        )


def _wait_for_hosts(controllers: Controllers, why: str) -> NoReturn:
    """Raise TransientError: too few controllers can be read to decide. Start what is safe whatever the others have."""
    started = "No controller was started, because it is unknown which log the others have."
    if controllers.snapshot_has_majority:
        controllers.start(controllers.ports.cluster.controllers, again=True)
        started = "The controllers that respond were started with the snapshot, which is on a majority of them."
    raise TransientError(
        f"Too few controllers could be read to decide which log continues: {few(controllers.problem_lines)} {why}",
        remedy=f"{started} Repeat the step when more hosts respond.",
    )


def _return_to_old_logs(controllers: Controllers, why: str, error: BaseException | None, *, epoch: int | None) -> None:
    """Restore the controllers, each on its own, and start them. Raises unless `error` is None and all are restored.

    `epoch`: the epoch that they store first; None if no controller with the snapshot can be elected anyway.
    """
    ports, plan = controllers.ports, controllers.plan

    def restore(node: NodeSpec) -> None:
        if node.node_id not in projections.restored_nodes(ports.run.events()):
            if projections.snapshot_is_written(ports.run.events()):
                _stop_spare(controllers, node)
            elif ports.runtime.process(node).pid is not None:
                _record_restored(ports, node, "It runs on its old log.")  # no controller has the snapshot
                return
            _restore(ports, plan, node, epoch)
        if ports.runtime.process(node).pid is None:
            ports.runtime.start(node)

    done = on_each(restore, ports.cluster.controllers)
    problems = [f"controller {node_id}: {sentence}" for node_id, sentence in done.problems.items()]
    started = f"{nodes(done.done).capitalize()} run on their old logs"
    silent = all(isinstance(one, TransientError) for one in done.failed.values())
    wait_s = READY_WITHIN_S if has_majority(controllers.voters, done.done) else 0.0
    waits_for = until(ports.clock, lambda: _unserved(ports), lambda found: not found, for_s=wait_s)
    if not done.failed:
        restored = sorted(projections.restored_nodes(ports.run.events()))
        sentence = f"Controllers started on their old logs: {', '.join(map(str, restored)) or 'none'}."
        ports.run.record(OfflineUndone(nodes=tuple(restored), sentence=sentence))
    if waits_for or done.failed:
        first = next((node for node in ports.cluster.controllers if node.node_id in done.done), None)
        shown = (
            "" if first is None or not waits_for else f" Controller {first.node_id}: {read_last_error(ports, first)}."
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
    ports.run.record(LiveFailed(sentence=failed))
    if isinstance(error, RolloutError):
        raise RefusedError(failed, remedy=error.remedy or "Fix the cause, then repeat the step.") from error


def _stop_spare(controllers: Controllers, node: NodeSpec) -> None:
    """Stop a controller that is to be restored, unless the others would lose their majority by it."""
    ports = controllers.ports
    if ports.runtime.process(node).pid is None:
        return
    others = [other for other in ports.cluster.controllers if other != node]
    running = [one for one, seen in on_each(ports.runtime.process, others).done.items() if seen.pid is not None]
    if served_level(ports) is not None and not has_majority(controllers.voters, running):
        raise TransientError(f"Controller {node.node_id} runs, and the quorum has no other spare controller.")
    ports.runtime.stop(node, deadline_s=STOP_S, force=True)


def _restore(ports: ClusterPorts, plan: Plan, node: NodeSpec, epoch: int | None) -> None:
    try:
        sentence = ports.metadata_logs.undo_install(node, cluster_id=plan.cluster_id, keep_epoch=True)
        if epoch is not None:
            ports.metadata_logs.raise_epoch(node, epoch=epoch, cluster_id=plan.cluster_id)
    except UnreadableLogError:
        return  # its disk was lost: there is nothing to restore
    _record_restored(ports, node, sentence or "No snapshot was installed.")


def _record_restored(ports: ClusterPorts, node: NodeSpec, found: str) -> None:
    ports.run.record(OfflineRestored(node_id=node.node_id, sentence=f"node {node.node_id}: {found}"))


def _unserved(ports: ClusterPorts) -> str:
    try:
        return "" if ports.admin.quorum(through_brokers=False).leader_id >= 0 else "the quorum has no leader."
    except TransientError as error:
        return error.sentence
