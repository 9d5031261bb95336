"""`unlock`: by an approver, and the log of the lock says who sat at which shell."""

from __future__ import annotations

import os
import pwd
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from sqlalchemy import select

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.app import run_main
from kafka_rollout.clusters.inventory import dump_cluster, get_cluster
from kafka_rollout.model.claims import Claim
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.run.store.tables import lease_log
from tests.fakes.cluster import make_spec
from tests.records import change_lock, database_of, run_history


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
    assert run_main(["unlock", "-c", "fake", "--as", "alice"]) == 0
    assert change_lock(home).holder("fake") is None
    with database_of(home).reading() as connection:
        said = connection.execute(select(lease_log.c.body).where(lease_log.c.what == "broken")).scalar_one()
    assert f"alice (shell user {pwd.getpwuid(os.getuid()).pw_name} on {socket.gethostname()})" in said


def test_an_approver_takes_over_the_nodes_that_another_database_has_claimed(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "clusters" / "fake.yaml"
    inventory = yaml.safe_load(file.read_text())
    for node in inventory["nodes"]:
        node["directory"] = str(tmp_path / node["name"])
        Path(node["directory"]).mkdir()
    file.write_text(yaml.safe_dump(inventory))
    spec = get_cluster("fake")
    node = spec.nodes[0]
    claim = Claim(
        cluster_id="", node_id=node.node_id, run_id="theirs", nonce="ab" * 16, at=1.0, database="rollout on pg-1"
    )
    LocalProcessRuntime(spec, ReleaseCache.from_settings(Settings.from_environment())).claim(node, claim)
    assert run_main(["unlock", "-c", "fake", "--as", "alice"]) == 0
    assert run_history(home, "fake", "x").known_claims([claim.nonce]) == frozenset()
    assert run_main(["unlock", "-c", "fake", "--as", "mallory", "--claims"]) == 3
    assert run_history(home, "fake", "x").known_claims([claim.nonce]) == frozenset()
    capsys.readouterr()
    assert run_main(["unlock", "-c", "fake", "--as", "alice", "--claims"]) == 0
    told = f"Node {node.node_id} was taken over from run theirs of database rollout on pg-1."
    assert told in capsys.readouterr().out
    assert run_history(home, "fake", "x").known_claims([claim.nonce]) == {claim.nonce}
    assert change_lock(home).history("fake")[-1]["by"].startswith("alice (shell user ")
    assert run_main(["unlock", "-c", "fake", "--as", "alice", "--claims"]) == 0
    assert "No other database has claimed a node." in capsys.readouterr().out


@pytest.mark.parametrize("name", ["mallory", "Alice", " "])
def test_nobody_else_breaks_a_lock(home: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run_main(["unlock", "-c", "fake", "--as", name]) in {2, 3}
    assert "alice" in capsys.readouterr().err or not name.strip()
    assert change_lock(home).holder("fake") is not None


@pytest.mark.parametrize("four_eyes", [True, False])
def test_nobody_breaks_a_lock_in_a_name_that_the_shell_s_user_only_claims(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, four_eyes: bool
) -> None:
    file = tmp_path / "clusters" / "fake.yaml"
    keys = {"four_eyes": True} if four_eyes else {"shell_approvers": {"carol": "alice"}}
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "approvers": ["alice", "ben"], **keys}))
    assert run_main(["unlock", "-c", "fake", "--as", "alice"]) == 3
    assert "At a shell, alice is a name that the user" in capsys.readouterr().err
    assert change_lock(home).holder("fake") is not None
