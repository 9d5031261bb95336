"""Transactional ids that a release loses because it skips the version of their records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.releases.facts import Release
from tests.unit.coordinator_logs.test_scan import REAL, TRANSACTIONS, of_4_3


def test_the_transaction_coordinator_skips_unknown_value_versions_since_4_3_and_loses_the_ids() -> None:
    before, since = evaluate_records(REAL, [of_4_3(TRANSACTIONS, 0, 2)], [Release(4, 2, 1), Release(4, 3, 1)])
    assert before.first_failure is not None
    assert '"Unknown version 2 from the transaction log message value"' in before.first_failure.reason
    assert (since.verdict, since.ignored) == (LoadVerdict.LOSES, 3)
    assert since.first_failure is not None
    assert since.first_failure.offset == 4
    assert "value version 2 of TransactionLog is skipped (it reads 0-1)" in since.first_failure.reason
    assert "its old producer is not fenced" in since.first_failure.reason
    (too_short,) = evaluate_records(REAL, [of_4_3(TRANSACTIONS, 0, -1)], [Release(4, 3, 1)])
    assert too_short.verdict is LoadVerdict.FAILS


@pytest.mark.parametrize("live", [None, 0, 2])
def test_superseded_values_of_an_unknown_version_lose_no_transactional_id(live: int | None) -> None:
    found = replace(of_4_3(TRANSACTIONS, 0, 2), live=live)
    (verdict,) = evaluate_records(REAL, [found], [Release(4, 3, 1)])
    assert verdict.verdict is (LoadVerdict.LOADS_IGNORING if live == 0 else LoadVerdict.LOSES)


def test_unknown_keys_of_the_transaction_log_and_tombstones_lose_nothing() -> None:
    kinds = [of_4_3(TRANSACTIONS, 7, 0), of_4_3(TRANSACTIONS, 0, None), of_4_3(TRANSACTIONS, 0, 1)]
    (verdict,) = evaluate_records(REAL, kinds, [Release(4, 3, 1)])
    assert verdict.verdict is LoadVerdict.LOADS_IGNORING
