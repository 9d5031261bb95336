"""Port for the coordinator logs of one live cluster."""

from __future__ import annotations

from typing import Protocol

from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.domain.groups.records import GroupRecords


class CoordinatorLogs(Protocol):
    def scan_new_records(self, before: ScanResult, *, complete: bool = False) -> ScanResult:
        """Add the records since a scan, for the same releases. Only reads. `complete`: read the logs from the start, so
        that records that the cleaner has removed since no longer count."""
        ...

    def group_records(self, *, by_spark: bool = False) -> GroupRecords:
        """The groups' records in __consumer_offsets, read from the start. A log that is too long for one process is
        read by Spark if `by_spark`, and raises RefusedError if not."""
        ...
