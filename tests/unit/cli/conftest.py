"""Commands over a fake cluster."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_group_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake cluster has no groups for the monitor process, and its start takes a second."""
    for name in ("start_group_monitor", "stop_group_monitor"):
        monkeypatch.setattr(f"kafka_rollout.traffic.processes.of_run.{name}", lambda *_, **__: None)
