"""`runs list` and `status --watch`, `--wait`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_rollout.base.errors import StoppedError, TransientError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.app import run_main
from kafka_rollout.cli.status_screen import StatusScreen, Until, follow
from kafka_rollout.console.cluster_status import Phase
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    Begun,
    Channel,
    Decision,
    Event,
    Planned,
    Responder,
    StartedAtShell,
)
from kafka_rollout.run.step_events import Stopping
from kafka_rollout.wiring import runs as run_status
from tests.fakes.clock import FakeClock
from tests.fakes.cluster import R391, R431
from tests.records import failed_step, run_history

BEGUN = Begun(dag_id="kafka_upgrade_fake", triggered_by="anna [red]")
SHELL = StartedAtShell(starter=Responder(channel=Channel.SHELL, user="ci", host="h"))
PLANNED = Planned(run_of=RunOf.UPGRADE, plan_hash="h", source=R391, target=R431, blockers=())
BLOCKED = Planned(run_of=RunOf.UPGRADE, plan_hash="h", source=R391, target=R431, blockers=("NODE-DOWN kafka-2",))
ASKED = Asked(what=ApprovalOf.ROLL, task_id="t", record_id="r", text="Upgrade?", options=("Approve", "Reject"))
APPROVED = Approval(what=ApprovalOf.ROLL, by="ben", decision=Decision.APPROVED, reason="x", plan_hash="h")
STOPPING = Stopping(release_step="3.9.1-to-4.3.1", node_id=1)
FAILED = failed_step("gate", "The gate failed.")


def record(home: Path, run_id: str, *events: Event, outcome: str = "", age_s: float = 0.0) -> None:
    run = run_history(home, "fake", run_id, clock=lambda: time.time() - age_s)
    for event in events:
        run.record(event)
    if outcome:
        run.write_report("", {"outcome": outcome, "sentence": "So it ended.", "ended_at": time.time() - age_s})


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run_main(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_list_says_when_what_and_who(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(home, "shell-1", SHELL, PLANNED, outcome="dry_run")
    record(home, "manual__1", BEGUN, PLANNED, ASKED)
    code, shown, _ = call(capsys, "runs", "list", "-c", "fake", "--json")
    newest, oldest = json.loads(shown)
    assert (code, newest["run"], newest["phase"], newest["needs_human"]) == (
        *(0, "manual__1", "waiting-for-approval", True),
    )
    assert [oldest[key] for key in ("kind", "source_release", "target_release", "phase", "started_by", "dag")] == [
        *("upgrade", "3.9.1", "4.3.1", "dry-run", "ci", None),
    ]
    _, shown, hint = call(capsys, "runs", "list", "-c", "fake", "--last", "1")
    assert "anna [red]" in shown
    assert "3.9.1 → 4.3.1" in shown
    assert "shell-1" not in shown
    assert "1 older run" in hint


@pytest.mark.parametrize(
    ("events", "how", "code"),
    [
        ((BEGUN, PLANNED, APPROVED), ("finished", ""), 0),
        ((BEGUN, PLANNED, APPROVED), ("rolled_not_finalized", ""), 0),
        ((BEGUN, PLANNED, APPROVED), ("rolled_back", ""), 1),
        ((BEGUN, PLANNED, APPROVED), ("stopped", ""), 1),
        ((BEGUN, BLOCKED), ("refused", ""), 3),
        ((BEGUN, PLANNED), ("dry_run", ""), 0),
        ((BEGUN, BLOCKED), ("dry_run", ""), 3),
        ((BEGUN, PLANNED, ASKED), ("", ""), 1),
        ((BEGUN, PLANNED, ASKED), ("", "--for needs-human"), 0),
        ((BEGUN, PLANNED, APPROVED), ("finished", "--for needs-human"), 1),
        ((BEGUN, PLANNED, APPROVED, FAILED), ("", "--for end"), 1),
        ((BEGUN, PLANNED, APPROVED, FAILED), ("", "--for needs-human"), 0),
        ((BEGUN, PLANNED, APPROVED), ("finished", "--for end"), 0),
    ],
)
def test_the_exit_code_of_a_wait_says_how_the_run_is(
    home: Path, capsys: pytest.CaptureFixture[str], events: tuple[Event, ...], how: tuple[str, str], code: int
) -> None:
    outcome, words = how
    record(home, "manual__1", *events, outcome=outcome)
    got, shown, _ = call(
        capsys, "status", "--wait", "-c", "fake", "--run", "manual__1", "--timeout", "0s", "--json", *words.split()
    )
    assert (got, json.loads(shown)["run"]) == (code, "manual__1")


@pytest.mark.parametrize("until", ["", "--for end", "--for needs-human"])
def test_the_timeout_is_a_transient_error(home: Path, capsys: pytest.CaptureFixture[str], until: str) -> None:
    record(home, "manual__1", BEGUN, PLANNED, APPROVED)
    code, shown, _ = call(capsys, "status", "--wait", "-c", "fake", "--timeout", "0s", "--json", *until.split())
    error = json.loads(shown)["error"]
    assert (code, error["kind"]) == (1, "transient")
    assert "run 1 is still: rolling" in error["sentence"]


def test_a_wait_for_the_end_does_not_end_at_a_request(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(home, "manual__1", BEGUN, PLANNED, ASKED)
    code, _, said = call(capsys, "status", "--wait", "-c", "fake", "--for", "end", "--timeout", "0s")
    assert (code, "waiting for approval" in said) == (1, True)


def test_without_a_run_there_is_nothing_to_follow(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(home, "plan-1", SHELL, PLANNED, age_s=600)
    for option in ("--watch", "--wait"):
        code, _, said = call(capsys, "status", option, "-c", "fake")
        assert (code, "has no run in progress" in said) == (2, True)
    assert call(capsys, "status", "--watch", "-c", "fake", "--run", "never")[0] == 2


def test_a_run_is_followed_until_it_needs_a_human(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(home, "manual__1", BEGUN, PLANNED, APPROVED)
    coming: list[Callable[[], None]] = [
        lambda: record(home, "manual__1", STOPPING),
        lambda: record(home, "manual__1", FAILED),
    ]
    clock = FakeClock(on_sleep=lambda seconds: coming.pop(0)())
    with StatusScreen() as screen:
        found = follow("fake", "manual__1", Settings.from_environment(), on_status=screen.show, clock=clock)
    assert (found.phase, len(clock.slept)) == (Phase.FAILED, 2)
    lines = capsys.readouterr().err.splitlines()
    assert next(line for line in lines if "stopping" in line).endswith("node 1: stopping")
    assert "gate failed: The gate failed." in lines[-2]
    assert len([line for line in lines if "ben approved the plan" in line]) == 1


def test_a_database_that_does_not_respond_is_asked_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(home, "manual__1", BEGUN, PLANNED, APPROVED, outcome="finished")
    answers, problems = [TransientError("It did not respond.")], []
    read = run_status.read_run_status

    def read_later(*given: object) -> object:
        if answers:
            raise answers.pop()
        return read(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(run_status, "read_run_status", read_later)
    settings = Settings.from_environment()
    found = follow("fake", "manual__1", settings, on_problem=problems.append, clock=FakeClock())
    assert (found.phase, problems) == (Phase.FINISHED, ["It did not respond."])


def test_ctrl_c_ends_the_command_and_not_the_run(home: Path) -> None:
    record(home, "manual__1", BEGUN, PLANNED, APPROVED)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(StoppedError, match="Run 1 continues: only this command ended"):
        follow("fake", "manual__1", Settings.from_environment(), until=Until.END, clock=FakeClock(on_sleep=interrupt))
