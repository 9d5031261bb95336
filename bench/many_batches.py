"""Load of Airflow while the parts of many batches wait for their turn, and what each batch costs beyond its own work.

    python -m bench.many_batches [--instances 100 200 1000] [--batches 30] [--capacity 1000]

Real: Airflow, its database, the group `roll` as the product draws it, its operators and triggers, the run history.
Simulated: the nodes. In every process of Airflow, the three functions of the roll's loop only sleep and record the same
events as a real replacement: `replace` takes REPLACE_S, a gate passes GATE_S after the start. Each number of instances
has one DAG run, of which the first `--batches` are measured; then Airflow is stopped. `--capacity`: the most triggers
of the triggerer; with fewer than instances, the others wait outside it.

Writes bench/results/many_batches.json: seconds that a batch takes beyond REPLACE_S + GATE_S (median, minimum, maximum),
and of each component the processor time as a share of one core, and the memory. The goal is a median of 5 s up to 200.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import TYPE_CHECKING, Any

import psutil

from bench.dag_size import cluster_of
from kafka_rollout.base.errors import FatalError
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.gates.gate import GateKind, GateRef, WatchState
from kafka_rollout.model.plan import BatchStep
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import GatePassed, Started, Stopped, Stopping
from tools.demo.airflow_server import AirflowServer
from tools.demo.folder import PROJECT_ROOT

if TYPE_CHECKING:
    from kafka_rollout.roll import loop

RESULTS = PROJECT_ROOT / "bench" / "results" / "many_batches.json"
REPLACE_S, GATE_S = 1.0, 2.0
GOAL_S, GOAL_UP_TO = 5.0, 200
WARM = 5  # batches that are not counted
COMPONENTS = ("scheduler", "triggerer", "api_server", "dag-processor")

_PATCH = """
import importlib.abc, importlib.util, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != {loop!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_replace(module):
            run(module)
            from bench.many_batches import replace_parts
            replace_parts(module)

        spec.loader.exec_module = run_and_replace
        return spec

sys.meta_path.insert(0, Finder())
"""
_DAGS = """# Airflow reads only files that name it.
from bench.many_batches import dags

globals().update(dags())
"""


def replace_parts(module: ModuleType) -> None:
    """Let the loop sleep and record events, instead of observing and replacing nodes."""
    from kafka_rollout.traffic.processes import of_run

    parts = module.BatchPart

    def status(state: WatchState, message: str) -> loop.BatchStatus:
        return module.BatchStatus(state=state, message=message)  # type: ignore[no-any-return]

    def gate_before(roll: loop.Roll, batch: BatchStep, *_: object) -> loop.BatchStatus:
        turn = module.find_turn(roll, batch, roll.run.history.events())
        return status(WatchState.WAITING if turn else WatchState.PASSED, turn or "passed")

    def replace(roll: loop.Roll, batch: BatchStep) -> bool:
        module._record_begin(roll, batch, parts.REPLACE)
        for node_id in batch.node_ids:
            where: Any = {"node_id": node_id, "release_step": batch.release_step.key}
            roll.run.history.record(Stopping(**where))
            time.sleep(REPLACE_S)
            roll.run.history.record(Stopped(**where, seconds=REPLACE_S, forced=False))
            roll.run.history.record(Started(**where, release=batch.release_step.to_release, pid=1, seconds=0.0))
        module._record_done(roll, batch, parts.REPLACE)
        return False

    def gate_after(roll: loop.Roll, batch: BatchStep, *_: object) -> loop.BatchStatus:
        started = [one for one in events_of(roll.run.history.events(), Started) if one.node_id in batch.node_ids]
        if time.time() < started[-1].at + GATE_S:
            return status(WatchState.WAITING, "soaks")
        for node_id in batch.node_ids:
            ref = GateRef(kind=GateKind.AFTER_START, release_step=batch.release_step.key, node_id=node_id)
            roll.run.history.record(GatePassed(ref=ref, gate=f"after node {node_id}", message="passed"))
        return status(WatchState.PASSED, "passed")

    of_run.start_group_monitor = lambda *_, **__: None  # type: ignore[assignment]  # it would outlive the measurement
    module.gate_before = module.recorded(parts.GATE_BEFORE)(gate_before)  # type: ignore[attr-defined]
    module.replace = replace  # type: ignore[attr-defined]
    module.gate_after = module.recorded(parts.GATE_AFTER)(gate_after)  # type: ignore[attr-defined]


def dags() -> dict[str, Any]:
    """Return one DAG for each cluster: a plan, the list of its batches, and the group of the roll."""
    from datetime import timedelta

    from airflow.sdk import DAG

    from kafka_rollout.airflow.graphs.procedure import draw
    from kafka_rollout.clusters.inventory import list_readable_clusters
    from kafka_rollout.observation.run import Run
    from kafka_rollout.preparation.plan_making import freeze
    from kafka_rollout.procedure.parts import roll
    from kafka_rollout.procedure.step import ActStep, Procedure, StepCall
    from tests.console_scenes import upgrade_of

    def plan(call: StepCall) -> dict[str, str]:
        made = upgrade_of(call.ports.cluster)
        if call.begun is not None:
            call.ports.run.record(call.begun)
        freeze(Run(call.ports, made), RunOf.UPGRADE)
        return {"plan_hash": made.hash}

    found = {}
    for name, cluster in list_readable_clusters()[0].items():
        freezes = ActStep(id="plan", label="Plan", doc="Freezes a plan of one batch for each node.", act=plan)
        parts = (freezes, *roll("The nodes."))
        defaults = {"retries": 1, "retry_delay": timedelta(seconds=10)}
        with DAG(dag_id=f"kafka_upgrade_{name}", schedule=None, catchup=False, default_args=defaults) as dag:
            draw(Procedure(name="upgrade", parts=parts, dry_run_body=lambda call: ""), cluster)
        dag.params.update({"target_release": "4.3.1"})
        found[dag.dag_id] = dag
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", nargs="+", type=int, default=[100, 200, 1000])
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--capacity", type=int, default=1000)
    arguments = parser.parse_args()
    rows = [_measure(instances, arguments.batches, arguments.capacity) for instances in arguments.instances]
    command = " ".join(["python -m bench.many_batches", *sys.argv[1:]])
    result = {"command": command, "load": round(os.getloadavg()[0], 1), "rows": rows}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return int(any(row["instances"] <= GOAL_UP_TO and row["extra_s"][0] > GOAL_S for row in rows))


def _measure(instances: int, batches: int, capacity: int) -> dict[str, Any]:
    from kafka_rollout.roll import loop

    with tempfile.TemporaryDirectory(prefix="bench-batches-") as name:
        folder = Path(name)
        for part in ("clusters", "dags", "patch"):
            (folder / part).mkdir()
        cluster = cluster_of("bench", instances - 3)
        (folder / "clusters" / "bench.yaml").write_text(dump_cluster(cluster))
        (folder / "dags" / "many_batches.py").write_text(_DAGS)
        (folder / "patch" / "patient_sqlite.py").write_text("ARGS = {'timeout': 120}\n")
        (folder / "patch" / "sitecustomize.py").write_text(_PATCH.format(loop=loop.__name__))
        environment = {
            "KAFKA_ROLLOUT_CLUSTERS": str(folder / "clusters"),
            "KAFKA_ROLLOUT_HOME": str(folder / "home"),
            "PYTHONPATH": f"{folder / 'patch'}{os.pathsep}{PROJECT_ROOT}",
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__TRIGGERER__CAPACITY": str(capacity),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "patient_sqlite.ARGS",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": "patient_sqlite.ARGS",
        }
        os.environ.update({name: value for name, value in environment.items() if name.startswith("KAFKA_ROLLOUT")})
        with AirflowServer.start(folder / "airflow", environment=environment, timeout_s=300) as airflow:
            client = airflow.client()
            client.wait_for_dag("kafka_upgrade_bench", timeout_s=300)
            run_id = client.trigger("kafka_upgrade_bench", {"traffic": False})
            row = _watch(airflow, cluster, run_id, min(batches, instances - WARM))
        return {"instances": instances, "capacity": capacity, **row}


def _watch(airflow: AirflowServer, cluster: ClusterSpec, run_id: str, batches: int) -> dict[str, Any]:
    from kafka_rollout.run.store.opening import open_run

    run, deadline = open_run(cluster.name, run_id), time.monotonic() + 120 + 40 * (batches + WARM)
    before, shown = None, -1
    while time.monotonic() < deadline:
        passed = [one.at for one in events_of(run.events(), GatePassed)]
        if len(passed) != shown:
            shown = len(passed)
            print(f"{len(cluster.nodes)} instances: {shown} of {batches + WARM} batches", file=sys.stderr, flush=True)
        if before is None and len(passed) >= WARM:
            before = time.monotonic(), _usage(airflow)
        if before is not None and len(passed) >= batches + WARM:
            wall, used = time.monotonic() - before[0], _usage(airflow)
            times = [later - one for one, later in zip(passed[WARM - 1 :], passed[WARM:], strict=False)]
            extra = [took - REPLACE_S - GATE_S for took in times]
            return {
                "batches": len(times),
                "extra_s": [round(value, 2) for value in (median(extra), min(extra), max(extra))],
                "share_of_a_core": {name: round((used[name][0] - before[1][name][0]) / wall, 2) for name in used},
                "memory_mb": {name: used[name][1] for name in used},
            }
        time.sleep(0.5)
    states: dict[str, int] = {}
    for task_id, state in airflow.client().task_states("kafka_upgrade_bench", run_id).items():
        key = f"{task_id.partition('[')[0]} {state}"
        states[key] = states.get(key, 0) + 1
    raise FatalError(f"{shown} batches passed in time: {states}. {airflow._log_end()}")


def _usage(airflow: AirflowServer) -> dict[str, tuple[float, int]]:
    """Component → processor seconds of it and of its tree of processes, and their memory (unique, MB)."""
    usage = dict.fromkeys(COMPONENTS, (0.0, 0))
    for process in psutil.Process(airflow.process.pid).children():
        name = next((one for one in COMPONENTS if one in " ".join(process.cmdline())), "")
        if not name:
            continue
        tree = [process, *process.children(recursive=True)]
        usage[name] = (sum(map(_seconds, tree)), sum(map(_memory, tree)) // 2**20)
    return usage


def _seconds(process: psutil.Process) -> float:
    try:
        spent: Sequence[float] = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return sum(spent[:4])  # user, system, and those of its ended children


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0


if __name__ == "__main__":
    sys.exit(main())
