"""The history of a check: it has what a plan stores, and every change is refused."""

from __future__ import annotations

import pytest

from kafka_rollout.base.errors import RefusedError, RolloutError
from kafka_rollout.run.memory import MemoryRunStore, NoLock
from kafka_rollout.run.ports import ChangeLock, RunStore


def test_documents_stay_until_the_process_ends() -> None:
    run: RunStore = MemoryRunStore()
    run.attach("a.json", {"b": 1})
    run.save_fingerprints({1: "x"})
    assert (run.attachment("a.json"), run.load_fingerprints()) == ({"b": 1}, {1: "x"})
    run.detach("a.json")
    assert run.attachment("a.json") is None
    with pytest.raises(RolloutError, match="has no plan yet"):
        run.load_plan()


def test_nothing_is_changed_or_written() -> None:
    lock: ChangeLock = NoLock()
    for refused in (
        lambda: lock.check_acting("c"),
        lambda: lock.acquire("c", "h", "p", for_s=1.0),
        lambda: lock.acting("c", "h", "stop a node"),
        lambda: MemoryRunStore().write_report("", {}),
        lambda: MemoryRunStore().private_path("x"),
    ):
        with pytest.raises(RefusedError, match="it changes nothing"):
            refused()
