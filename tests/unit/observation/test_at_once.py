"""Acting on several items at once."""

from __future__ import annotations

import threading

import pytest

from kafka_rollout.observation.cluster_ports import at_once


def test_one_item_needs_no_thread() -> None:
    assert at_once(lambda _: threading.current_thread(), [1]) == [threading.current_thread()]
    assert at_once(lambda _: threading.current_thread(), iter([])) == []
    assert threading.current_thread() not in at_once(lambda _: threading.current_thread(), iter([1, 2]))


@pytest.mark.parametrize("items", [[0], [1, 0, 2]])
def test_an_error_of_one_item_is_raised(items: list[int]) -> None:
    with pytest.raises(ZeroDivisionError):
        at_once(lambda item: 1 / item, items)
