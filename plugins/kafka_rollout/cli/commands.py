"""The commands that have no group: each step of a roll, by the same code as the DAGs."""

# ruff: noqa: PLR0917 - a command's options are its parameters
from __future__ import annotations

from typing import Annotated

import typer

from kafka_rollout.cli import show
from kafka_rollout.cli.options import (
    AsJson,
    ClusterName,
    ConnectionFile,
    RunId,
    SnapshotInterval,
    Target,
    milliseconds,
    open_ports,
)
from kafka_rollout.composition.clusters import get_catalogue, get_cluster, list_clusters
from kafka_rollout.composition.pages import write_run_report
from kafka_rollout.composition.records import list_runs
from kafka_rollout.domain.model.errors import RefusedError, UserError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.planning.cluster_findings import cluster_findings
from kafka_rollout.domain.planning.release_path import target_finding
from kafka_rollout.domain.planning.request import FinalizePolicy
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common.observe import observe as observe_cluster
from kafka_rollout.steps.planning.upgrade import plan_upgrade
from kafka_rollout.steps.report.outcome import Outcome
from kafka_rollout.steps.verify import verify as verify_cluster


def clusters(as_json: AsJson = False) -> None:
    """List the clusters of the inventory."""
    found = list_clusters()
    show.print_json(found) if as_json else show.print_clusters(found)


def catalogue(as_json: AsJson = False) -> None:
    """List the supported releases and their facts."""
    known = get_catalogue()
    show.print_json({str(r): known.get(r) for r in known}) if as_json else show.print_catalogue(known)


def observe(cluster: ClusterName, as_json: AsJson = False, connection_file: ConnectionFile = None) -> None:
    """Show the state of a cluster: nodes, releases, features, quorum, partitions, groups, findings. Read-only."""
    with open_ports(cluster, None, connection_file) as (ports, _, _security):
        state = observe_cluster(ports)
        verdict = cluster_findings(ports.cluster, ports.catalogue, state)
    if as_json:
        show.print_json({"state": state, "findings": verdict.findings})
    else:
        show.print_state(ports.cluster, state)
        show.print_findings(verdict.findings)


def plan(
    cluster: ClusterName,
    to: Target,
    finalize: Annotated[FinalizePolicy, typer.Option(help="Include the feature levels in the plan or not.")] = (
        FinalizePolicy.AFTER_APPROVAL
    ),
    snapshot_interval: SnapshotInterval = None,
    as_json: AsJson = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Show the plan of an upgrade and its findings. Exit code 3 if the plan has blockers. Read-only.

    `roll --dry-run` also scans the coordinator logs; `roll --run` scans them before this plan is carried out.
    """
    with open_ports(cluster, None, connection_file) as (ports, _, _security):
        if unknown := target_finding(ports.catalogue, to):
            if as_json:
                show.print_json({"run": ports.run_id, "findings": [unknown]})
            raise UserError(unknown.sentence, remedy=unknown.remedy)
        made = plan_upgrade(
            ports,
            Release.parse(to),
            finalize=finalize is FinalizePolicy.AFTER_APPROVAL,
            snapshot_interval_ms=milliseconds(snapshot_interval),
        )
    show.print_json({"run": ports.run_id, "hash": made.hash, "plan": made}) if as_json else show.print_plan(made)
    if made.blockers:
        raise typer.Exit(RefusedError.exit_code)


def verify(cluster: ClusterName, as_json: AsJson = False, connection_file: ConnectionFile = None) -> None:
    """Check that every node reports the same levels and metadata.version and has no findings. Exit code 3 if not."""
    with open_ports(cluster, None, connection_file) as (ports, _, _security):
        seen = verify_cluster(ports)
    if as_json:
        show.print_json({"ok": seen.ok, "verification": seen})
    else:
        show.print_look(seen.finalized)
        show.print_look(seen.metadata_version)
        show.print_findings(seen.verdict.findings)
    if not seen.ok:
        raise typer.Exit(RefusedError.exit_code)


def report(cluster: ClusterName, run: RunId = None, connection_file: ConnectionFile = None) -> None:
    """Write the report of a run again (default: the newest run) and print its paths, the JSON file last."""
    settings = Settings.from_environment()
    known = list_runs(get_cluster(cluster, settings).name, settings)
    if not known:
        raise UserError(f"Cluster {cluster} has no run yet.", remedy="Create a plan or start an upgrade first.")
    with open_ports(cluster, run or known[0], connection_file) as (ports, _, _security):
        dry_run = (ports.run.attachment("report.json") or {}).get("outcome") == Outcome.DRY_RUN  # and stays a dry run
        page, data = write_run_report(ports, ports.run.load_plan(), dry_run=dry_run, settings=settings)
    show.out.print(show.as_text(f"report: {page}"), soft_wrap=True)
    show.out.print(show.as_text(data), soft_wrap=True)


def demo(context: typer.Context) -> None:
    """Start a real cluster, test traffic and Airflow on this machine, and run an upgrade through the DAG (`demo
    --help`).
    """
    from kafka_rollout.demo import main as run_demo

    raise typer.Exit(run_demo(context.args))


def demo_clean(context: typer.Context) -> None:
    """Stop everything that the demo started."""
    from kafka_rollout.demo import clean

    raise typer.Exit(clean(context.args))
