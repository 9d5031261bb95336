"""What changed on the nodes' disks since their processes started, for the plan and before each stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.findings import Checked, Finding, Severity, UnknownValue, find_new, unknown, unknown_by
from kafka_rollout.model.configs import NodeConfigs, Setting
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
InUse = Callable[[NodeSpec], Mapping[str, Setting]]
"""Reads the settings that a node uses."""


def check_pending(run: ReadRun, configs: NodeConfigs, state: ClusterState, in_use: InUse) -> Checked:
    """Compare the files of the nodes that restart with what their processes use."""
    if not run.cluster.manages_nodes:
        return PENDING_CHECK.ran(unknown=unknown("files", f"The runtime {run.cluster.runtime} sees no files."))
    restarted = {node_step.node_id for release_step in run.plan.release_steps for node_step in release_step.order}
    chosen = [node for node in run.cluster.nodes if node.node_id in restarted]
    seen, unread = _observe(run, chosen, configs, state, in_use)
    return PENDING_CHECK.ran(
        pending_findings(restarted, seen),
        unless="" if restarted else NO_RESTART,
        unknown=(*unread, *(one for node in chosen for one in _without_process(node, state))),
    )


def unapproved_changes(
    run: ReadRun, nodes: Sequence[NodeSpec], state: ClusterState, files: NodeConfigs, in_use: InUse | None = None
) -> Checked:
    """Check for changes of the nodes' files that need an approval and that the plan does not have: blockers.

    A file with the content that it had for the plan is approved, whenever it was written. Unknown if the file or what
    the node uses cannot be read. `files`: as they were just read; the others are read here. `in_use`: default of now.
    """
    if not run.cluster.manages_nodes:
        return PENDING_CHECK.ran(unknown=unknown("files", f"The runtime {run.cluster.runtime} sees no files."))

    def read(node: NodeSpec) -> tuple[Mapping[str, str] | None, tuple[UnknownValue, ...]]:
        if node.node_id in files:
            return files[node.node_id], ()
        return _read(node, lambda: run.ports.runtime.config(node), "lines of the file")

    answers = at_once(read, nodes)
    configs = {node.node_id: one for node, (one, _) in zip(nodes, answers, strict=True) if one is not None}
    seen, unread = _observe(run, nodes, configs, state, in_use or run.ports.admin.settings_in_use)
    planned = run.history.load_fingerprints()
    found: list[Finding] = []
    for node_id in (node.node_id for node in nodes):
        of_node, approved = seen, run.plan.findings
        if node_id in configs and planned.get(node_id) == fingerprint(configs[node_id]):
            of_node = replace(seen, files={})
            approved = tuple(map(without_time, approved))
        pending = (one for one in pending_findings({node_id}, of_node) if one.code in NEEDS_APPROVAL)
        found += find_new(pending, approved)
    return PENDING_CHECK.ran(
        (replace(one, severity=Severity.BLOCKER) for one in found),
        unknown=(*(one for _, why in answers for one in why), *unread),
    )


def _observe(
    run: ReadRun, chosen: Sequence[NodeSpec], configs: NodeConfigs, state: ClusterState, in_use: InUse
) -> tuple[SinceStart, tuple[UnknownValue, ...]]:
    """Return what is known of the nodes that run, and what is not. A node without a process uses nothing."""
    ports = run.ports
    running = [node for node in chosen if not _without_process(node, state)]
    unread: list[UnknownValue] = []

    def of_each(read: Callable[[NodeSpec], _T], what: str, asked: Sequence[NodeSpec]) -> Mapping[int, _T]:
        found = at_once(lambda node: _read(node, lambda: read(node), what), asked)
        unread.extend(one for _, why in found for one in why)
        return {node.node_id: value for node, (value, _) in zip(asked, found, strict=True) if value is not None}

    started = {node.node_id: state.nodes[node.node_id].process.started_at for node in running}
    seen = SinceStart(
        configs=configs,
        in_use=of_each(in_use, "values in use", running),
        files=of_each(
            lambda node: ports.runtime.start_files(node, configs[node.node_id]),
            "files at the start",
            [node for node in running if node.node_id in configs],
        ),
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
