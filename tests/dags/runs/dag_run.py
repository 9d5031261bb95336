"""One DAG run in this process: as `dag.test()` of Airflow, but without parsing every DAG file again before each run
and without sleeping for a second when no task is ready.

A gate that waits for its turn is tried again when no other task is ready, and after the first one that had its turn
come the tasks after it. If no gate has its turn, the run ends here in the state *running*, as its sensors would wait in
the triggerer.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_rollout.airflow.common.outbox import OUTBOX
from kafka_rollout.run.projections.open_batches import RollOf

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.sdk import DAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from sqlalchemy.orm import Session

_BUNDLE = "dags-folder"
_PAUSE_S = 0.01
_MOST_IDLE = 2000  # rounds in which no task was ready


def run_dag(dag: DAG, conf: dict[str, Any] | None = None, *, at: datetime | None = None) -> DagRun:
    """Run every task as it becomes ready; `at` is the logical date, now by default."""
    from airflow.models.dagrun import DagRun, get_or_create_dagrun
    from airflow.sdk import timezone
    from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    at = at or timezone.utcnow()
    serialized = LazyDeserializedDAG.from_dag(dag)
    publish(serialized)
    scheduled_dag = DagSerialization.from_dict(serialized.data)
    with create_session() as session:
        run = get_or_create_dagrun(
            dag=scheduled_dag,
            start_date=at,
            logical_date=at,
            data_interval=None,
            run_after=at,
            run_id=DagRun.generate_run_id(run_type=DagRunType.MANUAL, logical_date=at, run_after=at),
            session=session,
            conf=conf,
            triggered_by=DagRunTriggeredByType.TEST,
            triggering_user_name="dag_test",
        )
        return _work_off(dag, run, session)


def clear_and_continue(dag: DAG, run: DagRun, task_id: str, map_index: int = -1) -> DagRun:
    """Clear a task and its downstream tasks, as a user does in Airflow, and run what is then ready.

    `map_index`: of an instance of a mapped group; the other instances stay.
    """
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import clear_task_instances
    from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG
    from airflow.utils.session import create_session
    from sqlalchemy import select

    _BEGINS.clear()
    chosen = {task_id, *dag.get_task(task_id).get_flat_relative_ids(upstream=False)}
    mapped = f"{task_id.partition('.')[0]}." if map_index >= 0 else "-"
    with create_session() as session:
        found = session.scalars(select(DagRun).where(DagRun.id == run.id)).one()
        found.dag = DagSerialization.from_dict(LazyDeserializedDAG.from_dag(dag).data)
        cleared = [
            ti
            for ti in found.get_task_instances(session=session)
            if ti.task_id in chosen and (not ti.task_id.startswith(mapped) or ti.map_index == map_index)
        ]
        clear_task_instances(cleared, session)
        session.commit()
        found.state = "running"
        session.commit()
        assert OUTBOX.wait_until_empty(60)
        return _work_off(dag, found, session)


def _work_off(dag: DAG, run: DagRun, session: Session) -> DagRun:
    from airflow.models.taskinstance import TaskInstance
    from airflow.sdk import timezone
    from airflow.sdk.definitions.dag import _run_task
    from airflow.utils.state import DagRunState, TaskInstanceState
    from sqlalchemy import update

    _check_only_what_can_change(run)
    # Those that wait since before a task was cleared.
    waiting = [one for one in run.get_task_instances(session=session) if one.state == TaskInstanceState.SCHEDULED]
    idle = 0
    while run.state == DagRunState.RUNNING:
        session.expire_all()
        ready = run.update_state(session=session)[0]
        for instance in ready:
            instance.try_number += 1
            instance.state = TaskInstanceState.SCHEDULED
            instance.scheduled_dttm = timezone.utcnow()
        session.commit()
        assert OUTBOX.wait_until_empty(60), "a process that a task would start takes longer"
        has_begun = False
        for instance in sorted(ready or waiting, key=lambda one: one.map_index):
            try:
                with suppress(Exception):  # the state of the task shows that it failed
                    _run_task(ti=instance, task=dag.task_dict[instance.task_id], run_triggerer=True)
            except WaitsForTurnError:
                begins_again = {"state": TaskInstanceState.SCHEDULED, "next_method": None, "next_kwargs": None}
                session.execute(update(TaskInstance).where(TaskInstance.id == instance.id).values(begins_again))
                session.commit()
                instance.state = TaskInstanceState.SCHEDULED  # of the object, which Airflow compares with
                if ready:
                    waiting.append(instance)
            else:
                has_begun = True
                if not ready:
                    waiting.remove(instance)
                    break
        if not ready and not has_begun:
            retried = [one for one in run.get_task_instances(session=session) if one.state == "up_for_retry"]
            if waiting and not retried:
                return run
            idle += 1
            assert idle < _MOST_IDLE, f"no task of the run can continue: {_open_tasks(run, session)}"
            time.sleep(0.5 if retried else _PAUSE_S)
    assert OUTBOX.wait_until_empty(60)
    return run


def _open_tasks(run: DagRun, session: Session) -> dict[str, Any]:
    return {
        f"{one.task_id}[{one.map_index}]": one.state
        for one in run.get_task_instances(session=session)
        if not one.end_date
    }


class WaitsForTurnError(BaseException):
    """A part of a batch waits for the batches or the part before it."""


_BEGINS: dict[tuple[str, str, str, int], int] = {}  # of sensors that wait, since they began or were cleared


async def begin_to_wait(trigger: Any, poll: Any) -> int:
    """In the place of `PartTrigger.begins`: a sensor that is tried again still waits."""
    place = trigger.place
    key = (place["run_id"], trigger.of, trigger.part, place["map_index"])
    return _BEGINS.setdefault(key, len(await poll.events()))


async def state_at_once(trigger: Any, poll: Any, place: Any, part: Any, since: float, *, is_next: bool) -> str:
    """In the place of `PartTrigger.state`: each try is a new wait."""
    states = await poll.states(place, RollOf(trigger.of).step_of(part), since, is_next=True)
    return str(states.get(place["map_index"], ""))


async def wait_for_turn(trigger: Any, seconds: float) -> None:
    """In the place of `PartTrigger.pause`."""
    raise WaitsForTurnError


def _check_only_what_can_change(run: DagRun) -> None:
    """Leave out tasks of which no direct upstream task has finished: their state cannot change yet.

    Airflow evaluates every open task after each task, which takes 40 % of a run's time here.
    """
    from airflow.task.trigger_rule import TriggerRule

    evaluate = run._get_ready_tis

    def of_those(schedulable_tis: list[Any], finished_tis: list[Any], session: Any) -> Any:
        finished = {one.task_id for one in finished_tis}
        possible = [
            one
            for one in schedulable_tis
            if not one.task.upstream_task_ids
            or one.task.trigger_rule == TriggerRule.ALWAYS
            or not finished.isdisjoint(one.task.upstream_task_ids)
        ]
        return evaluate(possible, finished_tis, session=session)

    run._get_ready_tis = of_those  # type: ignore[method-assign]


def publish(dag: LazyDeserializedDAG) -> None:
    """Make the DAG known to Airflow's database."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.utils.session import create_session

    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)
        session.commit()
        update_dag_parsing_results_in_db(_BUNDLE, None, [dag], {}, None, set(), session=session)
