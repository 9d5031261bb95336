"""Stored scans of the coordinator logs."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.files import write_file
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.system.signals import interrupt_on_sigterm
from kafka_rollout.base.wording import few, size
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, CommandConfig
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.coordinator_logs.comparison import ScanComparison, VerdictChange, compare
from kafka_rollout.coordinator_logs.remedies import Concerned, Remedy, find_remedies, in_words
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanRequest, ScanResult, worst_of
from kafka_rollout.coordinator_logs.tagged_fields import ignored_tags
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Catalogue, Release

if TYPE_CHECKING:
    from kafka_rollout.run.store.scans import KeptScan, SqlScanHistory

app = typer.Typer(help=__doc__, no_args_is_help=True)

ScannedCluster = Annotated[str, typer.Option("--cluster", "-c", help="Cluster of the scans.")]

_NEWEST, _PREVIOUS = "newest", "previous"
TREND = 30  # number of earlier scans on the page
_SHOWN = 20  # number of changes, and of groups and ids per step, on a terminal
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
        bool | None,
        typer.Option(
            "--new-group-coordinator/--classic-group-coordinator",
            help="Evaluate 3.8 and 3.9 with this group coordinator. Default for --cluster: as the settings of the "
            "brokers say; without the right to read them both are unknown. Default for --log-dir: classic.",
        ),
    ] = None,
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
    from kafka_rollout.client.security.carried_security import credentials_file
    from kafka_rollout.client.security.credentials import read_credentials
    from kafka_rollout.coordinator_logs.spark.submit import submit

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
            spark_from_bytes=settings.spark_from_bytes if master is None else 0,
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
                show.say(f"{release} fails first on {verdict.place} at offset {failure.offset}: {failure.reason}")
    for copy in result.copies:
        if copy.chosen and not copy.why.startswith("It is the only"):
            show.say(f"{copy.topic}-{copy.partition}: groups and sizes of {copy.directory}. {copy.why}")
    for topic, partitions in result.left_out.items():
        show.say_marked(
            "not read",
            "yellow",
            f"{topic} has partitions that are in none of these directories: {few(partitions, limit=_SHOWN)}. The "
            "verdicts say nothing about them.",
        )
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


@app.command("list")
def scans_list(
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="Cluster of the scans; default: all clusters.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the stored scans, newest first, with their records and the releases that cannot load the logs."""
    from kafka_rollout.run.store.opening import database_of, open_scan_history
    from kafka_rollout.run.store.scans import scanned_clusters

    names = [cluster] if cluster else scanned_clusters(database_of())
    kept = [scan for name in names for scan in open_scan_history(name).scans()]
    rows = []
    for scan in kept:
        try:
            rows.append((scan, scan.load()))
        except FatalError as error:  # the other scans can be read
            show.say(str(error), show.err)
    if as_json:
        show.print_json([_summary(scan, result) for scan, result in rows])
        return
    if not kept:
        show.say("There is no stored scan yet. Run kafka-rollout scan --cluster NAME.")
        return
    cells = []
    for scan, result in rows:
        words = {LoadVerdict.FAILS: "{}", LoadVerdict.LOSES: "{}", LoadVerdict.UNKNOWN: "{} unknown"}
        failing = ", ".join(words[verdict].format(r) for r, verdict in result.standing.items() if verdict in words)
        sizes = f"{result.records:,}", size(result.log_bytes), len(result.logs)
        cells.append((scan.cluster, scan.name, *sizes, failing or "none"))
    show.print_table(("Cluster", "Scan", "Records", "Bytes", "Partitions", "Failing releases"), cells)


