"""SqlChangeLock: one change at a time per cluster, and a killed holder blocks nobody permanently."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
from sqlalchemy import update

from kafka_rollout.base.errors import (
    FatalError,
    LockBrokenError,
    LockHeldError,
    RefusedError,
    TransientError,
    UserError,
)
from kafka_rollout.base.lease import NEWEST_CALL, CallState, call_of_clear
from kafka_rollout.run.store.leases import SqlChangeLock
from kafka_rollout.run.store.tables import leases
from tests.contract.store.conftest import Clock, Store
from tests.paths import ROOT


@pytest.fixture
def clock(store: Store) -> Clock:
    return store.clock


@pytest.fixture
def lock(store: Store) -> SqlChangeLock:
    return store.lock()


def test_the_second_run_is_told_who_holds_the_lock_why_and_until_when(lock: SqlChangeLock) -> None:
    lock.acquire("demo", "run-1", "upgrade to 4.3.1", for_s=60)
    with pytest.raises(LockHeldError, match=r"run-1 .*\(upgrade to 4\.3\.1\)\. Its lease expires at \d{4}-\d\d-\d\d"):
        lock.acquire("demo", "run-2", "downgrade", for_s=60)


def test_clusters_do_not_lock_each_other(lock: SqlChangeLock) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    assert lock.acquire("other", "run-2", "upgrade", for_s=60).holder == "run-2"


def test_one_cluster_under_two_names_has_one_lock_as_soon_as_its_id_is_known(lock: SqlChangeLock, clock: Clock) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60, cluster_id="ID")
    lock.acquire("demo", "run-1", "a gate", for_s=60)  # a renewal without the id keeps it
    lock.acquire("other", "run-3", "upgrade", for_s=60, cluster_id="OTHER")
    lock.acquire("alias", "run-2", "downgrade", for_s=60)  # nobody has asked yet
    with pytest.raises(LockHeldError, match=r"Run run-1 .* alias under its other name demo \(a gate\)"):
        lock.acquire("alias", "run-2", "downgrade", for_s=60, cluster_id="ID")
    with pytest.raises(LockHeldError, match="inventory files third-name and demo"):
        lock.acquire("third-name", "run-1", "a run's id is no proof of one run", for_s=60, cluster_id="ID")
    clock.now += 61
    assert lock.acquire("alias", "run-2", "downgrade", for_s=60, cluster_id="ID").holder == "run-2"


def test_the_holder_renews_and_never_shortens_its_lease(lock: SqlChangeLock, clock: Clock) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    clock.now += 50
    renewed = lock.acquire("demo", "run-1", "upgrade", for_s=60)
    assert (renewed.acquired_at, renewed.expires_at) == (1000.0, 1110.0)
    assert lock.acquire("demo", "run-1", "upgrade", for_s=1).expires_at == 1110.0
    clock.now += 55
    with pytest.raises(LockHeldError):
        lock.acquire("demo", "run-2", "upgrade", for_s=60)


def test_the_lease_of_a_killed_holder_is_taken_over_and_that_is_recorded(lock: SqlChangeLock, clock: Clock) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    clock.now += 61
    assert lock.holder("demo") is None
    assert lock.acquire("demo", "run-2", "downgrade", for_s=60).acquired_at == clock.now
    with pytest.raises(LockHeldError):
        lock.acquire("demo", "run-1", "upgrade", for_s=60)
    last = lock.history("demo")[-1]
    assert (last["what"], last["taken_from"]) == ("taken over", "run-1")


def test_only_its_holder_releases_it(lock: SqlChangeLock) -> None:
    lock.release("demo", "run-1")  # nothing held: nothing to do
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    with pytest.raises(RefusedError, match="Run run-1 holds the lock"):
        lock.release("demo", "run-2")
    held = lock.holder("demo")
    assert held is not None
    assert held.holder == "run-1"
    lock.release("demo", "run-1")
    assert lock.holder("demo") is None
    lock.acquire("demo", "run-2", "upgrade", for_s=60)


def test_a_named_person_breaks_it_and_the_name_is_kept(lock: SqlChangeLock) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    with pytest.raises(UserError, match="name of an approver"):
        lock.break_("demo", " ")
    broken = lock.break_("demo", "alice")
    assert broken is not None
    assert broken.holder == "run-1"
    assert lock.holder("demo") is None
    last = lock.history("demo")[-1]
    assert (last["what"], last["by"], last["lock"]["holder"]) == ("broken", "alice", "run-1")  # type: ignore[index]
    assert lock.break_("demo", "alice") is None


def test_a_broken_lock_fences_every_call_of_its_run_until_a_person_makes_another_call(store: Store) -> None:
    killed_later, dag, other = store.lock(), store.lock(call=call_of_clear(0)), store.lock()
    for lock in (killed_later, dag):
        lock.acquire("demo", "run-1", "upgrade", for_s=60)
    store.lock().break_("demo", "alice")
    retry = store.lock(call=call_of_clear(0))
    for lock in (killed_later, dag, retry):
        assert lock.is_fenced("demo", "run-1")
        with pytest.raises(LockBrokenError, match="alice broke the lock of run run-1"):
            lock.acquire("demo", "run-1", "a gate", for_s=60)
    other.acquire("demo", "run-2", "upgrade", for_s=60)
    other.release("demo", "run-2")
    again = store.lock(call=call_of_clear(1))
    again.log_call("demo", "run-1")
    again.acquire("demo", "run-1", "continued", for_s=60)
    for lock in (killed_later, retry):
        with pytest.raises(LockBrokenError), lock.acting("demo", "run-1", "Stopping"):
            pass
        lock.release("demo", "run-1")
    held = again.holder("demo")
    assert held is not None, "an earlier call does not release the lease of a later one"
    with again.acting("demo", "run-1", "Stopping"):
        pass
    again.break_("demo", "bob")
    with pytest.raises(LockBrokenError, match="bob"):
        again.acquire("demo", "run-1", "a gate", for_s=60)
    other.admit("demo", "run-1", "carol")
    assert retry.acquire("demo", "run-1", "resumed", for_s=60).holder == "run-1"


@pytest.mark.parametrize("ends_in_airflow", [True, False])
def test_a_call_from_before_a_break_is_fenced_also_if_it_has_not_acquired_the_lock_yet(
    store: Store, *, ends_in_airflow: bool
) -> None:
    store.lock(call=call_of_clear(0)).acquire("demo", "run-1", "upgrade", for_s=60)
    calls = (call_of_clear(1), call_of_clear(2), "", NEWEST_CALL)
    cleared, unseen, command, trigger = (store.lock(call=call) for call in calls)
    cleared.log_call("demo", "run-1")
    with command.calling("demo", "run-1"):
        if ends_in_airflow:
            store.lock().end_run("demo", "run-1", "Airflow ended (failed) run run-1")
        else:
            store.lock().break_("demo", "alice")
        for lock in (cleared, unseen, command, trigger):
            with pytest.raises(LockBrokenError):
                lock.acquire("demo", "run-1", "a step", for_s=60)
    store.lock(call=call_of_clear(3)).log_call("demo", "run-1")
    with store.lock().calling("demo", "run-1"):
        pass
    for lock in (cleared, unseen, command):
        assert lock.is_fenced("demo", "run-1")
    for lock in (store.lock(call=call_of_clear(3)), trigger):
        assert lock.acquire("demo", "run-1", "a step", for_s=60).holder == "run-1"
    later = store.lock()
    with later.calling("demo", "run-1"):
        assert later.acquire("demo", "run-1", "a command", for_s=60).holder == "run-1"


def test_a_process_that_does_not_know_its_call_follows_the_newest_one(store: Store) -> None:
    task, trigger = store.lock(call=call_of_clear(0)), store.lock(call=NEWEST_CALL)
    task.acquire("demo", "run-1", "upgrade", for_s=60)
    trigger.acquire("demo", "run-1", "a gate", for_s=60)
    store.lock().break_("demo", "alice")
    for again in (trigger, store.lock(call=NEWEST_CALL)):
        with pytest.raises(LockBrokenError):
            again.acquire("demo", "run-1", "a gate", for_s=60)
    with store.lock().calling("demo", "run-1"):
        assert trigger.is_fenced("demo", "run-1"), "a command is no call of the DAG run"
    store.lock(call=call_of_clear(1)).log_call("demo", "run-1")
    assert trigger.acquire("demo", "run-1", "a gate", for_s=60).holder == "run-1"
    store.lock().break_("demo", "alice")
    assert trigger.is_fenced("demo", "run-1")
    store.lock().admit("demo", "run-1", "bob")
    assert not trigger.is_fenced("demo", "run-1")


def test_a_call_that_was_killed_is_known_at_once_and_one_that_ended_is_none(store: Store) -> None:
    lock = store.lock(own_clock=True)
    script = """
