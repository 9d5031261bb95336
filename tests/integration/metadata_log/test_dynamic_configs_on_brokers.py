"""Dynamic configuration on real brokers: the plan's prediction compared with a real start on the other release.

Every case plants settings that the first release accepts. A node must start exactly if the plan finds no blocker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.findings import Severity
from kafka_rollout.base.system.free_ports import reserved_ports
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.requests import ResourceType
from kafka_rollout.gates.counters import IGNORED_CONFIG
from kafka_rollout.model.counters import METADATA_APPLY_ERRORS
from kafka_rollout.model.node_log import BROKER_SETTINGS, LogPart, read_part
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tests.integration.harness.feature_harness import Command
from tests.integration.harness.planted_configs import predict, restart_on, set_configs, set_quota
from tests.integration.harness.security.secured import certificate
from tests.integration.harness.shell import DRY_RUN
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
METRICS, GROUP = ResourceType.CLIENT_METRICS, ResourceType.GROUP
ALL_BROKERS = (BROKER, "")
BROKER_1 = (BROKER, "1")
ORDERS = (TOPIC, "orders")
SNAPSHOTS = {"metadata.log.max.snapshot.interval.ms": "1000"}
TOO_SMALL = "Invalid value 14000 for configuration segment.bytes: Value must be at least 1048576"
LAGS = "conflict topic config setting min.compaction.lag.ms (100000) > max.compaction.lag.ms (1000)"
Planted = Mapping[tuple[ResourceType, str], Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """`found`: subject of each finding without its release → severity. `log`: a line of the start, if it has one."""

    source: str
    target: str
    planted: Planted
    found: Mapping[str, str] = field(default_factory=dict)
    level: str | None = None
    log: str = ""


IGNORED: Planted = {
    ORDERS: {"message.format.version": "2.8", "retention.ms": "100000"},
    ALL_BROKERS: {"log.segment.bytes": "20000", "log.message.downconversion.enable": "false"},
    BROKER_1: {
        "log.segment.bytes": "30000",
        "log.retention.ms": "500000",
        "log.message.downconversion.enable": "false",
    },
    (METRICS, "latency"): {"metrics": "a,,b"},
    (METRICS, "fine"): {"metrics": "a,a", "interval.ms": "1000"},
}
IGNORED_FOUND = {
    "topic orders, message.format.version": "DROPPED",
    "the default of all brokers, log.segment.bytes": "IGNORED",
    "the default of all brokers, log.message.downconversion.enable": "UNKNOWN",
    "broker 1, log.segment.bytes": "IGNORED",
    "broker 1, log.message.downconversion.enable": "UNKNOWN",
    "client-metrics subscription latency, metrics": "IGNORED",
}
CASES = {
    "segment-size-3.4.1": Case(
        source="3.4.1",
        target="4.3.1",
        planted={ORDERS: {"segment.bytes": "14000"}},
        found={"topic orders, segment.bytes": "blocker"},
        log=TOO_SMALL,
    ),
    "segment-size-3.7.2": Case(
        source="3.7.2",
        target="4.1.1",
        planted={ORDERS: {"segment.bytes": "14000"}},
        found={"topic orders, segment.bytes": "blocker"},
        log=TOO_SMALL,
    ),
    "segment-size-that-4.0.1-accepts": Case(
        source="3.7.2",
        target="4.0.1",
        planted={ORDERS: {"segment.bytes": "14000"}, (METRICS, "a"): {"metrics": "a,,b"}},
    ),
    "smallest-segment-size": Case(
        source="3.9.1",
        target="4.3.1",
        planted={ORDERS: {"segment.bytes": "1048576", "cleanup.policy": "delete,delete"}},
        log="contains duplicate values. Duplicates will be removed",
    ),
    "compaction-lags-4.1.1": Case(
        source="3.9.1",
        target="4.1.1",
        planted={
            BROKER_1: {"log.cleaner.min.compaction.lag.ms": "100000", "log.cleaner.max.compaction.lag.ms": "1000"}
        },
        found={"broker 1, log.cleaner.max.compaction.lag.ms, log.cleaner.min.compaction.lag.ms": "blocker"},
        log=LAGS,
    ),
    "compaction-lags": Case(
        source="3.9.1",
        target="4.3.1",
        planted={
            ALL_BROKERS: {"log.cleaner.min.compaction.lag.ms": "100000", "log.retention.ms": "500000"},
            BROKER_1: {"log.cleaner.max.compaction.lag.ms": "1000"},
        },
        found={
            "the default of all brokers, log.cleaner.min.compaction.lag.ms": "blocker",
            "broker 1, log.cleaner.max.compaction.lag.ms": "blocker",
        },
        log=LAGS,
    ),
    "compaction-lags-that-4.0.1-accepts": Case(
        source="3.9.1",
        target="4.0.1",
        planted={
            ALL_BROKERS: {
                "log.cleaner.min.compaction.lag.ms": "100000",
                "log.cleaner.max.compaction.lag.ms": "1000",
            }
        },
    ),
    "tiered-topic": Case(
        source="3.4.1",
        target="4.3.1",
        planted={ORDERS: {"remote.storage.enable": "true"}},
        found={"topic orders, remote.storage.enable": "warning"},
        log="You have to delete all topics with the property remote.storage.enable=true",
    ),
    "format-of-a-newer-release": Case(
        source="3.9.1",
        target="3.4.1",
        level="3.4-IV0",
        planted={ORDERS: {"message.format.version": "3.9-IV0"}},
        found={"topic orders, message.format.version": "blocker"},
        log="Version 3.9-IV0 is not a valid version",
    ),
    "settings-of-a-newer-release": Case(
        source="3.9.1",
        target="3.4.1",
        level="3.4-IV0",
        planted={
            ORDERS: {"compression.gzip.level": "5", "segment.bytes": "14000"},
            ALL_BROKERS: {"log.message.timestamp.before.max.ms": "1000000"},
        },
        found={
            "topic orders, compression.gzip.level": "warning",
            "the default of all brokers, log.message.timestamp.before.max.ms": "warning",
        },
    ),
    "cleanup-policy-without-a-value": Case(
        source="4.3.1",
        target="3.9.1",
        level="3.9-IV0",
        planted={ORDERS: {"cleanup.policy": ""}},
    ),
    "groups-of-a-newer-release": Case(
        source="4.3.1",
        target="4.1.1",
        level="4.0-IV3",
        planted={
            (GROUP, "billing"): {"consumer.assignment.interval.ms": "1000", "consumer.session.timeout.ms": "50000"},
            (GROUP, "fine"): {"consumer.session.timeout.ms": "50000"},
        },
        found={"group billing, consumer.assignment.interval.ms": "warning"},
    ),
    "nothing-special": Case(
        source="3.9.1",
        target="4.3.1",
        planted={
            ORDERS: {"retention.ms": "100000", "cleanup.policy": "compact"},
            ALL_BROKERS: {"log.cleaner.threads": "2"},
            (METRICS, "fine"): {"metrics": "*"},
        },
    ),
}


def planted(make_cluster: MakeCluster, case: Case) -> LocalCluster:
    """A running one-node cluster with the settings, and a metadata snapshot that contains them."""
    cluster = make_cluster(case.source, layout="combined", size=1, metadata_version=case.level, extra_config=SNAPSHOTS)
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    for future in admin.create_topics([NewTopic("orders", 1, 1), NewTopic("plain", 1, 1)]).values():
        future.result(60)
    for (kind, name), values in case.planted.items():
        set_configs(cluster, kind, name, values)
    set_quota(cluster, "alice", "producer_byte_rate", 1000.0)
    wait_for_snapshot(cluster)
    return cluster


def wait_for_snapshot(cluster: LocalCluster) -> None:
    """Wait until the node has written another metadata snapshot."""
    (node,) = cluster.spec.nodes
    ends = cluster.runtime.checkpoints
    last = max((one.end_offset for one in ends(node)), default=0)
    wait_until(lambda: max((one.end_offset for one in ends(node)), default=0) > last, 180)


def test_the_plan_finds_what_stops_4_3_1_and_what_is_lost_after_a_rollback_and_the_remedy_lets_it_start(
    make_cluster: MakeCluster, command: Command
) -> None:
    case = Case(
        source="3.9.1",
        target="4.3.1",
        planted={**IGNORED, ORDERS: {**IGNORED[ORDERS], "segment.bytes": "14000"}},
    )
    cluster = planted(make_cluster, case)

    found = findings_of_plan(cluster, command, case.target)
    assert found == {**IGNORED_FOUND, "topic orders, segment.bytes": "REJECTED"}
    set_configs(cluster, *ORDERS, {"segment.bytes": None})
    assert findings_of_plan(cluster, command, case.target) == IGNORED_FOUND
    started = restart_on(cluster, Release.parse(case.target))
    assert started.runs
    assert "Dynamic default cluster config contains invalid values in: Set(log.segment.bytes)" in started.log
    assert "Dynamic broker config contains invalid values in: Set(log.segment.bytes)" in started.log
    assert "Error updating client metrics" in started.log
    wait_for_snapshot(cluster)

    # The snapshot of 4.3.1 lacks the topic's setting. A node that dies below can write such a snapshot, too.
    assert restart_on(cluster, Release.parse(case.source)).runs
    with KafkaAdmin(cluster.spec) as admin:
        kept = admin.dynamic_configs()
    assert kept.topics["orders"] == {"retention.ms": "100000"}
    assert (kept.all_brokers, kept.brokers[1]) == (IGNORED[ALL_BROKERS], IGNORED[BROKER_1])

    set_configs(cluster, *ORDERS, {"segment.bytes": "14000"})
    died = restart_on(cluster, Release.parse(case.target))
    assert not died.runs
    assert "Error starting LogManager" in died.log
    assert TOO_SMALL in died.log


def findings_of_plan(cluster: LocalCluster, command: Command, target: str) -> dict[str, str]:
    code, out, err = command(cluster, f"{' '.join(DRY_RUN)} --to {target} --json")
    found = json.loads(out)["plan"]["findings"]
    assert code == (3 if any(one["severity"] == "blocker" for one in found) else 0), err
    return {
        one["subject"].removeprefix(f"{target}, "): one["code"].removeprefix("DYNAMIC-CONFIG-")
        for one in found
        if one["code"].startswith("DYNAMIC-CONFIG")
    }


@pytest.mark.full
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_node_starts_exactly_if_the_plan_finds_no_blocker(
    make_cluster: MakeCluster, release_cache: ReleaseCache, case: Case
) -> None:
    cluster = planted(make_cluster, case)
    source, target = Release.parse(case.source), Release.parse(case.target)
    found = predict(cluster, source, target, release_cache)
    assert {one.subject.removeprefix(f"{target}, "): str(one.severity) for one in found} == case.found
    started = restart_on(cluster, target)
    assert started.runs == all(one.severity is not Severity.BLOCKER for one in found), started.log[-4000:]
    assert case.log in started.log


@pytest.mark.full
def test_a_broker_with_a_keystore_counts_an_error_of_its_ignored_settings_and_its_log_shows_it(
    make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    """It validates them again to load a changed store. Without such a listener there is no error."""
    case = Case(source="3.9.1", target="4.3.1", planted={BROKER_1: {"log.segment.bytes": "30000"}})
    cluster = planted(make_cluster, case)
    (found,) = predict(cluster, Release.parse(case.source), Release.parse(case.target), release_cache)
    assert found.code == IGNORED_CONFIG.code
    (node,) = cluster.spec.nodes
    own = certificate(tmp_path, "nodes")
    file = Path(str(node.directory)) / "server.properties"
    secured = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": own.with_suffix(".store"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": own,
    }
    with reserved_ports(1) as (port,):
        text = file.read_text().replace("\nlisteners=", f"\nlisteners=SECURE://127.0.0.1:{port},")
    text = text.replace("protocol.map=CONTROLLER:PLAINTEXT", "protocol.map=SECURE:SSL,CONTROLLER:SSL")
    file.write_text("\n".join([text, *(f"{key}={value}" for key, value in secured.items()), ""]))

    started = restart_on(cluster, Release.parse(case.target))

    assert started.runs
    log = read_part(None, LogPart(pid=1, started_at=1.0, lines=tuple(started.log.splitlines()), is_first=True))
    assert log.faults == BROKER_SETTINGS
    assert NodeMetricsReader().read(node).counters[METADATA_APPLY_ERRORS] == 2, "once for each role"
