"""Background processes of a run: test traffic and the group monitor, as the database shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafka_rollout.base.json_forms import from_json
from kafka_rollout.run.traffic import TrafficSeries, condense


class BackgroundKind(StrEnum):
    """The value is the database's."""

    TRAFFIC = "traffic"
    GROUPS = "groups"

    @property
    def label(self) -> str:
        return "test traffic" if self is BackgroundKind.TRAFFIC else "group monitor"


class BackgroundState(StrEnum):
    """What the process reported last. FAILED: it ended, and its result is unknown."""

    STARTING = "starting"
    RUNNING = "running"
    COMPARING = "comparing"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundKey:
    """A run has at most one process of a kind."""

    cluster: str
    run_id: str
    kind: BackgroundKind


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundProcess:
    """One row. `instance` identifies the process."""

    key: BackgroundKey
    instance: str
    stop_requested: bool
    state: BackgroundState
    host: str
    pid: int
    folder: str
    """Its journals, on `host`."""
    age_s: float
    """Seconds since its last report, by the database's clock."""
    settings: Mapping[str, Any]
    status: Mapping[str, Any]
    """Figures of a running process, and `error` of a failed one."""
    result: Mapping[str, Any] | None
    asked: str = ""
    """The newest request for a check of what it has done so far; empty without one."""

    @property
    def has_ended(self) -> bool:
        return self.state in (BackgroundState.STOPPED, BackgroundState.FAILED)

    @property
    def sentence(self) -> str:
        """For progress lines and the command line."""
        return (
            f"The {self.key.kind.label} (process {self.pid} on host {self.host}) is {self.state}; "
            f"last report {self.age_s:.0f} s ago."
        )


def series_of(process: BackgroundProcess | None) -> TrafficSeries:
    """Return what the test traffic has reported so far, of all its periods."""
    if process is None:
        return TrafficSeries()
    parts = [process.result or {}]
    if process.state is not BackgroundState.STOPPED:  # the result of an ended process has the earlier periods
        parts.append(process.settings.get("before") or {})
    seen = [from_json(TrafficSeries, part) for part in parts]
    return TrafficSeries(
        series=condense(sample for part in seen for sample in part.series),
        leaderships=tuple(one for part in seen for one in part.leaderships),
    )
