"""Whether a run can begin its next node step now, or pauses. Input and output are data."""

from __future__ import annotations

from kafka_rollout.base.durations import duration, iso
from kafka_rollout.base.maintenance import Maintenance
from kafka_rollout.gates.check import Condition


def window_condition(maintenance: Maintenance, now: float, expected_s: float) -> Condition:
    """Return whether the maintenance window is open for a whole node step. `expected_s`: its expected duration (s)."""
    state = maintenance.state_at(now)
    left_s = state.left_s(now)
    evidence = state.text
    if state.is_open and left_s < expected_s:
        evidence = f"{evidence}, {duration(left_s)} left; a node step takes about {duration(expected_s)}"
    return Condition(name="maintenance window", is_met=left_s >= expected_s and state.is_open, evidence=evidence)


def pause_condition(text: str, since: float) -> Condition:
    """Return the unmet condition of a paused run. `text`: `paused by alice: a reason`; `since`: epoch seconds."""
    return Condition(name="no pause", is_met=False, evidence=f"{text} (since {iso(since)})")
