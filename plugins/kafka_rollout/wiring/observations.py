"""Reads what the runs of a cluster have observed, and when its releases or levels changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.run.events import Event, Observed, has
from kafka_rollout.run.projections.observations import Observation, newest_observation
from kafka_rollout.run.store.opening import database_of
from kafka_rollout.run.store.runs import list_changed_runs, list_run_versions
from kafka_rollout.wiring.run_status import can_see, read_version

DAMAGED = (ValueError, KeyError, TypeError)  # what a stored row that is not as it was written raises
UNREADABLE = "A stored scan or check cannot be read. Restore the database from a backup."
_RUNS_READ = 50  # to find one that the reader can read and that has observed the cluster


def read_observation(
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
        every += run.events
        readable += run.events if sees else ()
        is_damaged |= bool(run.problem) and run_id in changed
        if sees and run_id not in changed and has(run.events, Observed):
            break
    found = newest_observation(readable)
    of_all = found if len(readable) == len(every) else newest_observation(every)
    if found is None or of_all is None:
        return None
    is_outdated = is_damaged or of_all.changed_at > max(found.changed_at, found.observed.at)
    return replace(found, changed_at=max(found.changed_at, of_all.changed_at), is_outdated=is_outdated)
