"""The snapshot that replaces metadata logs: choose the log, write it, install it. For offline and live downgrades.

A repeated call continues with what the run history and the directories show.
"""

from __future__ import annotations

import socket
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.base.wording import few
from kafka_rollout.lowering.active_controller import ask_active
from kafka_rollout.metadata_log.log_choice import ChosenLog, UnreadableLogError, choose_log
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, at_once, named_directories
from kafka_rollout.observation.each_node import on_each
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.ports.cluster import PreparedSnapshot
from kafka_rollout.preparation.lost_metadata import find_new_losses
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.run.step_events import OfflineInstalled, OfflineLogChosen, OfflineSnapshotWritten

SNAPSHOTS = "offline"  # folder of the run's private path
NO_NODES: Mapping[int, str] = MappingProxyType({})


def stopped_nodes(run: ReadRun) -> tuple[NodeSpec, ...]:
    """Return the nodes whose logs the snapshot replaces: all, or in a live downgrade only the controllers."""
    return run.cluster.controllers if run.plan.lowering is Lowering.LIVE else run.cluster.nodes


def choose_once(run: Run, *, silent: Mapping[int, str] = NO_NODES) -> ChosenLog:
    """Choose the log to continue from; the first choice of this try stays.

    `silent`: node id → reason, of nodes whose hosts do not respond. They count as nodes without a log. Raises
    RefusedError unless the logs of a majority of voters are available, and in a live downgrade if the log of a running
    broker cannot be read: the snapshot must end beyond it.
    """
    if (found := projections.chosen_log(run.history.events())) is not None:
        return found
    refuse_running(run, [node for node in stopped_nodes(run) if node.node_id not in silent])
    return _choose(run, silent)


def _choose(run: Run, silent: Mapping[int, str]) -> ChosenLog:
    asked = [node for node in run.cluster.nodes if node.node_id not in silent]
    read = on_each(lambda node: run.ports.metadata_logs.node_log(node, cluster_id=run.plan.cluster_id), asked)
    for error in read.failed.values():
        if not isinstance(error, UnreadableLogError | TransientError):
            raise error
    not_read = {
        node_id: f"node {node_id}: {error.sentence.removesuffix('.')}" for node_id, error in read.failed.items()
    }
    not_read |= {node_id: f"node {node_id}: {reason}" for node_id, reason in silent.items()}
    before = projections.voters_before_stop(run.history.events())
    voters = before if before is not None else tuple(node.node_id for node in run.cluster.controllers)
    unknown = [not_read[node.node_id] for node in run.cluster.brokers_alone if node.node_id in not_read]
    if run.plan.lowering is Lowering.LIVE and unknown:
        raise RefusedError(
            f"The end of a running broker's metadata log is unknown: {few(unknown)}",
            remedy="Fix the directory or the host of the broker, then repeat the step.",
        )
    chosen = choose_log(tuple(read.done.values()), voters, not_read, live=run.plan.lowering is Lowering.LIVE)
    run.history.record(OfflineLogChosen(log=chosen))
    return chosen


def write_once(
    run: Run,
    prepared: PreparedSnapshot | None = None,
    *,
    silent: Mapping[int, str] = NO_NODES,
) -> Path:
    """Write the snapshot of the chosen log, or return the one that this try has written.

    `prepared`: a snapshot that was prepared before the stop, to write it faster. `silent`: as in choose_once. Raises
    RefusedError if metadata would be lost that the report of the losses does not have.
    """
    events = run.history.events()
    found = projections.chosen_log(events)
    if found is not None and projections.snapshot_is_written(events) and snapshot_path(run.ports, found).exists():
        return snapshot_path(run.ports, found)
    refuse_running(run, [node for node in stopped_nodes(run) if node.node_id not in silent])
    chosen = found or _choose(run, silent)
    path, host = snapshot_path(run.ports, chosen), socket.gethostname()
    if projections.installed_on(events):
        raise FatalError(
            f"The snapshot {path} is missing on host {host}, but it is already installed on some nodes. "
            f"It was written on host {projections.snapshot_host(events) or 'unknown'} and holds password verifiers, so "
            "it is stored only there.",
            remedy="Repeat the step on that host, or undo the downgrade with `kafka-rollout rollback`.",
        )
    path.unlink(missing_ok=True)
    planned = other_levels(run.plan)
    node = run.cluster.node(chosen.node_id)
    if prepared is not None:
        written = prepared.write(
            node, path.parent, epoch=chosen.snapshot_epoch, end_offset=chosen.snapshot_offset or chosen.end_offset
        )
    else:
        written = run.ports.metadata_logs.write_snapshot(
            node,
            path.parent,
            level=run.plan.levels[METADATA_VERSION],
            features=planned,
            epoch=chosen.snapshot_epoch,
            source=run.plan.source,
            target=run.plan.target,
            settings=run.ports.runtime.config(node),
            cluster_id=run.plan.cluster_id,
        )
    lost = [loss for loss in named_directories(run.ports, written.losses) if loss.subject not in planned]
    run.history.record(
        OfflineSnapshotWritten(
            file=path.name,
            from_level=written.from_level,
            to_level=written.to_level,
            records=written.records,
            host=host,
            proved_by=tuple(written.proved_by),
            lost=tuple(loss.sentence for loss in lost),
        )
    )
    if new := find_new_losses(run, lost):
        path.unlink()
        raise RefusedError(
            f"The snapshot at metadata.version {written.to_level} would lose metadata that the approved plan "
            f"does not list: {few([loss.sentence for loss in new])}",
            remedy="No snapshot was installed. Start a new run."
            if run.plan.lowering is Lowering.LIVE
            else "All nodes are stopped; no snapshot was installed. Start the nodes with `kafka-rollout rollback`, "
            "then start a new run.",
        )
    return path


