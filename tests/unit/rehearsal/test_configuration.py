from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.quorum_addresses import ControllerAddresses
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.rehearsal.configuration import (
    find_escapes,
    refuse_escaping,
    rewrite_config,
    rewrite_overrides,
)
from tests.unit.builders import COMBINED

SANDBOX: ClusterSpec = replace(
    COMBINED,
    nodes=tuple(
        replace(
            node,
            broker_address=f"127.0.0.1:2100{node.node_id}",
            controller_address=f"127.0.0.1:2200{node.node_id}",
        )
        for node in COMBINED.nodes
    ),
)
REAL = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "INTERNAL://0.0.0.0:9092,CLIENTS://0.0.0.0:9094,CONTROLLER://10.0.0.1:9093",
    "advertised.listeners": "INTERNAL://kafka-1.example:9092,CLIENTS://kafka-1.example:9094",
    "listener.security.protocol.map": "INTERNAL:SSL,CLIENTS:SASL_SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@10.0.0.1:9093,2@10.0.0.2:9093,3@10.0.0.3:9093",
    "log.dirs": "/data/a, /data/b",
    "metadata.log.dir": "/data/meta",
    "ssl.keystore.location": "/etc/keys",
    "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "metric.reporters": "com.example.Reporter",
    "my.plugin.password": "hunter2",
    "num.io.threads": "64",
    "segment.bytes": "14000",
}
REAL_CLUSTER: ClusterSpec = replace(
    COMBINED,
    nodes=tuple(replace(node, controller_address=f"10.0.0.{node.node_id}:9093") for node in COMBINED.nodes),
)
CONTROLLERS = ControllerAddresses(REAL_CLUSTER, {1: REAL, 2: REAL, 3: REAL})
DIRECTORIES = {"/data/a": "/box/0", "/data/b": "/box/1", "/data/meta": "/box/2"}


def rewritten(**changes: str) -> dict[str, str]:
    config = {**REAL, **{key.replace("_", "."): value for key, value in changes.items()}}
    return dict(rewrite_config(config, SANDBOX.node(1), SANDBOX, DIRECTORIES, CONTROLLERS).lines)


def test_addresses_and_directories_are_those_of_the_sandbox() -> None:
    lines = rewritten()
    assert lines["listeners"] == "INTERNAL://127.0.0.1:21001,CONTROLLER://127.0.0.1:22001"
    assert "advertised.listeners" not in lines
    assert lines["listener.security.protocol.map"] == "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT"
    assert lines["inter.broker.listener.name"] == "INTERNAL"
    assert lines["controller.quorum.voters"] == "1@127.0.0.1:22001,2@127.0.0.1:22002,3@127.0.0.1:22003"
    assert (lines["log.dirs"], lines["metadata.log.dir"]) == ("/box/0,/box/1", "/box/2")
    assert rewritten(log_dir="/var/kafka-logs") == lines, "Kafka ignores log.dir beside log.dirs"


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("3@10.0.0.3:9093", "3@127.0.0.1:22003"),
        ("1@10.0.0.1:9093,3@10.0.0.3:9093", "1@127.0.0.1:22001,3@127.0.0.1:22003"),
        ("1@10.0.0.1:9093,2@nat.example:20398", "1@127.0.0.1:22001,2@127.0.0.1:22002"),
        ("1@10.0.0.2:9093", "1@127.0.0.1:22002"),
        ("1@kafka-1.example:9093", "1@127.0.0.1:22001"),
        ("9@10.0.0.9:9093", "9@127.0.0.1:1"),
        ("${env:VOTERS}", "1@127.0.0.1:22001,2@127.0.0.1:22002,3@127.0.0.1:22003"),
    ],
)
def test_a_wrong_line_of_voters_is_as_wrong_in_the_copy(line: str, copied: str) -> None:
    assert rewritten(controller_quorum_voters=line)["controller.quorum.voters"] == copied


@pytest.mark.parametrize("line", ["10.0.0.2:9093,gone:9093", "balancer.zone-b.example:1234"])
def test_a_copy_finds_the_quorum_through_the_other_copies(line: str) -> None:
    setting = "controller.quorum.bootstrap.servers"
    lines = rewritten(controller_quorum_bootstrap_servers=line)
    assert lines[setting] == "127.0.0.1:22001,127.0.0.1:22002,127.0.0.1:22003"


def test_what_the_release_reads_is_kept() -> None:
    lines = rewritten()
    assert (lines["node.id"], lines["segment.bytes"], lines["num.io.threads"]) == ("1", "14000", "4")


def test_credentials_are_taken_out_and_every_client_is_allowed() -> None:
    result = rewrite_config(REAL, SANDBOX.node(1), SANDBOX, DIRECTORIES, CONTROLLERS)
    text = "".join(f"{key}={value}\n" for key, value in result.lines.items())
    assert not [word for word in ("hunter2", "/etc/keys", "SCRAM", "example") if word in text]
    assert result.lines["super.users"] == "User:ANONYMOUS"
    assert any("no TLS and no authentication" in sentence for sentence in result.not_covered)
    assert any("metric.reporters" in sentence for sentence in result.not_covered)
    assert any("my.plugin.password" in sentence for sentence in result.not_covered)


