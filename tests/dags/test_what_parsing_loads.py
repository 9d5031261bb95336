"""Airflow parses the DAG files every half minute. They load what a task needs only when it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.rooms import OUTSIDE, modules_below
from tests.paths import ROOT

pytestmark = pytest.mark.airflow

PROGRAM = """
import runpy, sys
import airflow.sdk
known = set(sys.modules)
sys.stdout = sys.stderr
for file in sys.argv[1:]:
    runpy.run_path(file)
loaded = {name: module for name, module in sys.modules.items() if name not in known}
print(*(name for name, module in loaded.items() if not hasattr(module, "__path__")), sep="\\n", file=sys.__stdout__)
"""
# The inventory, the names of the releases and what was last seen are in the forms.
NEEDED = {
    *("kafka_rollout.clusters.inventory", "kafka_rollout.clusters.entries", "kafka_rollout.clusters.last_seen"),
    "kafka_rollout.nodes.metric_names",
    "kafka_rollout.releases.documents.catalogue",
}


def test_the_dag_files_load_no_module_that_touches_the_outside(inventory: Path) -> None:
    files = map(str, sorted((ROOT / "dags").glob("*.py")))
    command = [sys.executable, "-c", PROGRAM, *files]
    environment = {**os.environ, "KAFKA_ROLLOUT_CLUSTERS": str(inventory)}
    listed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    loaded = set(listed.split())
    assert "kafka_rollout.procedure.kinds" in loaded
    folders = modules_below(folder for folder in OUTSIDE if folder != "base/system")
    assert {name for name in loaded if name.startswith(folders)} == NEEDED
    late = ("kafka", "confluent_kafka", "paramiko", "py4j", "numpy", "numba", "pyarrow", "pyspark", "cramjam")
    assert not {name for name in loaded if name.split(".")[0] in late}