@app.command("report")
def scans_report(
    cluster: ScannedCluster,
    scan: Annotated[
        str, typer.Option("--scan", help="Name of a scan (see `scans list`), or the first characters of its name.")
    ] = _NEWEST,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="SCAN",
            help="Compare with this earlier scan instead: better and worse verdicts, new and removed record kinds, "
            f"growth. `{_PREVIOUS}`: with the scan before it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a scan: the verdicts, and for each release that fails the remedies with their duration."""
    from kafka_rollout.run.store.opening import open_scan_history

    history = open_scan_history(cluster)
    kept = history.get(scan)
    if against is not None:
        earlier = _before(cluster, history, kept) if against == _PREVIOUS else history.get(against)
        comparison = compare(earlier.load(), kept.load())
        show.print_json(comparison) if as_json else _print_comparison(earlier, kept, comparison)
        return
    result = kept.load()
    catalogue = get_catalogue()
    remedies = find_remedies(result, catalogue)
    tags = ignored_tags(result, catalogue)
    if as_json:
        show.print_json({**_summary(kept, result), "scan": to_json(result), "remedies": remedies, "tags": tags})
        return
    print_scan(result)
    for remedy in remedies:
        _print_remedy(remedy)
    for tag in tags:
        field = f"{tag.record} {tag.value_version}, {tag.name or 'unknown field'} (tag {tag.tag})"
        passed_over = ", ".join(map(str, tag.ignored_by))
        show.say(f"{passed_over} ignores {field}. {tag.loss}")
    show.say(f"report: {kept.page}")


def _before(cluster: str, history: SqlScanHistory, later: KeptScan) -> KeptScan:
    earlier = [scan for scan in history.scans() if scan.name < later.name]
    if not earlier:
        raise UserError(f"Cluster {cluster} has no scan before {later.name}.", remedy="Run another scan first.")
    return earlier[0]


def _summary(kept: KeptScan, result: ScanResult) -> dict[str, Any]:
    return {
        "cluster": kept.cluster,
        "name": kept.name,
        "scanned_at": result.scanned_at,
        "records": result.records,
        "log_bytes": result.log_bytes,
        "partitions": len(result.logs),
        "verdicts": result.standing,
        "report": kept.page,
    }


def _print_remedy(remedy: Remedy) -> None:
    show.out.print()
    show.say_marked(remedy.release, "red" if remedy.fails else "yellow", remedy.sentence)
    for number, step in enumerate(remedy.steps, start=1):
        time_left = "" if step.within_ms is None else f" (at most {in_words(step.within_ms)})"
        show.say(f"{number}. {step.title}{time_left}")
        show.say(f"   {step.sentence}")
        for owner in step.concerned[:_SHOWN]:
            show.say(f"   - {_name_of(owner)}")
        if more := len(step.concerned) + step.concerned_left_out - len(step.concerned[:_SHOWN]):
            show.say(f"   and {more:,} more")
        for change in step.settings_in_words:
            show.say(f"   {change}")


def _name_of(owner: Concerned) -> str:
    return f"{owner.name}{f' ({owner.about})' if owner.about else ''}"


def _print_comparison(earlier: KeptScan, later: KeptScan, comparison: ScanComparison) -> None:
    show.say(f"{earlier.name} to {later.name}, {_time_between(comparison)} apart")
    for title, colour, changes in (("worse", "red", comparison.worse), ("better", "green", comparison.better)):
        show.out.print(f"[{colour}]{title}[/{colour}]: {len(changes)}")
        _print_changes(changes)
    for title, classes in (("new", comparison.appeared), ("gone", comparison.gone)):
        for found in classes[:_SHOWN]:
            value = "tombstones" if found.value_version is None else f"value version {found.value_version}"
            where = f"{found.topic}-{found.partition}"
            records = max(found.before, found.after)
            show.say(f"{title}: {where}, key version {found.key_version}, {value}: {records:,} records")
        if len(classes) > _SHOWN:
            show.say(f"and {len(classes) - _SHOWN:,} more kinds that are {title}")
    grown = sum(growth.bytes_after - growth.bytes_before for growth in comparison.growth)
    show.say(
        f"bytes: {'less by' if grown < 0 else 'more by'} {size(abs(grown))} in {len(comparison.growth)} partitions"
    )
    for sentence in comparison.not_compared:
        show.say(sentence)


def _print_changes(changes: tuple[VerdictChange, ...]) -> None:
    for change in changes[:_SHOWN]:
        show.say(f"  {change}")
    if len(changes) > _SHOWN:
        show.say(f"  and {len(changes) - _SHOWN:,} more")


def _time_between(comparison: ScanComparison) -> str:
    return in_words(round(abs(comparison.after_at - comparison.before_at) * 1000))
