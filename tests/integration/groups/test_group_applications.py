"""Groups of applications as they are released: Connect's workers, sinks, Kafka Streams, share groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.system.free_ports import free_ports
from kafka_rollout.cli.app import run_main
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import Jvm, run_jvm
from tests.integration.conftest import MakeCluster
from tests.integration.harness.groups.applications import (
    ConnectWorker,
    application_libs,
    connect_worker,
    streams_application,
)
from tests.integration.harness.groups.gated_groups import shared
from tests.integration.harness.groups.members import DEADLINE_S, wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1200)]

TOPIC, COPY = "orders", "copies"


@dataclass(frozen=True, kw_only=True)
class Applications:
    """What runs on the cluster; `newer` is the Streams application of the newer protocol, closed when it ends."""

    cluster: LocalCluster
    worker: ConnectWorker
    jvm: Jvm
    newer: ExitStack
    folder: Path


@pytest.fixture(scope="module")
def applications(
    make_shared_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Applications]:
    libs = application_libs(release_cache)
    folder = tmp_path_factory.mktemp("applications")
    cluster = make_shared_cluster(
        "4.3.1",
        name="applications",
        layout="combined",
        size=1,
        extra_config={"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"},
    )
    servers = cluster.spec.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic(COPY, 2, 1)]).values():
        made.result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(10):
        producer.produce(TOPIC, str(number))
    assert producer.flush(DEADLINE_S) == 0
    with (
        connect_worker(servers, libs, folder, free_ports(1)[0]) as worker,
        run_jvm(libs) as jvm,
        streams_application(jvm, servers, "old-app", folder, protocol="classic", source=TOPIC, sink=COPY),
        shared(servers, "shared"),
        ExitStack() as newer,
    ):
        worker.add_sink("files", TOPIC)
        newer.enter_context(
            streams_application(jvm, servers, "new-app", folder, protocol="streams", source=TOPIC, sink=COPY)
        )
        yield Applications(cluster=cluster, worker=worker, jvm=jvm, newer=newer, folder=folder)


@pytest.fixture
def run(
    applications: Applications, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(applications.cluster.inventory_path.parent))

    def command(words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run_main([*words.split(), "--cluster", applications.cluster.spec.name])
        return code, capsys.readouterr().out

    return command


def groups_of(run: Any) -> dict[str, dict[str, Any]]:
    code, out = run("groups list --json")
    if code == TransientError.exit_code:  # a coordinator loads, or has not answered in time
        return {}
    assert code == 0
    return {each["group_id"]: each for each in json.loads(out)["groups"]}


NAMES = {"workers", "connect-files", "old-app", "new-app", "shared"}


def all_there(run: Any) -> bool:
    found = groups_of(run)
    return found.keys() >= NAMES and all(
        found[name]["members"] and found[name]["state"].lower() == "stable" for name in NAMES
    )


def test_released_applications_are_listed_by_what_they_are(run: Any) -> None:
    wait_until(lambda: all_there(run), "every application is in its group", within_s=2 * DEADLINE_S)
    found = groups_of(run)
    told = {name: (found[name]["type"], found[name]["protocol_type"], found[name]["assignor"]) for name in NAMES}
    assert told["workers"] == ("classic", "connect", "sessioned")
    assert told["connect-files"] == ("classic", "consumer", "range")
    assert told["old-app"] == ("classic", "consumer", "stream")
    assert told["new-app"][0] == "streams"
    assert told["shared"][0] == "share"
    assert found["old-app"]["lag"] is not None
    _, page = run("groups list")
    assert "workers: Connect workers" in page
    assert "connect-files: consumers of a sink connector" in page


def test_each_gets_the_plan_that_is_its_own(run: Any) -> None:
    wait_until(lambda: all_there(run), "every application is in its group", within_s=2 * DEADLINE_S)

    def plans(goal: str) -> tuple[int, dict[str, Any]]:
        code, out = run(f"groups list --to {goal} --json")
        return code, {each["group"]["group_id"]: each for each in json.loads(out)["groups"]}

    code, found = plans("cooperative")
    assert code == 0
    assert {name: found[name]["bounces"] for name in NAMES} == {
        "workers": 0,
        "connect-files": 2,
        "old-app": 0,
        "new-app": 0,
        "shared": 0,
    }
    assert "consumer.partition.assignment.strategy of the workers" in found["connect-files"]["steps"][0]
    code, found = plans("consumer")
    assert code == 3
    assert {name for name in NAMES if found[name]["finding"]} == NAMES - {"connect-files"}
    code, found = plans("classic")
    assert code == 0
    assert {name for name in NAMES if found[name]["steps"]} == {"new-app", "shared"}
    assert "group.protocol=classic" in found["new-app"]["steps"][0]
    assert "delete the group" in found["shared"]["steps"][0]


def test_lowered_features_name_the_applications_that_use_them(run: Any) -> None:
    wait_until(lambda: all_there(run), "every application is in its group", within_s=2 * DEADLINE_S)
    code, out = run("features set --dry-run --downgrade streams.version:0,share.version:0")
    assert code == 3
    told = " ".join(out.split())
    assert (
        "Without streams.version, brokers serve no streams groups, and 1 active group is of that type: new-app" in told
    )
    assert "First downgrade the stream clients (KIP-584)" in told
    assert "Without share.version, brokers serve no share groups, and 1 active group is of that type: shared" in told


def test_a_sinks_group_gets_the_consumer_protocol_by_the_setting_that_its_plan_names(
    run: Any, applications: Applications
) -> None:
    wait_until(lambda: all_there(run), "every application is in its group", within_s=2 * DEADLINE_S)
    _, page = run("groups list --to consumer")
    assert "consumer.group.protocol=consumer in the workers (or consumer.override.… of the connector)" in " ".join(
        page.split()
    )
    applications.worker.add_sink("newer", TOPIC, **{"group.protocol": "consumer"})

    def is_newer() -> bool:
        sink = groups_of(run).get("connect-newer", {})
        return (sink.get("type"), len(sink.get("members", ()))) == ("consumer", 1)

    wait_until(is_newer, "its task is a member of the consumer protocol")


def test_a_streams_application_goes_back_to_classic_as_the_plan_says(run: Any, applications: Applications) -> None:
    """Last of its module: the newer application is gone from here on."""
    wait_until(lambda: all_there(run), "every application is in its group", within_s=2 * DEADLINE_S)
    code, out = run("groups watch --type streams --interval 0.2 --timeout 1")
    assert (code, "1 group to convert: new-app" in " ".join(out.split())) == (3, True)
    applications.newer.close()
    with streams_application(
        applications.jvm,
        applications.cluster.spec.bootstrap_servers,
        "new-app",
        applications.folder,
        protocol="classic",
        source=TOPIC,
        sink=COPY,
    ):
        code, out = run("groups watch --type streams --interval 1")
        assert code == 0, out
        wait_until(lambda: groups_of(run).get("new-app", {}).get("assignor") == "stream", "it is back in its group")
        assert groups_of(run)["new-app"]["type"] == "classic"
