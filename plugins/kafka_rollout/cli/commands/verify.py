"""`kafka-rollout verify`: the state of a cluster now."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.feature_table import print_levels
from kafka_rollout.cli.options import AsJson, ClusterName, CommandConfig, open_ports
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.report.check_registry import verify as verify_cluster


def verify(
    cluster: ClusterName,
    details: Annotated[
        bool,
        typer.Option("--details", help="Also show every node with its release, the levels, partitions and groups."),
    ] = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Check that all nodes report the same feature levels and that the cluster has no blockers. Read-only.

    Exit code 3 if not, 5 if a check that can find a blocker is unknown.
    """
    with open_ports(cluster, None, command_config) as (ports, _, _security):
        seen = verify_cluster(ports)
    if as_json:
        checked = {
            "finalized": seen.finalized,
            "metadata_version": seen.metadata_version,
            "verdict": seen.verdict,
            "unknown": seen.unknown,
        }
        show.print_json({"ok": seen.ok, "verification": checked, **({"state": seen.state} if details else {})})
    else:
        if details:
            _print_state(ports.cluster, seen.state)
        show.print_check(seen.finalized)
        show.print_check(seen.metadata_version)
        show.print_findings(seen.verdict.findings)
        for check, why in seen.unknown.items():
            show.say(f"A blocker cannot be excluded, because of {check}: {why}", show.err)
    if seen.exit_code:
        raise typer.Exit(seen.exit_code)


def _print_state(cluster: ClusterSpec, state: ClusterState) -> None:
    quorum = state.quorum
    leader = "unknown" if quorum is None else str(quorum.leader_id)
    show.say(f"{cluster.name}: cluster id {state.cluster_id}, active controller {leader}")
    unknown = None if cluster.manages_nodes else "not observable"
    rows = []
    for node in cluster.nodes:
        seen = state.nodes[node.node_id]
        metrics = seen.metrics
        levels = metrics and (metrics.current_metadata_version_prometheus, metrics.current_metadata_version_jolokia)
        rows.append(
            (
                f"{node.name} ({node.node_id})",
                ", ".join(sorted(node.roles)),
                seen.release or unknown,
                seen.process.pid or unknown,
                levels and " / ".join("–" if level is None else str(level) for level in levels),
                (metrics and metrics.java_version) or unknown,
                quorum and quorum.lag(node.node_id),
                seen.problem,
            )
        )
    show.print_table(
        (
            "Node",
            "Roles",
            "Release",
            "PID",
            "metadata.version (Prometheus / Jolokia)",
            "Java",
            "Metadata lag",
            "Problem",
        ),
        rows,
    )
    print_levels(state)
    known = [p for p in state.partitions if p.has_known_min_isr or p.leader < 0]
    under = sum(p.is_under_min_isr or p.leader < 0 for p in known)
    groups = Counter(group.type for group in state.groups)
    show.say(
        f"{len(state.partitions)} partitions, {under} under min ISR or without a leader; groups: "
        f"{', '.join(f'{count} {kind}' for kind, count in groups.items()) or 'none'}; "
        f"{len(state.transactions)} transactional ids"
    )
    for question in state.unanswered:
        show.say_marked("Query failed:", "yellow", question)
