"""Each downgrade option of one cluster with all that is stored about it: records, levels, methods and history.

Pure: the caller reads, and passes the time in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from kafka_rollout.base.durations import duration
from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.base.time_limits import WITHOUT_QUORUM_S
from kafka_rollout.base.wording import count, few
from kafka_rollout.console.cluster_status import RunState
from kafka_rollout.console.downgrade_options import (
    FRESH_S,
    LOADS,
    LOGS,
    Judged,
    OptionState,
    Reason,
    judge_options,
    running_releases,
    state_of,
)
from kafka_rollout.coordinator_logs.comparison import ScanSummary
from kafka_rollout.coordinator_logs.incompatible_records import IncompatibleRecords, find_incompatible_records
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ScanResult, worst_of
from kafka_rollout.metadata_log.log_choice import describe_no_return
from kafka_rollout.metadata_log.outage import (
    UNAVAILABLE,
    absence_estimate,
    expected,
    outage_estimate,
    span,
)
from kafka_rollout.model.plan import FeatureChange, Lowering
from kafka_rollout.model.run_of import RUN_COMMANDS, RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.batches import NODE_S
from kafka_rollout.planning.findings.quorum_start import QUORUM_CANNOT_START
from kafka_rollout.planning.lowering import CHECKS_OF_ROLLS, OF_ROLLS, live_obstacles
from kafka_rollout.planning.request import Request
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release, newest_patches
from kafka_rollout.report.check_report import Result
from kafka_rollout.run.events import Observed, Planned
from kafka_rollout.run.projections.observations import Observation
from kafka_rollout.run.step_events import Finalized, LiveLowered, Started

LISTED = 5  # kinds of records per log, and partitions per kind


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheck:
    """A stored check."""

    run_id: str
    at: float
    blockers: tuple[Finding, ...] | None
    """As of `roll_blockers`."""
    cannot_start: str = ""
    """As of `stop_blockers`."""
    observed: Observed | None
    """None in a check of an earlier version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionFacts:
    """What is stored about a cluster, as far as the reader can see it."""

    spec: ClusterSpec
    observation: Observation | None
    scans: Sequence[ScanSummary] = ()
    """Oldest first, without their records."""
    results: Mapping[str, ScanResult]
    """By name of a scan, at least the newest one and those of `scans_to_compare`."""
    checks: Sequence[StoredCheck] = ()
    """Oldest first."""
    runs: Sequence[RunState]
    """Run id → events, the last changed run first."""
    sees_scans: bool = True
    """False if the reader cannot read scans and checks."""
    problem: str = ""
    """Why scans and checks could not be read, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingRecords:
    """Records of one kind."""

    title: str
    count: int
    """Of all partitions."""
    current: int | None
    """Of these, the newest of their key, None if unknown."""
    stops: bool
    """The release does not load them; else it ignores them."""
    reason: str
    first: tuple[str, ...]
    """Places of the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerdict:
    """The verdict of one release for one coordinator log."""

    log: str
    verdict: LoadVerdict | None
    sentence: str
    kinds: int = 0
    """Number of all kinds of such records."""
    records: tuple[BlockingRecords, ...] = ()
    """Those of the first kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method."""

    name: Lowering
    is_possible: bool | None
    """None if it is unknown."""
    why: str
    """A sentence."""
    outage: str = ""
    """Sentences."""
    restarts: int = 0
    takes: str = ""
    """Sentences."""
    undo: str = ""
    """Sentences."""
    command: str = ""
    """A dry run of it."""
    parameters: Mapping[str, Any]
    """Fields of the DAG's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChange:
    """One change of an option."""

    at: float
    state: OptionState | None
    """State since then; None: levels or methods changed, the logs did not."""
    sentence: str
    run_id: str
    """The run or the scheduled scan or check; empty for a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPlan:
    """The newest plan of a downgrade to the release."""

    at: float
    run: int
    """Number of the run."""
    blockers: tuple[str, ...]
    """Findings as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    release: Release
    is_newest_patch: bool
    is_origin: bool
    """The cluster came from it to the release that it runs."""
    state: OptionState
    reasons: tuple[Reason, ...]
    path: tuple[Release, ...]
    logs: tuple[LogVerdict, ...]
    lowered: tuple[str, ...]
    methods: tuple[Method, ...]
    history: tuple[OptionChange, ...]
    last_plan: LastPlan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DowngradeOptions:
    """All options of a cluster. Times: epoch seconds."""

    cluster: str
    as_of: float
    releases: tuple[Release, ...]
    levels: Mapping[str, int]
    observed_at: float | None
    scanned_at: float | None
    scan: str
    scan_run: str
    checked_at: float | None
    problem: str
    """Why nothing or only a part is known."""
    options: tuple[Option, ...]
    """The origin first, then the newest release first."""
    of_methods: tuple[OptionChange, ...]
    """Changes of what rolling and live downgrades need, for all options."""


def build_options(facts: OptionFacts, catalogue: Catalogue, now: float) -> DowngradeOptions:
    """Return the options of a cluster at the time `now` (epoch seconds)."""
    scan = facts.scans[-1] if facts.scans else None
    check = facts.checks[-1] if facts.checks else None
    judged = [_readable(facts, one) for one in judge_options(facts.spec, catalogue, facts.observation, scan, now)]
    newest, origin = newest_patches(one.release for one in judged), _origin(facts)
    judged.sort(key=lambda one: one.release != origin)
    built = tuple(
        Option(
            release=one.release,
            is_newest_patch=one.release in newest,
            is_origin=one.release == origin,
            state=one.state,
            reasons=one.reasons,
            path=one.path,
            logs=_logs(facts, catalogue, one.release, scan),
            lowered=tuple(_lowering(one, change) for change in one.lowered),
            methods=_methods(facts, catalogue, one, facts.observation, now) if one.path and facts.observation else (),
            history=_history(facts, catalogue, one.release),
            last_plan=_last_plan(facts, one.release),
        )
        for one in judged
    )
    observed = None if facts.observation is None else facts.observation.observed
    return DowngradeOptions(
        cluster=facts.spec.name,
        as_of=now,
        releases=tuple(running_releases(facts.observation)),
        levels={} if observed is None else observed.finalized,
        observed_at=None if observed is None else observed.at,
        scanned_at=None if scan is None else scan.scanned_at,
        scan="" if scan is None else scan.scan,
        scan_run="" if scan is None else scan.run_id,
        checked_at=None if check is None else check.at,
        problem=_problem(facts, catalogue, built),
        options=built,
        of_methods=_of_methods(facts.checks),
    )


def _origin(facts: OptionFacts) -> Release | None:
    """Return the release from which the newest upgrade has brought the cluster to what it runs; None if unknown."""
    acted = (run.view for run in facts.runs if run.view.has(Started, Finalized))
    upgrades = [planned for view in acted for planned in view.all(Planned) if planned.run_of is RunOf.UPGRADE]
    newest = max(upgrades, key=lambda planned: planned.at, default=None)
    return newest.source if newest is not None and newest.target in running_releases(facts.observation) else None


def _problem(facts: OptionFacts, catalogue: Catalogue, options: Sequence[Option]) -> str:
    how = f"Trigger its scan DAG, or check: `kafka-rollout check --cluster {facts.spec.name} --to RELEASE`."
    running = running_releases(facts.observation)
    if not running:
        return f"The options are unknown: nothing stored says which release the nodes run. {how}"
    if running[0] not in catalogue:
        return f"The options are unknown: release {running[0]} is not in the catalogue."
    return facts.problem if options else f"The catalogue has no release below {running[0]}."


def _readable(facts: OptionFacts, judged: Judged) -> Judged:
    if facts.sees_scans or judged.state is not OptionState.UNKNOWN:
        return judged
    why = Reason(sentence="You cannot read the scans of this cluster.", remedy="Ask for the right to its scan DAG.")
    return replace(judged, reasons=(why,))


def _lowering(judged: Judged, change: FeatureChange) -> str:
    by = ""
    if change.feature == METADATA_VERSION:
        by = f" Kafka does not lower it online: {judged.refused}" if judged.refused else " Kafka lowers it online."
    return f"{change.feature} {change.current} → {change.target}.{by} {change.loss}"


# ---- verdicts and records ----


def _logs(
    facts: OptionFacts, catalogue: Catalogue, release: Release, scan: ScanSummary | None
) -> tuple[LogVerdict, ...]:
    result = None if scan is None else facts.results.get(scan.scan)
    if scan is None or result is None:
        told = "No scan is stored." if facts.sees_scans else "You cannot read the scans."
        return tuple(LogVerdict(log=log, verdict=None, sentence=told) for log in LOGS)
    records = find_incompatible_records(result, catalogue, release)
    topics = dict.fromkeys((*LOGS, *(log.topic for log in result.logs)))
    return tuple(_log(result, release, topic, [one for one in records if one.topic == topic], scan) for topic in topics)


def _log(
    result: ScanResult, release: Release, topic: str, records: Sequence[IncompatibleRecords], scan: ScanSummary
) -> LogVerdict:
    verdicts = [one for one in result.verdicts if one.release == release and one.topic == topic]
    if not verdicts:
        if scan.run_id and not any(log.topic == topic for log in result.logs):
            told = "The topic did not exist at the scan."
            return LogVerdict(log=topic, verdict=LoadVerdict.LOADS, sentence=told)
        return LogVerdict(log=topic, verdict=None, sentence="The scan has no verdict about this log.")
    worst = worst_of(one.verdict for one in verdicts)
    affected = [one for one in verdicts if one.verdict is worst]
    first = next((one.first_failure for one in affected if one.first_failure is not None), None)
    where = "" if worst in LOADS else f" in {len(affected)} of {count(len(verdicts), 'partition')}"
    why = "" if first is None else f" First: {affected[0].place}, offset {first.offset}: {first.reason}."
    return LogVerdict(
        log=topic,
        verdict=worst,
        sentence=f"{_VERDICT[worst]}{where}.{why}",
        kinds=len(records),
        records=tuple(_blocking(one) for one in records[:LISTED]),
    )


_VERDICT = {
    LoadVerdict.LOADS: "It loads the log",
    LoadVerdict.LOADS_IGNORING: "It loads the log and ignores some records",
    LoadVerdict.LOSES: "It loads the log and loses transactional ids",
    LoadVerdict.FAILS: "It does not load the log",
    LoadVerdict.UNKNOWN: "A part of the log could not be read",
    LoadVerdict.NOT_LOADED: "It has no coordinator for this log",
}


def _blocking(records: IncompatibleRecords) -> BlockingRecords:
    return BlockingRecords(
        title=records.title,
        count=records.count,
        current=records.live,
        stops=records.stops,
        reason=records.reason,
        first=tuple(
            f"{records.topic}-{one.partition}, offset {one.first_offset} ({one.count:,})"
            for one in records.partitions[:LISTED]
        ),
    )


# ---- methods ----


def _methods(
    facts: OptionFacts, catalogue: Catalogue, judged: Judged, observation: Observation, now: float
) -> tuple[Method, ...]:
    spec, check = facts.spec, facts.checks[-1] if facts.checks else None
    state = state_of(spec, observation)
    of_rolls = None if check is None or now - check.at > FRESH_S else check.blockers
    cannot_start = "" if check is None or now - check.at > FRESH_S else check.cannot_start
    level = next((c.target for c in judged.lowered if c.feature == METADATA_VERSION), None)
    obstacles = live_obstacles(spec, catalogue, state, level, of_rolls or ()) if level is not None else ()
    methods = []
    for name in Lowering:
        possible, wrong = _against(spec, judged, name, obstacles, of_rolls, cannot_start=cannot_start)
        if judged.state is OptionState.CLOSED or (possible is not False and judged.state is OptionState.UNKNOWN):
            possible = False if judged.state is OptionState.CLOSED else None
            wrong = judged.reasons[0].sentence if judged.reasons else ""
        methods.append(_method(facts, judged, name, possible, wrong))
    return tuple(methods)


def _against(
    spec: ClusterSpec,
    judged: Judged,
    name: Lowering,
    obstacles: Sequence[str],
    of_rolls: Sequence[Finding] | None,
    *,
    cannot_start: str,
) -> tuple[bool | None, str]:
    """Return whether the method is possible (None: unknown), and why not. `of_rolls`: None if they are unknown.
    `cannot_start`: as of `stop_blockers`."""
    if not spec.manages_nodes:
        return False, f"The runtime {spec.runtime} cannot replace nodes."
    if name is Lowering.ONLINE:
        if judged.refused:
            return False, f"Kafka does not lower metadata.version online: {judged.refused}"
        if of_rolls:
            return False, f"Blocked by {few(f'{one.code} ({one.subject})' for one in of_rolls)}."
    elif not judged.refused:
        return False, "It is not needed: Kafka lowers every level online."
    elif cannot_start:
        return False, cannot_start
    elif obstacles:
        return (True, "") if name is Lowering.OFFLINE else (False, f"Not possible: {few(obstacles)}.")
    if of_rolls is None:
        told = "No complete check of the last 48 h says whether each node can be stopped alone: trigger the scan DAG."
        return None, told
    if name is Lowering.OFFLINE:
        return False, "It is not needed: a live downgrade is possible, which stops less."
    return True, ""


def stop_blockers(document: Mapping[str, Any]) -> str:
    """Return what a stored check found against a stop of all controllers, as a sentence; empty if it found nothing."""
    found = [
        f"Blocked by {group['code']} ({one['subject']}): {one['sentence']}"
        for entry in document["checks"]
        for group in entry["findings"]
        if group["code"] == QUORUM_CANNOT_START.code
        for one in group["objects"]
    ]
    return " ".join(found)


def roll_blockers(document: Mapping[str, Any]) -> tuple[Finding, ...] | None:
    """Return the blockers of a stored check that prevent replacing one node at a time.

    None if it found none, and did not observe everything that they depend on.
    """
    found = tuple(
        OF_ROLLS[group["code"]].found(one["subject"], one["sentence"], one["remedy"], severity=Severity.BLOCKER)
        for entry in document["checks"]
        for group in entry["findings"]
        if group["code"] in OF_ROLLS and group["severity"] == Severity.BLOCKER
        for one in group["objects"]
    )
    entries = [entry for entry in document["checks"] if entry["id"] in CHECKS_OF_ROLLS]
    is_observed = not any(entry["reasons"] and entry["result"] != Result.NOT_APPLICABLE for entry in entries)
    return found if found or (is_observed and len(entries) == len(CHECKS_OF_ROLLS)) else None


_WHY = {
    Lowering.ONLINE: "Kafka lowers the levels while all nodes serve; then each node is replaced.",
    Lowering.LIVE: "The run stops only the controllers and lowers metadata.version; then each node is replaced.",
    Lowering.OFFLINE: "The run stops all nodes, lowers metadata.version and starts them on the older release.",
}


def _method(facts: OptionFacts, judged: Judged, name: Lowering, possible: bool | None, wrong: str) -> Method:
    number, steps = len(facts.spec.nodes), len(judged.path)
    parameters: dict[str, Any] = {"target_release": str(judged.release), "dry_run": True}
    words = f"{RUN_COMMANDS[RunOf.DOWNGRADE].name} --cluster {facts.spec.name} --to {judged.release}"
    if name is not Lowering.ONLINE:
        parameters["lowering"] = name.value
        words += f" --lowering {name}"
    method = Method(name=name, is_possible=possible, why=wrong or _WHY[name], parameters=parameters)
    if possible is False:
        return method
    at_once = name is Lowering.OFFLINE
    before = len(facts.spec.controllers) if name is Lowering.LIVE else 0
    return replace(
        method,
        outage=_outage(facts, name),
        restarts=number if at_once else number * steps + before,
        takes=_TAKES_AT_ONCE if at_once else _takes(facts, number * steps),
        undo=_undo(facts.spec, judged, name),
        command=f"kafka-rollout {words} --dry-run",
    )


def _outage(facts: OptionFacts, name: Lowering) -> str:
    spec = facts.spec
    if name is Lowering.ONLINE:
        return "None is expected: one node at a time is stopped, and its partitions have other replicas in sync."
    if name is Lowering.LIVE:
        measured = [one.without_controller_s for run in facts.runs for one in run.view.all(LiveLowered)]
        past = f" An earlier live downgrade took {span(measured[0])}." if measured else ""
        least = absence_estimate(spec, [0] * len(spec.controllers)).total_s
        return (
            f"At least about {span(least)} without an active controller; more by the size of the metadata log, which "
            f"the approval shows.{past} {UNAVAILABLE[0]}"
        )
    replicas = 0 if facts.observation is None else facts.observation.observed.partitions
    estimate = outage_estimate(spec, [], replicas, forced_after_s=WITHOUT_QUORUM_S)
    took = [one.seconds for run in facts.runs for one in run.view.outages if one.seconds is not None]
    past = f" An earlier one took {span(took[0])}." if took else ""
    return (
        f"The whole cluster, at least {expected(estimate.total_s, estimate.longest_s)}; more by metadata log and "
        f"replicas, which the approval shows.{past}"
    )


_TAKES_AT_ONCE = "The outage, and the checks before and after it."


def _takes(facts: OptionFacts, node_steps: int) -> str:
    done = [seconds for run in facts.runs for seconds in run.view.undisturbed_seconds]
    seconds = median(done) if done else NODE_S + Request().gates(facts.spec).soak_s
    source = f"as {count(len(done), 'node step')} of earlier runs took" if done else "assumed, soak included"
    return (
        f"About {duration(seconds * node_steps)} for {count(node_steps, 'node step')}, one after the other, without "
        f"approvals ({span(seconds)} each, {source})."
    )


def _undo(spec: ClusterSpec, judged: Judged, name: Lowering) -> str:
    if name is Lowering.OFFLINE:
        return describe_no_return(spec)
    levels = " Lowered levels stay lowered: raise them again with kafka_features." if judged.lowered else ""
    if name is Lowering.LIVE:
        return (
            "A failed switch is undone until the controllers elect a leader at the lower level. Metadata that is lost "
            f"at the lower level does not come back.{levels}"
        )
    return (
        "A rollback returns the nodes to the newer release, unless records that it cannot load or settings that it "
        f"rejects block it.{levels}"
    )


# ---- history ----


def scans_to_compare(scans: Sequence[ScanSummary]) -> tuple[str, ...]:
    """Return the names of the scans between which the verdict of a release changed. `scans`: oldest first."""
    changed = [
        (before.scan, after.scan)
        for before, after in pairwise(scans)
        if any(_by_verdict(before, one) is not _by_verdict(after, one) for one in after.verdicts)
    ]
    return tuple(dict.fromkeys(name for pair in changed for name in pair))


def _by_verdict(scan: ScanSummary, release: Release) -> OptionState:
    verdict = scan.verdicts.get(release, LoadVerdict.UNKNOWN)
    return OptionState.CLOSED if verdict.blocks else OptionState.OPEN if verdict in LOADS else OptionState.UNKNOWN


def _history(facts: OptionFacts, catalogue: Catalogue, release: Release) -> tuple[OptionChange, ...]:
    """Return the changes of one option, newest first: verdicts of scans, and levels that runs finalized."""
    found = []
    for before, after in pairwise(facts.scans):
        was, now = _by_verdict(before, release), _by_verdict(after, release)
        if was is not now:
            why = _why_changed(facts, catalogue, release, before, after)
            told = f"The coordinator logs: {was} → {now}. {why}"
            found.append(OptionChange(at=after.scanned_at, state=now, sentence=told, run_id=after.run_id))
    found += _level_changes(facts, catalogue, release)
    return tuple(sorted(found, key=lambda change: -change.at))


def _why_changed(
    facts: OptionFacts, catalogue: Catalogue, release: Release, before: ScanSummary, after: ScanSummary
) -> str:
    results = [facts.results.get(scan.scan) for scan in (before, after)]
    if any(result is None for result in results):
        return "One of the scans cannot be read any more."
    kinds = [
        {(one.topic, one.title): one for one in find_incompatible_records(result, catalogue, release) if one.stops}
        for result in results
        if result is not None
    ]
    new = [f"{one.count:,} × {one.title} in {one.topic}" for key, one in kinds[1].items() if key not in kinds[0]]
    gone = [f"{one.title} in {one.topic}" for key, one in kinds[0].items() if key not in kinds[1]]
    parts = [f"New: {few(new)}." if new else "", f"Gone: {few(gone)}." if gone else ""]
    return " ".join(filter(None, parts)) or "The kinds of records did not change."


def _level_changes(facts: OptionFacts, catalogue: Catalogue, release: Release) -> list[OptionChange]:
    known = catalogue.get(release).features
    done = sorted(
        ((event, run) for run in facts.runs for event in run.view.all(Finalized)),
        key=lambda one: one[0].at,
    )
    fits: dict[str, bool] = {}
    found = []
    for event, run in done:
        for feature, level in event.levels.items():
            most = known[feature].supported.max if feature in known else 0
            if (level <= most) is not fits.get(feature, True):
                fits[feature] = level <= most
                verb = "supports it" if level <= most else f"supports at most {most}, so it must be lowered first"
                told = f"Run {run.number} finalized {feature} at {level}; {release} {verb}."
                found.append(OptionChange(at=event.at, state=None, sentence=told, run_id=run.run_id))
    return found


def _of_methods(checks: Sequence[StoredCheck]) -> tuple[OptionChange, ...]:
    """Return the changes of the findings that prevent replacing one node at a time, newest first."""
    found = []
    known = [(check, check.blockers) for check in checks if check.blockers is not None]
    for (_, before), (after, blockers) in pairwise(known):
        was, now = ({one.identity for one in some} for some in (before, blockers))
        for text, identities in (("New in the check", now - was), ("Gone in the check", was - now)):
            if identities:
                told = f"{text}: {few(f'{code} ({subject})' for code, subject in sorted(identities))}."
                found.append(OptionChange(at=after.at, state=None, sentence=told, run_id=after.run_id))
    return tuple(reversed(found))


def _last_plan(facts: OptionFacts, release: Release) -> LastPlan | None:
    plans = [
        LastPlan(at=event.at, run=run.number, blockers=event.blockers)
        for run in facts.runs
        for event in run.view.all(Planned)
        if event.run_of is RunOf.DOWNGRADE and event.target == release
    ]
    return max(plans, key=lambda plan: plan.at, default=None)
