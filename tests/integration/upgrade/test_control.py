"""Maintenance windows on real nodes: a pause from a second shell, and a window that closes in the middle of a run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafka_rollout.run.events import PauseAsked, ResumeAsked, events_of
from kafka_rollout.run.step_events import GateChecked, Stopping
from tests.integration.conftest import MakeCluster
from tests.integration.harness.shell import APPROVED, Shell
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

SOAK_S = 30  # three node steps do not fit into a window of two minutes


def test_a_restart_pauses_for_a_second_shell_and_between_two_windows(make_cluster: MakeCluster, tmp_path: Path) -> None:
    shell = Shell(tmp_path, make_cluster("4.3.1", name="shell", layout="combined"))
    opens = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=2)
    closes = opens + timedelta(minutes=2)
    opens_again, ends = closes + timedelta(minutes=1), closes + timedelta(hours=2)
    window = f"{opens:%H:%M}-{closes:%H:%M} UTC; {opens_again:%H:%M}-{ends:%H:%M} UTC"
    restart = ("restart", "--cluster", "shell", "--soak", str(SOAK_S), "--checks", "2", "--window", window)
    process = shell.start(*restart, *APPROVED)
    try:
        wait_until(lambda: shell.count_events(Stopping) == 1, 600, every_s=0.2)
        paused = shell("runs", "pause", "--cluster", "shell", "--reason", "errors of clients", "--as", "bob")
        assert paused.returncode == 0, paused.stderr
        wait_until(lambda: held_by(shell, "no pause"), 300, every_s=0.5)
        status = json.loads(shell("status", "--cluster", "shell", "--json").stdout)
        assert (status["phase"], status["lock"]["holder"]) == ("paused", status["run"])
        assert shell.count_events(Stopping) == 1
        assert shell("runs", "resume", "--cluster", "shell", "--reason", "no error since").returncode == 0
        assert process.wait(900) == 0, (tmp_path / "killed.log").read_text()
    finally:
        process.kill()
        process.wait(60)
    events = shell.newest_run().events()
    stopped = [datetime.fromtimestamp(event.at, UTC) for event in events_of(events, Stopping)]
    assert len(stopped) == 3
    assert opens <= stopped[0] < closes
    assert all(opens <= at < closes or at >= opens_again for at in stopped)
    assert stopped[-1] >= opens_again
    assert held_by(shell, "maintenance window")
    assert [event.by for event in events_of(events, PauseAsked)] == ["bob"]
    assert len(events_of(events, ResumeAsked)) == 1


def held_by(shell: Shell, condition: str) -> bool:
    checks = [event.check for run in shell.runs()[-1:] for event in events_of(run.events(), GateChecked)]
    return any(check.is_held and condition in check.waits_for for check in checks)
