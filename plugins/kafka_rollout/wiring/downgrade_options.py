"""Reads what is stored about the downgrade options of a cluster: observations, scans, checks and runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.history import Scanned
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.report.option_details import (
    DowngradeOptions,
    OptionFacts,
    StoredCheck,
    build_options,
    roll_blockers,
    scans_to_compare,
)
from kafka_rollout.run.events import Event, Observed
from kafka_rollout.run.store.opening import open_check_history, open_scan_history
from kafka_rollout.wiring.observations import DAMAGED, UNREADABLE, read_observation
from kafka_rollout.wiring.run_status import can_see, read_cluster_runs, read_version


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
    runs: dict[str, tuple[Event, ...]] = {}
    for run_id, version in {} if found is None else found.versions.items():
        run, dag_id = read_version(spec.name, run_id, settings, version)
        if can_see(spec.name, dag_id, may_read):
            runs[run_id] = tuple(run.events)
    checks, scans, problem = tuple[StoredCheck, ...](), tuple[Scanned, ...](), ""
    try:
        if sees_scans:
            checks, scans = _read_checks(spec.name, settings), open_scan_history(spec.name, settings).summaries()
    except DAMAGED:
        checks, problem = (), UNREADABLE
    wanted = {*scans_to_compare(scans), *(scan.scan for scan in scans[-1:])}
    results = {name: result for name in wanted if (result := _load(spec.name, settings, name)) is not None}
    observation = read_observation(
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
    kept = reversed(open_check_history(cluster, settings).newest())
    return tuple(
        StoredCheck(
            run_id=one.run_id,
            at=one.at,
            blockers=roll_blockers(one.document),
            observed=from_json(Observed, seen) if (seen := one.document.get("observed")) else None,
        )
        for one in kept
    )


@lru_cache(maxsize=64)
def _load(cluster: str, settings: Settings, name: str) -> ScanResult | None:
    """Return a stored scan; None if it is damaged or was removed."""
    with suppress(RolloutError):
        return open_scan_history(cluster, settings).get(name).load()
    return None
