"""A run that is killed in the middle of a node step goes on where it was: nothing is rolled twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kafka_rollout.model.plan import NodeStep
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import NodeEvent, Stopped, Stopping
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import (
    PATIENCE_S,
    PrivateAirflow,
    Run,
    all_run,
    each_started_once,
    held_while_it_stops,
    no_lock_left,
    nothing_lost,
    wait_for,
)
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]


def test_a_killed_scheduler_started_again_ends_the_roll_without_rolling_a_node_twice(
    airflow: PrivateAirflow, make_cluster: MakeCluster
) -> None:
    run, node_step = planned(airflow, make_cluster("3.9.1", name="scheduler-killed", layout="combined"), "4.3.1")
    scheduler = airflow.component_pid("scheduler")
    with in_the_middle_of(run, node_step):
        os.kill(scheduler, signal.SIGKILL)
    airflow.start_component("scheduler")
    ends_right(run, "3.9.1", "4.3.1")


def test_a_killed_triggerer_started_again_ends_the_roll_without_rolling_a_node_twice(
    airflow: PrivateAirflow, make_cluster: MakeCluster
) -> None:
    run, node_step = planned(airflow, make_cluster("3.9.1", name="triggerer-killed", layout="combined"), "4.3.1")
    triggerer = airflow.component_pid("triggerer")
    with in_the_middle_of(run, node_step):
        os.kill(triggerer, signal.SIGKILL)
    airflow.start_component("triggerer")
    ends_right(run, "3.9.1", "4.3.1")


def test_a_killed_task_is_taken_up_where_it_was_and_starts_its_node_once(
    airflow: PrivateAirflow, make_cluster: MakeCluster
) -> None:
    run, node_step = planned(airflow, make_cluster("3.4.1", name="task-killed", layout="combined"), "3.9.1")
    task_id = replace_task(run, node_step)
    with in_the_middle_of(run, node_step):
        process_of(run.client.tasks(run.dag_id, run.run_id)[task_id]["id"]).kill()
    ends_right(run, "3.4.1", "3.9.1")
    assert run.client.tasks(run.dag_id, run.run_id)[task_id]["try_number"] > 1, "the task was not killed"


def test_a_run_that_is_stopped_at_its_pause_in_the_evening_is_cleared_in_the_morning_and_the_roll_goes_on(
    airflow: PrivateAirflow, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("3.4.1", name="overnight", layout="combined")
    airflow.add(cluster)
    run = airflow.trigger(cluster, "3.9.1", finalize="later", pause_after="first-node")
    run.approve("approve_plan")
    pause = "roll.gate_before[1]"
    run.wait_for_question(pause)
    run.answer(pause, "Stop here", "not tonight")
    assert run.wait_done() == "failed"
    evening = run.report()
    assert evening["outcome"] == "stopped"
    assert evening["traffic"]["periods"] == 1
    no_lock_left(airflow, cluster)
    run.clear("roll.gate_before")
    run.wait_for_question(pause)
    run.answer(pause, "Wait on", "the next morning")
    ends_right(run, "3.4.1", "3.9.1", first_tries=2)  # the first batch was cleared too, and returned at once
    assert run.report()["traffic"]["periods"] == 2, "the roll went on without test traffic"


def planned(airflow: PrivateAirflow, cluster: LocalCluster, target: str) -> tuple[Run, NodeStep]:
    """A run that waits for its approval, and the second node step."""
    airflow.add(cluster)
    run = airflow.trigger(cluster, target, finalize="later")
    run.wait_for_question("approve_plan")
    return run, run.store.load_plan().release_steps[0].order[1]


@contextmanager
def in_the_middle_of(run: Run, node_step: NodeStep) -> Iterator[None]:
    """The node is asked to stop, and does not before the block ends, however slow who comes to kill: stop and start
    wait for the lock of the node's home."""
    home = Path(str(run.cluster.spec.node(node_step.node_id).directory))
    run.approve("approve_plan")
    run.wait_for_task("start_traffic")
    with held_while_it_stops(home, timeout_s=PATIENCE_S):
        wait_for(lambda: of_node(run, Stopping, node_step.node_id), timeout_s=PATIENCE_S, said="the stop")
        yield
        assert not of_node(run, Stopped, node_step.node_id)


def ends_right(run: Run, source: str, target: str, *, first_tries: int = 1) -> None:
    cluster = run.cluster
    run.wait_success()
    all_run(cluster, target)
    each_started_once(cluster, source, target)
    stops = Counter(event.node_id for event in events_of(run.store.events(), Stopped))
    order = run.store.load_plan().release_steps[0].order
    assert stops[order[0].node_id] == 1, "the first node was rolled again"
    first = run.client.tasks(run.dag_id, run.run_id)[replace_task(run, order[0])]
    assert first["try_number"] == first_tries
    report = run.report()
    assert report["outcome"] == "rolled_not_finalized"
    nothing_lost(report["traffic"], consumers=("classic",))
    no_lock_left(run.airflow, cluster)


def replace_task(run: Run, node_step: NodeStep) -> str:
    return f"roll.replace[{run.store.load_plan().release_steps[0].order.index(node_step)}]"


def of_node(run: Run, kind: type[NodeEvent], node_id: int) -> list[NodeEvent]:
    return [event for event in events_of(run.store.events(), kind) if event.node_id == node_id]


def process_of(task_instance: str) -> psutil.Process:
    """The process that runs a task's code. Airflow titles it and its supervisor with the task instance's id."""
    titled = [p for p in psutil.process_iter(["cmdline"]) if task_instance in " ".join(p.info["cmdline"] or ())]
    assert titled, f"no process runs the task instance {task_instance}"
    return max(titled, key=lambda process: process.create_time())
