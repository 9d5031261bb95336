"""Which checks of a gate are kept in the run's history."""

from __future__ import annotations

from kafka_rollout.domain.gates.check import GateCheck
from kafka_rollout.domain.gates.ref import GateRef
from kafka_rollout.domain.run.node_events import GateChecked
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


class RecentChecks:
    """Limits the run history to the first checks of each outcome, every change, and then one check per minute.

    It remembers per process only. A new process records its first check again, which shows the resume.
    """

    SAME_IN_A_ROW = 5
    EVERY_S = 60.0

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], tuple[tuple[tuple[str, bool], ...], int, float]] = {}

    def record(self, ports: ClusterPorts, ref: GateRef, seen: GateCheck, *, last: bool = False) -> None:
        """Record the check if it is needed. `last`: it ended the watch."""
        key = (ports.cluster.name, ports.run_id, f"{ref.release_step} {ref}")
        outcome = tuple((condition.name, condition.holds) for condition in seen.conditions)
        before, in_a_row, recorded_at = self._last.get(key, ((), 0, 0.0))
        if last:
            self._last.pop(key, None)
            if recorded_at != seen.at:
                ports.run.record(GateChecked(at=seen.at, ref=ref, check=seen))
            return
        in_a_row = in_a_row + 1 if outcome == before else 1
        if in_a_row > self.SAME_IN_A_ROW and seen.at - recorded_at < self.EVERY_S:
            self._last[key] = (outcome, in_a_row, recorded_at)
            return
        ports.run.record(GateChecked(at=seen.at, ref=ref, check=seen))
        self._last[key] = (outcome, in_a_row, seen.at)


RECENT = RecentChecks()
