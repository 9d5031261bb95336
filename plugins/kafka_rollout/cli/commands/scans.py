"""Stored scans of the coordinator logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.wording import size
from kafka_rollout.cli import show
from kafka_rollout.cli.commands.scan import print_scan
from kafka_rollout.cli.options import AsJson
from kafka_rollout.coordinator_logs.comparison import ScanComparison, VerdictChange, compare
from kafka_rollout.coordinator_logs.remedies import Concerned, Remedy, find_remedies, in_words
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ScanResult
from kafka_rollout.coordinator_logs.tagged_fields import ignored_tags
from kafka_rollout.releases.documents.catalogue import get_catalogue

if TYPE_CHECKING:
    from kafka_rollout.run.store.scans import KeptScan, SqlScanHistory


app = typer.Typer(help=__doc__, no_args_is_help=True)

ScannedCluster = Annotated[str, typer.Option("--cluster", "-c", help="Cluster of the scans.")]

_SHOWN = 20  # number of changes, and of groups and ids per step, on a terminal


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


@app.command("show")
def scans_show(
    cluster: ScannedCluster,
    scan: Annotated[
        str, typer.Option("--scan", help="Name of a scan (see `scans list`), or the first characters of its name.")
    ] = "newest",
    as_json: AsJson = False,
) -> None:
    """Show a scan: the verdicts, and for each release that fails the remedies with their duration."""
    from kafka_rollout.run.store.opening import open_scan_history

    kept = open_scan_history(cluster).get(scan)
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


@app.command("compare")
def scans_compare(
    cluster: ScannedCluster,
    before: Annotated[
        str | None, typer.Option("--before", help="Name of the earlier scan; default: the scan before --after.")
    ] = None,
    after: Annotated[str, typer.Option("--after", help="Name of the later scan.")] = "newest",
    as_json: AsJson = False,
) -> None:
    """Compare two scans: better and worse verdicts, new and removed record kinds, growth."""
    from kafka_rollout.run.store.opening import open_scan_history

    history = open_scan_history(cluster)
    later = history.get(after)
    earlier = _before(cluster, history, later) if before is None else history.get(before)
    comparison = compare(earlier.load(), later.load())
    show.print_json(comparison) if as_json else _print_comparison(earlier, later, comparison)


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
