"""Rehearsals of more changes: a planted configuration fails exactly if a real node does, and nothing is ever left."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.nodes.runtimes.local_process import node_processes
from kafka_rollout.rehearsal.machine.local import PROCESS
from kafka_rollout.releases.facts import Release
from tests.integration.conftest import MakeCluster
from tests.integration.coordinator_logs.test_coordinators_loaded import logs_for
from tests.integration.coordinator_logs.test_scan_oracle import Scanned, scan_planted
from tests.integration.harness.feature_harness import Command
from tests.integration.harness.groups.committing import commit
from tests.integration.harness.logs.load_oracle import Place, coordinator_config, plant
from tests.integration.harness.planted_configs import set_configs
from tests.integration.harness.shell import Shell
from tests.integration.metadata_log.test_dynamic_configs_on_brokers import CASES, Case
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]
_S = 60.0
LOADED = {LoadVerdict.LOADS, LoadVerdict.LOADS_IGNORING}


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_REHEARSE", "1")


def create_topics(cluster: LocalCluster, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers, "log_level": 0})
    copies = min(3, len(cluster.spec.brokers))
    for made in admin.create_topics([NewTopic(name, 1, copies) for name in names]).values():
        made.result(_S)


def check_nothing_left(folder: Path) -> None:
    assert list((folder / "home" / "rehearsals").iterdir()) == []
    assert node_processes(folder / "home") == {}


class Planting:
    """One running cluster at a time; the cases of a release use it one after the other."""

    def __init__(self, make_cluster: MakeCluster) -> None:
        self._make, self._key = make_cluster, ("", None)
        self._cluster: LocalCluster | None = None

    def cluster(self, case: Case) -> LocalCluster:
        key = (case.source, case.level)
        if self._cluster is None or self._key != key:
            if self._cluster is not None:
                self._cluster.delete()
            name = f"planted-{case.source.replace('.', '-')}"
            self._cluster = self._make(case.source, name=name, layout="combined", metadata_version=case.level)
            create_topics(self._cluster, "orders")
            self._key = key
        return self._cluster


@pytest.fixture(scope="module")
def planting(make_shared_cluster: MakeCluster) -> Planting:
    return Planting(make_shared_cluster)


@pytest.fixture(params=sorted(CASES, key=lambda name: (CASES[name].source, CASES[name].level or "", name)))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def planted(case: Case, planting: Planting) -> Iterator[LocalCluster]:
    cluster = planting.cluster(case)
    for (kind, name), values in case.planted.items():
        set_configs(cluster, kind, name, values)
    yield cluster
    for (kind, name), values in case.planted.items():
        set_configs(cluster, kind, name, dict.fromkeys(values))


def test_a_rehearsal_fails_exactly_if_a_real_node_does_not_start(
    case: Case, planted: LocalCluster, command: Command, tmp_path: Path
) -> None:
    code, printed, progress = command(planted, f"rehearse --to {case.target} --json")
    result = json.loads(printed) if printed else {}
    if "blocker" not in case.found.values():
        assert code == 0, printed + progress
    else:
        assert code == 3, printed + progress
        (finding,) = result["findings"]
        assert finding["code"] == "REHEARSAL-FAILED"
        assert case.log in finding["sentence"]
    check_nothing_left(tmp_path)


def test_a_release_that_cannot_load_the_coordinator_logs_fails_at_its_first_node(
    make_cluster: MakeCluster, command: Command, tmp_path: Path
) -> None:
    """3.4.1 ignores the records of 4.3.1, and 3.4.0 does not (KIP-915). The rehearsal has no scan that predicts it."""
    logs = logs_for(Release(3, 4, 1))
    cluster = make_cluster("3.4.1", layout="combined", extra_config=coordinator_config(Release(3, 4, 1), logs))
    plant(cluster, logs, deadline_s=20)
    cluster.start()
    with KafkaAdmin(cluster.spec) as admin:
        wait_until(lambda: all(len(partition.isr) == 3 for partition in admin.partitions()), 120)
    code, printed, progress = command(cluster, "rehearse --to 3.4.0 --gate-timeout 120 --json")
    assert code == 3, printed + progress
    (finding,) = json.loads(printed)["findings"]
    assert "could not load" in finding["sentence"]
    assert "Error loading offsets from __consumer_offsets-" in finding["sentence"]
    check_nothing_left(tmp_path)


# Source and target, and the metadata.version at which both run.
LOADS = (("3.4.1", "3.4.0", "3.4-IV0"), ("3.9.1", "4.3.1", "3.9-IV0"), ("4.3.1", "4.1.1", "4.1-IV1"))


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Scanned:
    releases = {Release.parse(name) for source, target, _ in LOADS for name in (source, target)}
    return scan_planted(tmp_path_factory.mktemp("scanned"), sorted(releases))


@pytest.mark.parametrize("move", LOADS, ids="-".join)
def test_every_log_that_the_target_cannot_load_fails_the_rehearsal(
    scanned: Scanned,
    make_cluster: MakeCluster,
    command: Command,
    tmp_path: Path,
    move: tuple[str, str, str],
) -> None:
    """The planted logs of the scan's oracle that the source loads and the target does not (test_scan_oracle)."""
    source, target, level = move
    old, new = Release.parse(source), Release.parse(target)
    faults: dict[Place, tuple[bytes, bool]] = {}
    for (topic, partition), log in scanned.logs.items():
        before, after = (scanned.verdicts[release, (topic, partition)].verdict for release in (old, new))
        if before in LOADED and after is LoadVerdict.FAILS and not {source, target} & set(log.blocks):
            faults[topic, sum(place[0] == topic for place in faults)] = (log.data, log.recovered)
    assert len(faults) > 3
    cluster = make_cluster(
        source, layout="combined", metadata_version=level, extra_config=coordinator_config(old, faults)
    )
    plant(cluster, faults, deadline_s=20, one_replica=True)
    cluster.start()
    with KafkaAdmin(cluster.spec) as admin:
        wait_until(lambda: all(one.leader >= 0 for one in admin.partitions()), 120)
    code, printed, progress = command(cluster, f"rehearse --to {target} --gate-timeout 120 --json")
    assert code == 3, printed + progress
    (finding,) = json.loads(printed)["findings"]
    counted = re.findall(r"(?:could not load|does not serve) (\d+) ", finding["sentence"])  # 3.x serves a part of them
    assert sum(map(int, counted)) == len(faults), finding["sentence"]
    check_nothing_left(tmp_path)


