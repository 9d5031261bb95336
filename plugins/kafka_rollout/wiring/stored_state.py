"""Reads what is stored about clusters: the rows of the fleet, and the downgrade options of a cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from kafka_rollout.base.durations import iso
from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.clusters.inventory import list_readable_clusters, name_problems
from kafka_rollout.clusters.last_seen import LastSeen, write_last_seen
from kafka_rollout.console.cluster_status import RunState, build_status
from kafka_rollout.console.fleet import ClusterFacts, FleetRow, LastCheck, fleet_row, level_name, row_of_runs
from kafka_rollout.console.option_details import (
    DowngradeOptions,
    OptionFacts,
    StoredCheck,
    build_options,
    roll_blockers,
    scans_to_compare,
    stop_blockers,
)
from kafka_rollout.coordinator_logs.comparison import ScanSummary
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.observation.cluster_ports import observe
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue
from kafka_rollout.report.check_report import Result
from kafka_rollout.run.events import Event, Observed
from kafka_rollout.run.projections.observations import Observation, newest_observation, observe_again, observed_of
from kafka_rollout.run.store.history import list_changed_runs, list_run_versions
from kafka_rollout.run.store.opening import database_of, open_check_history, open_scan_history
from kafka_rollout.run.store.scans import KeptCheck
from kafka_rollout.wiring.cluster_ports import open_ports_to_read
from kafka_rollout.wiring.runs import can_see, read_cluster_runs, read_version

_AT_ONCE = 8  # clusters that are observed at the same time
_DAMAGED = (ValueError, KeyError, TypeError)  # what a stored row that is not as it was written raises
_UNREADABLE = "A stored scan or check cannot be read. Restore the database from a backup."
_RUNS_READ = 50  # to find one that the reader can read and that has observed the cluster


def read_fleet(
    settings: Settings,
    *,
    may_read: Callable[[str], bool] = lambda dag_id: True,
    sees_scans: Callable[[str], bool] = lambda cluster: True,
    live: Callable[[ClusterSpec], Observed] | None = None,
) -> tuple[list[FleetRow], list[str]]:
    """Return a row for each cluster of which the reader can read a DAG or a run, and why files cannot be read.

    `may_read`: whether the reader can read the runs of a DAG. `sees_scans`: whether it can read the scans and checks of
    a cluster. No value of others is in a row. `live`: observes a cluster now; a cluster that does not respond has its
    stored values.
    """
    clusters, problems = list_readable_clusters(settings)
    unread, catalogue = name_problems(problems).keys() - clusters.keys(), get_catalogue(settings)
    with database_of(settings).read_together():
        read = [_read_cluster(spec, settings, may_read, sees_scans(spec.name)) for spec in clusters.values()]
        rows = [row for name in sorted(unread) if (row := _row_without_inventory(name, settings, may_read, catalogue))]
    facts = [found for found in read if found is not None]
    if live is not None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            facts = list(pool.map(lambda one: _live(one, live), facts))
    now = time.time()
    rows += [fleet_row(one, catalogue, now) for one in facts]
    return rows, [str(problem) for problem in problems.values()]


def _row_without_inventory(
    name: str, settings: Settings, may_read: Callable[[str], bool], catalogue: Catalogue
) -> FleetRow | None:
    """Return the row of a cluster whose inventory cannot be read; None if it has no run that the reader can read."""
    found, now = read_cluster_runs(name, settings, may_read=may_read), time.time()
    if found is None or not found.runs:
        return None
    status = build_status(name, found.runs, found.lock, now, problem=found.problem)
    row = row_of_runs(name, status, found.runs, catalogue, now)
    waits = f" Then: {status.next_action}" if status.needs_human else ""
    needed = f"Correct the inventory of this cluster.{waits}"
    return replace(row, needs_human=True, why=needed, next_action=needed)


def observe_now(
    spec: ClusterSpec, settings: Settings, security_of: Callable[[ClusterSpec], ClientSecurity | None]
) -> Observed:
    """Query a cluster. Nothing is changed or stored."""
    with open_ports_to_read(spec, security_of(spec), settings) as ports:
        state = observe(ports)
    return replace(observed_of(state), at=state.observed_at)


def keep_last_seen(spec: ClusterSpec, events: Iterable[Event], settings: Settings) -> None:
    """Keep for the trigger forms what these events show that the cluster runs; nothing if no release is known."""
    found = newest_observation(events)
    if found is None:
        return
    seen = [found.observed.releases.get(node.node_id) for node in spec.nodes]
    known = Counter(release for release in seen if release is not None)
    level = found.observed.finalized.get(METADATA_VERSION)
    name = "" if level is None else level_name(get_catalogue(settings), level) or str(level)
    if known:
        last = LastSeen(
            at=max(found.observed.at, found.changed_at),
            releases=known,
            unknown=len(seen) - known.total(),
            metadata_version=name,
        )
        write_last_seen(spec.name, last, settings)


def _live(facts: ClusterFacts, live: Callable[[ClusterSpec], Observed]) -> ClusterFacts:
    try:
        return replace(facts, observation=observe_again(facts.observation, live(facts.spec)), is_live=True)
    except (RolloutError, OSError) as error:
        return replace(facts, problem=f"The live query failed: {error}")


def _read_cluster(
    spec: ClusterSpec, settings: Settings, may_read: Callable[[str], bool], sees_scans: bool
) -> ClusterFacts | None:
    found = read_cluster_runs(spec.name, settings, may_read=may_read)
    if found is None and not sees_scans:
        return None
    facts = ClusterFacts(spec=spec, status=None)
    if found is not None:
        status = build_status(spec.name, found.runs, found.lock, time.time(), problem=found.problem)
        facts = replace(facts, status=status, runs=found.runs)
    checked = list[Observed]()
    try:
        if sees_scans:
            kept = read_newest_check(spec.name, settings)
            check = None if kept is None else _last_check(kept)
            observed = None if kept is None else _observed_by(kept)
            facts = replace(facts, scan=open_scan_history(spec.name, settings).newest_summary(), check=check)
            checked += [observed] if observed is not None else []
    except _DAMAGED:
        facts = replace(facts, problem=_UNREADABLE)
    since = time.time() if facts.scan is None else facts.scan.scanned_at
    observation = _read_observation(spec.name, settings, may_read=may_read, checked=checked, since=since)
    return replace(facts, observation=observation)


def _last_check(kept: KeptCheck) -> LastCheck:
    totals = kept.document["totals"]
    return LastCheck(
        at=iso(kept.document["checked_at"]),
        target=str(kept.document["target"]),
        blockers=int(totals[Result.BLOCKER.value]),
        warnings=int(totals[Result.WARNING.value]),
    )


def _observed_by(kept: KeptCheck) -> Observed | None:
    observed = kept.document.get("observed")  # a check of an earlier version has none
    return None if observed is None else from_json(Observed, observed)


def read_newest_check(cluster: str, settings: Settings) -> KeptCheck | None:
    """Return the newest check without its single results; None without one. It is parsed once."""
    newest = open_check_history(cluster, settings).newest_id()
    return None if newest is None else _parse_newest_check(cluster, settings, *newest)


@lru_cache(maxsize=256)
def _parse_newest_check(cluster: str, settings: Settings, run_id: str, at: float) -> KeptCheck | None:
    """Return the newest check, which has this run id and time."""
    kept = next(iter(open_check_history(cluster, settings).newest(1)), None)
    if kept is None or (kept.run_id, kept.at) != (run_id, at):
        return None
    return replace(kept, document={key: kept.document[key] for key in kept.document if key != "checks"})


def read_options(
    spec: ClusterSpec,
    settings: Settings,
    *,
    may_read: Callable[[str], bool] = lambda dag_id: True,
    sees_scans: bool = True,
) -> DowngradeOptions | None:
    """Return the options; None if the reader can read neither a DAG of the cluster, nor a run, nor its scans.

    `may_read`: whether the reader can read the runs of a DAG. No value of other runs is in the result. `sees_scans`:
    whether the reader can read the scans and checks of the cluster.
    """
    found = read_cluster_runs(spec.name, settings, may_read=may_read)
    if found is None and not sees_scans:
        return None
    runs: list[RunState] = []
    for run_id, version in {} if found is None else found.versions.items():
        run, dag_id = read_version(spec.name, run_id, settings, version)
        if can_see(spec.name, dag_id, may_read):
            runs.append(run)
    checks, scans, problem = tuple[StoredCheck, ...](), tuple[ScanSummary, ...](), ""
    try:
        if sees_scans:
            checks, scans = _read_checks(spec.name, settings), open_scan_history(spec.name, settings).summaries()
    except _DAMAGED:
        checks, problem = (), _UNREADABLE
    wanted = {*scans_to_compare(scans), *(scan.scan for scan in scans[-1:])}
    results = {name: result for name in wanted if (result := _load(spec.name, settings, name)) is not None}
    observation = _read_observation(
        spec.name,
        settings,
        may_read=may_read,
        checked=[check.observed for check in checks if check.observed is not None],
        since=scans[-1].scanned_at if scans else time.time(),
    )
    facts = OptionFacts(
        spec=spec,
        observation=observation,
        scans=scans,
        results=results,
        checks=checks,
        runs=runs,
        sees_scans=sees_scans,
        problem=problem,
    )
    return build_options(facts, get_catalogue(settings), time.time())


def _read_checks(cluster: str, settings: Settings) -> tuple[StoredCheck, ...]:
    newest = open_check_history(cluster, settings).newest_id()
    return () if newest is None else _parse_checks(cluster, settings, *newest)


@lru_cache(maxsize=16)
def _parse_checks(cluster: str, settings: Settings, run_id: str, at: float) -> tuple[StoredCheck, ...]:
    """Return the stored checks, oldest first; the newest has this run id and time."""
    return tuple(
        StoredCheck(
            run_id=one.run_id,
            at=one.at,
            blockers=roll_blockers(one.document),
            cannot_start=stop_blockers(one.document),
            observed=_observed_by(one),
        )
        for one in reversed(open_check_history(cluster, settings).newest())
    )


@lru_cache(maxsize=64)
def _load(cluster: str, settings: Settings, name: str) -> ScanResult | None:
    """Return a stored scan; None if it is damaged or was removed."""
    with suppress(RolloutError):
        return open_scan_history(cluster, settings).get(name).load()
    return None


def _read_observation(
    cluster: str, settings: Settings, *, may_read: Callable[[str], bool], checked: Iterable[Observed], since: float
) -> Observation | None:
    """Return the newest observation by `checked` and by the runs that the reader can read; None without one.

    Only its `changed_at` and `is_outdated` are from all runs: all with an event after `since` (epoch seconds), and
    older ones until one that the reader can read has observed the cluster. `may_read`: as in `read_cluster_runs`.
    """
    database = database_of(settings)
    changed = set(list_changed_runs(database, cluster, since))
    every, readable, is_damaged = list[Event](checked), list[Event](checked), False
    for run_id, version in list_run_versions(database, cluster, len(changed) + _RUNS_READ).items():
        run, dag_id = read_version(cluster, run_id, settings, version)
        sees = can_see(cluster, dag_id, may_read)
        every += run.view.events
        readable += run.view.events if sees else ()
        is_damaged |= bool(run.problem) and run_id in changed
        if sees and run_id not in changed and run.view.has(Observed):
            break
    found = newest_observation(readable)
    of_all = found if len(readable) == len(every) else newest_observation(every)
    if found is None or of_all is None:
        return None
    is_outdated = is_damaged or of_all.changed_at > max(found.changed_at, found.observed.at)
    return replace(found, changed_at=max(found.changed_at, of_all.changed_at), is_outdated=is_outdated)