def test_values_that_differ_for_speed_are_reported() -> None:
    config = {**REAL, "log.preallocate": "false", "background.threads": "1"}
    (*_, sentence) = rewrite_config(config, SANDBOX.node(1), SANDBOX, DIRECTORIES, CONTROLLERS).not_covered
    assert "num.io.threads=4" in sentence
    assert "num.recovery.threads.per.data.dir=8" in sentence
    assert "log.preallocate" not in sentence
    assert "background.threads" not in sentence


@pytest.mark.parametrize(("lag_ms", "expected"), [(None, "2000"), ("30000", "2000"), ("1500", "1500")])
def test_a_fetch_never_waits_longer_than_kafka_allows(lag_ms: str | None, expected: str) -> None:
    config = REAL if lag_ms is None else {**REAL, "replica.lag.time.max.ms": lag_ms}
    lines = rewrite_config(config, SANDBOX.node(1), SANDBOX, DIRECTORIES, CONTROLLERS).lines
    assert lines["replica.fetch.wait.max.ms"] == expected


def test_a_foreign_authorizer_and_values_of_config_providers_are_taken_out() -> None:
    lines = rewritten(authorizer_class_name="com.example.Ranger", broker_rack="${vault:rack}")
    assert "authorizer.class.name" not in lines
    assert "broker.rack" not in lines


def test_a_copy_runs_no_code_that_is_not_kafkas() -> None:
    foreign = {
        "create.topic.policy.class.name": "com.example.Policy",
        "replica.selector.class": "com.example.Selector",
        "remote.log.storage.manager.class.path": "/srv/mallory/*",
        "socket.server.interceptor.classes": "org.apache.kafka.common.Known,com.example.Other",
    }
    kafkas = {"replica.selector.class.name": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    result = rewrite_config({**REAL, **foreign, **kafkas}, SANDBOX.node(1), SANDBOX, DIRECTORIES, CONTROLLERS)
    assert not foreign.keys() & result.lines.keys()
    assert kafkas.items() <= result.lines.items()
    assert any("replica.selector.class" in sentence for sentence in result.not_covered)


def test_no_connection_to_zookeeper_is_kept() -> None:
    lines = rewritten(zookeeper_connect="zk:2181", zookeeper_metadata_migration_enable="true")
    assert [key for key in lines if key.startswith("zookeeper")] == []


def test_tiered_storage_is_refused() -> None:
    with pytest.raises(RefusedError, match="its copy would change the remote storage"):
        rewritten(remote_log_storage_system_enable="true")


def test_a_directory_that_was_not_copied_is_refused() -> None:
    with pytest.raises(RefusedError, match="/data/c, which was not copied"):
        rewritten(log_dirs="/data/a,/data/c")


def test_a_rewritten_configuration_does_not_escape() -> None:
    assert find_escapes(rewritten(), ["10.0.0.1:9093", "127.0.0.1:9092"]) == ()


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("listeners", "INTERNAL://0.0.0.0:9092", "0.0.0.0:9092, which is not a loopback address"),
        ("controller.quorum.voters", "1@kafka-1:9093", "kafka-1:9093, which is not a loopback address"),
        ("controller.quorum.bootstrap.servers", "127.0.0.1:9093", "127.0.0.1:9093, which the real cluster uses"),
        ("listeners", "INTERNAL://localhost:9093", "localhost:9093, which the real cluster uses"),
    ],
)
def test_an_address_outside_or_of_the_real_cluster_escapes(key: str, value: str, found: str) -> None:
    (sentence,) = find_escapes({**rewritten(), key: value}, ["127.0.0.1:9093"])
    assert found in sentence


def test_release_overrides_lose_addresses_directories_and_credentials() -> None:
    overrides = {
        "4.3.1": {"log.dirs": "/data/a", "listeners": "X://0:1", "ssl.key.password": "x", "num.io.threads": "8"}
    }
    assert rewrite_overrides(overrides) == {"4.3.1": {"num.io.threads": "8"}}


def test_dynamic_listeners_are_refused() -> None:
    refuse_escaping(DynamicConfigs(brokers={1: {"log.cleaner.threads": "2"}}))
    with pytest.raises(RefusedError, match=r"contains advertised\.listeners"):
        refuse_escaping(DynamicConfigs(brokers={1: {"advertised.listeners": "X://kafka-1:9092"}}))


def test_a_copy_needs_no_config_provider() -> None:
    lines = rewritten(node_id="${env:ID}", process_roles="${env:ROLES}", inter_broker_listener_name="${env:NAME}")
    assert (lines["node.id"], lines["process.roles"]) == ("1", "broker,controller")
    assert lines["listeners"] == "PLAINTEXT://127.0.0.1:21001,CONTROLLER://127.0.0.1:22001"
    assert not any("${" in value for value in lines.values())
