"""What happened to the scheduled scans of a cluster: events.jsonl beside its history of scans."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_rollout.adapters.store.event_log import EventLog
from kafka_rollout.adapters.store.scans import ScanHistory
from kafka_rollout.domain.coordinator_logs.history import ALERT, SCANNED
from kafka_rollout.domain.coordinator_logs.scan import ScanResult
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.ports.scan_history import KeptScan


class ScanReports:
    def __init__(self, home: Path, cluster: str) -> None:
        self._history = ScanHistory(home, cluster)
        self._events = EventLog(self._history.folder)

    def scanned(self, run_id: str, result: ScanResult, kept: KeptScan) -> None:
        self._events.record(
            SCANNED,
            {
                "run_id": run_id,
                "scan": kept.name,
                "scanned_at": result.scanned_at,
                "records": result.records,
                "log_bytes": result.log_bytes,
                "partitions": len(result.logs),
                "verdicts": {str(release): str(verdict) for release, verdict in result.standing.items()},
            },
        )

    def alerted(self, run_id: str, alert: Mapping[str, Any]) -> None:
        """Once a run: a task whose channel did not answer tries again."""
        if not any(event["kind"] == ALERT and event["run_id"] == run_id for event in self.events()):
            self._events.record(ALERT, {**alert, "run_id": run_id})

    def events(self) -> tuple[Mapping[str, Any], ...]:
        """Oldest first, without lines that a kill tore."""
        return tuple(event for event in self._events.events() if event["kind"] in (SCANNED, ALERT))

    def page(self, run_id: str) -> str | None:
        """The report of a run's scan; None if it has none, or the history no longer keeps it."""
        for event in reversed(self.events()):
            if event["kind"] == SCANNED and event["run_id"] == run_id:
                try:
                    return self._history.get(event["scan"]).page.read_text(encoding="utf-8")
                except (UserError, OSError):
                    return None
        return None