def test_a_live_downgrade_is_rehearsed_with_its_controllers_stopped(
    make_cluster: MakeCluster, command: Command, tmp_path: Path
) -> None:
    cluster = make_cluster("4.3.1", layout="separate")
    create_topics(cluster, "orders")
    code, printed, progress = command(cluster, "rehearse --to 4.2.1 --lowering live --unsafe --json")
    assert code == 0, printed + progress
    result = json.loads(printed)
    assert {phase["name"] for phase in result["phases"]} >= {"change", "comparison on 4.2.1"}
    check_nothing_left(tmp_path)


def test_a_part_of_a_larger_cluster_is_rehearsed_and_the_rest_is_named(
    make_cluster: MakeCluster, command: Command, tmp_path: Path
) -> None:
    cluster = make_cluster("3.9.1", layout="separate")
    create_topics(cluster, "orders")
    consumer = Consumer({"bootstrap.servers": cluster.spec.bootstrap_servers, "group.id": "billing"})
    commit(consumer, TopicPartition("orders", 0, 7))
    consumer.close()
    code, printed, progress = command(cluster, "rehearse --to 4.3.1 --nodes 5 --json")
    assert code == 0, printed + progress
    result = json.loads(printed)
    assert result["nodes"] == [101, 102, 103, 1, 2]
    assert any("No copy of node 3" in sentence for sentence in result["not_covered"])
    check_nothing_left(tmp_path)


def test_a_wrong_line_of_voters_shows_in_the_rehearsal(
    make_cluster: MakeCluster, command: Command, tmp_path: Path
) -> None:
    """Kafka's classes accept the file of node 3, which elects itself with it."""
    cluster = make_cluster("3.9.1", layout="combined")
    create_topics(cluster, "orders")
    node = cluster.spec.node(3)
    file = Path(str(node.directory)) / "server.properties"
    with file.open("a") as lines:
        lines.write(f"\ncontroller.quorum.voters=3@{node.controller_address}\n")
    code, printed, progress = command(cluster, "rehearse --to 4.3.1 --json")
    assert code != 0, printed + progress
    assert json.loads(printed)["outcome"] == "failed"
    check_nothing_left(tmp_path)


