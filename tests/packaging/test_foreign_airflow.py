"""The wheel in a clean environment with Airflow: an upgrade of a real cluster by a DAG file of three lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(3600)]
UV = Path(sys.executable).with_name("uv")
# What is in the lock for developers only would hide a dependency that the wheel does not declare.
DEVELOPERS = {"pytest", "mypy", "ruff", "hypothesis", "playwright"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its extra `airflow`, in the versions of the lock."""
    folder = tmp_path_factory.mktemp("foreign")
    run(UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    found = folder / "venv" / "bin" / "python"
    install = (UV, "pip", "install", "--quiet", "--python", found)
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    locked = [line.rstrip(" \\") for line in lines if "==" in line and line[0].isalpha()]
    (folder / "constraints.txt").write_text("\n".join(locked))
    run(*install, *(one for one in locked if one.startswith("setuptools==")))
    run(
        *install,
        "--no-build-isolation-package",
        "pyspark",
        "--override",
        ROOT / "requirements-overrides.txt",
        "--constraint",
        folder / "constraints.txt",
        f"{wheel}[airflow]",
    )
    return found


def run(*command: str | Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "AIRFLOW"))}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, env=environment, timeout=3000
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def test_the_environment_has_no_tool_of_developers(python: Path) -> None:
    listed = json.loads(run(UV, "pip", "list", "--format", "json", "--python", python))
    assert not DEVELOPERS & {one["name"] for one in listed}


def test_the_command_line_works_without_the_checkout(python: Path) -> None:
    assert "4.3.1" in run(python.with_name("kafka-rollout"), "catalogue", "--json")


def test_an_upgrade_of_a_real_cluster_succeeds_by_a_dag_file_of_three_lines(python: Path, tmp_path: Path) -> None:
    told = run(python, "-I", Path(__file__).with_name("foreign_airflow.py"), tmp_path / "run", "4.0.1", "4.3.1")
    found = json.loads(told.splitlines()[-1])
    assert found["state"] == "success", found["tasks"]
    assert Path(found["package"]).is_relative_to(python.parents[1])
    assert found["plugins"].count("kafka_rollout") == 1
    assert found["plugin_errors"] == []
