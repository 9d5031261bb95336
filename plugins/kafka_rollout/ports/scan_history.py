"""Port for the kept scans of one cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from kafka_rollout.domain.coordinator_logs.history import Alerted, Scanned
from kafka_rollout.domain.coordinator_logs.scan import ScanResult


class KeptScan(Protocol):
    """One scan of the history; `name` is its time in UTC, such as 20261121T040000.000Z."""

    @property
    def cluster(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def location(self) -> str:
        """The folder of its documents, as a path or a URL for messages."""
        ...

    @property
    def page(self) -> str:
        """Where its page is, for messages."""
        ...

    def read_page(self) -> str: ...
    def load(self) -> ScanResult:
        """Raises FatalError for a damaged or missing result."""
        ...


class ScanHistory(Protocol):
    """The kept scans of one cluster and the alerts about them."""

    @property
    def cluster(self) -> str: ...
    def scans(self) -> tuple[KeptScan, ...]:
        """All that are kept, newest first."""
        ...

    def newest(self, at_most: int) -> tuple[ScanResult, ...]:
        """The newest scans that can be read."""
        ...

    def get(self, name: str) -> KeptScan:
        """The scan of that name, of a beginning of it that only one has, or `newest`; raises UserError."""
        ...

    def keep(
        self, result: ScanResult, page: str, *, parquet: Path | None = None, at_most: int = 60, run_id: str = ""
    ) -> KeptScan:
        """Add a scan; the oldest beyond `at_most` are removed. `parquet`: a folder with its tables, which is copied.
        `run_id`: the scheduled run that made it."""
        ...

    def record_alert(self, alert: Alerted) -> None:
        """Record the alert of a run, once."""
        ...

    def events(self) -> tuple[Scanned | Alerted, ...]:
        """Return the scans of scheduled runs and the alerts, oldest first."""
        ...

    def page_of_run(self, run_id: str) -> str | None:
        """The report of a run's newest scan; None if it has none, or the history no longer keeps it."""
        ...
