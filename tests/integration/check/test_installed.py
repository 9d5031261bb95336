"""The base install alone, in a new environment: small enough, and able to check a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import MakeCluster
from tests.paths import ROOT

pytestmark = [pytest.mark.full, pytest.mark.integration]
UV = Path(sys.executable).with_name("uv")
MOST_BYTES = 250_000_000


def run(*command: str | Path, code: int = 0, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "AIRFLOW", "PYTHON"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**kept, **environment},
        timeout=900,
    )
    assert done.returncode == code, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def test_the_base_install_checks_a_cluster_and_is_small(make_cluster: MakeCluster, tmp_path: Path) -> None:
    run(UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    venv = tmp_path / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, venv)
    run(
        UV,
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--link-mode",
        "copy",
        "--python",
        venv / "bin" / "python",
        wheel,
    )
    installed = sum(path.stat().st_size for path in venv.rglob("*") if path.is_file() and not path.is_symlink())
    assert installed < MOST_BYTES
    assert not list(venv.glob("lib/*/site-packages/pyspark")) + list(venv.glob("lib/*/site-packages/airflow"))

    cluster = make_cluster("3.9.1", layout="combined", size=1)
    home, command = tmp_path / "home", venv / "bin" / "kafka-rollout"
    words = ("check", "--bootstrap-server", cluster.spec.bootstrap_servers, "--to", "4.3.1", "--json")
    found = json.loads(run(command, *words, code=3, KAFKA_ROLLOUT_HOME=str(home)))
    results = {one["id"]: one["result"] for one in found["checks"]}
    assert (results["node-configuration"], results["coordinator-logs"]) == ("ok", "ok")
    assert not home.exists()
