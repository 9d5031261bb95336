"""`kafka-rollout`: each step of a roll from a shell, by the same code as the DAGs."""

# ruff: noqa: PLR0917 - a command's options are its parameters
from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from kafka_rollout.cli import show
from kafka_rollout.cli import upgrade as runs
from kafka_rollout.cli.downgrade import downgrade
from kafka_rollout.cli.features import features_app
from kafka_rollout.cli.groups import groups_app
from kafka_rollout.cli.metadata import metadata_app
from kafka_rollout.cli.options import (
    Approved,
    AsJson,
    ClusterName,
    ConnectionFile,
    Interval,
    Looks,
    Reason,
    RunId,
    SnapshotInterval,
    Soak,
    Target,
    Timeout,
    Yes,
    milliseconds,
    open_bench,
)
from kafka_rollout.cli.parts import ledger_app, lock_app
from kafka_rollout.cli.retry import retry
from kafka_rollout.cli.scan import scan
from kafka_rollout.cli.scans import scans_app
from kafka_rollout.cli.upgrade import INTERRUPTED, Approver, FinalizePolicy, RollRequest
from kafka_rollout.composition.clusters import get_catalogue, get_cluster, list_clusters
from kafka_rollout.composition.pages import write_run_report
from kafka_rollout.composition.records import list_runs
from kafka_rollout.domain.gates.watch import GatePolicy
from kafka_rollout.domain.model.errors import FatalError, RefusedError, RolloutError, UserError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.planning.cluster_findings import cluster_findings
from kafka_rollout.domain.planning.release_path import target_finding
from kafka_rollout.settings import Settings, debug_wanted
from kafka_rollout.steps.common.observe import observe as observe_cluster
from kafka_rollout.steps.planning.upgrade import plan_upgrade
from kafka_rollout.steps.report.outcome import Outcome
from kafka_rollout.steps.verify import verify as verify_cluster

HELP = (
    "Takes a running Apache Kafka (KRaft) cluster from one release to another, proving each step before the next.\n\n"
    "Exit codes: 0 done; 1 not done, see the sentence (no answer now, or a person must look); 2 bad input; 3 refused "
    "by a check or a blocker; 4 another change of the cluster is under way; 130 stopped by Ctrl-C (resumable)."
)

app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(metadata_app, name="metadata")
app.add_typer(features_app, name="features")
app.add_typer(groups_app, name="groups")
app.add_typer(lock_app, name="lock")
app.add_typer(ledger_app, name="ledger")
app.add_typer(scans_app, name="scans")


@app.command()
def clusters(as_json: AsJson = False) -> None:
    """List the clusters of the inventory."""
    found = list_clusters()
    show.print_json(found) if as_json else show.print_clusters(found)


@app.command()
def catalogue(as_json: AsJson = False) -> None:
    """List the releases that the tool knows, and what it knows of them."""
    known = get_catalogue()
    show.print_json({str(r): known.get(r) for r in known}) if as_json else show.print_catalogue(known)


@app.command()
def observe(cluster: ClusterName, as_json: AsJson = False, connection_file: ConnectionFile = None) -> None:
    """Look at a cluster: nodes, releases, features, quorum, partitions, groups, findings. Changes nothing."""
    with open_bench(cluster, None, connection_file) as (ports, _, _security):
        state = observe_cluster(ports)
        verdict = cluster_findings(ports.cluster, ports.catalogue, state)
    if as_json:
        show.print_json({"state": state, "findings": verdict.findings})
    else:
        show.print_state(ports.cluster, state)
        show.print_findings(verdict.findings)


