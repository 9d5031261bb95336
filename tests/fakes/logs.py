"""Coordinator logs of a FakeCluster."""

from __future__ import annotations

from dataclasses import replace

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.coordinator_logs.incremental_scan import merge_scans
from kafka_rollout.coordinator_logs.scan import Damage, ScanResult
from kafka_rollout.groups.group_records import GroupRecords
from tests.fakes.cluster import FakeCluster


class FakeLogs:
    """CoordinatorLogs of a FakeCluster: what its `written_since` says was written after the scan, judged."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def scan_small(self, *, planned: bool | None) -> ScanResult:
        if self._cluster.small_scan is None:
            raise RefusedError("The coordinator logs have more than 200,000 records.", remedy="Scan them.")
        return self._cluster.small_scan

    def scan_new_records(self, before: ScanResult, *, planned: bool | None, complete: bool = False) -> ScanResult:
        if self._cluster.logs_problem:
            raise TransientError(self._cluster.logs_problem)
        if complete:
            before = replace(before, classes=self._cluster.group_records.classes)
        written = self._cluster.written_since
        ends = {(log.topic, log.partition): log.end for log in before.logs}
        tail = replace(
            before,
            logs=tuple(replace(log, start=log.end, end=log.end + len(written)) for log in before.logs),
            classes=tuple(replace(c, first_offset=ends[c.topic, c.partition]) for c in written),
            sizes=(),
            damage=tuple(self._cluster.unread_replicas),
        )
        return merge_scans(self._cluster.catalogue, before, tail)

    def unread_replicas(self) -> tuple[Damage, ...]:
        if self._cluster.logs_problem:
            raise TransientError(self._cluster.logs_problem)
        return tuple(self._cluster.unread_replicas)

    def group_records(self, *, planned: bool | None, by_spark: bool = False, incremental: bool = False) -> GroupRecords:
        return replace(self._cluster.group_records, new_group_coordinator=bool(planned))
