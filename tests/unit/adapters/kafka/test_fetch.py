"""Where a fetch ends, by the lengths of its batches."""

from __future__ import annotations

import pytest

from kafka_rollout.adapters.kafka.fetch import _last_offset
from kafka_rollout.wire.record_batch import LogFormatError, batches
from tests.paths import FIXTURES

FETCHED = FIXTURES / "coordinator-logs-4.3.1" / "__consumer_offsets-0.fetch"


def test_a_fetch_that_was_cut_anywhere_ends_with_its_last_whole_batch() -> None:
    data = FETCHED.read_bytes()
    ends = {batch.position + batch.size: batch.last_offset for batch in batches(data)}
    for cut in range(len(data) + 1):
        whole = [last for end, last in ends.items() if end <= cut]
        assert _last_offset(data[:cut]) == (whole[-1] if whole else None)


def test_a_fetch_ends_before_what_is_no_batch_and_one_that_begins_with_it_is_an_error() -> None:
    data = FETCHED.read_bytes()
    first, second, *_ = batches(data)
    assert _last_offset(data[: second.position] + b"\xff" * 100) == first.last_offset
    with pytest.raises(LogFormatError):
        _last_offset(b"\xff" * 100)
