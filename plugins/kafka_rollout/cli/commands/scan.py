"""The command `scan`: the releases that can load these coordinator logs."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.files import write_file
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.system.signals import interrupt_on_sigterm
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, CommandConfig
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanRequest, ScanResult, worst_of
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Catalogue, Release

TREND = 30  # number of earlier scans on the page
_COLOURS = {
    LoadVerdict.FAILS: "red",
    LoadVerdict.LOSES: "red",
    LoadVerdict.UNKNOWN: "red",
    LoadVerdict.LOADS_IGNORING: "yellow",
    LoadVerdict.LOADS: "green",
}


def scan(
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="Name in the inventory: scan the running cluster.")
    ] = None,
    log_dir: Annotated[
        list[Path] | None,
        typer.Option(
            "--log-dir", help="Log directory of a broker or its copy, or the folder of one partition; repeatable."
        ),
    ] = None,
    release: Annotated[
        list[str] | None, typer.Option("--release", help="Release to evaluate; repeatable; default: all releases.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Coordinator log, such as __consumer_offsets; repeatable; default: all."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Count current records separately from superseded ones (slower).")
    ] = False,
    classes_only: Annotated[
        bool, typer.Option("--classes-only", help="Count records by key and value version only; do not parse them.")
    ] = False,
    new_group_coordinator: Annotated[
        bool,
        typer.Option(
            "--new-group-coordinator",
            help="Evaluate 3.8 and 3.9 with their new group coordinator. Not needed with --cluster: the scan reads "
            "the settings of the brokers.",
        ),
    ] = False,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option("--html", help="File for the result page.")] = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Folder for the result as Parquet.")] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on", help="Exit code 3 if the verdict of this release is `fails` or `unknown`; repeatable."
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="Spark master; default: KAFKA_ROLLOUT_SPARK_MASTER or local[2].")
    ] = None,
    command_config: CommandConfig = None,
) -> None:
    """Check which releases can load the coordinator logs. Reads a running cluster or log directories."""
    from kafka_rollout.coordinator_logs.spark.submit import submit
    from kafka_rollout.kafka.client.security.carried_security import credentials_file
    from kafka_rollout.kafka.client.security.credentials import read_credentials

    settings = Settings.from_environment()
    catalogue = get_catalogue(settings)
    releases, must_load = (tuple(Release.parse(text) for text in texts or ()) for texts in (release, fail_on))
    for asked in (*releases, *must_load):
        catalogue.get(asked)
    _check_source(catalogue, cluster, log_dir or (), topic or ())
    with (
        interrupt_on_sigterm(),
        tempfile.TemporaryDirectory(prefix="kafka-rollout-scan-") as folder,
        ExitStack() as stack,
    ):
        request = ScanRequest(
            cluster=", ".join(map(str, log_dir or ())),
            json_file=Path(folder) / "scan.json",
            log_dirs=tuple(path.absolute() for path in log_dir or ()),
            parquet=parquet.absolute() if parquet else None,
            topics=tuple(topic or ()),
            releases=releases,
            fail_on=must_load,
            live=live,
            classes_only=classes_only,
            new_group_coordinator=new_group_coordinator,
        )
        if cluster is not None:
            spec = get_cluster(cluster, settings)
            security = read_credentials(spec, command_config)
            request = replace(request, cluster=spec.name, bootstrap_servers=spec.bootstrap_servers)
            file = stack.enter_context(credentials_file(settings.home, security))
            request = replace(request, security_file=file)
        code, result = submit(request, settings, master=master, on_progress=_say)
        text = request.json_file.read_text(encoding="utf-8")
    _write_result(result, text, catalogue, as_json=as_json, html=html, keep=settings if cluster is not None else None)
    raise typer.Exit(code)


def _write_result(
    result: ScanResult,
    text: str,
    catalogue: Catalogue,
    *,
    as_json: bool,
    html: Path | None,
    keep: Settings | None,
) -> None:
    """Write the outputs. `text`: JSON of the result. `keep`: also store it in the history of the cluster."""
    from kafka_rollout.coordinator_logs.page.report import render_scan
    from kafka_rollout.run.store.opening import open_scan_history

    if html is not None or keep is not None:
        history = None if keep is None else open_scan_history(result.cluster, keep)
        earlier = history.newest(TREND) if history else ()
        page = render_scan(result, catalogue, earlier=earlier)
        if html is not None:
            write_file(html, page.encode())
        if history is not None:
            _say(f"stored as {history.keep(result, page).location}")
    show.print_json_text(text) if as_json else print_scan(result)


def _check_source(catalogue: Catalogue, cluster: str | None, log_dirs: Sequence[Path], topics: Sequence[str]) -> None:
    """Check the arguments before Spark starts."""
    from kafka_rollout.coordinator_logs.reading.directories import partition_folders

    known = catalogue.coordinator_topics
    for topic in topics:
        if topic not in known:
            raise UserError(f"{topic} is not a coordinator log.", remedy=f"Coordinator logs: {', '.join(known)}.")
    if cluster is not None and log_dirs:
        raise UserError(
            "A scan reads either a cluster or log directories.", remedy="Remove --cluster, or all --log-dir."
        )
    if cluster is None and not log_dirs:
        raise UserError(
            "A scan reads either a cluster or log directories.", remedy="Add --cluster NAME or --log-dir DIR."
        )
    partition_folders(log_dirs, topics or known)


def print_scan(result: ScanResult) -> None:
    """Print the verdicts by release and log, the first failures, and the unreadable parts."""
    topics = sorted({log.topic for log in result.logs})
    by_cell: dict[tuple[Release, str], list[ReleaseVerdict]] = defaultdict(list)
    for verdict in result.verdicts:
        by_cell[verdict.release, verdict.topic].append(verdict)
    releases = sorted({verdict.release for verdict in result.verdicts})
    rows = [(release, *(_cell(by_cell[release, topic]) for topic in topics)) for release in releases]
    show.print_table(("Release", *topics), rows)
    for release in releases:
        for verdict in result.failing(release)[:1]:
            if failure := verdict.first_failure:
                where = f"{verdict.topic}-{verdict.partition} at offset {failure.offset}"
                show.say(f"{release} fails first on {where}: {failure.reason}")
    for copy in result.copies:
        if copy.chosen and not copy.why.startswith("It is the only"):
            show.say(f"{copy.topic}-{copy.partition}: read {copy.directory}. {copy.why}")
    for damage in result.damage:
        show.say_marked("damage", "yellow", f"{damage.place}: {damage.sentence}")


def _cell(verdicts: list[ReleaseVerdict]) -> Text | None:
    counts = Counter(verdict.verdict for verdict in verdicts)
    if not counts:
        return None
    worst = worst_of(counts)
    share = "" if counts[worst] == len(verdicts) else f" ({counts[worst]} of {len(verdicts)} partitions)"
    colour = _COLOURS.get(worst, "dim")
    return Text.assemble((worst.value.replace("_", " "), colour), share)


def _say(line: str) -> None:
    show.say(f"scan: {line}", show.err)
