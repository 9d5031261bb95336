"""Airflow parses the DAG files every half minute. They load what a task needs only when it runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.airflow

PROGRAM = """
import sys
import kafka_rollout.airflow.graphs.all_clusters
print(*sys.modules)
"""


def test_the_dag_files_load_no_client_no_ssh_and_no_jvm() -> None:
    listed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    loaded = set(listed.split())
    assert "kafka_rollout.steps.procedures.upgrade" in loaded
    late = {"kafka", "confluent_kafka", "paramiko", "py4j", "numpy", "numba", "pyarrow", "pyspark", "cramjam"}
    assert loaded & late == set()
