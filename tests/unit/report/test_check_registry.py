"""Every code and every check of the modules is registered, and plans run the checks that belong to them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafka_rollout
from kafka_rollout.base.findings import (
    BLOCKER,
    NOT_OBSERVABLE,
    WARNING,
    Check,
    CheckOf,
    CheckState,
    FindingCode,
    Need,
    UnknownValue,
    sort_findings,
)
from kafka_rollout.report.check_registry import CHECKS

ROOT = Path(kafka_rollout.__file__).parent
LAG = FindingCode("LAG", (WARNING, BLOCKER), "A node lags.", "Wait.")
LOST = FindingCode("LOST", BLOCKER, "A node is lost.")
LAGS = Check("lag", "Lag", "upgrade.md", (LAG,), needs=(Need.METRICS,))


def _defined(kind: type[Any]) -> Iterator[Any]:
    """The values of this class in all modules that make one."""
    for path in sorted(ROOT.rglob("*.py")):
        if f"{kind.__name__}(" in path.read_text():
            name = ".".join(("kafka_rollout", *path.relative_to(ROOT).with_suffix("").parts))
            yield from (value for value in vars(importlib.import_module(name)).values() if isinstance(value, kind))


def test_every_check_and_every_code_of_a_module_is_registered_once() -> None:
    assert set(_defined(Check)) == set(CHECKS)
    codes = {code for check in CHECKS for code in check.codes}
    assert set(_defined(FindingCode)) == codes
    assert len({code.text for code in codes}) == len(codes)
    assert len({check.title for check in CHECKS}) == len(CHECKS)
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_no_module_makes_a_finding_without_a_registered_code() -> None:
    makers = [path.relative_to(ROOT) for path in ROOT.rglob("*.py") if " Finding(" in path.read_text()]
    assert [str(path) for path in makers] == ["base/findings.py"]


def test_a_finding_has_the_usual_severity_and_remedy_unless_it_gets_another() -> None:
    assert (LAG.found("node 1", "It lags.").severity, LAG.found("node 1", "It lags.").remedy) == (WARNING, "Wait.")
    other = LAG.found("node 1", "It lags.", "", severity=BLOCKER)
    assert (other.severity, other.remedy) == (BLOCKER, "")
    with pytest.raises(ValueError, match="LOST cannot be warning"):
        LOST.found("node 1", "It is lost.", severity=WARNING)


def test_what_was_not_observed_is_never_passed() -> None:
    unknown = {Need.METRICS: "The metrics of node 1 are unknown.", Need.JAVA: "The Java of node 1 is unknown."}
    silent = LAGS.ran().result(unknown)
    assert (silent.state, silent.reason) == (CheckState.NOT_OBSERVABLE, "The metrics of node 1 are unknown.")
    hidden = LAGS.ran([NOT_OBSERVABLE.found("lag", "The lag is not observable.")]).result({})
    assert (hidden.state, hidden.findings) == (CheckState.NOT_OBSERVABLE, 0)
    assert LAGS.ran(unknown=[UnknownValue("scan", "No scan.")]).result({}).text == "not observable: No scan."
    assert LAGS.ran().result({}).state is CheckState.PASSED


def test_a_result_names_its_findings_and_what_stayed_unknown() -> None:
    found = LAGS.ran([LAG.found("node 1", "It lags."), LAG.found("node 2", "It lags.", severity=BLOCKER)])
    assert found.result({}).text == "2 findings (blocker)"
    assert found.result({Need.METRICS: "Node 3 is silent."}).text == "2 findings (blocker): Node 3 is silent."
    skipped = LAGS.ran([LAG.found("node 1", "It lags.")], unless="No node restarts.")
    assert (skipped.findings, skipped.result({}).text) == ((), "not applicable: No node restarts.")


def test_findings_without_a_check_of_their_own_stay_with_the_first() -> None:
    other = Check("loss", "Loss", "upgrade.md", (LOST,), needs=())
    lost, lag, gone = LOST.found("node 1", "Lost."), LAG.found("node 2", "Lag."), NOT_OBSERVABLE.found("x", "Y.")
    first, second = sort_findings([lost, lag, gone], [LAGS, other])
    assert (first.findings, second.findings) == ((lag, gone), (lost,))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.title)
def test_every_check_belongs_to_something_and_has_codes(check: Check) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", check.id)
    assert check.of
    assert check.codes
    assert re.fullmatch(r"[a-z-]+\.md#[a-z0-9-]+", check.link), "the heading is the text of the link"
    assert set(check.of) <= set(CheckOf)
