"""Port for the coordinator logs of one live cluster."""

from __future__ import annotations

from typing import Protocol

from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.domain.groups.records import GroupRecords


class CoordinatorLogs(Protocol):
    def scan_on(self, before: ScanResult, *, anew: bool = False) -> ScanResult:
        """The scan carried on to what the logs hold now; verdicts of the same releases. Reads only. `anew`: all of the
        logs is read again, and what the cleaner has removed since `before` counts no more."""
        ...

    def group_records(self, *, by_spark: bool = False) -> GroupRecords:
        """What __consumer_offsets holds of groups now, all of it read anew. A log that is too long for one process is
        left to Spark with `by_spark`, and raises RefusedError without."""
        ...
