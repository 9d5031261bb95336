"""Control on real nodes: a pause from a second shell, a window that closes during a run, a value that rises."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kafka_rollout.clusters.inventory import dump_cluster, load_cluster
from kafka_rollout.gates.gate import GateCheck
from kafka_rollout.model.topology import OutsideCondition
from kafka_rollout.run.events import PauseAsked, ResumeAsked, events_of
from kafka_rollout.run.step_events import GateChecked, Stopping
from tests.fakes.prometheus import prometheus, vector
from tests.integration.conftest import MakeCluster
from tests.integration.harness.shell import APPROVED, Shell
from tests.of_cluster import with_pace
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

SOAK_S = 30  # three node steps do not fit into a window of two minutes


def test_a_restart_pauses_for_a_second_shell_between_two_windows_and_for_a_value_from_outside(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, make_cluster("4.3.1", name="shell", layout="combined"))
    errors = ["0"]
    with prometheus(lambda _query, _headers: vector(errors[0])) as url:
        inventory = shell.cluster.inventory_path
        condition = OutsideCondition(name="errors", query="sum(errors)", requires="< 5", interval_s=1.0)
        spec = with_pace(load_cluster(inventory), soak_s=SOAK_S, checks=2)
        spec = replace(spec, prometheus_connection_id="prom", conditions=(condition,))
        inventory.write_text(dump_cluster(spec))
        config = tmp_path / "security.json"
        config.write_text(json.dumps({"prometheus": {"url": url}}))
        config.chmod(0o600)
        _restart(shell, config, errors)


def _restart(shell: Shell, config: Path, errors: list[str]) -> None:
    opens = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=2)
    closes = opens + timedelta(minutes=2)
    opens_again = closes + timedelta(minutes=1)
    window = f"{opens:%M %H} * * * 2m UTC; {opens_again:%M %H} * * * 2h UTC"
    spec = load_cluster(shell.cluster.inventory_path)
    shell.cluster.inventory_path.write_text(dump_cluster(replace(spec, window=window)))
    restart = ("restart", "--cluster", "shell")
    restart = (*restart, "--command-config", str(config))
    process = shell.start(*restart, *APPROVED)
    try:
        wait_until(lambda: shell.count_events(Stopping) == 1, 600, every_s=0.2)
        paused = shell("pause", "--cluster", "shell", "--reason", "errors of clients", "--as", "bob")
        assert paused.returncode == 0, paused.stderr
        wait_until(lambda: held_by(shell, "no pause"), 300, every_s=0.5)
        status = json.loads(shell("status", "--cluster", "shell", "--json").stdout)
        assert (status["phase"], status["lock"]["holder"]) == ("paused", status["run"])
        assert shell.count_events(Stopping) == 1
        errors[0] = "9"
        wait_until(lambda: waits_for(shell, "condition errors: 9, required < 5"), 60, every_s=0.5)
        assert shell("resume", "--cluster", "shell", "--reason", "no error since").returncode == 0
        wait_until(lambda: not checks(shell)[-1].is_held and waits_for(shell, "condition errors: 9"), 300, every_s=0.5)
        assert shell.count_events(Stopping) == 1
        errors[0] = "0"
        assert process.wait(900) == 0, (shell.folder / "killed.log").read_text()
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
    (asked,) = events_of(events, PauseAsked)
    assert asked.by.split(" (user ")[0] == "bob"
    assert len(events_of(events, ResumeAsked)) == 1


def held_by(shell: Shell, condition: str) -> bool:
    return any(check.is_held and condition in check.waits_for for check in checks(shell))


def waits_for(shell: Shell, condition: str) -> bool:
    return condition in checks(shell)[-1].waits_for


def checks(shell: Shell) -> list[GateCheck]:
    return [event.check for run in shell.runs()[-1:] for event in events_of(run.events(), GateChecked)]
