"""`status`: the run that asks stays visible, however many plans follow it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.control.lock import fence_cluster_ports
from kafka_rollout.model.plan import Direction, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.run.events import ApprovalOf, Asked, Begun, Channel, Planned, Responder, StartedAtShell
from kafka_rollout.run.memory import MemoryRunStore, NoLock
from kafka_rollout.run.step_events import Stopping
from kafka_rollout.wiring import cluster_ports
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import hidden_bench
from tests.records import change_lock, run_history

PLANNED = Planned(run_of=RunOf.UPGRADE, plan_hash="h", source=R391, target=R431, blockers=())


def record_plans(home: Path, number: int) -> None:
    starter = Responder(channel=Channel.SHELL, user="ci", host="h")
    for count in range(number):
        plan = run_history(home, "fake", f"plan-{count}")
        plan.record(StartedAtShell(starter=starter))
        plan.record(PLANNED)


def record_question(home: Path, *, lock: bool = True) -> None:
    run = run_history(home, "fake", "manual__1")
    run.record(Begun(dag_id="kafka_upgrade_fake"))
    run.record(PLANNED)
    subject, answer_by = "Upgrade fake [red]\u202e?", time.time() + 3600
    run.record(
        Asked(
            what=ApprovalOf.ROLL,
            task_id="t",
            record_id="r",
            text=subject,
            options=("Approve", "Reject"),
            users=(),
            answer_by=answer_by,
        )
    )
    if lock:
        change_lock(home).acquire("fake", "manual__1", "waits for the approval", for_s=600)


@pytest.mark.parametrize("lock", [True, False])
def test_a_run_that_asks_is_the_status_after_sixty_plans(
    home: Path, capsys: pytest.CaptureFixture[str], lock: bool
) -> None:
    record_question(home, lock=lock)
    record_plans(home, 60)
    assert run_main(["status", "-c", "fake", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run"], found["phase"], found["needs_human"]) == ("manual__1", "waiting-for-approval", True)
    assert found["waits_for"]["until"] is not None
    assert (found["lock"] is not None) is lock


def test_the_text_begins_with_what_needs_a_human(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_question(home)
    assert run_main(["status", "-c", "fake"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "WAITING FOR APPROVAL fake: upgrade 3.9.1 → 4.3.1"
    assert lines[1].startswith("! Upgrade fake [red]")
    assert "\u202e" not in "".join(lines)
    assert len(lines) <= 24


def test_a_cluster_without_runs_is_idle(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_plans(home, 2)
    assert run_main(["status", "-c", "fake", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["phase"] == "idle"


def test_a_history_that_cannot_be_read_is_unknown_and_needs_a_human(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.run.store import history

    record_question(home)
    monkeypatch.setattr(history, "decode", lambda *event: {}["damaged"])
    assert run_main(["status", "-c", "fake", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["phase"], found["needs_human"], found["run"]) == ("unknown", True, "manual__1")
    assert "runs report" in found["next_action"]


def test_the_named_command_continues_the_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_history(home, "fake", "shell-1", clock=lambda: time.time() - 600)
    run.record(StartedAtShell(starter=Responder(channel=Channel.SHELL, user="ci", host="h")))
    run.save_plan(
        Plan(
            cluster="fake",
            cluster_id="abc",
            direction=Direction.UPGRADE,
            source=R391,
            target=R431,
            release_steps=(),
            feature_changes=(),
            config_changes=(),
            findings=(),
        )
    )
    run.record(PLANNED)
    run.record(Stopping(release_step="3.9.1-to-4.3.1", node_id=1))
    assert run_main(["status", "-c", "fake", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["phase"] == "paused"
    assert "`kafka-rollout upgrade --to 4.3.1 --cluster fake --run 1`" in found["next_action"]


@pytest.mark.parametrize("lock", [True, False])
def test_a_check_names_the_run_that_works_on_the_cluster_now(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lock: bool
) -> None:
    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[ClusterPorts]:
        yield fence_cluster_ports(replace(hidden_bench(FakeCluster(), tmp_path), run=MemoryRunStore(), lock=NoLock()))

    monkeypatch.setattr(cluster_ports, "open_ports_to_read", opened)
    words = ["check", "--cluster", "fake", "--to", "4.3.1", "--only", "runs-in-progress", "--json"]
    assert run_main(words) == 0
    (entry,) = json.loads(capsys.readouterr().out)["checks"]
    assert entry["result"] == "ok"
    record_question(home, lock=lock)
    assert run_main(words) == 0
    (entry,) = json.loads(capsys.readouterr().out)["checks"]
    assert entry["result"] == "warning"
    text = json.dumps(entry["findings"])
    for part in ("Run 1", "waiting-for-approval", "3.9.1 \\u2192 4.3.1", "kafka-rollout status --cluster fake"):
        assert part in text, part
