"""`kafka-rollout check`: whether a running cluster can move to another release."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.base.durations import iso
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.files import write_file
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, CommandConfig
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.check_registry import check_release, choose_checks
from kafka_rollout.report.check_report import CheckEntry, ClusterCheckReport, Result, find_worse

_STYLES = {
    Result.BLOCKER: "bold red",
    Result.WARNING: "yellow",
    Result.UNKNOWN: "magenta",
    Result.INFO: "blue",
    Result.OK: "green",
    Result.NOT_APPLICABLE: "dim",
}


def check(
    bootstrap_server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address of any broker, or several with commas.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            help="Name in the inventory, instead of an address: metrics agents and hosts are read too.",
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="RELEASE", help="Target release, for example 4.3.1.")
    ] = None,
    command_config: CommandConfig = None,
    running: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RELEASE",
            help="Patch release that runs now, for example 3.9.1. Brokers report only its minor line.",
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as one HTML page.")] = None,
    as_json: AsJson = False,
    details: Annotated[bool, typer.Option("--details", help="Print every object of a finding.")] = False,
    history: Annotated[
        bool, typer.Option("--history", help="List the scheduled checks of --cluster, newest first, and end.")
    ] = False,
    down: Annotated[
        bool,
        typer.Option(
            "--down",
            help="Show to which older releases --cluster can go down, and end: coordinator logs, levels, methods, "
            "history. Reads the stored scans, checks and runs; without a fresh scan an option is unknown.",
        ),
    ] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks and end.")] = False,
    only: Annotated[list[str] | None, typer.Option(metavar="ID", help="Run only this check. Repeatable.")] = None,
    skip: Annotated[list[str] | None, typer.Option(metavar="ID", help="Leave this check out. Repeatable.")] = None,
) -> None:
    """Check whether a running cluster can be upgraded or downgraded to a release. Changes nothing.

    Needs only the address of a broker: no inventory, no database, no access to hosts. With --cluster, the metrics
    agents and hosts of an inventory make more checks known. Writes nothing except the files of --html and --output.
    Exit code 0 if nothing blocks and every check that can find a blocker was made, 3 with blockers, 5 if such a check
    is unknown and --skip does not leave it out.
    """
    from kafka_rollout.client.requests import SilentNodes
    from kafka_rollout.client.security.client_security import ClientSecurity
    from kafka_rollout.client.security.credentials import read_credentials, read_security_file
    from kafka_rollout.clusters.discovery import discover_spec
    from kafka_rollout.wiring.cluster_ports import open_ports_to_read
    from kafka_rollout.wiring.runs import read_run_in_progress

    chosen = choose_checks(only or [], skip or [])
    if list_checks and as_json:
        show.print_json([{"id": one.id, "title": one.title, "page": one.page} for one in chosen])
        return
    if list_checks:
        for one in chosen:
            show.say(f"{one.id:26} {one.title}. docs/{one.page}")
        return
    if history or down:
        _print_stored(cluster if bootstrap_server is None else None, history=history, down=down, as_json=as_json)
        return
    if (bootstrap_server is None) == (cluster is None):
        raise UserError(
            "A check needs the address of a broker, or the name of a cluster in the inventory, and not both.",
            remedy="Example: kafka-rollout check --bootstrap-server kafka-1:9092 --to 4.3.1.",
        )
    if to is None:
        raise UserError("The option --to is missing.", remedy="Add the target release, for example --to 4.3.1.")
    if cluster is not None and running is not None:
        raise UserError(
            "--from belongs to --bootstrap-server.", remedy="Set apache_releases in the inventory of the cluster."
        )
    settings, target, silent = Settings.from_environment(), Release.parse(to), SilentNodes()
    get_catalogue(settings).get(target)  # an unknown release is refused before the network is used
    if cluster is not None:
        spec = get_cluster(cluster, settings)
        security = read_credentials(spec, command_config)
        complete_with = "A dry run of the change reads more: metadata logs, and long coordinator logs."
        by_levels = ""
    else:
        bootstrap = str(bootstrap_server)
        security = ClientSecurity() if command_config is None else read_security_file(command_config)
        known = None if running is None else Release.parse(running)
        _progress(f"finding the nodes of the cluster of {bootstrap}")
        spec = discover_spec(bootstrap, security, settings, running=known, silent=silent)
        complete_with = (
            "To make more of them known, write an inventory with the metrics agents of the nodes: kafka-rollout "
            f"inventory init --bootstrap-server {shlex.quote(bootstrap)}. Then check with --cluster."
        )
        by_levels = "If the patch release is known, add it with --from."
    with open_ports_to_read(spec, security, settings, silent=silent) as ports:
        report = check_release(
            ports,
            target,
            chosen,
            complete_with=complete_with,
            on_progress=_progress,
            by_levels=by_levels,
            run_in_progress=None if cluster is None else partial(read_run_in_progress, spec.name, settings),
        )
    if as_json:
        show.print_json(report.document())
    else:
        _print(report, details=details)
    if html is not None:
        from kafka_rollout.report.page.pages import render_check

        write_file(html, render_check(report).encode(), mode=0o666)  # it is made to be passed on
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _print_stored(cluster: str | None, *, history: bool, down: bool, as_json: bool) -> None:
    if history and down:
        raise UserError("--history and --down exclude each other.", remedy="Use one of them.")
    if cluster is None:
        option = "--history" if history else "--down"
        raise UserError(f"{option} needs a cluster of the inventory.", remedy="Add --cluster NAME.")
    settings = Settings.from_environment()
    spec = get_cluster(cluster, settings)
    if history:
        _print_history(spec.name, as_json=as_json)
    else:
        from kafka_rollout.cli.commands.stored import print_downgrade_options

        print_downgrade_options(spec, settings, as_json=as_json)


def _print_history(cluster: str, *, as_json: bool) -> None:
    """Print the stored checks with what was new in each, newest first."""
    from kafka_rollout.run.store.opening import open_check_history

    kept = open_check_history(cluster).newest()
    documents = [one.document for one in kept]
    rows = [(one, find_worse(documents, at)) for at, one in enumerate(kept)]
    if as_json:
        show.print_json([{"run_id": one.run_id, "new": new, "check": one.document} for one, new in rows])
        return
    if not rows:
        dag = f"kafka_compatibility_scan_{cluster}"
        show.say(f"Cluster {cluster} has no scheduled check yet. The DAG {dag} makes them.")
        return
    results = (Result.BLOCKER, Result.WARNING, Result.UNKNOWN)
    for one, new in rows:
        check = one.document
        totals = ", ".join(f"{check['totals'][result.value]} {result.value}" for result in results)
        show.say(f"{iso(check['checked_at'])} {check['change']} to {check['target']}: {totals}")
        for sentence in new:
            show.say(f"    new: {sentence}")


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        show.say(f"check: {line}", show.err)


def _print(report: ClusterCheckReport, *, details: bool) -> None:
    show.say(f"Cluster {report.cluster} ({report.bootstrap_servers}): {report.way}")
    show.say(f"{report.nodes}; {report.contents}")
    show.say("")
    shown: dict[str, str] = {}
    for entry in report.by_severity:
        _print_entry(entry, shown, details=details)
    show.say("")
    show.say(f"{report.totals_text}. Duration {report.seconds:.1f} s.")
    show.say(report.sentence)


def _print_entry(entry: CheckEntry, shown: dict[str, str], *, details: bool) -> None:
    """Print a check. `shown`: reason → the first check that it was printed for; it is printed once."""
    in_part = " (unknown in part)" if entry.is_unknown_in_part else ""
    examined = f" · {entry.examined}" if entry.examined else ""
    show.say_marked(
        f"{entry.result.value:14}",
        _STYLES[entry.result],
        f"{entry.check.id}: {entry.check.title}{in_part}{examined} · {entry.duration}",
    )
    for reason in entry.reasons:
        first = shown.setdefault(reason, entry.check.id)
        show.say(f"    {reason}" if first == entry.check.id else f"    The same reason as {first}.")
    for group in entry.groups:
        show.say(f"    {group.severity.value} {group.code} {group.subjects}: {group.sentence}")
        if group.remedy:
            show.say(f"    What to do: {group.remedy}")
        for finding in group.findings if details and len(group.findings) > 1 else ():
            show.say(f"      - {finding.subject}: {finding.sentence}")
            if not group.same_remedy and finding.remedy:
                show.say(f"        {finding.remedy}")
    if entry.findings:
        show.say(f"    docs/{entry.check.page}")
