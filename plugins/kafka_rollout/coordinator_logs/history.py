"""Events in the history of a cluster's scheduled scans. `at`: epoch seconds of the event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.releases.facts import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """A scan. `scan`: its name in the history; `verdicts`: the worst verdict of each release.

    `run_id`: the scheduled run; empty for a command. `topics`: those that the scan has; None in a scan of an earlier
    version.
    """

    at: float
    run_id: str
    scan: str
    scanned_at: float
    records: int
    log_bytes: int
    partitions: int
    verdicts: Mapping[Release, LoadVerdict]
    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerted:
    """An alert of a scheduled run. The store sets `at`. `failed`: the scan or the check failed.

    `kind`: of the notification; empty in an alert that an earlier version stored.
    """

    run_id: str
    headline: str
    sentences: tuple[str, ...] = ()
    remedy: str = ""
    report: str = ""
    failed: bool = False
    kind: str = ""
    subject: str = ""
    body: str = ""
    at: float = 0.0
