from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.base.findings import Severity
from kafka_rollout.gates.control import (
    Reading,
    evaluate,
    outside_finding,
    read_command_answer,
    read_query_answer,
    waits_for_outside_alone,
)
from kafka_rollout.gates.gate import GateCheck, GateCondition
from kafka_rollout.model.topology import OutsideCondition
from tests.fakes.prometheus import success, vector

ERRORS = OutsideCondition(name="errors", query="sum(errors)", requires="< 0.01")
SMOKE = OutsideCondition(name="smoke", command=("/bin/true",))


@pytest.mark.parametrize(
    ("requires", "value", "is_met"),
    [
        ("< 0.01", 0.0099, True),
        ("< 0.01", 0.01, False),
        ("<=5", 5, True),
        ("> -1e3", -1000, False),
        (">= .5", 0.5, True),
        ("== 0", 0, True),
        ("!= 0", 0, False),
    ],
)
def test_a_value_is_compared(requires: str, value: float, is_met: bool) -> None:
    seen = evaluate(OutsideCondition(name="lag", query="x", requires=requires), Reading(value=value))
    assert (seen.name, seen.is_met) == ("condition lag", is_met)
    assert f"{value:.10g}, required" in seen.evidence


@pytest.mark.parametrize(
    ("body", "sentence", "remedy"),
    [
        (vector(), "The query returns no series.", "or vector(0)"),
        (vector("1", "2"), "The query returns 2 series, not one.", "sum() or max()"),
        (vector("NaN"), "The query returns NaN, which is not a finite number.", "Correct the query"),
        (vector("+Inf"), "returns +Inf, which is not a finite number", "Correct the query"),
        (success("string", [1, "5"]), "The query returns no number (string).", "Correct the query"),
        (success("matrix", [{"values": [[1, "5"]]}]), "returns no number (matrix)", "Correct the query"),
        (success("vector", [{"histogram": [1, {}]}]), "returns no number (vector)", "Correct the query"),
        (success("vector", ["x"]), "returns no number (vector)", "Correct the query"),
        (vector("5", isPartial=True), "can be incomplete", "storage nodes"),
        (vector("5", warnings=["store eu did not respond"]), "incomplete: store eu did not respond", "data source"),
        (
            b'{"status":"error","errorType":"bad_data","error":"1:4: parse error"}',
            "1:4: parse error",
            "Correct the query",
        ),
        (b"<html>", "not one of Prometheus's API", "Correct the URL"),
        (b"[1]", "not one of Prometheus's API", "Correct the URL"),
        (b'{"status":"success","data":7}', "not one of Prometheus's API", "Correct the URL"),
        (b"[" * 100_000, "not one of Prometheus's API", "Correct the URL"),
    ],
)
def test_a_response_without_one_number_is_unknown_with_one_sentence(body: bytes, sentence: str, remedy: str) -> None:
    reading = read_query_answer(body.decode())
    assert reading.value is None
    assert sentence in reading.problem
    assert remedy in reading.remedy
    seen = evaluate(OutsideCondition(name="lag", query="x", requires="< 1e308"), reading)
    assert not seen.is_met
    assert seen.evidence.startswith("unknown: ")


def test_one_sample_and_a_scalar_are_values() -> None:
    assert read_query_answer(vector("0.25").decode()).value == 0.25
    assert read_query_answer(success("scalar", [1, "1e3"]).decode()).value == 1000


@given(body=st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_no_text_of_a_server_is_an_error_or_a_value(body: str) -> None:
    assert read_query_answer(body).problem


def test_text_of_a_server_stays_one_line() -> None:
    body = json.dumps({"status": "error", "error": "a\nnode 3 passed \u202e" + "x" * 9999})
    shown = evaluate(ERRORS, read_query_answer(body)).evidence
    assert "\n" not in shown
    assert "a\\nnode 3 passed \\u202e" in shown
    assert len(shown) < 600


@pytest.mark.parametrize(
    ("code", "output", "errors", "problem"),
    [
        (0, "0.5\n", "a warning", ""),
        (0, "5 ms", "", "The command prints 5 ms, which is not a finite number."),
        (0, "", "", "The command prints nothing, which is not a finite number."),
        (0, "nan", "", "The command prints nan, which is not a finite number."),
        (0, "1_0", "", "The command prints 1_0, which"),
        (1, "0.5", "no route\nmore", "The command ended with exit code 1: no route."),
        (-9, "0.5", "", "The command was killed by signal 9: 0.5."),
    ],
)
def test_a_command_with_a_comparison_prints_one_number(code: int, output: str, errors: str, problem: str) -> None:
    reading = read_command_answer(ERRORS, code, output, errors)
    assert reading.problem.startswith(problem)
    assert (reading.value is None) == bool(problem)


@pytest.mark.parametrize(("code", "is_met"), [(0, True), (1, False), (2, False), (127, False)])
def test_a_command_without_a_comparison_answers_with_its_exit_code(code: int, is_met: bool) -> None:
    seen = evaluate(SMOKE, read_command_answer(SMOKE, code, "lag of orders is 7\nmore", ""))
    assert seen.is_met is is_met
    expected = (
        f"exit code {code}: lag of orders is 7" if code < 2 else f"unknown: The command ended with exit code {code}"
    )
    assert seen.evidence.startswith(expected)


def test_a_plan_shows_the_value_warns_if_it_is_not_met_and_blocks_if_it_is_unknown() -> None:
    met, unmet, unknown = (
        outside_finding(ERRORS, reading)
        for reading in (Reading(value=0.004), Reading(value=0.5), Reading(problem="No response.", remedy="Start it."))
    )
    assert (met.severity, unmet.severity, unknown.severity) == (Severity.INFO, Severity.WARNING, Severity.BLOCKER)
    assert met.sentence == "Condition errors (before stop) is met now: 0.004, required < 0.01."
    assert unmet.sentence == "Condition errors (before stop) is not met now: 0.5, required < 0.01."
    assert (unknown.sentence, unknown.remedy) == ("The value of condition errors is unknown: No response.", "Start it.")


def test_a_gate_waits_for_conditions_from_outside_alone() -> None:
    def check(**met: bool) -> GateCheck:
        names = {"lag": "condition lag", "isr": "another in-sync replica"}
        conditions = tuple(GateCondition(name=names[name], is_met=is_met, evidence="") for name, is_met in met.items())
        return GateCheck(gate="before node 1", at=0.0, conditions=conditions)

    known = [OutsideCondition(name="lag", query="x", requires="< 1")]
    assert waits_for_outside_alone(check(lag=False, isr=True), known)
    assert not waits_for_outside_alone(check(lag=False, isr=False), known)
    assert not waits_for_outside_alone(check(lag=True, isr=True), known)
