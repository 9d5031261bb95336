"""The wheel in a clean environment with Airflow: a real cluster is upgraded, watched and checked by DAGs of users."""

from __future__ import annotations

import json
import os
import re
import shlex
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
    """The interpreter of an environment that has what the page on operations installs, by its own words."""
    folder = tmp_path_factory.mktemp("foreign")
    run("git", "clone", "--quiet", ROOT, folder / "kafka-rollout")
    run(sys.executable, "-m", "venv", folder / "venv")
    found = folder / "venv" / "bin" / "python"
    page = (ROOT / "docs" / "operations.md").read_text()
    block = re.search(r"```bash\n(pip wheel .*?)```", page, re.DOTALL)
    assert block
    activate = shlex.quote(str(folder / "venv" / "bin" / "activate"))
    run("bash", "-ec", f". {activate}\n{block[1]}", cwd=folder / "kafka-rollout")
    return found


def build_wheel(folder: Path) -> Path:
    """Build the wheel from the sdist, as an index gets both, and return its path."""
    run(UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "-o", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "AIRFLOW"))}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=3000,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("lowest", [False, True], ids=["newest", "oldest Airflow"])
def test_a_plain_installation_has_one_pyspark(tmp_path: Path, version: str, lowest: bool) -> None:
    # Without the lock: pip takes the newest packages that the wheel allows.
    wanted = tmp_path / "wanted.in"
    oldest = re.search(r"apache-airflow>=([\d.]+)", (ROOT / "pyproject.toml").read_text())
    assert oldest
    airflow = f"apache-airflow=={oldest[1]}\n" if lowest else ""
    wanted.write_text(f"kafka-rollout[all] @ {build_wheel(tmp_path).as_uri()}\n{airflow}")
    found = run(UV, "pip", "compile", "--quiet", "--no-header", "--python-version", version, wanted)
    names = re.findall("^(pyspark[a-z-]*|apache-airflow)==([^ ]+)", found, re.MULTILINE)
    assert [name for name, _ in names] == ["apache-airflow", "pyspark"]


def test_the_environment_has_no_tool_of_developers(python: Path) -> None:
    listed = json.loads(run(UV, "pip", "list", "--format", "json", "--python", python))
    assert not DEVELOPERS & {one["name"] for one in listed}


def test_the_command_line_works_without_the_checkout(python: Path) -> None:
    assert "4.3.1" in run(python.with_name("kafka-rollout"), "catalogue", "--json")


def test_a_real_cluster_is_upgraded_by_three_lines_and_inside_a_user_s_dag_and_watched_by_another(
    python: Path, tmp_path: Path
) -> None:
    releases = ("4.0.1", "4.2.1", "4.3.1")
    program = ("-E", "-s", "-m", "tests.packaging.foreign_airflow")  # of the checkout, with the package of the wheel
    printed = run(python, *program, tmp_path / "run", *releases)
    found = json.loads(printed.splitlines()[-1])
    for dag_id, source, target in zip(("kafka_upgrade_foreign", "nightly"), releases[:-1], releases[1:], strict=True):
        upgrade = found[dag_id]
        assert upgrade["state"] == "success", upgrade["tasks"]
        assert (upgrade["shown"]["dag_id"], upgrade["shown"]["way"]) == (dag_id, f"{source} → {target}")
        assert upgrade["lock"] is None
        assert f"foreign: {source} → {target}" in upgrade["report"]
    assert {found["nightly"]["tasks"][task_id] for task_id in ("announce", "outcome", "celebrate")} == {"success"}
    watched = found["watches"]
    assert set(watched["tasks"].values()) == {"success"}, watched
    assert watched["waits"] == "deferred"
    assert Path(found["package"]).is_relative_to(python.parents[1])
    assert found["plugins"].count("kafka_rollout") == 1
    assert found["plugin_errors"] == []
