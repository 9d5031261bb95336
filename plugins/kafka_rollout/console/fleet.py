"""All clusters on one page: one row a cluster, from what runs, checks and scans have stored.

Pure: the caller reads, and passes the time in. Unknown is shown as unknown, and each observed value has its time.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_rollout.base.durations import duration, epoch, iso
from kafka_rollout.base.findings import Severity
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.tones import Tone
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.console.cluster_status import WAITS, ClusterStatus, Phase, RunState, phase_of
from kafka_rollout.console.downgrade_options import LOADS, OptionState, judge_options, running_releases
from kafka_rollout.coordinator_logs.comparison import ScanSummary
from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.advisories import AdvisoryFacts, Applicability, judge_advisories
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release, newest_patches
from kafka_rollout.releases.reported import identify_release
from kafka_rollout.run.events import Observed
from kafka_rollout.run.projections.observations import Observation
from kafka_rollout.run.view import subject_of

UNKNOWN = "unknown"
NO_ACTION = "No action is needed."
WORKING = frozenset({Phase.PLANNING, Phase.ROLLING, Phase.ROLLING_BACK, Phase.FINALIZING})
_FORMULA = ("=", "+", "-", "@")  # a spreadsheet evaluates a cell that begins with one of these


class Show(StrEnum):
    """Which rows are shown."""

    ALL = "all"
    NEEDS_HUMAN = "needs-human"
    RUNNING = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCheck:
    """The newest scheduled check."""

    at: str
    """ISO 8601, UTC."""
    target: str
    """The release that it is for."""
    blockers: int
    warnings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One cluster. A value that is not known is None. Times: ISO 8601, UTC."""

    cluster: str
    owner: str
    phase: Phase | None = None
    """Of the run that matters, as in the status."""
    needs_human: bool = False
    run: str | None = None
    dag: str | None = None
    releases: Mapping[str, int] | None = None
    """Release or `unknown` → number of nodes."""
    metadata_version: int | None = None
    metadata_version_name: str | None = None
    builds: Mapping[str, int] | None = None
    """Version of a vendor's build, with the vendor → number of nodes."""
    brokers: int | None = None
    controllers: int | None = None
    problems: tuple[str, ...] | None = None
    """What is not healthy, at the time `observed`."""
    observed: str | None = None
    changed: str | None = None
    """The newest known change of releases or levels."""
    is_live: bool = False
    """Observed now."""
    scanned: str | None = None
    verdicts: Mapping[str, str] | None = None
    """Release → result if its coordinators load the logs, at the time `scanned`."""
    downgrade_to: tuple[str, ...] | None = None
    """The open options (console/downgrade_options.py)."""
    check: LastCheck | None = None
    waits_for: tuple[str, ...]
    """Requests without an answer."""
    in_progress: tuple[int, ...]
    """Numbers of runs."""
    releases_behind: int | None = None
    """Releases of the catalogue above the oldest running one."""
    newest_patch: str | None = None
    newest_release: str
    defects: tuple[str, ...] | None = None
    """Known defects of the running releases."""
    next_action: str = ""
    tone: Tone = Tone.SOFT
    """Of the phase, as in the status."""
    why: str = ""
    """Why the run needs a human, or what it does."""
    since: str | None = None
    """Since when it needs a human."""
    way: str = ""
    """The releases of a run that needs a human or is in progress."""
    done: float = 0.0
    """The part of its nodes that are done."""
    health: Tone | None = None
    """Of the problems: bad if clients or nodes suffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What is stored about a cluster, as far as the reader can see it."""

    spec: ClusterSpec
    status: ClusterStatus | None
    """None if the reader can see the scans only."""
    runs: Sequence[RunState] = ()
    """Those that were read, the last changed first."""
    observation: Observation | None = None
    is_live: bool = False
    scan: ScanSummary | None = None
    """The newest one."""
    check: LastCheck | None = None
    """The newest one."""
    problem: str = ""
    """Why something could not be read, as a sentence."""


def fleet_row(facts: ClusterFacts, catalogue: Catalogue, now: float) -> FleetRow:
    """Return the row of a cluster at the time `now` (epoch seconds)."""
    spec = facts.spec
    row = replace(
        row_of_runs(spec.name, facts.status, facts.runs, catalogue, now),
        owner=spec.owner,
        brokers=len(spec.brokers),
        controllers=len(spec.controllers),
        is_live=facts.is_live,
        downgrade_to=_downgrade_to(facts, catalogue, now),
        check=facts.check,
        problems=_problems(None, _stopped(facts, 0.0)),
    )
    if facts.observation is not None:
        row = _with_observation(row, facts, facts.observation, catalogue)
    if facts.scan is not None:
        verdicts = sorted(facts.scan.verdicts.items(), reverse=True)
        by_release = {str(release): verdict.value for release, verdict in verdicts}
        row = replace(row, scanned=iso(facts.scan.scanned_at), verdicts=by_release)
    return replace(row, health=_health(row, facts), next_action=facts.problem or _next_action(row, facts.status))


