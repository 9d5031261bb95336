"""A run that ended or was cleared in Airflow stops its background processes; another DAG's run of that id does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_rollout.airflow import run_listener
from kafka_rollout.airflow.common.links import TAG
from kafka_rollout.airflow.common.outbox import OUTBOX
from kafka_rollout.base.errors import LockBrokenError
from kafka_rollout.base.lease import NEWEST_CALL, call_of_clear
from kafka_rollout.run.background import BackgroundKey, BackgroundKind
from kafka_rollout.run.events import Begun, Channel, ClearedInAirflow, EndedInAirflow, Responder, TakenOver, events_of
from kafka_rollout.run.store.background import SqlBackground
from tests.records import change_lock, database_of, run_history

pytestmark = pytest.mark.airflow

DAG_ID = "kafka_upgrade_fake"
HOOKS = [run_listener.on_dag_run_running, run_listener.on_dag_run_failed, run_listener.on_dag_run_success]


def airflow_run(dag_id: str = DAG_ID, tag: str = TAG, clears: int = 0) -> Any:
    """A run that failed, as Airflow gives it to a listener."""
    model = SimpleNamespace(tags=[SimpleNamespace(name=tag)])
    return SimpleNamespace(dag_id=dag_id, run_id="run-1", dag_model=model, state="failed", clear_number=clears)


def delivered() -> None:
    assert OUTBOX.wait_until_empty(60)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize(
    ("dag_id", "tag", "is_own"),
    [
        ("kafka_upgrade_fake", TAG, True),
        ("kafka_features_fake", TAG, False),
        ("kafka_upgrade_fake", "of another project", False),
    ],
)
def test_a_run_that_ended_or_starts_again_stops_its_background_processes(
    hook: Callable[[Any, str], None], dag_id: str, tag: str, is_own: bool, inventory: Path
) -> None:
    home = inventory.parent / "home"
    run_history(home, "fake", "run-1").record(Begun(dag_id="kafka_upgrade_fake"))
    record, lock = SqlBackground(database_of(home)), change_lock(home)
    lock.acquire("fake", "run-1", "upgrade", for_s=600)
    keys = [BackgroundKey(cluster="fake", run_id="run-1", kind=kind) for kind in BackgroundKind]
    for key in keys:
        record.register(key, replaces="", host="elsewhere", folder="/f", settings={}, stop=False)
    hook(airflow_run(dag_id, tag), "")
    delivered()
    found = [record.read(key) for key in keys]
    assert [row.stop_requested for row in found if row is not None] == [is_own, is_own]
    has_ended = is_own and hook is not run_listener.on_dag_run_running
    assert (lock.holder("fake") is None) == has_ended
    ends = events_of(run_history(home, "fake", "run-1").events(), EndedInAirflow)
    assert [one.state for one in ends] == ["failed"] * has_ended
    assert lock.is_fenced("fake", "run-1") == has_ended


def test_the_end_of_a_run_that_was_taken_over_leaves_the_lock_to_the_shell(inventory: Path) -> None:
    home = inventory.parent / "home"
    run = run_history(home, "fake", "run-1")
    run.record(Begun(dag_id="kafka_upgrade_fake"))
    shell = Responder(channel=Channel.SHELL, user="alice")
    run.record(TakenOver(by="alice", dag_id="kafka_upgrade_fake", responder=shell))
    change_lock(home).acquire("fake", "run-1", "upgrade", for_s=600)
    run_listener.on_dag_run_failed(airflow_run(), "")
    delivered()
    assert change_lock(home).holder("fake") is not None


def test_a_run_that_is_deleted_in_airflow_ends_with_the_transaction(inventory: Path) -> None:
    home = inventory.parent / "home"
    run = run_history(home, "fake", "run-1")
    run.record(Begun(dag_id="kafka_upgrade_fake"))
    deleted = type("DagRun", (), {"dag_id": "kafka_upgrade_fake", "run_id": "run-1"})()
    session = cast("Any", SimpleNamespace(deleted=[deleted, object()], dirty=[], info={}))
    run_listener._note(session, None)
    run_listener._forget_noted(session)
    run_listener._put_noted(session)
    delivered()
    assert not events_of(run.events(), EndedInAirflow)
    run_listener._note(session, None)
    run_listener._put_noted(session)
    delivered()
    assert [one.state for one in events_of(run.events(), EndedInAirflow)] == ["deleted"]


def test_a_clear_is_a_call_from_its_commit_and_a_later_break_fences_it(inventory: Path) -> None:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import make_transient_to_detached
    from sqlalchemy.orm.attributes import set_committed_value

    home = inventory.parent / "home"
    run_history(home, "fake", "run-1").record(Begun(dag_id="kafka_upgrade_fake"))
    cleared = DagRun(dag_id="kafka_upgrade_fake", run_id="run-1")
    make_transient_to_detached(cleared)
    session = cast("Any", SimpleNamespace(deleted=[], dirty=[cleared], info={}))
    for known in ({"dag_id": "kafka_upgrade_fake", "run_id": "run-1", "clear_number": 0}).items():
        set_committed_value(cleared, *known)
    change_lock(home, call=call_of_clear(0)).acquire("fake", "run-1", "upgrade", for_s=600)
    first, trigger = change_lock(home, call=call_of_clear(1)), change_lock(home, call=NEWEST_CALL)

    def clear() -> None:
        cleared.clear_number += 1
        run_listener._note(session, None)
        run_listener._put_noted(session)
        delivered()

    clear()
    change_lock(home).break_("fake", "alice")
    for lock in (first, trigger):
        with pytest.raises(LockBrokenError, match="alice"):
            lock.acquire("fake", "run-1", "a step", for_s=600)
    clear()
    assert first.is_fenced("fake", "run-1")
    run = run_history(home, "fake", "run-1")
    assert not events_of(run.events(), ClearedInAirflow), "it had not ended"
    run.record(EndedInAirflow(state="failed"))
    clear()
    assert len(events_of(run.events(), ClearedInAirflow)) == 1
    for lock in (change_lock(home, call=call_of_clear(3)), trigger):
        lock.acquire("fake", "run-1", "a step", for_s=600)


def test_an_end_that_is_known_late_does_not_stop_a_run_that_was_cleared_since(inventory: Path) -> None:
    home = inventory.parent / "home"
    run = run_history(home, "fake", "run-1")
    run.record(Begun(dag_id=DAG_ID))
    cleared = change_lock(home, call=call_of_clear(1))
    cleared.log_call("fake", "run-1")
    cleared.acquire("fake", "run-1", "upgrade", for_s=600)
    run_listener.on_dag_run_failed(airflow_run(), "")
    delivered()
    assert (cleared.is_fenced("fake", "run-1"), events_of(run.events(), EndedInAirflow)) == (False, ())
    run_listener.on_dag_run_failed(airflow_run(clears=1), "")
    delivered()
    assert cleared.is_fenced("fake", "run-1")
