"""The inventory file of a discovered cluster, and what an operator makes of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.clusters.discovery import DiscoveredCluster, default_name, write_inventory
from kafka_rollout.clusters.inventory import load_cluster
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, VersionRange
from tests.paths import INCLUDE

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
