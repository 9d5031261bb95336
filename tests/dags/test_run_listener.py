"""A run that ended or was cleared in Airflow stops its background processes; another DAG's run of that id does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.airflow import run_listener
from kafka_rollout.airflow.common.links import TAG
from kafka_rollout.run.background import BackgroundKey, BackgroundKind
from kafka_rollout.run.events import Begun
from kafka_rollout.run.store.background import SqlBackground
from tests.records import change_lock, database_of, run_history

pytestmark = pytest.mark.airflow

HOOKS = [run_listener.on_dag_run_running, run_listener.on_dag_run_failed, run_listener.on_dag_run_success]


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
    model = SimpleNamespace(tags=[SimpleNamespace(name=tag)])
    hook(SimpleNamespace(dag_id=dag_id, run_id="run-1", dag_model=model), "")
    found = [record.read(key) for key in keys]
    assert [row.stop_requested for row in found if row is not None] == [is_own, is_own]
    assert (lock.holder("fake") is None) == (is_own and hook is not run_listener.on_dag_run_running)
