"""The time without an active controller in a live downgrade: expected seconds, and what is unavailable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.domain.offline.outage import span


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsenceEstimate:
    """Expected seconds without an active controller, by part. The estimate is rather too long than too short."""

    stop_s: float
    snapshot_s: float
    install_s: float
    start_s: float

    @property
    def total_s(self) -> float:
        return self.stop_s + self.snapshot_s + self.install_s + self.start_s

    @property
    def sentence(self) -> str:
        return (
            f"Expected time without an active controller: about {span(self.total_s)}. Stop {span(self.stop_s)}; end of "
            f"the log and its check {span(self.snapshot_s)}; installation {span(self.install_s)}; start "
            f"{span(self.start_s)}."
        )


# Seconds: twice the times measured with 3 controllers on two cores.
_SNAPSHOT_S, _WRITE_S_PER_MIB, _COPY_S_PER_MIB = 3.0, 1.0, 0.05
_INSTALL_NODE_S, _START_S = 0.3, 15.0


def absence_estimate(log_bytes: Sequence[int], *, stop_s: float) -> AbsenceEstimate:
    """Return the estimate. `log_bytes`: size of each controller's metadata log; `stop_s`: longest stop, then a kill.

    The log is replayed before the stop. After it, only its end is replayed, but the whole metadata is written.
    """
    largest, total = (size / (1 << 20) for size in (max(log_bytes, default=0), sum(log_bytes)))
    return AbsenceEstimate(
        stop_s=stop_s,
        snapshot_s=_SNAPSHOT_S + _WRITE_S_PER_MIB * largest,
        install_s=_INSTALL_NODE_S * len(log_bytes) + _COPY_S_PER_MIB * total,
        start_s=_START_S,
    )


UNAVAILABLE = (
    "While no controller is active: no partition leader is elected, no ISR changes, and no topic, ACL, quota, user or "
    "configuration can be changed. Clients produce and consume as before.",
    "If a broker fails in this time, its partitions have no leader until the controllers are back.",
)