import sys
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.leases import SqlChangeLock
with SqlChangeLock(Database(sys.argv[1])).calling("demo", "run-1"):
    print("calls", flush=True)
    sys.stdin.readline()
"""
    assert lock.find_call("demo", "run-1") is CallState.NONE
    for ends in (True, False, True):
        pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, "-c", script, store.url], **pipe) as process:  # type: ignore[call-overload]
            assert process.stdout.readline() == "calls\n"
            assert lock.find_call("demo", "run-1") is CallState.RUNS
            assert lock.find_call("demo", "run-2") is CallState.NONE
            if not ends:
                process.kill()
        assert lock.find_call("demo", "run-1") is (CallState.NONE if ends else CallState.KILLED)


def test_a_damaged_lock_is_never_free_and_can_be_broken(lock: SqlChangeLock, store: Store) -> None:
    if not store.database().is_sqlite:
        pytest.skip("PostgreSQL checks the types")
    lock.acquire("demo", "run-1", "upgrade", for_s=60, cluster_id="ID")
    before = lock.acquire("demo", "run-1", "upgrade", for_s=60).token
    with store.database().begin() as connection:
        connection.exec_driver_sql("UPDATE leases SET expires_at = 'later'")
    assert lock.acquire("other", "run-2", "upgrade", for_s=60, cluster_id="ID").holder == "run-2"
    for question in (
        lambda: lock.acquire("demo", "run-1", "upgrade", for_s=60),
        lambda: lock.release("demo", "run-1"),
        lambda: lock.holder("demo"),
    ):
        with pytest.raises(FatalError, match=r"damaged.*break the lock"):
            question()
    lock.break_("demo", "alice")
    assert lock.history("demo")[-1]["by"] == "alice"
    assert lock.acquire("demo", "run-2", "upgrade", for_s=60).token > before


def _take(store: Store, holder: str, start: object, taken: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    try:
        store.lock().acquire("demo", holder, "upgrade", for_s=60)
    except LockHeldError:
        return
    taken.put(holder)  # type: ignore[attr-defined]


def test_of_many_at_once_exactly_one_gets_it(store: Store) -> None:
    store.lock().holder("demo")  # the tables are there
    context = multiprocessing.get_context("fork")
    start, taken = context.Event(), context.Queue()
    takers = [context.Process(target=_take, args=(store, f"run-{n}", start, taken)) for n in range(8)]
    for taker in takers:
        taker.start()
    start.set()
    for taker in takers:
        taker.join(180)
    winners = [taken.get(timeout=60)]
    assert taken.empty()
    held = store.lock().holder("demo")
    assert held is not None
    assert [held.holder] == winners


def test_a_lease_kept_for_a_person_is_an_ordinary_one_after_the_answer(lock: SqlChangeLock) -> None:
    lock.acquire("orders", "run-1", "waits for the approval", for_s=86_400)
    assert lock.acquire("orders", "run-1", "a gate", for_s=600).expires_at == 1000 + 86_400
    assert lock.acquire("orders", "run-1", "approved", for_s=600, shorten=True).expires_at == 1600


def test_one_process_acts_at_a_time_also_of_one_holder(store: Store) -> None:
    lock, twin = store.lock(), store.lock()
    for cluster in ("orders", "payments"):
        lock.acquire(cluster, "run", "upgrade", for_s=600)
    with lock.acting("orders", "run", "Replacing node 1"):
        with (
            pytest.raises(TransientError, match="Replacing node 2 must wait"),
            twin.acting("orders", "run", "Replacing node 2"),
        ):
            pass
        with twin.acting("payments", "run", "Replacing node 2"):
            pass
    with twin.acting("orders", "run", "Replacing node 2"):
        twin.check_acting("orders")


def test_the_token_rises_with_each_new_holder_and_never_falls(lock: SqlChangeLock, clock: Clock) -> None:
    tokens = [lock.acquire("demo", "run-1", "upgrade", for_s=60).token]
    assert lock.acquire("demo", "run-1", "a gate", for_s=60).token == tokens[0], "a renewal keeps it"
    lock.release("demo", "run-1")
    tokens.append(lock.acquire("demo", "run-2", "upgrade", for_s=60).token)
    clock.now += 61
    tokens.append(lock.acquire("demo", "run-3", "upgrade", for_s=60).token)
    lock.break_("demo", "alice")
    tokens.append(lock.acquire("demo", "run-1", "upgrade", for_s=60).token)
    assert tokens == sorted(set(tokens))


def test_nothing_is_done_without_the_lease(store: Store, lock: SqlChangeLock, clock: Clock) -> None:
    with pytest.raises(RefusedError, match="run-1 no longer holds the lock"), lock.acting("demo", "run-1", "Stopping"):
        pass
    with pytest.raises(RefusedError, match="does not hold the lock of cluster demo for an action"):
        lock.check_acting("demo")
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    with pytest.raises(RefusedError), lock.acting("demo", "run-2", "Stopping"):
        pass
    clock.now += 61
    with (
        pytest.raises(RefusedError, match=r"Stopping was rejected.*its lease expired at"),
        lock.acting("demo", "run-1", "Stopping"),
    ):
        pass


def test_a_process_that_slept_through_the_end_of_its_lease_does_nothing_more(store: Store, clock: Clock) -> None:
    slept, other = store.lock(), store.lock()
    slept.acquire("demo", "run-1", "upgrade", for_s=60)
    with slept.acting("demo", "run-1", "Replacing node 1"):
        slept.check_acting("demo")
        clock.now += 61
        other.acquire("demo", "run-2", "downgrade", for_s=60)
        with pytest.raises(RefusedError, match="run-2 holds it"):
            slept.check_acting("demo")
        other.release("demo", "run-2")
        other.acquire("demo", "run-1", "a retry of the same run", for_s=60)
        with pytest.raises(RefusedError, match="no longer holds"):
            slept.check_acting("demo")
    with pytest.raises(RefusedError), slept.acting("demo", "run-1", "Replacing node 2"):
        pass


def test_a_later_process_of_the_run_fences_the_earlier_one(store: Store) -> None:
    """As after a lost connection, with which an advisory lock ends before its process does."""
    earlier = store.lock()
    earlier.acquire("demo", "run", "upgrade", for_s=600)
    with earlier.acting("demo", "run", "Replacing node 1"):
        with store.database().begin() as connection:
            connection.execute(update(leases).values(token=leases.c.token + 1))
        with pytest.raises(RefusedError, match="another process of this run acts"):
            earlier.check_acting("demo")


def test_a_lease_is_not_broken_while_its_holder_acts(store: Store, lock: SqlChangeLock) -> None:
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    with lock.acting("demo", "run-1", "Replacing node 1"):
        with pytest.raises(RefusedError, match="run-1 is changing the cluster"):
            store.lock().break_("demo", "alice")
        lock.check_acting("demo")
    assert store.lock().break_("demo", "alice") is not None


def test_the_lease_is_renewed_as_long_as_its_process_acts(store: Store, clock: Clock) -> None:
    lock = store.lock(renew_every_s=0.01)
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    with lock.acting("demo", "run-1", "Replacing node 1"):
        _until(lambda: _ends_at(lock) == clock.now + 600)
        clock.now += 590
        _until(lambda: _ends_at(lock) == clock.now + 600)
    clock.now += 10
    with lock.renewing("demo", "run-1"):
        _until(lambda: _ends_at(lock) == clock.now + 600)
    ended = _ends_at(lock)
    clock.now += 100
    time.sleep(0.1)
    assert _ends_at(lock) == ended, "the renewal ends with the operation"


def test_a_lost_lease_is_not_renewed(store: Store, clock: Clock) -> None:
    lock, other = store.lock(renew_every_s=0.01), store.lock()
    lock.acquire("demo", "run-1", "upgrade", for_s=60)
    with lock.renewing("demo", "run-1"):
        clock.now += 601
        other.acquire("demo", "run-2", "downgrade", for_s=60)
        time.sleep(0.1)
        assert _ends_at(other) == clock.now + 60


_WRONG_CLOCK = """
import sys, time
time.time = lambda: 9e12
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.leases import SqlChangeLock
SqlChangeLock(Database(sys.argv[1])).acquire("demo", "run-2", "downgrade", for_s=60)
"""


def test_a_host_with_a_wrong_clock_does_not_take_a_lease_over(store: Store) -> None:
    """PostgreSQL's clock counts. SQLite is for one machine, and has only that machine's."""
    store.lock(own_clock=True).acquire("demo", "run-1", "upgrade", for_s=60)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins")}
    command = [sys.executable, "-c", _WRONG_CLOCK, store.url]
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "LockHeldError: Run run-1 holds the lock of cluster demo" in refused.stderr


_HOLDER = """
import sys, time
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.leases import SqlChangeLock
lock = SqlChangeLock(Database(sys.argv[1]))
lock.acquire("demo", "run-1", "upgrade", for_s=600)
with lock.acting("demo", "run-1", "Replacing node 1"):
    print("acts", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_process_held_while_it_acted_is_free_and_its_lease_is_not(
    store: Store, end: signal.Signals
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins")}
    command = [sys.executable, "-c", _HOLDER, store.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "acts\n"
        lock = store.lock(own_clock=True)
        with pytest.raises(TransientError), lock.acting("demo", "run-1", "Replacing node 1"):
            pass
        holder.send_signal(end)
    with pytest.raises(LockHeldError):
        lock.acquire("demo", "run-2", "downgrade", for_s=60)
    _until(lambda: _can_act(lock, "run-1"))


def _can_act(lock: SqlChangeLock, holder: str) -> bool:
    try:
        with lock.acting("demo", holder, "Replacing node 1"):
            return True
    except TransientError:
        return False


def _ends_at(lock: SqlChangeLock) -> float:
    held = lock.holder("demo")
    return 0.0 if held is None else held.expires_at


def _until(what: object, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)