@app.command()
def plan(
    cluster: ClusterName,
    to: Target,
    finalize: Annotated[FinalizePolicy, typer.Option(help="Whether feature levels are part of the plan.")] = (
        FinalizePolicy.AFTER_APPROVAL
    ),
    snapshot_interval: SnapshotInterval = None,
    as_json: AsJson = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Show what a roll would do and its findings; exit code 3 when the plan has blockers. Changes nothing.

    The coordinator logs are scanned by `roll --dry-run`, and by `roll --run` before this plan is rolled.
    """
    with open_bench(cluster, None, connection_file) as (ports, _, _security):
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


@app.command()
def roll(
    cluster: ClusterName,
    to: Target,
    approve_as: Approved = None,
    reason: Reason = None,
    soak: Soak = 30.0,
    looks: Looks = 3,
    interval: Interval = 1.0,
    timeout: Timeout = 600.0,
    finalize: Annotated[FinalizePolicy, typer.Option(help="When feature levels are finalized.")] = FinalizePolicy.LATER,
    scan: Annotated[bool, typer.Option(help="Scan the coordinator logs before planning and before finalizing.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan and stop there.")] = False,
    snapshot_interval: SnapshotInterval = None,
    canary: Annotated[bool, typer.Option("--canary", help="Ask for an approval of its own after the first node.")] = (
        False
    ),
    ledger: Annotated[bool, typer.Option("--ledger", help="Run live traffic beside it and compare.")] = False,
    yes: Yes = False,
    run: RunId = None,
    connection_file: ConnectionFile = None,
) -> None:
    """Roll a cluster to a release, node by node through the gates; --finalize after-approval goes on to its features.

    Needs a named approval. Ctrl-C stops at the next safe point; --run resumes. With --canary and nobody at a terminal
    it ends after the first node (130): look at it, then approve it by the same command with --run and your name.
    """
    if not dry_run and run is None and (not approve_as or not reason):
        raise UserError("A roll needs a named approval.", remedy="Add --approve-as NAME --reason TEXT, or --dry-run.")
    with open_bench(cluster, run, connection_file) as (ports, settings, security):
        request = RollRequest(
            target=Release.parse(to),
            policy=GatePolicy(looks=looks, interval_s=interval, timeout_s=timeout, soak_s=soak),
            approver=Approver(name=approve_as, reason=reason, asks=not yes),
            finalize=finalize,
            dry_run=dry_run,
            scan=scan,
            ledger=ledger,
            security=security,
            security_file=connection_file,
            snapshot_interval_ms=milliseconds(snapshot_interval),
            canary=canary,
        )
        raise typer.Exit(runs.roll(ports, settings, request))


app.command()(retry)


@app.command("roll-back")
def roll_back(
    cluster: ClusterName,
    run: Annotated[str, typer.Option("--run", help="The run to take back.")],
    approve_as: Approved = None,
    reason: Reason = None,
    soak: Soak = 0.0,
    looks: Looks = 3,
    interval: Interval = 1.0,
    timeout: Timeout = 600.0,
    yes: Yes = False,
    connection_file: ConnectionFile = None,
) -> None:
    """Take a run's nodes back to the release they came from, from the exact node where it stopped.

    Of an offline downgrade: put every node's metadata log back from its backup, as long as no broker has started.
    """
    policy = GatePolicy(looks=looks, interval_s=interval, timeout_s=timeout, soak_s=soak)
    with open_bench(cluster, run, connection_file) as (ports, settings, _security):
        ports.run.load_plan()
        if not approve_as or not reason:
            raise UserError("A roll back needs a named approval.", remedy="Add --approve-as NAME --reason TEXT.")
        raise typer.Exit(runs.back(ports, settings, policy, Approver(name=approve_as, reason=reason, asks=not yes)))


@app.command()
def verify(cluster: ClusterName, as_json: AsJson = False, connection_file: ConnectionFile = None) -> None:
    """Check that every node reports the same levels and metadata.version and is well; exit code 3 if not."""
    with open_bench(cluster, None, connection_file) as (ports, _, _security):
        seen = verify_cluster(ports)
    if as_json:
        show.print_json({"ok": seen.ok, "verification": seen})
    else:
        show.print_look(seen.finalized)
        show.print_look(seen.metadata_version)
        show.print_findings(seen.verdict.findings)
    if not seen.ok:
        raise typer.Exit(RefusedError.exit_code)


@app.command()
def report(cluster: ClusterName, run: RunId = None, connection_file: ConnectionFile = None) -> None:
    """Write a run's report anew (the newest run if none is named) and print where it is; the JSON file last."""
    settings = Settings.from_environment()
    known = list_runs(get_cluster(cluster, settings).name, settings)
    if not known:
        raise UserError(f"Cluster {cluster} has no run yet.", remedy="Plan or roll first.")
    with open_bench(cluster, run or known[0], connection_file) as (ports, _, _security):
        dry_run = (ports.run.attachment("report.json") or {}).get("outcome") == Outcome.DRY_RUN  # and stays one
        page, data = write_run_report(ports, ports.run.load_plan(), dry_run=dry_run, settings=settings)
    show.out.print(show.as_text(f"report: {page}"), soft_wrap=True)
    show.out.print(show.as_text(data), soft_wrap=True)


app.command()(downgrade)
app.command()(scan)

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASSED_ON)
def demo(context: typer.Context) -> None:
    """A real cluster, live traffic, Airflow and an upgrade through the DAG, on this machine (`demo --help`)."""
    from kafka_rollout.demo import main as run_demo

    raise typer.Exit(run_demo(context.args))


@app.command("demo-clean", context_settings=_PASSED_ON)
def demo_clean(context: typer.Context) -> None:
    """End what the demo started, and nothing else."""
    from kafka_rollout.demo import clean

    raise typer.Exit(clean(context.args))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: one sentence on the standard error and an exit code by its class, never a trace."""
    sys.exit(run_main(sys.argv[1:] if arguments is None else arguments))


def run_main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    try:
        code = app(args=list(arguments), prog_name="kafka-rollout", standalone_mode=False)
    except RolloutError as error:
        if debug_wanted():
            raise
        return _fail(str(error), error.exit_code)
    except TyperException as error:
        return _fail(error.format_message(), UserError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("Ended by Ctrl-C.", INTERRUPTED)
    except Exception as error:
        if debug_wanted():
            raise
        return _fail(
            f"This should not have happened: {type(error).__name__}: {str(error) or 'no message'}. "
            "KAFKA_ROLLOUT_DEBUG=1 shows where.",
            FatalError.exit_code,
        )
    return int(code or 0)


def _fail(sentence: str, code: int) -> int:
    show.err.print(show.as_text(" ".join(sentence.split())), style="red", soft_wrap=True)
    return code
