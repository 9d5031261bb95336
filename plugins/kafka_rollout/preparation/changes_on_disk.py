"""What changed on the nodes' disks since their processes started, for the plan and before each stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kafka_rollout.base.errors import NotObservableError, RefusedError, TransientError, UserError
from kafka_rollout.base.findings import Checked, Finding, Severity
from kafka_rollout.base.wording import nodes
from kafka_rollout.model.configs import NodeConfigs
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ReadPorts, at_once
from kafka_rollout.observation.run import ReadRun
from kafka_rollout.planning.findings.pending import (
    NEEDS_APPROVAL,
    PENDING_CHECK,
    SinceStart,
    pending_findings,
    without_time,
)
from kafka_rollout.planning.plan_checks import NO_RESTART
from kafka_rollout.preparation.next_starts import fingerprint

_T = TypeVar("_T")


def check_pending(run: ReadRun, configs: NodeConfigs, state: ClusterState) -> Checked:
    """Compare the files of the nodes that restart with what their processes use."""
    if not run.cluster.manages_nodes:
        return PENDING_CHECK.ran(unknown=f"The runtime {run.cluster.runtime} sees no files.")
    restarted = {node_step.node_id for release_step in run.plan.release_steps for node_step in release_step.order}
    chosen = [node for node in run.cluster.nodes if node.node_id in restarted]
    seen = _observe(run.ports, chosen, configs, state)
    silent = restarted - seen.in_use.keys()
    return PENDING_CHECK.ran(
        pending_findings(restarted, seen),
        unless="" if restarted else NO_RESTART,
        unknown=f"{nodes(silent).capitalize()} did not report the values in use." if silent else "",
    )


def unapproved_changes(run: ReadRun, node: NodeSpec, state: ClusterState) -> tuple[Finding, ...]:
    """Return the changes of the node's file that need an approval and that the plan does not have, as blockers.

    A file with the content that it had for the plan is approved, whenever it was written.
    """
    if not run.cluster.manages_nodes:
        return ()
    config = _or_none(lambda: run.ports.runtime.config(node))
    seen = _observe(run.ports, [node], {} if config is None else {node.node_id: config}, state)
    approved = {finding.identity for finding in run.plan.findings}
    if config is not None and run.history.load_fingerprints().get(node.node_id) == fingerprint(config):
        seen = replace(seen, files={})
        approved = {without_time(identity) for identity in approved}
    return tuple(
        replace(finding, severity=Severity.BLOCKER)
        for finding in pending_findings({node.node_id}, seen)
        if finding.code in NEEDS_APPROVAL and finding.identity not in approved
    )


def _observe(ports: ReadPorts, chosen: Sequence[NodeSpec], configs: NodeConfigs, state: ClusterState) -> SinceStart:
    running = [
        node for node in chosen if (seen := state.nodes.get(node.node_id)) is not None and seen.process.pid is not None
    ]

    def of_each(read: Callable[[NodeSpec], _T]) -> Mapping[int, _T]:
        found = zip(running, at_once(lambda node: _or_none(lambda: read(node)), running), strict=True)
        return {node.node_id: value for node, value in found if value is not None}

    started = {node.node_id: state.nodes[node.node_id].process.started_at for node in running}
    return SinceStart(
        configs=configs,
        in_use=of_each(ports.admin.settings_in_use),
        files=of_each(ports.runtime.start_files),
        started_at={node_id: at for node_id, at in started.items() if at is not None},
    )


def _or_none(read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except (NotObservableError, TransientError, RefusedError, UserError):
        return None
