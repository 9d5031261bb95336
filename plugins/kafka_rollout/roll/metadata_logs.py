"""The metadata logs of a downgrade: scan, loss report, and trim while each node is stopped.

A release that cannot replay a record in a node's log exits at its start. So every node's own log is checked: before the
approval, after the levels are lowered, immediately before the node stops, and while it is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.findings import Checked, unknown, unknown_by
from kafka_rollout.base.wording import nodes
from kafka_rollout.control.approval import approved_events
from kafka_rollout.gates.gate import GateCheck, GateCondition
from kafka_rollout.metadata_log.metadata_scan import (
    LogReadiness,
    LogSpace,
    MetadataScan,
    backup_space_findings,
    nodes_with_backup,
)
from kafka_rollout.model.plan import Direction, Plan, ReleaseStep
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, at_once
from kafka_rollout.observation.node_steps import is_rollback_step
from kafka_rollout.observation.run import NodeRun, ReadRun, Run
from kafka_rollout.planning.findings.downgrade_scans import (
    METADATA_LOGS_CHECK,
    metadata_findings,
    unreadable_log_findings,
)
from kafka_rollout.preparation.frozen_plan import replace_findings
from kafka_rollout.preparation.replayed_metadata import scan_log
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.run.events import ApprovalOf
from kafka_rollout.run.projections.observations import planned_trims
from kafka_rollout.run.step_events import (
    BootstrapReplaced,
    MetadataLogFound,
    MetadataScanned,
    ScanStage,
    Trimmed,
)

_AT_ONCE = 2  # each has JVMs


def scan_metadata_logs(run: Run) -> Plan:
    """Scan every node's log for every release of the path, and add the findings to the plan."""
    scans, unreadable = _scan_all(run)
    _record(run.ports, ScanStage.BEFORE, scans)
    logs, with_backup = run.ports.metadata_logs, nodes_with_backup(run.cluster, run.plan, scans) - set(unreadable)
    spaces = [
        LogSpace(node_id=node.node_id, log_bytes=logs.log_bytes(node), free_bytes=logs.free_bytes(node))
        for node in run.cluster.nodes
        if node.node_id in with_backup
    ]
    found = (
        *unreadable_log_findings(unreadable, run.cluster),
        *metadata_findings(run.plan, scans),
        *backup_space_findings(spaces),
    )
    return replace_findings(run.ports, METADATA_LOGS_CHECK.ran(found))


def find_metadata_logs(run: ReadRun) -> Checked:
    """Check every node's log for every release of a downgrade that is not begun. Unknown for those not readable."""
    try:
        scans, unreadable = _scan_all(run)
    except RolloutError as error:
        return METADATA_LOGS_CHECK.ran(unknown=unknown_by(error, "metadata logs"))
    unseen = f"The runtime {run.cluster.runtime} cannot read files on {nodes(unreadable)}." if unreadable else ""
    return METADATA_LOGS_CHECK.ran(metadata_findings(run.plan, scans), unknown=unknown("metadata logs", unseen))


def check_metadata_logs(run: Run) -> GateCheck:
    """Check whether every node can start on every release of the path, if needed after a trim.

    The check is recorded.
    """
    scans, unreadable = _scan_all(run)
    _record(run.ports, ScanStage.READY, scans)
    conditions = [
        GateCondition(
            name=f"node {node_id}'s metadata log", is_met=False, evidence="the runtime cannot read files on the node"
        )
        for node_id in unreadable
    ]
    for node_id, scan in scans:
        needs = scan.readiness
        is_met = needs in {LogReadiness.READY, LogReadiness.TRIM}
        reason = scan.stop_sentence
        evidence = {
            LogReadiness.READY: f"{scan.release} replays it, from {scan.starts_at}",
            LogReadiness.TRIM: f"{reason} It is trimmed while the node is stopped",
            LogReadiness.SNAPSHOT: f"{reason} The run waits for a snapshot after it",
        }.get(needs, f"{reason} {' '.join(scan.remedies)}")
        conditions.append(
            GateCondition(name=f"node {node_id}'s metadata log for {scan.release}", is_met=is_met, evidence=evidence)
        )
    return GateCheck(gate="metadata-log", at=run.ports.clock.now(), conditions=tuple(conditions))


