"""`kafka-rollout runs report`: the conclusion of a run, its page and its JSON, from the database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.run.events import Channel, Responder, StartedAtShell
from kafka_rollout.run.store.runs import SqlRunStore
from tests.records import run_history

ARGUMENTS = ("runs", "report", "--cluster", "local", "--run", "run-1")
REPORT = {
    "outcome": "stopped",
    "sentence": "It stopped.",
    "next_action": "Fix the cause.",
    "failed_gate": {"gate": "after node 3", "unmet": [{"name": "process", "is_met": False, "evidence": "none"}]},
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
    assert "kafka-rollout report --cluster local --run run-1" in " ".join(capsys.readouterr().err.split())


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