def _health(row: FleetRow, facts: ClusterFacts) -> Tone | None:
    """Return GOOD without a problem, BAD if a partition or a node does not work that no run has stopped just now."""
    if row.problems is None:
        return None
    seen = None if facts.observation is None else facts.observation.observed
    suffers = seen is not None and (seen.offline_partitions or seen.under_min_isr or seen.down)
    return Tone.GOOD if not row.problems else Tone.BAD if suffers or row.tone is Tone.BAD else Tone.FAIR


def row_of_runs(
    cluster: str, status: ClusterStatus | None, runs: Sequence[RunState], catalogue: Catalogue, now: float
) -> FleetRow:
    """Return the row of a cluster of which only its runs are known, as while its inventory cannot be read."""
    phases = {run.run_id: phase_of(run, now) for run in runs}
    questions = [run.question() for run in runs if phases[run.run_id] in WAITS]
    row = FleetRow(
        cluster=cluster,
        owner="",
        waits_for=tuple(subject_of(asked) for asked in questions if asked is not None),
        in_progress=tuple(run.number for run in runs if phases[run.run_id] in WORKING | WAITS),
        newest_release=str(max(catalogue)),
    )
    if status is None:
        return row
    row = replace(row, phase=status.phase, tone=status.tone, needs_human=status.needs_human)
    row = replace(row, run=status.run, dag=status.dag)
    if not (status.needs_human or status.phase in WORKING):
        return row
    needs = next((one for one in status.conditions if one.type == "NeedsHuman" and status.needs_human), None)
    done = status.nodes.done / status.nodes.total if status.nodes.total else 0.0
    why = status.step or "" if needs is None else needs.message
    return replace(row, why=why, since=None if needs is None else needs.since, way=status.way, done=done)


def _with_observation(row: FleetRow, facts: ClusterFacts, seen: Observation, catalogue: Catalogue) -> FleetRow:
    """Return the row with what was observed of the cluster, and what follows from it."""
    spec, observed, level = facts.spec, seen.observed, seen.observed.finalized.get(METADATA_VERSION)
    row = replace(
        row,
        releases=_counted(observed.releases.get(node.node_id) for node in spec.nodes),
        metadata_version=level,
        metadata_version_name=None if level is None else level_name(catalogue, level),
        builds=_builds(spec, observed, catalogue),
        problems=_problems(observed, _stopped(facts, observed.at)),
        observed=iso(observed.at),
        changed=iso(seen.changed_at) if seen.changed_at else None,
    )
    if not (running := running_releases(seen)):
        return row
    return replace(
        row,
        releases_behind=sum(one > running[0] for one in catalogue),
        newest_patch=str(_newest_patch(catalogue, running[0])),
        defects=_defects(spec, catalogue, running, observed.finalized),
    )


def _counted(releases: Iterable[Release | None]) -> dict[str, int]:
    found = Counter(releases)
    known = sorted((release for release in found if release is not None), reverse=True)
    more = {UNKNOWN: found[None]} if None in found else {}
    return {**{str(release): found[release] for release in known}, **more}


def level_name(catalogue: Catalogue, level: int) -> str | None:
    """Return the name of a metadata.version; None if no release of the catalogue has it."""
    levels = (one for release in reversed(list(catalogue)) for one in catalogue.get(release).metadata_versions)
    return next((one.name for one in levels if one.level == level), None)


def _builds(spec: ClusterSpec, observed: Observed, catalogue: Catalogue) -> dict[str, int]:
    named = {}
    for text in set(observed.builds.values()):
        vendor = identify_release(text, catalogue, spec.apache_releases).vendor
        named[text] = f"{text} ({vendor})" if vendor else text
    return dict(sorted(Counter(named[text] for text in observed.builds.values()).items()))


def _stopped(facts: ClusterFacts, since: float) -> str:
    """Return the nodes that the run has stopped since the observation and not started; empty for none."""
    run = next((one for one in facts.runs if facts.status is not None and one.run_id == facts.status.run), None)
    down = () if run is None else sorted(node_id for node_id, at in run.view.down.items() if at >= since)
    return f"the run has stopped {nodes(down)}" if down else ""


