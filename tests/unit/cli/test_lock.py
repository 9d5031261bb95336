"""`lock break`: by an approver, and the log of the lock says who sat at which shell."""

from __future__ import annotations

import os
import pwd
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from sqlalchemy import select

from kafka_rollout.cli.app import run_main
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.run.store.tables import lease_log
from tests.fakes.cluster import make_spec
from tests.records import change_lock, database_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    spec = make_spec(name="fake")
    spec = replace(spec, nodes=tuple(replace(node, directory=f"/nowhere/{node.name}") for node in spec.nodes))
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "fake.yaml").write_text(dump_cluster(spec))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    change_lock(tmp_path / "home").acquire("fake", "manual__1", "Stop node 2.", for_s=600)
    return tmp_path / "home"


def test_an_approver_breaks_a_lock_and_the_shell_s_user_and_host_are_recorded(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "carol")
    assert run_main(["lock", "break", "-c", "fake", "--as", "alice"]) == 0
    assert change_lock(home).holder("fake") is None
    with database_of(home).reading() as connection:
        said = connection.execute(select(lease_log.c.body).where(lease_log.c.what == "broken")).scalar_one()
    assert f"alice (shell user {pwd.getpwuid(os.getuid()).pw_name} on {socket.gethostname()})" in said


@pytest.mark.parametrize("name", ["mallory", "Alice", " "])
def test_nobody_else_breaks_a_lock(home: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run_main(["lock", "break", "-c", "fake", "--as", name]) in {2, 3}
    assert "alice" in capsys.readouterr().err or not name.strip()
    assert change_lock(home).holder("fake") is not None


@pytest.mark.parametrize("four_eyes", [True, False])
def test_nobody_breaks_a_lock_in_a_name_that_the_shell_s_user_only_claims(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, four_eyes: bool
) -> None:
    file = tmp_path / "clusters" / "fake.yaml"
    keys = {"four_eyes": True} if four_eyes else {"shell_approvers": {"carol": "alice"}}
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "approvers": ["alice", "ben"], **keys}))
    assert run_main(["lock", "break", "-c", "fake", "--as", "alice"]) == 3
    assert "At a shell, alice is a name that the user" in capsys.readouterr().err
    assert change_lock(home).holder("fake") is not None
