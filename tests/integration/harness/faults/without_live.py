"""Staging of a plan: a live downgrade is not possible, although the controllers are separate."""

from __future__ import annotations

import pytest

from kafka_rollout.planning import downgrade


def stage_no_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downgrade, "live_obstacles", lambda *given: ("a test stages it",))
