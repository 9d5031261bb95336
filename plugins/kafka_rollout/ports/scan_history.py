"""Port for the scans that are kept of one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kafka_rollout.domain.coordinator_logs.scan import ScanResult


class KeptScan(Protocol):
    """One scan that is kept. `name` is its time in UTC; `page` is its report."""

    @property
    def cluster(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    @property
    def page(self) -> Path: ...
    def load(self) -> ScanResult:
        """Raises FatalError if the scan cannot be read."""
        ...


class ScanHistory(Protocol):
    @property
    def cluster(self) -> str: ...
    def scans(self) -> tuple[KeptScan, ...]:
        """All scans that are kept, newest first."""
        ...

    def newest(self, at_most: int) -> tuple[ScanResult, ...]:
        """The newest scans that can be read."""
        ...

    def get(self, name: str) -> KeptScan:
        """The scan of that name, of a unique beginning of it, or `newest`. Raises UserError if there is none."""
        ...

    def keep(self, result: ScanResult, page: str, *, parquet: Path | None = None) -> KeptScan:
        """Keep a scan and remove the oldest. `parquet`: a folder with its tables, which is copied."""
        ...


class ScanReports(Protocol):
    """Events and pages of the scheduled scans of one cluster."""

    def scanned(self, run_id: str, result: ScanResult, kept: KeptScan) -> None: ...
    def alerted(self, run_id: str, alert: Mapping[str, Any]) -> None:
        """Record an alert, once per run."""
        ...

    def events(self) -> tuple[Mapping[str, Any], ...]:
        """All events, oldest first."""
        ...

    def page(self, run_id: str) -> str | None:
        """The report of a run's scan; None if the run has none or it is no longer kept."""
        ...
