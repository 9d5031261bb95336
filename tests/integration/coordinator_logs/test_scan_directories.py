"""The same logs scanned live and from the brokers' own directories, while the brokers run, give the same answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.coordinator_logs.spark.submit import scan_command, submit
from tests.integration.conftest import MakeCluster
from tests.integration.coordinator_logs.test_scan_live import is_quiet
from tests.waiting import wait_until
from tools.coordinator_traffic import CONSUMER_OFFSETS, make_traffic, plant, versioned
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("spark_archive")]

NODES, PARTITIONS = 3, 4


@pytest.fixture(scope="module")
def cluster(make_shared_cluster: MakeCluster) -> LocalCluster:
    """Three brokers, each with a copy of every coordinator log."""
    partitions = str(PARTITIONS)
    cluster = make_shared_cluster(
        "4.3.1",
        layout="combined",
        size=NODES,
        extra_config={"offsets.topic.num.partitions": partitions, "transaction.state.log.num.partitions": partitions},
    )
    servers = cluster.spec.bootstrap_servers
    make_traffic(servers, consumer_protocol=True)
    wait_until(lambda: is_quiet(cluster), 180)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        plant(servers, CONSUMER_OFFSETS, 1, [(versioned(99, codec.encode()), versioned(0, bytes(500)))] * 5, codec)
    return cluster


@pytest.fixture(scope="module")
def live(cluster: LocalCluster) -> ScanResult:
    return scan_command(cluster.spec, Settings.from_environment(), new_group_coordinator=None, live=True)[1]


@pytest.fixture(scope="module")
def from_directories(cluster: LocalCluster, live: ScanResult, tmp_path_factory: pytest.TempPathFactory) -> ScanResult:
    """Read after the live scan: nothing was written between them, for scans write nothing."""
    request = ScanRequest(
        cluster="directories",
        json_file=tmp_path_factory.mktemp("scan") / "scan.json",
        log_dirs=tuple(log_dirs(cluster)),
        live=True,
    )
    return submit(request, Settings.from_environment())[1]


def log_dirs(cluster: LocalCluster) -> list[Path]:
    found = [Path(str(node.directory)) for node in cluster.spec.nodes]
    return [next(home.rglob(f"{CONSUMER_OFFSETS}-0")).parent for home in found]


def test_classes_owners_tags_and_inventory_are_the_same(live: ScanResult, from_directories: ScanResult) -> None:
    assert from_directories.logs == live.logs
    assert from_directories.classes == live.classes
    assert sum(c.live or 0 for c in live.classes) > 0
    assert from_directories.sizes == live.sizes
    assert (from_directories.owners, from_directories.tagged) == (live.owners, live.tagged)
    assert from_directories.inventory == live.inventory


def test_the_verdicts_are_the_same(live: ScanResult, from_directories: ScanResult) -> None:
    assert from_directories.verdicts == live.verdicts
    assert live.verdicts


def test_of_the_three_copies_one_is_read_and_said_why(from_directories: ScanResult) -> None:
    copies = [copy for copy in from_directories.copies if copy.topic == CONSUMER_OFFSETS]
    assert len(copies) == NODES * PARTITIONS
    assert sum(copy.chosen for copy in copies) == PARTITIONS
    assert all("leader epoch" in copy.why or "first of the longest" in copy.why for copy in copies)


def test_the_brokers_own_directories_are_undamaged(from_directories: ScanResult) -> None:
    assert from_directories.damage == ()
