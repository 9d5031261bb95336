"""Runs of a real DAG over a real cluster in this process: everything is real but the scheduler and who answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.system.files import write_whole
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.topology import NEVER
from kafka_rollout.run.store.history import SqlRunStore
from tests.dags.conftest import Asked, answer_at_once
from tests.dags.runs.dag_run import run_dag
from tests.records import run_history
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster

QUICKLY = {"pace": "fast"}


@dataclass(kw_only=True)
class ProcessRuns(Asked):
    """Runs of the DAGs of one inventory folder."""

    clusters: Path
    home: Path

    @classmethod
    def open(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessRuns:
        from airflow.utils import db

        runs = cls(clusters=folder / "clusters", home=folder / "home")
        runs.clusters.mkdir()
        monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(runs.clusters))
        monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(runs.home))
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
        db.initdb()
        answer_at_once(monkeypatch, runs)
        return runs

    def run(self, cluster: LocalCluster, dag: str, **conf: Any) -> tuple[str, dict[str, str | None], SqlRunStore]:
        """(state of the run, states by task, the run's record)."""
        from airflow.dag_processing.dagbag import DagBag

        self.asked.clear()
        described = replace(cluster.spec, approvers=("alice",), scan_schedule=NEVER, gate_timeout_s=600.0)
        write_whole(self.clusters / f"{described.name}.yaml", dump_cluster(described).encode(), mode=0o644)
        bag = DagBag(PROJECT_ROOT / "dags")
        assert bag.import_errors == {}
        found = bag.dags[f"{dag}_{described.name}"]
        run = run_dag(found, {**QUICKLY, **conf})
        states = {ti.task_id: ti.state for ti in run.get_task_instances()}
        return str(run.state), states, run_history(self.home, described.name, run.run_id)
