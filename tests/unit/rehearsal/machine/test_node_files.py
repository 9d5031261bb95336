from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.model.topology import NodeSpec, Role
from kafka_rollout.rehearsal.machine.node_files import (
    NodeFiles,
    backup_files,
    backup_release,
    node_files,
    same_cluster,
)


def make_node(folder: Path, node_id: int = 1, cluster_id: str = "abc") -> NodeFiles:
    """A node with one directory, as Kafka writes it."""
    data = folder / f"node-{node_id}"
    for name in ("__cluster_metadata-0", "__consumer_offsets-0", "orders-0", "orders-1.f00-delete"):
        (data / name).mkdir(parents=True)
        (data / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {name}\n")
        (data / name / "00000000000000000000.log").write_bytes(b"x" * 100)
        (data / name / "00000000000000000000.index").write_bytes(b"y" * 50)
    metadata = data / "__cluster_metadata-0"
    for name in (
        "00000000000000000000-0000000000.checkpoint",
        "00000000000000000007-0000000001.checkpoint",
        "00000000000000000012-0000000001.checkpoint",
        "quorum-state",
    ):
        (metadata / name).write_bytes(b"z" * 10)
    (metadata / "kafka-rollout-trim-1").mkdir()
    (data / "meta.properties").write_text(f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\n")
    (data / "bootstrap.checkpoint").write_bytes(b"b")
    (data / ".kafka_cleanshutdown").write_text("{}")
    node = NodeSpec(node_id=node_id, name=f"node-{node_id}", roles=frozenset({Role.BROKER, Role.CONTROLLER}))
    return node_files(node, {"log.dirs": str(data)})


def listed(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_logs_of_metadata_and_coordinators_are_copied_and_other_partitions_are_empty(tmp_path: Path) -> None:
    files = make_node(tmp_path / "real")
    copies = files.copy(tmp_path / "copy", lambda number: None)
    (copy,) = map(Path, copies.values())
    assert listed(copy) == {
        "meta.properties",
        "bootstrap.checkpoint",
        "__cluster_metadata-0/00000000000000000000.log",
        "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
        "__cluster_metadata-0/00000000000000000012-0000000001.checkpoint",
        "__cluster_metadata-0/partition.metadata",
        "__cluster_metadata-0/quorum-state",
        "__consumer_offsets-0/00000000000000000000.log",
        "__consumer_offsets-0/partition.metadata",
        "orders-0/partition.metadata",
    }


def test_segments_between_two_renames_are_copied_for_the_node_of_the_copy(tmp_path: Path) -> None:
    files = make_node(tmp_path / "real")
    for suffix in (".swap", ".cleaned", ".deleted"):
        (tmp_path / "real" / "node-1" / "__consumer_offsets-0" / f"{0:020}.log{suffix}").write_bytes(b"x" * 10)
    (copy,) = map(Path, files.copy(tmp_path / "copy", lambda number: None).values())
    copied = {path.name for path in copy.rglob("*.log.*")}
    assert copied == {f"{0:020}.log.swap", f"{0:020}.log.cleaned"}


def test_the_size_counts_copied_files_only(tmp_path: Path) -> None:
    files = make_node(tmp_path)
    folders, size = files.size()
    copied = sum(path.stat().st_size for path in tmp_path.rglob("__c*/*") if path.suffix == ".log")
    assert folders == 3
    assert (
        size - copied
        == sum(
            path.stat().st_size
            for path in tmp_path.rglob("__c*/*")
            if path.name in {"partition.metadata", "quorum-state"}
        )
        + 2 * 10
    ), "and the newest snapshot, and the one of the formatting"


def test_a_backup_is_read_at_the_paths_below_the_folder_of_the_node(tmp_path: Path) -> None:
    home, outside = "/opt/kafka/node-1", "/data/kafka"
    node = NodeSpec(node_id=1, name="node-1", roles=frozenset({Role.BROKER}), directory=home)
    (tmp_path / "node-1").mkdir()
    config = f"log.dirs={home}/data/logs,{outside}\nmetadata.log.dir={home}/data/metadata\n"
    (tmp_path / "node-1" / "server.properties").write_text(config)
    (tmp_path / "node-1" / "release").write_text("3.9.1\n")
    assert backup_files(node, tmp_path).directories == {
        f"{home}/data/logs": tmp_path / "node-1" / "data" / "logs",
        outside: tmp_path / "node-1" / "data" / "kafka",
        f"{home}/data/metadata": tmp_path / "node-1" / "data" / "metadata",
    }
    assert backup_release(node, tmp_path) == "3.9.1"


def test_a_backup_without_a_node_is_one_sentence(tmp_path: Path) -> None:
    node = NodeSpec(node_id=1, name="node-1", roles=frozenset({Role.BROKER}))
    with pytest.raises(UserError, match=r"The backup has no .*node-1/server\.properties"):
        backup_files(node, tmp_path)


def test_copies_of_two_clusters_are_refused(tmp_path: Path) -> None:
    files = [make_node(tmp_path, 1), make_node(tmp_path, 2, cluster_id="other")]
    with pytest.raises(UserError, match=r"belongs to cluster abc, and .* to cluster other"):
        same_cluster(files)
    assert same_cluster(files[:1]) == "abc"


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    files = make_node(tmp_path, 2)
    other = NodeSpec(node_id=1, name="node-1", roles=frozenset({Role.BROKER}))
    with pytest.raises(UserError, match=r"belongs to node 2, not to node-1 \(1\)"):
        node_files(other, files.config).cluster_id()


@pytest.mark.parametrize("directory_id", ["", "directory.id=uPXWQZbTSfqJMnzC6dpdpw\n"])
def test_a_directory_that_was_migrated_from_zookeeper_keeps_its_broker_id(tmp_path: Path, directory_id: str) -> None:
    files = make_node(tmp_path, 1)
    (meta,) = tmp_path.rglob("meta.properties")
    meta.write_text(f"broker.id=1\n{directory_id}version=0\ncluster.id=abc\n")
    assert files.cluster_id() == "abc"
    meta.write_text("broker.id=2\nversion=0\ncluster.id=abc\n")
    with pytest.raises(UserError, match=r"belongs to node 2, not to node-1 \(1\)"):
        files.cluster_id()


def test_a_log_dir_that_kafka_ignores_is_not_copied(tmp_path: Path) -> None:
    files = make_node(tmp_path, 1)
    both = node_files(files.node, {**files.config, "log.dir": "/none/kafka-logs"})
    assert both.directories == files.directories


def test_a_missing_directory_is_one_sentence(tmp_path: Path) -> None:
    node = NodeSpec(node_id=1, name="node-1", roles=frozenset({Role.BROKER}))
    with pytest.raises(UserError, match="cannot be read: No such file or directory"):
        node_files(node, {"log.dirs": str(tmp_path / "none")}).cluster_id()


def test_directories_that_a_config_provider_has_are_refused(tmp_path: Path) -> None:
    node = make_node(tmp_path).node
    with pytest.raises(RefusedError, match=r"A config provider has log\.dirs of node-1"):
        node_files(node, {"log.dirs": "${env:DATA}"})
