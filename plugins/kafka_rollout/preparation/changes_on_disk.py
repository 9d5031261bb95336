"""What changed on the nodes' disks since their processes started, for the plan and before each stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.findings import Checked, Severity, UnknownValue, find_new, unknown, unknown_by
from kafka_rollout.model.configs import NodeConfigs
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import at_once
from kafka_rollout.observation.run import ReadRun
from kafka_rollout.planning.findings.configuration import removed_config_names
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
        return PENDING_CHECK.ran(unknown=unknown("files", f"The runtime {run.cluster.runtime} sees no files."))
    restarted = {node_step.node_id for release_step in run.plan.release_steps for node_step in release_step.order}
    chosen = [node for node in run.cluster.nodes if node.node_id in restarted]
    seen, unread = _observe(run, chosen, configs, state)
    return PENDING_CHECK.ran(
        pending_findings(restarted, seen),
        unless="" if restarted else NO_RESTART,
        unknown=(*unread, *(one for node in chosen for one in _without_process(node, state))),
    )


def unapproved_changes(run: ReadRun, node: NodeSpec, state: ClusterState) -> Checked:
    """Check for changes of the node's file that need an approval and that the plan does not have: blockers.

    A file with the content that it had for the plan is approved, whenever it was written. Unknown if the file or what
    the node uses cannot be read.
    """
    if not run.cluster.manages_nodes:
        return PENDING_CHECK.ran(unknown=unknown("files", f"The runtime {run.cluster.runtime} sees no files."))
    config, why = _read(node, lambda: run.ports.runtime.config(node), "lines of the file")
    seen, unread = _observe(run, [node], {} if config is None else {node.node_id: config}, state)
    approved = run.plan.findings
    if config is not None and run.history.load_fingerprints().get(node.node_id) == fingerprint(config):
        seen = replace(seen, files={})
        approved = tuple(map(without_time, approved))
    found = (one for one in pending_findings({node.node_id}, seen) if one.code in NEEDS_APPROVAL)
    return PENDING_CHECK.ran(
        (replace(one, severity=Severity.BLOCKER) for one in find_new(found, approved)),
        unknown=(*why, *unread),
    )


def _observe(
    run: ReadRun, chosen: Sequence[NodeSpec], configs: NodeConfigs, state: ClusterState
) -> tuple[SinceStart, tuple[UnknownValue, ...]]:
    """Return what is known of the nodes that run, and what is not. A node without a process uses nothing."""
    ports = run.ports
    running = [node for node in chosen if not _without_process(node, state)]
    unread: list[UnknownValue] = []

    def of_each(read: Callable[[NodeSpec], _T], what: str) -> Mapping[int, _T]:
        found = at_once(lambda node: _read(node, lambda: read(node), what), running)
        unread.extend(one for _, why in found for one in why)
        return {node.node_id: value for node, (value, _) in zip(running, found, strict=True) if value is not None}

    started = {node.node_id: state.nodes[node.node_id].process.started_at for node in running}
    seen = SinceStart(
        configs=configs,
        in_use=of_each(ports.admin.settings_in_use, "values in use"),
        files=of_each(ports.runtime.start_files, "files at the start"),
        started_at={node_id: at for node_id, at in started.items() if at is not None},
        obeyed_later=frozenset().union(
            *(removed_config_names(ports.catalogue, later, run.plan.source) for later in run.plan.path[1:])
        ),
    )
    return seen, tuple(unread)


def _without_process(node: NodeSpec, state: ClusterState) -> tuple[UnknownValue, ...]:
    seen = state.nodes.get(node.node_id)
    runs = seen is not None and seen.process.pid is not None
    sentence = f"Node {node.node_id} has no process that could report its values in use."
    return unknown(f"values in use of node {node.node_id}", "" if runs else sentence)


def _read(node: NodeSpec, read: Callable[[], _T], what: str) -> tuple[_T | None, tuple[UnknownValue, ...]]:
    try:
        return read(), ()
    except RolloutError as error:
        subject = f"{what} of node {node.node_id}"
        return None, unknown_by(error, subject, f"The {subject} are unknown")
