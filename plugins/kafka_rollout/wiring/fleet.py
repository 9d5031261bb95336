"""Reads what is stored about all clusters, and on request the clusters themselves."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache

from kafka_rollout.base.durations import iso
from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import list_readable_clusters
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.report.check_report import Result
from kafka_rollout.report.cluster_status import build_status
from kafka_rollout.report.fleet import ClusterFacts, FleetRow, LastCheck, fleet_row
from kafka_rollout.run.events import Observed
from kafka_rollout.run.projections.observations import observe_again, observed_of
from kafka_rollout.run.store.opening import database_of, open_check_history, open_scan_history
from kafka_rollout.steps.common.cluster_ports import observe
from kafka_rollout.wiring.cluster_ports import open_ports_to_read
from kafka_rollout.wiring.observations import DAMAGED, UNREADABLE, read_observation
from kafka_rollout.wiring.run_status import read_cluster_runs

_AT_ONCE = 8  # clusters that are observed at the same time


def read_fleet(
    settings: Settings,
    *,
    may_read: Callable[[str], bool] = lambda dag_id: True,
    sees_scans: Callable[[str], bool] = lambda cluster: True,
    live: Callable[[ClusterSpec], Observed] | None = None,
) -> tuple[list[FleetRow], list[str]]:
    """Return a row for each cluster of which the reader can read a DAG or a run, and why inventory files have none.

    `may_read`: whether the reader can read the runs of a DAG. `sees_scans`: whether it can read the scans and checks of
    a cluster. No value of others is in a row. `live`: observes a cluster now; a cluster that does not respond has its
    stored values.
    """
    clusters, problems = list_readable_clusters(settings)
    with database_of(settings).read_together():
        read = [_read_cluster(spec, settings, may_read, sees_scans(spec.name)) for spec in clusters.values()]
    facts = [found for found in read if found is not None]
    if live is not None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            facts = list(pool.map(lambda one: _live(one, live), facts))
    catalogue, now = get_catalogue(settings), time.time()
    return [fleet_row(one, catalogue, now) for one in facts], [str(problem) for problem in problems.values()]


def observe_now(
    spec: ClusterSpec, settings: Settings, security_of: Callable[[ClusterSpec], ClientSecurity | None]
) -> Observed:
    """Query a cluster. Nothing is changed or stored."""
    with open_ports_to_read(spec, security_of(spec), settings) as ports:
        state = observe(ports)
    return replace(observed_of(state), at=state.observed_at)


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
            check, observed = _read_check(spec.name, settings)
            scan = open_scan_history(spec.name, settings).newest_summary()
            facts = replace(facts, scan=scan, check=check)
            checked += [observed] if observed is not None else []
    except DAMAGED:
        facts = replace(facts, problem=UNREADABLE)
    since = time.time() if facts.scan is None else facts.scan.scanned_at
    observation = read_observation(spec.name, settings, may_read=may_read, checked=checked, since=since)
    return replace(facts, observation=observation)


def _read_check(cluster: str, settings: Settings) -> tuple[LastCheck | None, Observed | None]:
    newest = open_check_history(cluster, settings).newest_id()
    return (None, None) if newest is None else _parse_check(cluster, settings, *newest)


@lru_cache(maxsize=256)
def _parse_check(cluster: str, settings: Settings, run_id: str, at: float) -> tuple[LastCheck | None, Observed | None]:
    """Return the newest check, which has this run id and time, and what it observed."""
    kept = next(iter(open_check_history(cluster, settings).newest(1)), None)
    if kept is None or (kept.run_id, kept.at) != (run_id, at):
        return None, None
    document = kept.document
    totals = document["totals"]
    check = LastCheck(
        at=iso(document["checked_at"]),
        target=str(document["target"]),
        blockers=int(totals[Result.BLOCKER.value]),
        warnings=int(totals[Result.WARNING.value]),
    )
    observed = document.get("observed")  # a check of an earlier version has none
    return check, None if observed is None else from_json(Observed, observed)
