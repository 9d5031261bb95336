"""`kafka-rollout check` on real brokers: it finds what is wrong, and neither changes nor stores anything."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.system.free_ports import HOST, reserved_ports
from kafka_rollout.cli import app as cli
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.java import java_binary
from tests.integration.conftest import MakeCluster
from tests.integration.harness.groups.committing import commit
from tests.paths import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_java_per_release")]
SCHEMA = json.loads((ROOT / "docs" / "check.schema.json").read_text())
Check = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def check(home: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Check]:
    """Run the command in this process: exit code, JSON document (empty without one), standard error."""

    def run(*words: str | Path) -> tuple[int, dict[str, Any], str]:
        code = cli.run_main(["check", *map(str, words), "--json"])
        printed = capsys.readouterr()
        document = json.loads(printed.out) if printed.out else {}
        if document and "error" not in document:
            jsonschema.validate(document, SCHEMA)
        return code, document, printed.err

    yield run
    assert not home.exists(), "nothing is stored"


def entry(document: dict[str, Any], check: str) -> dict[str, Any]:
    (found,) = (one for one in document["checks"] if one["id"] == check)
    return found


def fill(servers: str, topics: int) -> None:
    """Topics with one replica, a consumer group and a transactional id."""
    client = {"bootstrap.servers": servers, "log_level": 2}
    admin = AdminClient(client)
    for made in admin.create_topics([NewTopic(f"alone-{number}", 1, 1) for number in range(topics)]).values():
        made.result(60)
    place = TopicPartition("alone-0", 0, 1)
    commit(Consumer({**client, "group.id": "billing", "enable.auto.commit": False}), place)
    Producer({**client, "transactional.id": "payments"}).init_transactions(180)


@pytest.mark.parametrize(
    ("release", "target", "change"),
    [
        ("3.4.1", "4.4.0", "upgrade"),
        pytest.param("3.9.1", "4.3.1", "upgrade", marks=pytest.mark.full),
        pytest.param("4.3.1", "4.3.1", "restart", marks=pytest.mark.full),
        ("4.4.0", "3.9.1", "downgrade"),
    ],
)
def test_a_cluster_of_each_release(  # noqa: PLR0917
    make_cluster: MakeCluster, check: Check, tmp_path: Path, release: str, target: str, change: str
) -> None:
    path = list(dict.fromkeys((release, target)))
    cluster = make_cluster(release, layout="combined", size=1)
    fill(cluster.spec.bootstrap_servers, 8)
    page = tmp_path / "check.html"
    code, found, said = check(
        *("--bootstrap-server", cluster.spec.bootstrap_servers, "--to", target, "--from", release, "--html", page)
    )
    assert (code, said) == (3, "")
    assert (found["change"], found["path"], found["cluster_id"]) == (change, path, cluster.cluster_id)
    assert found["nodes"] == "1 broker, 1 controller"
    topics = entry(found, "partition-availability")
    (alone,) = (one for one in topics["findings"] if one["code"] == "RF-ONE-TOPIC")
    assert alone["count"] >= 8
    assert {f"topic alone-{number}" for number in range(8)} <= {one["subject"] for one in alone["objects"]}
    assert entry(found, "metadata-quorum")["result"] == "blocker"
    for known in ("node-configuration", "dynamic-configuration", "groups-and-transactions", "node-registration"):
        assert entry(found, known)["result"] in {"ok", "info"} or change == "downgrade", known
    assert found["totals"]["unknown"] > 0
    assert "unknown, which does not mean ok" in found["sentence"]
    assert "Check of the" in page.read_text()
    if change != "restart":
        assert entry(found, "coordinator-logs")["reasons"] == (
            []
            if change == "upgrade"
            else ["Tagged fields that an older release ignores (KIP-482) were not read. A scan with Spark lists them."]
        )


def test_records_that_the_target_cannot_load_are_found_without_spark(
    make_cluster: MakeCluster, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster("4.3.1", layout="combined", size=1)
    fill(cluster.spec.bootstrap_servers, 1)
    code, found, _ = check("--bootstrap-server", cluster.spec.bootstrap_servers, "--to", "3.4.0")
    logs = entry(found, "coordinator-logs")
    assert (code, logs["result"]) == (3, "blocker")
    assert {one["code"] for one in logs["findings"]} & {"LOGS-NOT-LOADABLE", "LOGS-TO-BE-CLEANED"}
    for limit in ("SMALL_RECORDS", "SMALL_BYTES"):
        with monkeypatch.context() as lower:
            lower.setattr(f"kafka_rollout.groups.reading.live.{limit}", 0)
            _, found, _ = check("--bootstrap-server", cluster.spec.bootstrap_servers, "--to", "3.4.0")
        logs = entry(found, "coordinator-logs")
        assert (logs["result"], logs["findings"]) == ("unknown", [])
        assert "the limit without Spark. Write an inventory, then scan them" in logs["reasons"][0]


@contextmanager
def quick_start(libs: Path, folder: Path, more: str = "") -> Iterator[str]:
    """A broker as kafka-storage.sh and kafka-server-start.sh start it, with the configuration of a quick start."""
    java = [str(java_binary()), "-Xmx256m", "-cp", f"{libs}/*"]
    config = folder / "server.properties"
    with reserved_ports(2) as ports:
        broker, controller = (f"{HOST}:{port}" for port in ports)
        config.write_text(
            f"process.roles=broker,controller\nnode.id=7\ncontroller.quorum.voters=7@{controller}\n"
            f"listeners=PLAINTEXT://{broker},CONTROLLER://{controller}\ncontroller.listener.names=CONTROLLER\n"
            f"log.dirs={folder}/data\noffsets.topic.replication.factor=1\nno.such.setting=1\n{more}"
        )
    formatting = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(config)]
    subprocess.run(formatting, check=True, capture_output=True, timeout=120)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log, cwd=folder)
        try:
            wait_until(lambda: _listens(broker), 120, said="the broker")
            yield broker
            assert server.poll() is None
        finally:
            server.kill()
            server.wait(60)


def test_a_broker_that_another_tool_started(release_cache: ReleaseCache, check: Check, tmp_path: Path) -> None:
    with quick_start(release_cache.libs(Release(3, 9, 1)), tmp_path) as broker:
        code, found, _ = check("--bootstrap-server", broker, "--to", "4.3.1")
    assert (code, found["cluster_id"], found["change"]) == (3, "MkU3OEVBNTcwNTJENDM2Qg", "upgrade")
    assert entry(found, "node-configuration")["result"] == "ok"


def test_an_advertised_address_that_cannot_be_reached_is_named(
    release_cache: ReleaseCache, check: Check, tmp_path: Path, closed_port: int
) -> None:
    advertised = f"advertised.listeners=PLAINTEXT://{HOST}:{closed_port}\n"
    with quick_start(release_cache.libs(Release(3, 9, 1)), tmp_path, advertised) as broker:
        code, found, _ = check("--bootstrap-server", broker, "--to", "4.3.1")
    assert (code, found["error"]["kind"]) == (1, "transient")
    assert found["error"]["sentence"].startswith(f"{broker} responds, but no broker responds at its advertised address")
    assert f"{HOST}:{closed_port}" in found["error"]["sentence"]
    assert "advertised.listeners" in found["error"]["remedy"]


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as tried:
        return tried.connect_ex((host, int(port))) == 0


def test_without_jars_the_classes_are_unknown_and_one_check_needs_none(
    make_cluster: MakeCluster, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster("3.9.1", layout="combined", size=1)
    monkeypatch.setenv("KAFKA_ROLLOUT_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr("kafka_rollout.releases.jars.cache.ReleaseCache._fetch", _unreachable)
    words = ("--bootstrap-server", cluster.spec.bootstrap_servers, "--to", "4.3.1")
    _, found, _ = check(*words)
    for name in ("node-configuration", "dynamic-configuration"):
        assert entry(found, name)["result"] == "unknown"
        assert "Kafka's own classes were not available: No repository" in " ".join(entry(found, name)["reasons"])
    code, found, _ = check(*words, "--only", "node-registration", "--only", "mixed-releases")
    assert (code, [one["id"] for one in found["checks"]]) == (0, ["node-registration", "mixed-releases"])


def test_an_inventory_with_metrics_agents_makes_more_known(
    make_cluster: MakeCluster, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster("3.9.1", layout="combined", size=1)
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(cluster.inventory_path.parent))
    _, found, _ = check("--cluster", cluster.spec.name, "--to", "4.3.1")
    assert (found["cluster"], found["path"]) == (cluster.spec.name, ["3.9.1", "4.3.1"])
    for known in ("error-counters", "metrics-agents", "hidden-partitions", "java-version", "observable-values"):
        assert entry(found, known)["result"] == "ok", entry(found, known)
    assert found["totals"]["unknown"] == 0


def _unreachable(*_: object) -> None:
    from kafka_rollout.base.errors import TransientError

    raise TransientError("No repository responds.", remedy="Check the network.")


def test_ctrl_c_ends_the_command_without_a_trace(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        address = f"{HOST}:{silent.getsockname()[1]}"
        program = "from kafka_rollout.cli.app import main; main()"
        command = [sys.executable, "-c", program, "check", "--bootstrap-server", address, "--to", "4.3.1"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins"), "KAFKA_ROLLOUT_HOME": str(tmp_path / "home")}
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        silent.settimeout(60)
        silent.accept()  # it waits for an answer now
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, b""), err
    assert b"Traceback" not in err
