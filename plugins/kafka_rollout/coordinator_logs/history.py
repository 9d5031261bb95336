"""Events in the history of a cluster's scheduled scans. `at`: epoch seconds of the event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.releases.facts import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """A scan of a scheduled run. `scan`: its name in the history; `verdicts`: the worst verdict of each release."""

    at: float
    run_id: str
    scan: str
    scanned_at: float
    records: int
    log_bytes: int
    partitions: int
    verdicts: Mapping[Release, LoadVerdict]


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
