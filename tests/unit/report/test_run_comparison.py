"""The comparison of two runs: each figure of both, the change, and the findings and terms that differ."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from kafka_rollout.base.json_forms import to_json
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.plan import RunTerms
from kafka_rollout.report.run_comparison import ComparedRun, Row, RunComparison, Unit, compare_runs
from kafka_rollout.run.traffic import TrafficSample
from tests.outside_texts import HOSTILE

TERMS = RunTerms(
    pace=Pace.NORMAL,
    soak_s=60.0,
    checks=3,
    interval_s=1.0,
    gate_timeout_s=600.0,
    rehearse=True,
    traffic=True,
    every_change=False,
)
FINDING = {"severity": "warning", "sentence": HOSTILE[0], "remedy": ""}


def report(**changes: Any) -> dict[str, Any]:
    node_step = {"release_step": "3.9.1-to-4.3.1", "total_s": 40.0, "stop_s": 4.0, "start_s": 3.0}
    found = {
        "way": "3.9.1 → 4.3.1",
        "outcome": "finished",
        "began_at": 1_795_000_000.0,
        "duration_s": 600.0,
        "plan_hash": "abc",
        "nodes": [{"name": HOSTILE[5], "node_id": 1, "node_steps": [node_step]}],
        "steps": [
            {"label": "Plan", "state": "done", "at": 1_795_000_030.0},
            {"label": "X", "state": "open", "at": None},
        ],
        "gates": [{"gate": "after node 1", "release_step": "3.9.1-to-4.3.1", "waited_s": 20.0}],
        "findings": [{"code": "RF-ONE", "subject": "topic a", **FINDING}],
        "traffic": {
            "ok": True,
            "acknowledged": 1000,
            "discrepancies": [],
            "unavailable_s": {"producer-plain": 2.0},
            "series": [TrafficSample(1.0, 1.0, 30, 2, 5.0, 900.0, 2.0, 4, 9)],
        },
    }
    return json.loads(json.dumps(found | changes))


def compared(first: dict[str, Any], second: dict[str, Any], terms: RunTerms | None = TERMS) -> RunComparison:
    return compare_runs(
        "c", ComparedRun(run_id="one", report=first, terms=TERMS), ComparedRun(run_id="two", report=second, terms=terms)
    )


def rows(found: RunComparison) -> dict[str, Row]:
    return {row.name: row for section in found.sections for row in section.rows}


def test_equal_runs_do_not_differ() -> None:
    found = compared(report(), report())
    assert [row.name for row in rows(found).values() if row.differs or row.change] == []
    assert (found.new, found.gone) == ((), ())
    assert rows(found)["Plan"].first == 30.0
    assert rows(found)["Worst latency"].unit is Unit.MILLISECONDS


def test_what_differs_has_its_change() -> None:
    second = report(
        duration_s=900.0, outcome="stopped", gates=[], findings=[{"code": "NEW", "subject": "b", **FINDING}]
    )
    second["traffic"]["series"][0][6:8] = [2.0, None]
    found = compared(second=second, first=report(), terms=replace(TERMS, soak_s=300.0))
    by_name = rows(found)
    assert by_name["Duration"].change == "+5 min 00 s (+50%)"
    assert by_name["Outcome"].change == "differs"
    assert (by_name["after node 1 3.9.1 → 4.3.1"].second, by_name["soak_s"].second) == (None, "300.0")
    assert by_name["Most under-replicated partitions"].second is None
    assert ([one.code for one in found.new], [one.code for one in found.gone]) == (["NEW"], ["RF-ONE"])
    assert [name for name, row in by_name.items() if row.differs] == [
        "Outcome",
        "Duration",
        "soak_s",
        "after node 1 3.9.1 → 4.3.1",
        "Most under-replicated partitions",
    ]


def test_a_report_of_an_earlier_version_is_compared_by_what_it_has() -> None:
    found = compared({"outcome": "finished"}, report(), terms=None)
    assert rows(found)["Duration"].first is None
    assert all(row.change in ("", "differs") for row in rows(found).values())


def test_the_document_has_every_row() -> None:
    found = json.dumps(to_json(compared(report(), report(findings=[]))), ensure_ascii=False)
    for name in ("Duration", "soak_s", "after node 1 3.9.1 → 4.3.1", "Worst latency", "RF-ONE"):
        assert name in found
