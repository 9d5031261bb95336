"""The result of a check: unknown never counts as ok, and the last sentence names it."""

from __future__ import annotations

import pytest

from kafka_rollout.base.findings import BLOCKER, INFO, NOT_OBSERVABLE, WARNING, Check, FindingCode, Need
from kafka_rollout.report.check_report import CheckEntry, CheckReport, Result

LAG = FindingCode("LAG", (WARNING, BLOCKER, INFO), "A node lags.", "Wait.")
LAGS = Check("lag", "Lag", "upgrade.md", (LAG,), needs=(Need.METRICS,))
UNKNOWN = {Need.METRICS: "The metrics of node 1 are unknown."}


def _entry(*severities: object, unknown: dict[Need, str] | None = None, **options: str) -> CheckEntry:
    checked = LAGS.ran([LAG.found("node 1", "It lags.", severity=one) for one in severities], **options)
    return CheckEntry.of(checked, unknown or {}, examined="1 broker", seconds=0.25)


def _report(*entries: CheckEntry, path: tuple[str, ...] = ("3.9.1", "4.3.1")) -> CheckReport:
    return CheckReport(
        cluster="orders",
        bootstrap_servers="b:9092",
        cluster_id="id",
        change="upgrade",
        path=path,
        target="4.3.1",
        nodes="1 broker",
        contents="0 topics",
        checked_at=1.0,
        seconds=2.0,
        entries=entries,
        left_out=0,
        complete_with="Add metrics.",
    )


@pytest.mark.parametrize(
    ("entry", "result"),
    [
        (_entry(), Result.OK),
        (_entry(INFO), Result.INFO),
        (_entry(INFO, WARNING), Result.WARNING),
        (_entry(WARNING, BLOCKER), Result.BLOCKER),
        (_entry(unknown=UNKNOWN), Result.UNKNOWN),
        (_entry(INFO, unknown=UNKNOWN), Result.UNKNOWN),
        (_entry(WARNING, unknown=UNKNOWN), Result.WARNING),
        (_entry(BLOCKER, unless="No node restarts.", unknown=UNKNOWN), Result.NOT_APPLICABLE),
    ],
)
def test_the_result_of_a_check(entry: CheckEntry, result: Result) -> None:
    assert entry.result is result


def test_a_value_that_is_not_observable_makes_the_check_unknown() -> None:
    checked = LAGS.ran([NOT_OBSERVABLE.found("lag", "The lag is not observable.")])
    entry = CheckEntry.of(checked, {}, examined="", seconds=0.0)
    assert (entry.result, entry.findings, entry.reasons) == (Result.UNKNOWN, (), ("The lag is not observable.",))


def test_the_last_sentence_names_blockers_and_what_is_unknown() -> None:
    assert _report(_entry()).sentence == "No blocker was found for the upgrade 3.9.1 → 4.3.1."
    assert _report(_entry(WARNING)).sentence.endswith("Read the warnings before you start it.")
    blocked = _report(_entry(BLOCKER, unknown=UNKNOWN), _entry(unknown=UNKNOWN), _entry())
    assert blocked.sentence == (
        "The upgrade 3.9.1 → 4.3.1 is blocked: remove the blockers, then check again. 1 check is unknown, 1 more in "
        "part, which does not mean ok. Add metrics."
    )
    assert blocked.totals_text == "3 checks: 1 blocker, 1 unknown, 1 ok"
    assert blocked.has_blockers


def test_the_document_has_its_format_and_every_object() -> None:
    document = _report(_entry(WARNING, WARNING)).document()
    (check,) = document["checks"]
    (found,) = check["findings"]
    assert (document["format"], document["ok"], document["totals"]["warning"]) == (1, True, 1)
    assert (check["id"], check["docs"], check["seconds"]) == ("lag", "docs/findings.md#lag", 0.25)
    assert (found["count"], len(found["objects"]), found["remedy"]) == (2, 2, "Wait.")
