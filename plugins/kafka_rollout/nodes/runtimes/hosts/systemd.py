"""The state of a systemd unit, from `systemctl show`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "MainPID",
    "ExecMainPID",
    "ExecMainStartTimestamp",
    "NRestarts",
    "TimeoutStopUSec",
    "User",
    "UnitFileState",
)
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """A unit. `pid`: its main process, None without one. `last_pid`, `started_at` (epoch seconds): its newest main
    process, which can have exited. `restarts`: by systemd itself, since the last start that a run or an operator
    requested. `stop_s`: TimeoutStopSec, after which systemd kills the process; infinity: never; None: not reported.
    `is_root`: its process runs as root. `masked`: until the next boot, so that nothing can start it."""

    exists: bool
    active: str
    sub: str
    pid: int | None
    last_pid: int | None
    started_at: float | None
    restarts: int
    stop_s: float | None
    is_root: bool
    masked: bool = False

    @property
    def waits_for_restart(self) -> bool:
        """Whether the process exited and systemd is about to start it again."""
        return self.sub == "auto-restart" or (self.active == "activating" and self.pid is None)

    @property
    def is_down(self) -> bool:
        return self.pid is None and self.active in ("inactive", "failed")


def show_command(unit: str) -> str:
    """A line for the login shell; needs no right. Times are in UTC."""
    return f"LC_ALL=C TZ=UTC systemctl show --property={','.join(_PROPERTIES)} {unit}"


def parse_unit(text: str) -> UnitState:
    """Read the output of `show_command`."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return UnitState(
        exists=values.get("LoadState") == "loaded",
        active=values.get("ActiveState", ""),
        sub=values.get("SubState", ""),
        pid=int(values.get("MainPID") or 0) or None,
        last_pid=int(values.get("ExecMainPID") or 0) or None,
        started_at=_time(values.get("ExecMainStartTimestamp", "")),
        restarts=int(values.get("NRestarts") or 0),
        stop_s=_seconds(values.get("TimeoutStopUSec", "")),
        is_root=values.get("User") in ("", "root", "0"),
        masked=values.get("UnitFileState") == "masked-runtime",
    )


def _time(text: str) -> float | None:
    """`Mon 2026-11-23 06:11:15 UTC`; empty for a unit that was never started."""
    match = re.fullmatch(r"\w+ (\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})(?:\.\d+)? UTC", text.strip())
    return datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp() if match else None


def _seconds(text: str) -> float | None:
    """`5min`, `1min 30s`, `infinity`; None for another text."""
    if text == "infinity":
        return math.inf
    if not re.fullmatch(r"([\d.]+(us|ms|min|s|h|d|w) ?)+", text):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)(us|ms|min|s|h|d|w)", text))
