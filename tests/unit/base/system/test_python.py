"""A Python process of this project executes no code of the folder in which it was started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.system.own_folders import new_own_folder
from kafka_rollout.base.system.python import python_process
from kafka_rollout.base.system.sessions import start_session
from kafka_rollout.base.system.settings import Settings, read_variables
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.rehearsal.machine import local
from kafka_rollout.rehearsal.machine.sandbox import Sandbox
from kafka_rollout.run.background import BackgroundKey, BackgroundKind
from kafka_rollout.traffic.processes import of_run
from kafka_rollout.wiring import rehearsal

MODULES = ("secrets", "json", "argparse", "kafka", "psutil", "signal", "logging")  # what the processes import first


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that code of the current folder writes. That folder is one of another user: it has modules of its own."""
    found, folder = tmp_path / "marks", tmp_path / "of-others"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(found)!r}, 'a').write('{name} ')\nraise SystemExit(9)\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", "")
    return found


def rehearse(folder: Path, _: pytest.MonkeyPatch) -> None:
    with pytest.raises(RolloutError):  # an empty job
        local.run_job(Sandbox(folder), {}, (), lambda _: None)  # type: ignore[arg-type]


def remove_a_rehearsal(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The end of the parent: standard input ends."""
    with new_own_folder(folder / "sandbox"):
        pass
    started: list[subprocess.Popen[str]] = []

    class Ended(Exception):
        pass

    def end(_: int) -> None:
        raise Ended

    def start(self: Any, **streams: Any) -> None:
        started.append(subprocess.Popen(self.command, env=self.environment, cwd=self.folder, text=True, **streams))

    patch.setattr(rehearsal, "os", SimpleNamespace(environ=os.environ, read=lambda *_: b"", _exit=end))
    patch.setattr("kafka_rollout.base.system.python.PythonProcess.start", start)
    with pytest.raises(Ended):
        rehearsal._end_with_parent(Sandbox(folder / "sandbox"))
    assert started[0].wait(60) == 0
    assert not (folder / "sandbox").exists()


def monitor(folder: Path, patch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **named: Any) -> None:
        started.append(start_session(*arguments, **named))

    patch.setattr(of_run, "start_session", start)
    control = of_run.BackgroundControl(
        key=BackgroundKey(cluster="one", run_id="r", kind=BackgroundKind.GROUPS),
        bootstrap_servers="127.0.0.1:9",
        settings=Settings.from_environment(),
    )
    control._spawn("i", folder, ClientSecurity(), "--unknown-option")
    assert started[0].wait(60) == 2
    assert "unrecognized arguments: --unknown-option" in (folder / of_run.LOG).read_text()


def module(folder: Path, _: pytest.MonkeyPatch) -> None:
    with python_process(["-m", "json.tool", "/dev/null"], os.environ).start(stderr=subprocess.PIPE) as child:
        assert "Expecting value" in child.communicate(timeout=60)[1]


@pytest.mark.parametrize("start", [rehearse, remove_a_rehearsal, monitor, module])
def test_no_child_executes_code_of_the_current_folder(
    start: Callable[[Path, pytest.MonkeyPatch], None], marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(tmp_path, monkeypatch)
    assert not marks.exists()


def test_the_test_can_fail(marks: Path) -> None:
    command = python_process(["-m", "json.tool", "/dev/null"], {}).command
    subprocess.run(command, env={}, check=False)
    assert "json" in marks.read_text()


def test_what_a_child_starts_inherits_the_safe_path(marks: Path) -> None:
    code = "import subprocess, sys, os; os.chdir(sys.argv[1]); subprocess.run([sys.executable, '-m', 'json.tool'])"
    with python_process(["-c", code, str(Path.cwd())], os.environ).start(stdin=subprocess.DEVNULL) as child:
        assert child.wait(60) == 0
    assert not marks.exists()


def test_the_paths_of_settings_are_absolute_for_a_child_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "CACHE", "CATALOGUE", "CLUSTERS", "ARTIFACTS", "DATABASE_PASSWORD_FILE", "SSH_CONFIG"):
        monkeypatch.setenv(f"KAFKA_ROLLOUT_{name}", f"of/{name}")
    monkeypatch.setenv("KAFKA_ROLLOUT_DATABASE", "sqlite:///runs.db")
    before, variables = Settings.from_environment(), read_variables()
    assert variables["KAFKA_ROLLOUT_DATABASE"] == f"sqlite:///{tmp_path}/runs.db"
    assert before.artifacts == f"{tmp_path}/of/ARTIFACTS"
    monkeypatch.chdir("/")
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert Settings.from_environment() == before


@pytest.mark.parametrize("url", ["sqlite:////var/runs.db", "postgresql://host/runs"])
def test_an_absolute_url_of_a_database_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_DATABASE", url)
    assert Settings.from_environment().database == url


def test_a_rehearsal_gets_no_credentials_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", "secret")
    monkeypatch.setenv("KAFKA_ROLLOUT_DATABASE", "postgresql://host/runs")
    monkeypatch.setenv("KAFKA_ROLLOUT_PORTS", "20000-20100")
    given = local._environment()
    assert not {"AIRFLOW_CONN_KAFKA", "KAFKA_ROLLOUT_DATABASE"} & set(given)
    assert given["KAFKA_ROLLOUT_PORTS"] == "20000-20100"
