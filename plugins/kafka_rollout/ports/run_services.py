"""Port for what a run of one process needs in addition to the cluster: scans, background processes, the report."""

from __future__ import annotations

from typing import Protocol


class RunServices(Protocol):
    """A repeated call of `monitor_groups`, `start_traffic` or `stop` does nothing more."""

    def scan(self, file: str) -> None:
        """Scan the coordinator logs and keep the result as `file` in the run's folder.

        Raises TransientError or FatalError if the scan failed.
        """
        ...

    def monitor_groups(self) -> None:
        """Watch the cluster's groups until `stop`."""
        ...

    def start_traffic(self) -> None:
        """Produce and consume test records until `stop`."""
        ...

    def stop(self) -> None:
        """End both. Raises FatalError if test records were lost."""
        ...

    def report(self, *, dry_run: bool) -> None:
        """Write the run's report and show where it is."""
        ...
