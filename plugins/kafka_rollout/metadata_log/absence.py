"""The time without an active controller in a live downgrade: expected seconds, and what is unavailable."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.metadata_log.outage import Estimate, span


class AbsenceEstimate(Estimate):
    """Expected seconds without an active controller. The snapshot is only written again and checked."""

    __slots__ = ()

    @property
    def sentence(self) -> str:
        return f"Expected time without an active controller: about {span(self.total_s)}. {self.parts}"


# Seconds: at least the times measured with 3 controllers on two cores, and with 100,000 partitions (12 MiB).
_STOP_S, _SNAPSHOT_S, _WRITE_S_PER_MIB, _COPY_S_PER_MIB = 1.0, 3.0, 2.0, 0.05
_INSTALL_NODE_S, _START_S = 0.3, 15.0


def absence_estimate(log_bytes: Sequence[int]) -> AbsenceEstimate:
    """Return the estimate. `log_bytes`: size of each controller's metadata log.

    The log is replayed before the stop. After it, only its end is replayed, but the whole metadata is written.
    """
    largest, total = (size / (1 << 20) for size in (max(log_bytes, default=0), sum(log_bytes)))
    return AbsenceEstimate(
        stop_s=_STOP_S,
        snapshot_s=_SNAPSHOT_S + _WRITE_S_PER_MIB * largest,
        install_s=_INSTALL_NODE_S * len(log_bytes) + _COPY_S_PER_MIB * total,
        start_s=_START_S,
    )


UNAVAILABLE = (
    "While no controller is active: no partition leader is elected, no ISR changes, and no topic, ACL, quota, user or "
    "configuration can be changed. Clients produce and consume as before.",
    "If a broker fails in this time, its partitions have no leader until the controllers are back.",
)
