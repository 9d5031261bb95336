"""The result of a check: unknown never counts as ok, and the last sentence names it."""

from __future__ import annotations

import pytest

from kafka_rollout.base.findings import BLOCKER, INFO, NOT_OBSERVABLE, WARNING, Check, FindingCode, Need
from kafka_rollout.report.check_report import CheckEntry, ClusterCheckReport, Result

LAG = FindingCode("LAG", (WARNING, BLOCKER, INFO), "A node lags.", "Wait.")
LAGS = Check("lag", "Lag", "upgrade.md", (LAG,), needs=(Need.METRICS,))
UNKNOWN = {Need.METRICS: "The metrics of node 1 are unknown."}


def _entry(*severities: object, unknown: dict[Need, str] | None = None, **options: str) -> CheckEntry:
    checked = LAGS.ran([LAG.found("node 1", "It lags.", severity=one) for one in severities], **options)
    return CheckEntry.of(checked, unknown or {}, examined="1 broker", seconds=0.25)


def _report(*entries: CheckEntry, path: tuple[str, ...] = ("3.9.1", "4.3.1")) -> ClusterCheckReport:
    return ClusterCheckReport(
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


def test_an_unknown_check_that_can_find_a_blocker_is_never_a_result_without_a_blocker() -> None:
    report = _report(_entry(unknown=UNKNOWN), _entry(), _entry(WARNING))
    assert report.sentence == (
        "A blocker of the upgrade 3.9.1 → 4.3.1 cannot be excluded, because of lag. --skip leaves a check out. 1 check "
        "is unknown, which does not mean ok. Add metrics."
    )
    assert (report.exit_code, report.document()["ok"], report.document()["can_hide_blockers"]) == (5, False, ["lag"])
    in_part = _report(_entry(WARNING, unknown=UNKNOWN))
    assert (in_part.exit_code, in_part.can_hide_blockers) == (5, ("lag",))


def test_an_unknown_check_that_finds_only_warnings_does_not_change_the_exit_code() -> None:
    old = FindingCode("OLD", WARNING, "A client is old.", "Upgrade it.")
    checked = Check("old", "Clients", "upgrade.md", (old,), needs=(Need.METRICS,)).ran()
    report = _report(CheckEntry.of(checked, UNKNOWN, examined="", seconds=0.0))
    assert (report.totals[Result.UNKNOWN], report.exit_code) == (1, 0)


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([_entry(), _entry(INFO), _entry(WARNING)], 0),
        ([_entry(BLOCKER), _entry(unknown=UNKNOWN)], 3),
        ([_entry(unless="No node restarts.", unknown=UNKNOWN)], 0),
    ],
)
def test_the_exit_code(entries: list[CheckEntry], code: int) -> None:
    assert _report(*entries).exit_code == code


def test_the_most_severe_results_are_printed_first() -> None:
    report = _report(_entry(), _entry(unknown=UNKNOWN), _entry(WARNING), _entry(BLOCKER))
    assert [entry.result.value for entry in report.by_severity] == ["blocker", "warning", "unknown", "ok"]


def test_the_document_has_its_format_and_every_object() -> None:
    document = _report(_entry(WARNING, WARNING)).document()
    (check,) = document["checks"]
    (found,) = check["findings"]
    assert (document["format"], document["ok"], document["totals"]["warning"]) == (1, True, 1)
    assert (check["id"], check["docs"], check["seconds"]) == ("lag", "docs/findings.md#lag", 0.25)
    assert (found["count"], len(found["objects"]), found["remedy"]) == (2, 2, "Wait.")
