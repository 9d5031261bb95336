"""What the job uses of PySpark without documentation. pyproject.toml names the one version that has it."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pyspark
import pytest

from tests.paths import ROOT

USED = {
    "pyspark.java_gateway:launch_gateway": ([], "application/scan_coordinator_logs.py"),
    "pyspark.daemon:manager": ([], "worker_daemon.py"),
    "pyspark:SparkContext": (["conf", "gateway"], "job.py"),
}


@pytest.mark.parametrize("name", USED)
def test_pyspark_has_what_the_job_uses_without_documentation(name: str) -> None:
    parameters, place = USED[name]
    module, _, function = name.partition(":")
    try:
        found = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    except (ImportError, AttributeError):
        found = None
    if found is None or not set(parameters) <= set(found):
        pytest.fail(
            f"PySpark {pyspark.__version__} has no {name}({', '.join(parameters)}): change {place}.", pytrace=False
        )


def test_the_submission_is_imported_without_spark_and_names_the_missing_package_when_it_is_called() -> None:
    program = (
        "import importlib.util; importlib.util.find_spec = lambda name: None\n"
        "from kafka_rollout.coordinator_logs.spark import submit\n"
        "submit.application()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT / "plugins", capture_output=True, text=True, check=False
    )
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .endswith("FatalError: The package kafka_rollout_spark is not installed. Install kafka-rollout[spark] again.")
    )