def refuse_unreadable(run: ReadRun, release_step: ReleaseStep, node: NodeSpec) -> None:
    """Check the log before the stop; does nothing in an upgrade.

    Raises RefusedError if the release cannot start on this log, or only after a trim that was not approved. Raises
    TransientError if a snapshot must be written first.
    """
    if not starts_older_release(run.plan, release_step):
        return
    scan = scan_log(run, node, release_step.to_release)
    needs = scan.readiness
    if needs is LogReadiness.READY or (
        needs is LogReadiness.TRIM and node.node_id in planned_trims(approved_events(run, ApprovalOf.ROLL))
    ):
        return
    if needs is LogReadiness.SNAPSHOT:
        raise TransientError(
            f"Node {node.node_id} cannot be stopped yet: {scan.stop_sentence}", remedy=" ".join(scan.remedies)
        )
    if needs is LogReadiness.TRIM:
        raise RefusedError(
            f"The metadata log of node {node.node_id} needs a trim that was not approved: {scan.stop_sentence}",
            remedy="Clear check_metadata_logs and all downstream tasks: the new approval then lists this node.",
        )
    raise RefusedError(
        f"On the metadata log of node {node.node_id} {scan.stop_sentence}", remedy=" ".join(scan.remedies)
    )


def make_readable(at: NodeRun) -> None:
    """Make the metadata log of a stopped node readable for the release of the release step.

    Idempotent: the log shows what was done. Raises FatalError if it is not possible; the node is then stopped.
    """
    if not starts_older_release(at.plan, at.release_step):
        return
    try:
        scan = scan_log(at.run, at.node, at.release_step.to_release)
        if scan.fails_at_bootstrap:
            _replace_bootstrap(at)
        if scan.readiness is LogReadiness.TRIM:
            result = at.ports.metadata_logs.trim(
                at.node, release=at.release_step.to_release, cluster_id=at.plan.cluster_id
            )
            at.history.record(
                Trimmed(
                    node_id=at.node_id,
                    release_step=at.key,
                    sentence=result.sentence,
                    backup=str(result.backup) if result.backup else None,
                    start_offset=result.plan.start_offset if result.plan else None,
                )
            )
        elif scan.readiness is not LogReadiness.READY:
            raise RefusedError(scan.stop_sentence, remedy=" ".join(scan.remedies))
    except TransientError:
        raise
    except RolloutError as error:
        raise FatalError(
            f"Node {at.node_id} is stopped and cannot be started on {at.release_step.to_release}: {error.sentence}",
            remedy=f"{error.remedy} Then retry the node, or roll back.".strip(),
        ) from error


def _replace_bootstrap(at: NodeRun) -> None:
    highest = at.ports.catalogue.get(at.release_step.to_release).features[METADATA_VERSION].supported.max
    level = min(highest, at.plan.levels.get(METADATA_VERSION, highest))
    backup = at.ports.metadata_logs.replace_bootstrap(
        at.node, level=level, release=at.release_step.to_release, cluster_id=at.plan.cluster_id
    )
    at.history.record(
        BootstrapReplaced(
            node_id=at.node_id,
            release_step=at.key,
            level=level,
            backup=str(backup) if backup else None,
        )
    )


def starts_older_release(plan: Plan, release_step: ReleaseStep) -> bool:
    """Return whether a release step starts an older release on a log that a newer one wrote."""
    return plan.direction is Direction.DOWNGRADE and not is_rollback_step(plan, release_step)


def _scan_all(run: ReadRun) -> tuple[list[tuple[int, MetadataScan]], list[int]]:
    """Return (node id, scan) for every node and release of the path, and the nodes that cannot be read."""
    unreadable = [node.node_id for node in run.cluster.nodes if run.ports.runtime.metadata_log_dir(node) is None]
    asked = [
        (node, release_step.to_release)
        for release_step in run.plan.release_steps
        for node in run.cluster.nodes
        if node.node_id not in unreadable
    ]

    def scan(some: Sequence[tuple[NodeSpec, Release]]) -> list[tuple[int, MetadataScan]]:
        with run.ports.classes.keep_processes():
            return [(node.node_id, scan_log(run, node, release)) for node, release in some]

    size = -(-len(asked) // _AT_ONCE) or 1
    parts = at_once(scan, [asked[at : at + size] for at in range(0, len(asked), size)], most=_AT_ONCE)
    return [one for part in parts for one in part], unreadable


def _record(ports: ClusterPorts, stage: ScanStage, scans: Iterable[tuple[int, MetadataScan]]) -> None:
    ports.run.record(
        MetadataScanned(
            stage=stage,
            nodes=tuple(
                MetadataLogFound(
                    node_id=node_id,
                    release=scan.release,
                    verdict=scan.verdict,
                    readiness=scan.readiness,
                    bootstrap_too_new=scan.fails_at_bootstrap,
                    starts_at=scan.starts_at,
                    start_offset=scan.start_offset,
                    end_offset=scan.end_offset,
                    first_failure=scan.first_failure,
                    last_failing=scan.remedy_facts.last_failing if scan.remedy_facts else None,
                    remedies=tuple(scan.remedies),
                )
                for node_id, scan in scans
            ),
        )
    )
