"""`runs report`: the conclusion of a run, and two runs side by side, from the database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.model.plan import Direction, Plan
from kafka_rollout.run.events import Channel, Responder, StartedAtShell
from kafka_rollout.run.store.history import SqlRunStore
from tests.fakes.cluster import R391, R431
from tests.records import run_history

PLAN = Plan(
    cluster="local",
    cluster_id="id",
    direction=Direction.UPGRADE,
    source=R391,
    target=R431,
    release_steps=(),
    feature_changes=(),
    config_changes=(),
    findings=(),
)
ARGUMENTS = ("runs", "report", "--cluster", "local", "--run", "run-1")
REPORT = {
    "outcome": "stopped",
    "sentence": "It stopped.",
    "next_action": "Fix the cause.",
    "failed_gate": {"gate": "after node 3", "reason": "process: none", "message": ""},
    "proved": ["A fact."],
    "not_proved": ["No test traffic ran."],
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlRunStore:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    store = run_history(tmp_path / "home", "local", "run-1")
    store.record(StartedAtShell(starter=Responder(channel=Channel.SHELL, user="ci", host="h")))
    return store


def test_a_run_without_a_report_says_how_to_write_it(run: SqlRunStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(ARGUMENTS) == 2
    assert "kafka-rollout runs report --cluster local --run 1 --write" in " ".join(capsys.readouterr().err.split())


def test_the_conclusion_the_page_and_the_document(
    run: SqlRunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.write_report("<p>page</p>", REPORT)
    assert run_main([*ARGUMENTS, "--html", str(tmp_path / "r.html")]) == 0
    shown = capsys.readouterr().out
    for text in (
        "stopped: It stopped.",
        "after node 3",
        "process: none",
        "A fact.",
        "No test traffic",
        "Fix the cause.",
    ):
        assert text in shown
    assert (tmp_path / "r.html").read_text() == "<p>page</p>"
    assert run_main([*ARGUMENTS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT


def test_two_runs_are_compared_as_a_table_and_a_document(
    run: SqlRunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = run_history(tmp_path / "home", "local", "run-2")
    other.record(run.events()[0])
    for store, seconds in ((run, 60.0), (other, 90.0)):
        store.save_plan(PLAN)
        store.write_report("", {"way": "3.9.1 → 4.3.1", "duration_s": seconds})
    compare = ["runs", "report", "--run", "run-2", "--against", "run-1", "--cluster", "local"]
    assert run_main(compare) == 0
    assert "+30.0 s (+50%)" in capsys.readouterr().out
    assert run_main([*compare, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["first"], document["second"]) == ("run-1", "run-2")
    assert run_main([*ARGUMENTS, "--against", "typo"]) == 2


def test_a_report_without_a_next_action_names_none(run: SqlRunStore, capsys: pytest.CaptureFixture[str]) -> None:
    run.write_report("", {**REPORT, "failed_gate": None, "next_action": ""})
    assert run_main(ARGUMENTS) == 0
    assert "Next action" not in capsys.readouterr().out
    run.write_report("", REPORT)
    assert run_main((*ARGUMENTS[:-1], "1")) == 0
    assert "Next action: Fix the cause." in capsys.readouterr().out
