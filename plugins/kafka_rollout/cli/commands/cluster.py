"""Commands without a group: the state of a cluster and plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.findings import all_findings
from kafka_rollout.cli import show
from kafka_rollout.cli.feature_table import print_levels
from kafka_rollout.cli.options import (
    AsJson,
    ClusterName,
    CommandConfig,
    open_ports,
    takes_request,
)
from kafka_rollout.cli.run import command_of
from kafka_rollout.clusters.inventory import list_readable_clusters
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.observation.cluster_ports import observe as observe_cluster
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.findings.cluster_state import check_cluster
from kafka_rollout.planning.release_path import target_finding
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.procedure.approval_requests import approval_body
from kafka_rollout.report.check_registry import verify as verify_cluster


def clusters(as_json: AsJson = False) -> None:
    """List the clusters of the inventory. Exit code 2 if a file cannot be read; the others are listed."""
    found, problems = list_readable_clusters()
    for problem in problems.values():
        show.say(problem, show.err)
    if as_json:
        show.print_json(found)
    else:
        _print_clusters(found)
    if problems:
        raise typer.Exit(UserError.exit_code)


def _print_clusters(found: Mapping[str, ClusterSpec]) -> None:
    rows = []
    for spec in found.values():
        connections = [name for name in spec.connection_ids if name]
        nodes = (len(some) for some in (spec.controllers, spec.brokers))
        rows.append((spec.name, spec.owner, spec.runtime, *nodes, ", ".join(connections) or "none (PLAINTEXT)"))
    show.print_table(("Cluster", "Owner", "Runtime", "Controllers", "Brokers", "Connection"), rows)


def observe(cluster: ClusterName, as_json: AsJson = False, command_config: CommandConfig = None) -> None:
    """Show the state of a cluster: nodes, releases, features, quorum, partitions, groups, findings. Read-only."""
    with open_ports(cluster, None, command_config) as (ports, _, _security):
        state = observe_cluster(ports)
        findings = all_findings(check_cluster(ports.cluster, ports.catalogue, state))
    if as_json:
        show.print_json({"state": state, "findings": findings})
    else:
        _print_state(ports.cluster, state)
        show.print_findings(findings)


@takes_request(RunOf.UPGRADE, plans_only=True, finalize=FinalizePolicy.AFTER_APPROVAL)
def plan(
    cluster: ClusterName,
    request: Request,
    list_checks: Annotated[
        bool,
        typer.Option("--list-checks", help="Also list every check that ran, with its result. --json always has them."),
    ] = False,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Show the plan of an upgrade and its findings. Read-only. Exit code 3: it has blockers. 5: it can hide one.

    The plan is stored as a run in the run history. With --finalize later, it raises no feature levels. This command
    does not scan the coordinator logs: for a complete plan, use `upgrade --dry-run`. `upgrade --run ID` scans them
    before it carries out this plan. Hosts that install Kafka from a package load the packages of the path.
    """
    with open_ports(cluster, None, command_config) as (ports, _, _security):
        if unknown := target_finding(ports.catalogue, request.target_release):
            if as_json:
                show.print_json({"run": ports.run_id, "findings": [unknown]})
            raise UserError(unknown.sentence, remedy=unknown.remedy)
        raises = request.finalize is FinalizePolicy.AFTER_APPROVAL
        made = plan_change(ports, replace(request, plans_features=raises, scan=False), RunOf.UPGRADE)
    if as_json:
        show.print_json({"run": ports.run_id, "hash": made.hash, "plan": made})
    else:
        show.print_body(approval_body(made))
        if list_checks:
            show.print_checks(made.checks)
        if not made.blockers:
            show.say(f"Carry out this plan: {command_of(Run(ports, made))} --as NAME --reason TEXT", show.err)
        show.say(f"run: {ports.run_id}")
    if made.exit_code:
        raise typer.Exit(made.exit_code)


def verify(cluster: ClusterName, as_json: AsJson = False, command_config: CommandConfig = None) -> None:
    """Check that all nodes report the same feature levels and that the cluster has no blockers.

    Exit code 3 if not, 5 if a check that can find a blocker is unknown.
    """
    with open_ports(cluster, None, command_config) as (ports, _, _security):
        seen = verify_cluster(ports)
    if as_json:
        show.print_json({"ok": seen.ok, "verification": seen})
    else:
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
