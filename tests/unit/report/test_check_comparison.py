"""A check is worse if it has a blocker, a warning or an unknown result that the one before it did not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_rollout.report.check_report import find_worse


def _check(
    severity: str = "blocker", *subjects: str, result: str = "blocker", reasons: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    objects = [{"subject": one, "sentence": f"{one} is offline.", "remedy": ""} for one in subjects]
    findings = [{"code": "OFFLINE", "severity": severity, "objects": objects}] if subjects else []
    entry = {"id": "availability", "result": result, "reasons": list(reasons), "findings": findings}
    return {"target": "4.3.1", "checks": [entry]}


def worse(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, ...]:
    return find_worse([after] if before is None else [after, before], 0)


GOOD = _check(result="ok")
ONE = _check("blocker", "orders-0")


def test_a_first_check_reports_its_blockers_only() -> None:
    assert worse(None, ONE) == ("blocker OFFLINE for orders-0: orders-0 is offline.",)
    assert worse(None, _check("warning", "orders-0")) == ()
    assert worse(None, _check(result="unknown")) == ()


@pytest.mark.parametrize("severity", ["blocker", "warning"])
def test_a_finding_that_was_not_there_is_worse(severity: str) -> None:
    assert len(worse(GOOD, _check(severity, "orders-0"))) == 1


def test_the_same_findings_are_not_worse_and_fewer_are_not() -> None:
    assert worse(ONE, ONE) == ()
    assert worse(_check("blocker", "orders-0", "orders-1"), ONE) == ()
    assert worse(ONE, GOOD) == ()


def test_only_new_objects_are_counted() -> None:
    (sentence,) = worse(ONE, _check("blocker", "orders-0", "orders-1", "orders-2"))
    assert sentence == "blocker OFFLINE for 2 objects (orders-1, orders-2): orders-1 is offline."


def test_a_warning_that_became_a_blocker_is_worse_and_the_reverse_is_not() -> None:
    warning = _check("warning", "orders-0")
    assert len(worse(warning, ONE)) == 1
    assert worse(ONE, warning) == ()


def test_infos_never_count() -> None:
    assert worse(GOOD, _check("info", "orders-0")) == ()


def test_a_result_that_became_unknown_is_worse_with_its_reason() -> None:
    unknown = _check(result="unknown", reasons=("No metrics agent.",))
    assert worse(GOOD, unknown) == ("availability is unknown now: No metrics agent.",)
    assert worse(unknown, unknown) == ()


def test_one_code_with_two_groups_is_known_in_both() -> None:
    findings = [group for subject in "ab" for group in _check("blocker", subject)["checks"][0]["findings"]]
    two = {"target": "4.3.1", "checks": [{**ONE["checks"][0], "findings": findings}]}
    assert worse(two, two) == ()
    assert len(worse(ONE, two)) == 2


def test_a_check_is_compared_with_the_newest_one_before_it_for_the_same_target() -> None:
    other = {**ONE, "target": "4.2.1"}
    assert find_worse([ONE, other, GOOD], 0) == worse(GOOD, ONE)
    assert find_worse([ONE, other, ONE], 0) == ()
    assert len(find_worse([GOOD, ONE, other], 1)) == 1