def other_levels(plan: Plan) -> dict[str, int]:
    """Return the planned levels of the features other than metadata.version."""
    return {name: level for name, level in plan.levels.items() if name != METADATA_VERSION}


def snapshot_path(ports: ClusterPorts, chosen: ChosenLog) -> Path:
    """Return the path of the run's snapshot. It is not next to the report, because it contains password verifiers."""
    return ports.run.private_path(SNAPSHOTS) / chosen.snapshot


def install_on(run: Run, node: NodeSpec, snapshot: Path) -> OfflineInstalled:
    """Install the snapshot on a stopped node.

    A node without a log has no records that conflict with the snapshot; it fetches the snapshot. In a live downgrade
    the voter whose log was chosen starts as a candidate, so that no election timeout has to pass."""
    try:
        sentence = run.ports.metadata_logs.install(
            node,
            snapshot,
            level=run.plan.levels[METADATA_VERSION],
            target=run.plan.target,
            cluster_id=run.plan.cluster_id,
            candidate=run.plan.lowering is Lowering.LIVE and node == chosen_node(run.ports),
        )
    except UnreadableLogError as error:
        sentence = f"Left as it is: {error.sentence}"
        return OfflineInstalled(node_id=node.node_id, sentence=sentence, had_log=False)
    return OfflineInstalled(node_id=node.node_id, sentence=sentence, had_log=True)


def chosen_node(ports: ReadPorts) -> NodeSpec | None:
    """Return the node whose log was chosen, a voter; None before the choice."""
    chosen = projections.chosen_log(ports.run.events())
    return None if chosen is None else ports.cluster.node(chosen.node_id)


def quorum_lacks(run: ReadRun) -> str:
    """Return why the controllers do not serve at the planned metadata.version yet; empty if they do."""
    level, active = run.plan.levels[METADATA_VERSION], ask_active(run.ports)
    if active.node is None or active.features is None:
        return active.lacks
    leader, found = active.node.node_id, active.level
    if found is None:  # one that was just elected; no plan lowers the level of controllers that never report it
        return f"controller {leader} does not report metadata.version yet."
    return "" if found == level else f"metadata.version is {found} on controller {leader}, not {level}."


def refuse_running(run: ReadRun, chosen: Sequence[NodeSpec]) -> None:
    """Raise RefusedError if one of these nodes, whose logs are replaced, is running."""

    def refuse(node: NodeSpec) -> None:
        if run.ports.runtime.process(node).pid is not None:
            raise runs(
                node, "Stop the controllers first." if run.plan.lowering is Lowering.LIVE else "Stop all nodes first."
            )

    at_once(refuse, chosen)


def silent_hosts(ports: ReadPorts, chosen: Sequence[NodeSpec]) -> dict[int, str]:
    """Return node id → reason, of the nodes whose hosts do not respond now. Other errors are raised."""
    failed = on_each(ports.runtime.process, chosen).failed
    for error in failed.values():
        if not isinstance(error, TransientError):
            raise error
    return {node_id: error.sentence for node_id, error in failed.items()}


def runs(node: NodeSpec, remedy: str) -> RefusedError:
    """Return the error for a node that must not run."""
    return RefusedError(f"Node {node.node_id} ({node.name}) is running.", remedy=remedy)


def host_of(node: NodeSpec) -> Hashable:
    """Return the same for nodes on one host, which can share the link to their release; else another for each."""
    return node.node_id if node.service is None else node.service.host
