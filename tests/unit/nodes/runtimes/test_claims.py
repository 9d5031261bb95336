"""The files of claims, below the home of an SSH user and of a local process: what cannot be read is not missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from platform import node as host_name

import pytest

from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.unit_state import parse_claims
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.ports.cluster import NodeRuntime
from kafka_rollout.releases.facts import Release
from tests.fakes.local_host import LocalHost
from tests.fakes.ssh_host import SshHost, ssh_shell
from tests.unit.nodes.runtimes.test_local_process import NoJars

World = tuple[NodeRuntime, NodeSpec, Path]
NONCES = [f"{number:032x}" for number in range(3)]


def claim_of(number: int, **fields: object) -> Claim:
    claim = Claim(
        cluster_id="x", node_id=1, run_id=f"run-{number}", nonce=NONCES[number], at=float(number), database="a.db"
    )
    return replace(claim, **fields)  # type: ignore[arg-type]


@pytest.fixture(params=["local", "shell", "ssh"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A runtime, a node, and the folder of its claims. `shell`: the lines of the SSH user, in a real shell; `ssh`: also
    over a real connection."""
    if request.param == "ssh":
        remote = SshHost(tmp_path)
        (remote.folder / "unit").write_text("LoadState=loaded\nActiveState=inactive\nMainPID=0\n")
        node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="kafka-1"))
        cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(node,))
        with ssh_shell(remote) as shell:
            folder = remote.home / ".kafka-rollout" / "claims" / host_name() / "kafka.service"
            yield SshServiceRuntime(cluster, shell, Release.parse), node, folder
        return
    if request.param == "shell":
        host = LocalHost(tmp_path / "home")
        cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(host.node,))
        folder = host.home / ".kafka-rollout" / "claims" / host_name() / "kafka.service"
        yield SshServiceRuntime(cluster, host, Release.parse), host.node, folder
        return
    home = tmp_path / "node"
    home.mkdir()
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), directory=str(home))
    yield LocalProcessRuntime(ClusterSpec(name="near", nodes=(node,)), NoJars()), node, home / "claims"


def test_the_newest_of_several_claims_stays_as_the_closed_one(world: World) -> None:
    runtime, node, folder = world
    for number in (1, 0, 2):
        runtime.claim(node, claim_of(number))
    runtime.end_claims(node, [claim_of(2), claim_of(1)], changed=True)
    assert runtime.process(node).claims == Claims(open=(claim_of(0),), closed=claim_of(2))
    runtime.end_claims(node, [claim_of(0)], changed=True)
    assert runtime.process(node).claims == Claims(closed=claim_of(0))
    assert [path.name for path in folder.iterdir()] == ["closed.json"]


def _is_a_file(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("")


def _is_damaged(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "open-1.json").write_text('{"run_id": "x')


def _closed_is_a_folder(folder: Path) -> None:
    (folder / "closed.json").mkdir(parents=True)


def _closed_is_damaged(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "closed.json").write_text("[]\n")


@pytest.mark.parametrize("spoil", [_is_a_file, _is_damaged, _closed_is_a_folder, _closed_is_damaged])
def test_what_cannot_be_read_is_unknown_and_not_missing(world: World, spoil: Callable[[Path], None]) -> None:
    runtime, node, folder = world
    assert runtime.process(node).claims == Claims()
    spoil(folder)
    assert runtime.process(node).claims.problem


def test_a_home_that_cannot_be_entered_and_an_output_that_ends_early_are_unknown() -> None:
    assert parse_claims("").problem
    assert parse_claims("Claims=begin\n").problem
    gone = "Claims=begin\nbash: line 1: cd: /srv/rollout: No such file or directory\nClaims=end\n"
    assert "cd: /srv/rollout" in parse_claims(gone).problem
    none = "Claims=begin\nfind: ‘a’: No such file or directory\nsed: can't read a: No such file or directory\n"
    assert parse_claims(f"{none}Claims=end\n") == Claims()
