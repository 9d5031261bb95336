"""Processor time of one poll of the pages: twelve clusters of 200 nodes with 1,000 runs each, on SQLite.

Real: the stores, the histories, and what the routes do for an answer without Airflow's own part. The runs are recorded
once by the real store; the others are copies of their rows.

    python -m bench.fleet --write
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import insert, text

from kafka_rollout.airflow.views import records
from kafka_rollout.airflow.views.clusters import fleet_table
from kafka_rollout.airflow.views.records import shown
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import list_readable_clusters
from kafka_rollout.console.fleet import choose_rows
from kafka_rollout.gates.gate import GateCheck, GateCondition, GateKind, GateRef
from kafka_rollout.run.events import Event
from kafka_rollout.run.step_events import GateChecked, GatePassed, Started, Stopped, Stopping
from kafka_rollout.run.store.opening import database_of, open_check_history, open_run
from kafka_rollout.run.store.tables import runs
from kafka_rollout.wiring import runs as run_status
from kafka_rollout.wiring.stored_state import read_fleet
from tests.fleet_scenes import R391, R431, SHELL, STEP, Fleet, approved, dag, observed, planned
from tests.option_scenes import check_of

RESULTS = Path(__file__).parent / "results" / "fleet.json"
CLUSTERS, BROKERS, CONTROLLERS = 12, 195, 5
RUNS, LONG_RUNS = 1000, 10  # per cluster; the long ones are the newest
CHECKS = 3  # of each gate after a start
FINDINGS = 2000  # of the newest check of a cluster
GOALS = {"fleet": 1.0, "runs": 0.05}  # seconds: wall, processor time


def long_run(fleet: Fleet, cluster: str, run_id: str) -> None:
    """A roll of all nodes: about 1,500 events. It is in progress."""
    spec = next(spec for name, spec in list_readable_clusters()[0].items() if name == cluster)
    events: list[Event] = [dag(cluster), observed(spec, R391, 21), planned(R391, R431), approved()]
    for node in spec.nodes:
        ref = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=node.node_id)
        where: Any = {"node_id": node.node_id, "release_step": STEP}
        events += [Stopping(**where), Stopped(**where, seconds=4.0, forced=False)]
        events.append(Started(**where, release=R431, pid=7, seconds=9.0))
        for number in range(CHECKS):
            isr = GateCondition(name="in every ISR", is_met=number == CHECKS - 1, evidence=f"{number} of 900")
            events.append(GateChecked(ref=ref, check=GateCheck(gate=node.name, at=time.time(), conditions=(isr,))))
        events.append(GatePassed(ref=ref, gate=node.name, message="passed after 40 s"))
    fleet.run(cluster, run_id, *events)


def build(root: Path) -> Fleet:
    fleet = Fleet(root)
    specs = [fleet.add(f"cluster-{number:02}", brokers=BROKERS, controllers=CONTROLLERS) for number in range(CLUSTERS)]
    first = specs[0].name
    fleet.run(first, "short", SHELL, observed(specs[0], R391, 21), planned(R391, R431), outcome="dry_run", age_s=9000)
    long_run(fleet, first, "long")
    check = json.dumps(check_of(7200, *(f"topic orders-{number}" for number in range(FINDINGS))))
    for spec in specs:
        fleet.scan(spec.name, age_s=7200)
        kept = {**json.loads(check), "change": "upgrade", "path": ["3.9.1", "4.3.1"], "sentence": "It is blocked."}
        open_check_history(spec.name).keep("scheduled__check", kept, "")
    copy_runs([spec.name for spec in specs])
    return fleet


def copy_runs(clusters: list[str]) -> None:
    """Copy the rows of the two runs. A history does not contain its name, so a copy is a valid one."""
    with database_of().begin() as connection:
        known = {row.run_id: row for row in connection.execute(text("SELECT * FROM runs"))}
        for cluster in clusters:
            for number in range(RUNS):
                kind = "long" if number >= RUNS - LONG_RUNS else "short"
                row = known[kind]
                values = {**row._mapping, "cluster": cluster, "run_id": f"{kind}-{number}", "number": number + 1}
                values["updated_at"] = 1e9 + number
                del values["id"]
                made = connection.execute(insert(runs).values(values).returning(runs.c.id)).scalar_one()
                copied = {"made": made, "row": row.id}
                connection.execute(
                    text("INSERT INTO events SELECT :made, number, body FROM events WHERE run = :row"), copied
                )


def rows_of(settings: Settings) -> Any:
    rows, problems = read_fleet(settings)
    return shown(fleet_table(rows, problems, choose_rows(rows)))


def runs_of(settings: Settings) -> Any:
    clusters = list_readable_clusters(settings)[0]
    return shown(records.runs_of(clusters, settings, may_read=lambda dag_id: True))


def scans_of(settings: Settings) -> Any:
    return shown(records.scans_of(list_readable_clusters(settings)[0], settings))


def status_of(settings: Settings) -> Any:
    found = run_status.read_status("cluster-00", settings)
    return None if found is None else shown(found.to_json())


def measure(poll: Callable[[Settings], Any], settings: Settings, rounds: int, *, grows: bool) -> dict[str, Any]:
    """Return processor and wall seconds of polls after the first one. `grows`: one run gets an event before each."""
    poll(settings)
    spent, took = [], []
    for number in range(rounds):
        if grows:
            store = open_run("cluster-00", f"long-{RUNS - 1}", settings)
            store.record(Stopping(node_id=1 + number, release_step=STEP))
        began, processor = time.monotonic(), time.process_time()
        size = len(json.dumps(poll(settings)))
        spent.append(time.process_time() - processor)
        took.append(time.monotonic() - began)
    return {"cpu_s": _spread(spent), "wall_s": _spread(took), "bytes": size, "rounds": rounds}


def _spread(values: list[float]) -> list[float]:
    return [round(value, 4) for value in (median(values), min(values), max(values))]


def forget() -> None:
    """Start as a process that has read nothing."""
    run_status._READ = run_status.ReadRuns(most_events=30_000)
    records.read_run.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="write bench/results/fleet.json")
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "command": "make bench-fleet ARGS=--write",
        "clusters": CLUSTERS,
        "nodes": BROKERS + CONTROLLERS,
        "runs": RUNS,
        "long_runs": LONG_RUNS,
    }
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-bench-") as folder:
        root = Path(folder)
        os.environ["KAFKA_ROLLOUT_CLUSTERS"], os.environ["KAFKA_ROLLOUT_HOME"] = f"{root}/clusters", f"{root}/home"
        build(root)
        settings = Settings.from_environment()
        for name, poll in (("fleet", rows_of), ("runs", runs_of), ("scans", scans_of), ("status", status_of)):
            forget()
            processor = time.process_time()
            poll(settings)
            first = time.process_time() - processor
            unchanged = measure(poll, settings, arguments.rounds, grows=False)
            found = {
                "first_cpu_s": round(first, 3),
                "unchanged": unchanged,
                "one_run_grows": measure(poll, settings, arguments.rounds, grows=True),
                "ratio_first_to_unchanged": round(first / unchanged["cpu_s"][0], 1),
            }
            results[name] = found
            print(name, json.dumps(found))
    results["goals"] = {
        "fleet_wall_s": [
            GOALS["fleet"],
            max(results["fleet"][one]["wall_s"][0] for one in ("unchanged", "one_run_grows")),
        ],
        "scans_cpu_s": [GOALS["runs"], results["scans"]["unchanged"]["cpu_s"][0]],
        "runs_cpu_s": [GOALS["runs"], results["runs"]["unchanged"]["cpu_s"][0]],
    }
    print("goals (at most, measured):", json.dumps(results["goals"]))
    if arguments.write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
