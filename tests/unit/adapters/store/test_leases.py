"""FileChangeLock: one change at a time per cluster, and nobody is locked out for ever."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from kafka_rollout.adapters.store.leases import FileChangeLock
from kafka_rollout.domain.model.errors import FatalError, LockHeldError, RefusedError, TransientError, UserError


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lock(tmp_path: Path, clock: Clock) -> FileChangeLock:
    return FileChangeLock(tmp_path, clock=clock)


def _log(home: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (home / "locks" / "demo.log").read_text().splitlines()]


def test_the_second_run_is_told_who_holds_the_lock_why_and_until_when(lock: FileChangeLock) -> None:
    lock.acquire("demo", "run-1", "upgrade to 4.3.1", for_s=60)
    with pytest.raises(LockHeldError, match=r"run-1 \(upgrade to 4\.3\.1; its lease ends at \d{4}-\d\d-\d\d"):
        lock.acquire("demo", "run-2", "downgrade", for_s=60)


def test_clusters_do_not_lock_each_other(lock: FileChangeLock) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    assert lock.acquire("other", "run-2", "upgrade", for_s=60).holder == "run-2"


def test_one_cluster_under_two_names_has_one_lock_as_soon_as_its_id_is_known(
    lock: FileChangeLock, clock: Clock
) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60, cluster_id="ID")
    lock.acquire("demo", "run-1", "a gate", for_s=60)  # whoever does not know the id does not lose it
    lock.acquire("other", "run-3", "upgrade", for_s=60, cluster_id="OTHER")
    lock.acquire("alias", "run-2", "downgrade", for_s=60)  # nobody has asked yet
    with pytest.raises(LockHeldError, match=r"alias is being changed under its other name demo by run-1 \(a gate;"):
        lock.acquire("alias", "run-2", "downgrade", for_s=60, cluster_id="ID")
    with pytest.raises(LockHeldError, match="inventory files third-name and demo"):
        lock.acquire("third-name", "run-1", "a run's id is no proof of one run", for_s=60, cluster_id="ID")
    clock.now += 61
    assert lock.acquire("alias", "run-2", "downgrade", for_s=60, cluster_id="ID").holder == "run-2"


def test_a_damaged_lock_of_another_cluster_keeps_nobody_out(lock: FileChangeLock, tmp_path: Path) -> None:
    lock.acquire("other", "run-1", "upgrade", for_s=60, cluster_id="OTHER")
    (tmp_path / "locks" / "other.json").write_text("{")
    assert lock.acquire("demo", "run-2", "upgrade", for_s=60, cluster_id="ID").holder == "run-2"


def test_the_holder_renews_and_never_shortens_its_lease(lock: FileChangeLock, clock: Clock) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    clock.now += 50
    renewed = lock.acquire("demo", "run-1", "upgrade", for_s=60)
    assert (renewed.acquired_at, renewed.expires_at) == (1000.0, 1110.0)
    assert lock.acquire("demo", "run-1", "upgrade", for_s=1).expires_at == 1110.0
    clock.now += 55
    with pytest.raises(LockHeldError):
        lock.acquire("demo", "run-2", "upgrade", for_s=60)


def test_the_lease_of_a_killed_holder_is_taken_over_and_that_is_recorded(
    lock: FileChangeLock, clock: Clock, tmp_path: Path
) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    clock.now += 61
    assert lock.holder("demo") is None
    assert lock.acquire("demo", "run-2", "downgrade", for_s=60).acquired_at == clock.now
    with pytest.raises(LockHeldError):
        lock.acquire("demo", "run-1", "upgrade", for_s=60)
    last = _log(tmp_path)[-1]
    assert (last["what"], last["taken_from"]) == ("taken over", "run-1")


def test_only_its_holder_releases_it(lock: FileChangeLock) -> None:
    lock.release("demo", "run-1")  # nothing held: nothing to do
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    with pytest.raises(RefusedError, match="held by run-1"):
        lock.release("demo", "run-2")
    held = lock.holder("demo")
    assert held is not None
    assert held.holder == "run-1"
    lock.release("demo", "run-1")
    assert lock.holder("demo") is None
    lock.acquire("demo", "run-2", "upgrade", for_s=60)


def test_a_named_person_breaks_it_and_the_name_is_kept(lock: FileChangeLock, tmp_path: Path) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    with pytest.raises(UserError, match="name of the person"):
        lock.break_("demo", " ")
    broken = lock.break_("demo", "alice")
    assert broken is not None
    assert broken.holder == "run-1"
    assert lock.holder("demo") is None
    last = _log(tmp_path)[-1]
    assert (last["what"], last["by"], last["lock"]["holder"]) == ("broken", "alice", "run-1")  # type: ignore[index]
    assert lock.break_("demo", "alice") is None


@pytest.mark.parametrize("content", ["", "{", '{"cluster": "demo", "holder": "run-1"', '{"holder": "run-1"}'])
def test_a_damaged_lock_is_never_free(lock: FileChangeLock, tmp_path: Path, content: str) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    (tmp_path / "locks" / "demo.json").write_text(content)
    for question in (
        lambda: lock.acquire("demo", "run-1", "upgrade", for_s=60),
        lambda: lock.release("demo", "run-1"),
        lambda: lock.holder("demo"),
    ):
        with pytest.raises(FatalError, match=r"damaged.*break the lock by name"):
            question()
    lock.break_("demo", "alice")
    assert _log(tmp_path)[-1]["by"] == "alice"
    assert lock.acquire("demo", "run-2", "upgrade", for_s=60).holder == "run-2"


def _take(home: Path, holder: str, start: object, taken: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    try:
        FileChangeLock(home).acquire("demo", holder, "upgrade", for_s=60)
    except LockHeldError:
        return
    taken.put(holder)  # type: ignore[attr-defined]


def test_of_many_at_once_exactly_one_gets_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start, taken = context.Event(), context.Queue()
    takers = [context.Process(target=_take, args=(tmp_path, f"run-{n}", start, taken)) for n in range(8)]
    for taker in takers:
        taker.start()
    start.set()
    for taker in takers:
        taker.join(180)
    winners = [taken.get(timeout=60)]
    assert taken.empty()
    held = FileChangeLock(tmp_path).holder("demo")
    assert held is not None
    assert [held.holder] == winners


def test_a_lease_kept_for_a_person_is_an_ordinary_one_after_the_answer(tmp_path: Path) -> None:
    lock = FileChangeLock(tmp_path, clock=lambda: 1000.0)
    lock.acquire("orders", "run-1", "waits for the approval", for_s=86_400)
    assert lock.acquire("orders", "run-1", "a gate", for_s=600).expires_at == 1000 + 86_400
    assert lock.acquire("orders", "run-1", "approved", for_s=600, shorten=True).expires_at == 1600


def test_one_process_acts_at_a_time_also_of_one_holder(tmp_path: Path) -> None:
    lock, twin = FileChangeLock(tmp_path), FileChangeLock(tmp_path)
    with lock.acting("orders", "Replacing node 1"):
        with (
            pytest.raises(TransientError, match="Replacing node 2 has to wait"),
            twin.acting("orders", "Replacing node 2"),
        ):
            pass
        with twin.acting("payments", "Replacing node 2"):
            pass
    with twin.acting("orders", "Replacing node 2"):
        pass
