"""The inventory file of a discovered cluster, and what an operator makes of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.clusters import discovery
from kafka_rollout.clusters.discovery import DiscoveredCluster, Sources, default_name, merge, write_inventory
from kafka_rollout.clusters.inventory import load_cluster
from kafka_rollout.model.state import QuorumState, ReplicaState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, VersionRange
from tests.paths import INCLUDE
from tests.unit.builders import quorum

BROKER = NodeSpec(
    node_id=1,
    name="broker-1",
    roles=frozenset({Role.BROKER}),
    broker_address="[fd00::1]:9092",
    rack="a: 'b' # c\nname: other",
)
CONTROLLER = NodeSpec(
    node_id=2, name="controller-2", roles=frozenset({Role.CONTROLLER}), controller_address="kafka-2:9093"
)
FOUND = DiscoveredCluster(
    cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
    nodes=(BROKER, CONTROLLER),
    silent={1: "Node 1 cannot be reached:\nname: other"},
    hidden={3: "its address is unknown"},
    supported={METADATA_VERSION: VersionRange(1, 21)},
)


def write(folder: Path, name: str = "orders") -> tuple[Path, ClusterSpec]:
    return write_inventory(FOUND, name, folder, load_catalogue(INCLUDE), bootstrap="kafka-1:9092", secured=True)


def test_the_reader_accepts_the_file_and_text_from_outside_stays_a_value(tmp_path: Path) -> None:
    path, spec = write(tmp_path)
    assert load_cluster(path) == spec
    assert (spec.name, spec.runtime, spec.nodes) == ("orders", "none", (BROKER, CONTROLLER))
    assert [file.name for file in tmp_path.iterdir()] == ["orders.yaml"]


def test_a_listener_that_no_broker_advertises_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = SimpleNamespace(brokers=(), first_answer=lambda *_: SimpleNamespace(brokers=()), close=lambda: None)
    monkeypatch.setattr(discovery, "_connections", lambda *_, **__: nodes)
    with pytest.raises(UserError, match=r"kafka-1:19092 responds and names no broker: its listener is in"):
        discovery.discover_cluster("kafka-1:19092", ClientSecurity())


INJECTED = "\napprovers: [mallory]\n#"
SAFE = "kafka-1:9092"


@pytest.mark.parametrize(
    ("found", "bootstrap"),
    [
        (replace(FOUND, cluster_id=FOUND.cluster_id + INJECTED), SAFE),
        (FOUND, SAFE + INJECTED),
        (replace(FOUND, silent={1: INJECTED}), SAFE),
        (replace(FOUND, hidden={3: INJECTED}), SAFE),
    ],
    ids=["cluster id", "bootstrap server", "error of a node", "error of a controller"],
)
def test_a_broker_cannot_add_lines_to_the_file(tmp_path: Path, found: DiscoveredCluster, bootstrap: str) -> None:
    catalogue = load_catalogue(INCLUDE)
    path, spec = write_inventory(found, "orders", tmp_path, catalogue, bootstrap=bootstrap, secured=True)
    assert spec.approvers == ()
    assert "mallory" in path.read_text(), "in a comment"


def test_an_address_with_a_line_break_is_a_value_that_the_reader_rejects(tmp_path: Path) -> None:
    found = replace(FOUND, nodes=(replace(BROKER, broker_address=f"kafka-1{INJECTED}:9092"), CONTROLLER))
    with pytest.raises(UserError, match="broker_address"):
        write_inventory(found, "orders", tmp_path, load_catalogue(INCLUDE), bootstrap=SAFE, secured=True)
    assert list(tmp_path.iterdir()) == []


def test_a_question_that_is_answered_becomes_a_line_of_the_inventory(tmp_path: Path) -> None:
    path, _ = write(tmp_path)
    text = path.read_text().replace("runtime: none", "runtime: ssh_service")
    text = re.sub(r"^( *)# ((?: *|- )[a-z_]+:.*)$", r"\1\2", text, flags=re.MULTILINE)
    path.write_text(text.replace("HOST:PORT", "kafka-3:9093\n  host: kafka-3"))
    spec = load_cluster(path)
    assert [node.service.host for node in spec.nodes if node.service] == ["fd00::1", "kafka-2", "kafka-3"]
    assert spec.apache_releases == {"metadata.version 1-21": "3.9.2"}
    assert spec.nodes[0].prometheus_url == "http://[fd00::1]:7071/metrics"


def test_an_existing_file_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text("mine")
    with pytest.raises(UserError, match=r"orders\.yaml exists and was not changed"):
        write(tmp_path)
    assert (tmp_path / "orders.yaml").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["../orders", "Orders", "", "a/b"])
def test_a_name_that_the_reader_rejects_writes_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="is not a name of a cluster"):
        write(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_the_default_name_is_of_the_cluster_id() -> None:
    assert default_name("MkU3-_EVBNTcwNTJENDM2Qg") == "kafka-mku3evbn"


def _broker(node_id: int) -> NodeSpec:
    roles = frozenset({Role.BROKER})
    return NodeSpec(node_id=node_id, name=f"broker-{node_id}", roles=roles, broker_address=f"kafka-{node_id}:9092")


def _roles(found: DiscoveredCluster) -> dict[int, str]:
    return {node.node_id: "+".join(role.value for role in Role if role in node.roles) for node in found.nodes}


def _stopped(seen: QuorumState, node_id: int) -> QuorumState:
    """Return the quorum with the last fetch of a node a minute ago."""

    def replica(one: ReplicaState) -> ReplicaState:
        return replace(one, last_fetch_ms=int(one.last_fetch_ms or 0) - 60_000) if one.replica_id == node_id else one

    return replace(seen, voters=tuple(map(replica, seen.voters)), observers=tuple(map(replica, seen.observers)))


RUNNING = quorum(voters=(101, 102, 103), leader=101)
VOTERS = {101: "c-101:9093", 102: "c-102:9093", 103: "c-103:9093"}


def test_a_broker_that_only_partitions_name_is_a_node_that_does_not_respond() -> None:
    found = merge(Sources(brokers={1: _broker(1), 2: _broker(2)}, replicas={1, 2, 3}, quorum=RUNNING, voters=VOTERS))
    assert _roles(found) == {
        1: "broker", 2: "broker", 3: "broker", 101: "controller", 102: "controller", 103: "controller",
    }  # fmt: skip
    assert found.silent == {3: "No broker reports its address: it is fenced, or it is not registered."}
    assert found.problems == (f"broker-3 (node 3) does not respond: {found.silent[3]}",)


def test_a_broker_that_hangs_keeps_its_address_and_is_silent() -> None:
    found = merge(Sources(brokers={1: _broker(1), 2: _broker(2)}, silent_brokers={2: "no answer within 10.0 s"}))
    assert found.nodes == (_broker(1), _broker(2))
    assert found.silent == {2: "no answer within 10.0 s"}


@pytest.mark.parametrize("why", ["connection refused", "Its address is unknown."])
def test_a_controller_that_cannot_be_reached_runs_if_the_quorum_shows_its_fetches(why: str) -> None:
    sources = Sources(brokers={1: _broker(1)}, quorum=RUNNING, voters=VOTERS, silent_controllers={103: why})
    found = merge(sources)
    assert (_roles(found), found.silent, found.hidden) == (
        {1: "broker", 101: "controller", 102: "controller"},
        {},
        {103: why},
    )
    found = merge(replace(sources, quorum=_stopped(RUNNING, 103)))
    assert (103 in _roles(found), found.silent, found.hidden) == (True, {103: why}, {})
    found = merge(replace(sources, quorum=None))
    assert (found.silent, found.hidden) == ({}, {103: why}), "nothing shows whether it runs"


def test_a_controller_without_a_vote_and_a_combined_node_are_merged_by_id() -> None:
    found = merge(
        Sources(
            brokers={1: _broker(1)},
            replicas={1, 2},
            quorum=quorum(voters=(1, 2), leader=1),
            voters={1: "c-1:9093", 2: None},
            controllers={1: "c-1:9093", 9: "c-9:9093"},
            silent_controllers={2: "Its address is unknown.", 9: "connection refused"},
        )
    )
    assert _roles(found) == {1: "broker+controller", 2: "broker+controller", 9: "controller"}
    assert set(found.silent) == {2, 9}


def test_an_observer_that_no_other_source_names_is_a_node() -> None:
    running = quorum(voters=(101,), observers=(1, 5), leader=101)
    found = merge(Sources(brokers={1: _broker(1)}, quorum=running, voters={101: "c:1"}))
    assert (5 in _roles(found), set(found.hidden)) == (False, {5}), "it fetches"
    gone = _stopped(running, 5)
    found = merge(Sources(brokers={1: _broker(1)}, quorum=gone, voters={101: "c:1"}))
    assert (_roles(found)[5], set(found.silent)) == ("broker", {5})


def test_a_node_without_an_address_is_a_question_and_not_a_line(tmp_path: Path) -> None:
    sources = Sources(
        brokers={1: _broker(1)}, replicas={1, 2}, quorum=quorum(voters=(101,), leader=101), voters={101: "c-101:9093"}
    )
    unread = ("Node 1 does not allow it.\nname: other",)
    found = replace(merge(sources), cluster_id="id", unread=unread, supported=FOUND.supported)
    path, spec = write_inventory(found, "orders", tmp_path, load_catalogue(INCLUDE), bootstrap=SAFE, secured=False)
    assert [node.node_id for node in spec.nodes] == [1, 101]
    text = path.read_text()
    assert "# Node 2 does not respond: No broker reports its address: it is fenced, or it is not registered." in text
    assert "# - id: 2\n#   name: broker-2\n#   roles: [broker]\n#   broker_address: HOST:PORT\n" in text
    assert "# Node 1 does not allow it. name: other. Which nodes are missing here?" in text
