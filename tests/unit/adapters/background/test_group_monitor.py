"""The group monitor's own files."""

from __future__ import annotations

from kafka_rollout.adapters.background import group_monitor
from kafka_rollout.steps.report.run import GROUPS_WATCHED


def test_a_restarted_monitor_does_not_move_the_document_of_the_run_away() -> None:
    """With the default settings the folder of the run's documents is also the folder of its processes."""
    assert f"{group_monitor.FOLDER}/{group_monitor.WATCH_FILE}" != GROUPS_WATCHED