def test_a_dynamic_quorum_gets_the_addresses_of_the_sandbox(
    make_cluster: MakeCluster, command: Command, tmp_path: Path
) -> None:
    cluster = make_cluster("3.9.1", layout="combined", quorum="dynamic")
    create_topics(cluster, "orders")
    code, printed, progress = command(cluster, "rehearse --to 4.3.1 --finalize after-approval --json")
    assert code == 0, printed + progress
    assert json.loads(printed)["outcome"] == "passed"
    check_nothing_left(tmp_path)


@pytest.fixture
def shell(make_cluster: MakeCluster, tmp_path: Path) -> Shell:
    cluster = make_cluster("3.9.1", layout="combined")
    create_topics(cluster, "orders")
    return Shell(tmp_path, cluster)


def test_a_killed_or_interrupted_command_leaves_nothing(shell: Shell, tmp_path: Path) -> None:
    words = ("rehearse", "--cluster", shell.cluster.spec.name, "--to", "4.3.1")
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)):
        process = shell.start(*words)
        wait_until(lambda: len(node_processes(tmp_path / "home")) == 3, 300)
        os.kill(process.pid, number)
        assert process.wait(120) == code
        wait_until(lambda: not node_processes(tmp_path / "home"), 60)
        wait_until(lambda: not list((tmp_path / "home" / "rehearsals").iterdir()), 60)
    assert len(node_processes(shell.cluster.folder / "nodes")) == 3, "the cluster runs"


def test_the_leftovers_of_two_killed_processes_are_removed_by_the_command(shell: Shell, tmp_path: Path) -> None:
    process = shell.start("rehearse", "--cluster", shell.cluster.spec.name, "--to", "4.3.1")
    wait_until(lambda: len(node_processes(tmp_path / "home")) == 3, 300)
    (child,) = [one for one in psutil.Process(process.pid).children(recursive=True) if PROCESS in one.cmdline()]
    os.kill(process.pid, signal.SIGSTOP)  # it must not clean up after its child
    child.kill()
    process.kill()
    process.wait(60)
    assert len(node_processes(tmp_path / "home")) == 3
    assert "Removed 1 copy" in shell("clean", "--folder", str(tmp_path / "home" / "rehearsals")).stdout
    check_nothing_left(tmp_path)
    assert len(node_processes(shell.cluster.folder / "nodes")) == 3, "the cluster runs"


def test_a_backup_is_rehearsed_without_its_cluster(shell: Shell, tmp_path: Path) -> None:
    shell.cluster.stop(deadline_s=60)
    homes = shell.cluster.folder / "nodes" / shell.cluster.spec.name
    words = ("rehearse", "--cluster", shell.cluster.spec.name, "--to", "4.3.1", "--json")
    done = shell(*words, "--finalize", "after-approval", "--backup", str(homes))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["outcome"] == "passed"
    check_nothing_left(tmp_path)


def test_invalid_input_is_one_sentence_and_leaves_nothing(shell: Shell, tmp_path: Path) -> None:
    name = shell.cluster.spec.name
    few = shell("rehearse", "--cluster", name, "--to", "4.3.1", "--nodes", "2")
    assert (few.returncode, few.stdout) == (2, "")
    assert "needs at least 3 nodes" in few.stderr
    (tmp_path / "file").write_text("")
    blocked = shell("rehearse", "--cluster", name, "--to", "4.3.1", "--folder", str(tmp_path / "file"))
    assert blocked.returncode == 2
    assert "cannot be created" in blocked.stderr
    (node, *_) = shell.cluster.spec.nodes
    meta = Path(str(node.directory)) / "data" / "logs" / "meta.properties"
    text = meta.read_text()
    meta.write_text(text.replace(shell.cluster.cluster_id, "AAAAAAAAAAAAAAAAAAAAAA"))
    mixed = shell("rehearse", "--cluster", name, "--to", "4.3.1")
    meta.write_text(text)
    assert mixed.returncode == 2
    assert "belongs to cluster AAAAAAAAAAAAAAAAAAAAAA, and" in mixed.stderr
    shell.environment["KAFKA_ROLLOUT_PORTS"] = "20000-20003"
    full = shell("rehearse", "--cluster", name, "--to", "4.3.1")
    assert full.returncode == 1
    assert "There are no 12 free ports" in full.stderr
    assert not list(tmp_path.glob("home/rehearsals/*"))
