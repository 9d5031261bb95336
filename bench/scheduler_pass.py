"""What one pass of Airflow's scheduler costs while the parts of many batches wait for their turn.

    python -m bench.scheduler_pass [--instances 100 200] [--passes 9]

Real: Airflow's evaluation of a DAG run (`DagRun.update_state`), its database (SQLite), the group `roll` as the product
draws it. No server, worker or trigger runs. The states are those of a roll whose fifth batch is replaced, so no task
can begin. The scheduler makes such a pass several times for each batch. Its processor time hardly
depends on other work on the machine, unlike the times of `bench.many_batches`.

Writes bench/results/scheduler_pass.json: processor seconds of a pass (median, minimum, maximum) and its queries.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tools.demo.folder import PROJECT_ROOT

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

RESULTS = PROJECT_ROOT / "bench" / "results" / "scheduler_pass.json"
DAG_ID, RUN_ID, REPLACED = "kafka_upgrade_bench", "bench", 4  # index of the batch that is replaced


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", nargs="+", type=int, default=[100, 200])
    parser.add_argument("--passes", type=int, default=9)
    arguments = parser.parse_args()
    rows = [_measure_apart(instances, arguments.passes) for instances in arguments.instances]
    command = " ".join(["python -m bench.scheduler_pass", *sys.argv[1:]])
    result = {"command": command, "addition_s": _five_million_additions_s(), "rows": rows}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


def _five_million_additions_s() -> float:
    """The processor time of 5,000,000 additions, as a measure of this machine."""
    begin, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number
    return round(time.process_time() - begin, 2)


def _measure_apart(instances: int, passes: int) -> Any:
    """Measure in a new process: Airflow reads the place of its database at its first import."""
    with tempfile.TemporaryDirectory(prefix="bench-pass-") as folder:
        environment = {
            **os.environ,
            "AIRFLOW_HOME": folder,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "KAFKA_ROLLOUT_CLUSTERS": f"{folder}/clusters",
            "KAFKA_ROLLOUT_HOME": f"{folder}/home",
        }
        code = f"from bench.scheduler_pass import measure; measure({instances}, {passes}, {folder!r})"
        subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, env=environment, check=True, stdout=sys.stderr)
        return json.loads(Path(folder, "measured.json").read_text())


def measure(instances: int, passes: int, folder: str) -> None:
    """Write the figures of this process to measured.json in the folder."""
    from airflow.models.dagrun import get_or_create_dagrun
    from airflow.models.taskmap import TaskMap
    from airflow.sdk import timezone
    from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG
    from airflow.settings import engine
    from airflow.utils import db
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunTriggeredByType
    from sqlalchemy import event

    from bench.dag_size import cluster_of
    from bench.many_batches import dags
    from kafka_rollout.clusters.inventory import dump_cluster
    from tests.dags.runs.dag_run import publish

    Path(folder, "clusters").mkdir()
    Path(folder, "clusters", "bench.yaml").write_text(dump_cluster(cluster_of("bench", instances - 3)))
    db.initdb()
    serialized = LazyDeserializedDAG.from_dag(dags()[DAG_ID])
    publish(serialized)
    queries: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _connection, _cursor, query, *_: queries.append(query))
    at = timezone.utcnow()
    with create_session() as session:
        run = get_or_create_dagrun(
            dag=DagSerialization.from_dict(serialized.data),
            start_date=at,
            logical_date=at,
            data_interval=None,
            run_after=at,
            run_id=RUN_ID,
            session=session,
            conf={},
            triggered_by=DagRunTriggeredByType.TEST,
            triggering_user_name="bench",
        )
        _put(session, "plan", "success")
        _put(session, "batches", "success")
        listed: dict[str, Any] = {"task_id": "batches", "run_id": RUN_ID, "map_index": -1}
        session.add(TaskMap(dag_id=DAG_ID, length=instances, keys=None, **listed))
        session.commit()
        begun = {instance.task_id for instance in run.update_state(session=session)[0]}  # expands the group
        _set_states(session, begun, instances)
        run.update_state(session=session)  # expands the parts that had not begun
        _set_states(session, begun, instances)
        found = []
        for _ in range(passes):
            session.expire_all()
            queries.clear()
            begin = time.process_time()
            ready = run.update_state(session=session)[0]
            found.append(time.process_time() - begin)
            if ready:
                raise RuntimeError(f"A task can begin: {ready}")
        figures = [round(value, 2) for value in (median(found), min(found), max(found))]
    measured = {"instances": instances, "pass_s": figures, "queries": len(queries)}
    Path(folder, "measured.json").write_text(json.dumps(measured))


def _set_states(session: Session, begun: set[str], instances: int) -> None:
    """Let the batches before REPLACED have passed, and those after it wait: deferred, if their task has begun."""
    for task_id in ("roll.gate_before", "roll.replace", "roll.gate_after"):
        _put(session, task_id, "success", range(REPLACED))
        _put(session, task_id, "deferred" if task_id in begun else None, range(REPLACED, instances))
    _put(session, "roll.gate_before", "success", range(REPLACED, REPLACED + 1))
    _put(session, "roll.replace", "running", range(REPLACED, REPLACED + 1))


def _put(session: Session, task_id: str, state: str | None, indexes: range | None = None) -> None:
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import update

    chosen = [TaskInstance.run_id == RUN_ID, TaskInstance.task_id == task_id]
    if indexes is not None:
        chosen += [TaskInstance.map_index >= indexes.start, TaskInstance.map_index < indexes.stop]
    session.execute(update(TaskInstance).where(*chosen).values(state=state))
    session.commit()


if __name__ == "__main__":
    sys.exit(main())