def _problems(observed: Observed | None, stopped: str) -> tuple[str, ...] | None:
    """Return what is not healthy; None if the partitions were not read and nothing else is known to be wrong."""
    if observed is None:
        return (stopped,) if stopped else None
    found = [
        stopped,
        f"{nodes(observed.down)} did not respond" if observed.down else "",
        _partitions(observed.offline_partitions, "without a leader"),
        _partitions(observed.under_min_isr, "below min.insync.replicas"),
        _partitions(observed.under_replicated, "with a replica out of sync"),
        f"{len(observed.unanswered)} of the queries failed" if observed.unanswered else "",
    ]
    problems = tuple(filter(None, found))
    return None if not problems and observed.offline_partitions is None else problems


def _partitions(number: int | None, what: str) -> str:
    return f"{count(number, 'partition')} {what}" if number else ""


def _downgrade_to(facts: ClusterFacts, catalogue: Catalogue, now: float) -> tuple[str, ...] | None:
    """Return the open options; None if none is open and some are unknown."""
    judged = judge_options(facts.spec, catalogue, facts.observation, facts.scan, now)
    found = [str(one.release) for one in judged if one.state is OptionState.OPEN]
    is_known = bool(judged) and all(one.state is not OptionState.UNKNOWN for one in judged)
    return tuple(found) if found or is_known else None


def _newest_patch(catalogue: Catalogue, release: Release) -> Release:
    line = (one for one in newest_patches(catalogue) if (one.major, one.minor) == (release.major, release.minor))
    return max(release, next(line, release))


