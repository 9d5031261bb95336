"""Brokers take turns in answering about all partitions, whichever process asks."""

from __future__ import annotations

import pytest

from kafka_rollout.run.store.database import Database
from tests.contract.store.conftest import Store


def test_the_broker_that_is_free_first_is_next_and_has_its_time_between_two_requests(store: Store) -> None:
    here, there = store.turns(), store.turns()
    begin = store.clock.now
    assert here.take([1, 2]) == (1, 0.0)
    here.set_length(1, 5.0)  # the first answer shows the size
    begins = [there.take([1, 2]), here.take([1, 2]), there.take([1, 2]), here.take([1, 2])]
    assert begins == [(2, 0.0), (1, 5.0), (2, 5.0), (1, 10.0)]
    store.clock.now = begin + 30
    assert there.take([2, 1]) == (2, 0.0)


def test_other_clusters_and_brokers_with_old_metadata_do_not_count(store: Store) -> None:
    store.turns().take([1, 2])
    store.turns().set_length(1, 5.0)
    assert store.turns("payments").take([1]) == (1, 0.0)
    assert store.turns().take([1]) == (1, 5.0)


def test_a_broker_is_asked_without_a_turn_instead_of_waiting_long(store: Store) -> None:
    turns = store.turns()
    turns.set_length(1, 10.0)
    assert [turns.take([1]) for _ in range(3)] == [(1, 10.0), (1, 0.0), (1, 0.0)]
    store.clock.now += 15
    assert turns.take([1]) == (1, 5.0)  # the others did not take the turns after it


def test_turns_of_a_clock_that_was_set_back_do_not_count(store: Store) -> None:
    turns = store.turns()
    turns.set_length(1, 5.0)
    turns.take([1, 2])
    store.clock.now -= 3600
    assert [turns.take([1, 2]) for _ in range(3)] == [(1, 0.0), (2, 0.0), (1, 5.0)]


def test_turns_end_when_the_cluster_is_small_again(store: Store) -> None:
    turns = store.turns()
    turns.set_length(1, 5.0)
    turns.set_length(1, 0.0)
    assert [turns.take([1, 2]) for _ in range(3)] == [(1, 0.0)] * 3


def test_nothing_is_written_for_a_small_cluster(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "serialized", None)
    turns = store.turns()
    assert turns.take([1, 2]) == (1, 0.0)
    turns.set_length(1, 0.0)
