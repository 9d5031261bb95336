"""`kafka-rollout scans`: what is kept, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_rollout.cli import show
from kafka_rollout.cli.app import run_main
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.run.store.scans import SqlScanHistory
from tests.paths import INCLUDE
from tests.records import scan_history
from tests.unit.scan_examples import HOSTILE, large_scan, small_scan

DAY = 86_400.0
AT = 1_763_697_600.0


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlScanHistory:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr(show.out, "_width", 200)  # a console keeps the COLUMNS of its first import
    catalogue = load_catalogue(INCLUDE)
    kept = scan_history(tmp_path, "orders")
    kept.keep(small_scan(catalogue, at=AT, consumer_groups=False), "")
    kept.keep(small_scan(catalogue, at=AT + DAY), "")
    return kept


def test_the_list_names_the_newest_first_and_the_releases_that_fail(
    history: SqlScanHistory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["scans", "list"]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert "20251122T040000.000Z" in first
    assert first.rstrip().endswith("3.3.2, 3.4.0")
    assert second.rstrip().endswith("none")


def test_the_list_is_json_for_machines(history: SqlScanHistory, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["scans", "list", "--cluster", "orders", "--json"]) == 0
    newest = json.loads(capsys.readouterr().out)[0]
    assert (newest["records"], newest["verdicts"]["3.4.0"], newest["verdicts"]["4.3.1"]) == (45, "fails", "loads")


def test_no_scans_at_all_is_an_empty_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    assert run_main(["scans", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_show_says_what_is_to_be_done_and_how_long_it_takes(
    history: SqlScanHistory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["scans", "report", "--cluster", "orders"]) == 0
    text = capsys.readouterr().out
    assert "3.4.0 5 records stop 3.4.0. 1 of them are current" in text
    assert "1. Set temporary settings for faster cleaning" in text
    assert "   __consumer_offsets: max.compaction.lag.ms=60000" in text
    assert "Wait for the log cleaner on __consumer_offsets (at most 3 min 30 s)" in text
    assert "   __consumer_offsets: delete max.compaction.lag.ms" in text


def test_show_gives_machines_the_scan_and_the_remedies(
    history: SqlScanHistory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["scans", "report", "--cluster", "orders", "--scan", "20251122", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["scan"]["cluster"] == "orders"
    assert [remedy["release"] for remedy in shown["remedies"]][:4] == ["3.3.0", "3.3.1", "3.3.2", "3.4.0"]
    assert shown["remedies"][1]["steps"][0]["kind"] == "hurry"


def test_compare_takes_the_newest_and_the_one_before_it(
    history: SqlScanHistory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["scans", "report", "--against", "previous", "--cluster", "orders"]) == 0
    text = capsys.readouterr().out
    assert "20251121T040000.000Z to 20251122T040000.000Z, 1 d apart" in text
    assert "__consumer_offsets-0 on 3.4.0: loads, now fails at offset 10" in text
    assert "new: __consumer_offsets-0, key version 3, value version 0: 5 records" in text


def test_compare_gives_machines_what_got_worse(history: SqlScanHistory, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["scans", "report", "--against", "previous", "--cluster", "orders", "--json"]) == 0
    worse = json.loads(capsys.readouterr().out)["worse"]
    assert ("3.4.0", "loads", "fails") in [(change["release"], change["before"], change["after"]) for change in worse]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "--cluster", "nobody"], "Cluster nobody has no stored scan yet."),
        (["report", "--cluster", "orders", "--scan", "2025"], "Cluster orders has 2 scans 2025."),
        (
            ["report", "--against", "previous", "--cluster", "orders", "--scan", "20251121"],
            "has no scan before 20251121T040000.000Z",
        ),
    ],
)
def test_what_is_not_there_is_named(
    history: SqlScanHistory, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert run_main(["scans", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_names_do_nothing_to_the_terminal(history: SqlScanHistory, capsys: pytest.CaptureFixture[str]) -> None:
    history.keep(large_scan(load_catalogue(INCLUDE), at=AT + 2 * DAY), "")
    assert run_main(["scans", "report", "--cluster", "orders"]) == 0
    assert HOSTILE.replace("\u202e", "\\u202e") in capsys.readouterr().out
