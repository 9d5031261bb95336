"""Checks are kept newest first, one for each run, and so many of them."""

from __future__ import annotations

from tests.contract.store.conftest import Store


def test_checks_read_back_newest_first_and_only_those_of_the_cluster(store: Store) -> None:
    store.checks("payments").keep("other", {"target": "4.3.1"}, "<p>other</p>")
    for number in range(3):
        store.clock.now += 1
        store.checks().keep(f"run-{number}", {"target": "4.3.1", "number": number}, f"<p>{number}</p>")
    assert [one.run_id for one in store.checks().newest()] == ["run-2", "run-1", "run-0"]
    (newest,) = store.checks().newest(1)
    assert (newest.at, newest.document["number"]) == (store.clock.now, 2)
    assert store.checks().page_of_run("run-1") == "<p>1</p>"
    assert store.checks().page_of_run("other") is None


def test_a_repeated_task_replaces_its_check(store: Store) -> None:
    store.checks().keep("run", {"target": "4.3.1", "attempt": 1}, "<p>1</p>")
    store.checks().keep("run", {"target": "4.4.0", "attempt": 2}, "<p>2</p>")
    (kept,) = store.checks().newest()
    assert kept.document == {"target": "4.4.0", "attempt": 2}
    assert store.checks().page_of_run("run") == "<p>2</p>"


def test_the_oldest_checks_are_removed_and_those_of_other_clusters_stay(store: Store) -> None:
    store.checks("payments").keep("old", {"target": "4.3.1"}, "")
    for number in range(4):
        store.clock.now += 1
        store.checks().keep(f"run-{number}", {"target": "4.3.1"}, "", at_most=2)
    assert [one.run_id for one in store.checks().newest()] == ["run-3", "run-2"]
    assert [one.run_id for one in store.checks("payments").newest()] == ["old"]