def _defects(
    spec: ClusterSpec, catalogue: Catalogue, running: Sequence[Release], finalized: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the defects of the running releases, also those of which a check would first have to know more."""
    judged = judge_advisories(catalogue, running, AdvisoryFacts(cluster=spec, finalized=finalized))
    return tuple(
        one.advisory.id
        for one in judged
        if one.answered.answer is not Applicability.NO
        and one.advisory.concerns == "nodes"
        and Severity(one.advisory.severity) is not Severity.INFO
    )


def _next_action(row: FleetRow, status: ClusterStatus | None) -> str:
    where = f"--cluster {row.cluster}"
    if status is not None and status.needs_human:
        return status.next_action
    if row.in_progress:
        return f"No action is needed: run {few(map(str, row.in_progress))} continues by itself."
    if row.releases is None:
        return f"Check the cluster: `kafka-rollout check {where}`."
    if row.problems:
        return f"Find the cause: `kafka-rollout verify {where}`."
    if UNKNOWN in row.releases or len(row.releases) > 1:
        return f"The nodes do not run one known release: `kafka-rollout check {where}` says how to continue."
    if status is not None and status.phase is Phase.FINISHED and "No action" not in status.next_action:
        return status.next_action
    if row.check is not None and row.check.blockers:
        return f"Before {row.check.target}: remove {count(row.check.blockers, 'blocker')} of the last check."
    if row.defects:
        return f"Upgrade because of {few(row.defects)}: `kafka-rollout check {where}` names the blockers."
    return NO_ACTION


def _words(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{number} × {text}" for text, number in counted.items())


def _release(row: FleetRow) -> str | None:
    if not row.releases:
        return None
    only = next(iter(row.releases)) if len(row.releases) == 1 else ""
    return only or f"mixed: {_words(row.releases)}"


def _level(row: FleetRow) -> str | None:
    level, name = row.metadata_version, row.metadata_version_name
    return None if level is None else f"{name} ({level})" if name else str(level)


_VERDICTS = {
    LoadVerdict.LOADS: "load",
    LoadVerdict.LOADS_IGNORING: "load and ignore records",
    LoadVerdict.NOT_LOADED: "have no coordinator",
    LoadVerdict.UNKNOWN: "unknown",
    LoadVerdict.LOSES: "lose transactional ids",
    LoadVerdict.FAILS: "fail",
}


def _verdicts(row: FleetRow) -> str | None:
    """Return the bad verdicts with their releases, and the numbers of the others."""
    if row.verdicts is None:
        return None
    parts = []
    for verdict in sorted(LoadVerdict, key=lambda one: -one.badness):
        found = [release for release, value in row.verdicts.items() if value == verdict]
        if found:
            which = few(found) if verdict.badness and verdict not in LOADS else str(len(found))
            parts.append(f"{which} {_VERDICTS[verdict]}")
    return "; ".join(parts) or "none"


def _downgrades(row: FleetRow) -> str | None:
    if row.downgrade_to is None:
        return None
    return few(reversed(newest_patches(map(Release.parse, row.downgrade_to)))) or "none"


def _nodes(row: FleetRow) -> str | None:
    if row.brokers is None or row.controllers is None:
        return None
    return f"{count(row.brokers, 'broker')}, {count(row.controllers, 'controller')}"


def _check(row: FleetRow) -> str | None:
    if row.check is None:
        return None
    found = [count(row.check.blockers, "blocker"), count(row.check.warnings, "warning")]
    return f"{row.check.target}: {', '.join(found)}"


def _behind(row: FleetRow) -> str | None:
    if row.releases_behind is None or not row.releases:
        return None
    if not row.releases_behind:
        return "0"
    oldest = min(map(Release.parse, row.releases.keys() - {UNKNOWN}))
    patch = f", patch {row.newest_patch}" if row.newest_patch != str(oldest) else ""
    return f"{row.releases_behind} (newest {row.newest_release}{patch})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column."""

    id: str
    title: str
    text: Callable[[FleetRow], str | None]
    """Text of a cell; None if it is unknown."""
    is_time: bool = False
    """It is shown with the age."""


COLUMNS = (
    Column(id="cluster", title="Cluster", text=lambda row: row.cluster),
    Column(id="state", title="State", text=lambda row: (row.phase or UNKNOWN).replace("-", " ")),
    Column(id="next", title="Next action", text=lambda row: row.next_action),
    Column(id="waits", title="Waits for", text=lambda row: "; ".join(row.waits_for) or "–"),
    Column(id="runs", title="In progress", text=lambda row: ", ".join(map(str, row.in_progress)) or "–"),
    Column(id="release", title="Release", text=_release),
    Column(id="level", title="metadata.version", text=_level),
    Column(
        id="build", title="Vendor build", text=lambda row: None if row.builds is None else _words(row.builds) or "none"
    ),
    Column(
        id="nodes",
        title="Nodes",
        text=_nodes,
    ),
    Column(
        id="health",
        title="Health",
        text=lambda row: None if row.problems is None else "; ".join(row.problems) or "healthy",
    ),
    Column(id="observed", title="Observed", text=lambda row: row.observed or "never", is_time=True),
    Column(id="scanned", title="Last scan", text=lambda row: row.scanned or "never", is_time=True),
    Column(id="verdicts", title="Verdicts", text=_verdicts),
    Column(id="downgrade", title="Downgrade to", text=_downgrades),
    Column(id="check", title="Last check", text=_check),
    Column(id="behind", title="Releases behind", text=_behind),
    Column(
        id="defects",
        title="Known defects",
        text=lambda row: None if row.defects is None else few(row.defects) or "none",
    ),
)


def cells(row: FleetRow, now: float | None = None) -> list[str]:
    """Return the texts of a row. `now`: add the age to each time."""
    return [_cell(column, row, now) for column in COLUMNS]


def _cell(column: Column, row: FleetRow, now: float | None) -> str:
    known = column.text(row)
    text = UNKNOWN if known is None else escape_invisible(known)
    if now is None or not column.is_time or not text.endswith("Z"):
        return text
    if column.id == "observed" and row.is_live:
        return f"{text} (now)"
    return f"{text} ({duration(max(0.0, now - epoch(text)))} ago)"


def choose_rows(rows: Iterable[FleetRow], show: Show = Show.ALL, text: str = "") -> list[FleetRow]:
    """Return the rows of a filter: those that need a human, in progress, not healthy, others. `text`: a part of any
    cell, in any case."""
    wanted = text.strip().casefold()
    chosen = [
        row
        for row in rows
        if (show is not Show.NEEDS_HUMAN or row.needs_human)
        and (show is not Show.RUNNING or row.in_progress)
        and (not wanted or any(wanted in cell.casefold() for cell in (*cells(row), row.owner)))
    ]
    return sorted(chosen, key=lambda row: (not row.needs_human, not row.in_progress, not row.problems, row.cluster))


def as_csv(rows: Iterable[FleetRow]) -> str:
    """Return the rows as CSV (RFC 4180). No cell is a formula for a spreadsheet."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow([column.title for column in COLUMNS])
    for row in rows:
        writer.writerow(f"'{cell}" if cell.lstrip().startswith(_FORMULA) else cell for cell in cells(row))
    return written.getvalue()
