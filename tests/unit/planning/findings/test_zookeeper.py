from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.planning.findings.zookeeper import MIGRATION, refuse_zookeeper_mode, zookeeper_findings
from tests.unit.builders import R391, R431, SEPARATE, cluster, node_state, state

CONFIGS = {node.node_id: {"log.dirs": "/data"} for node in SEPARATE.nodes}
CLOSED = MetadataRegistrations()


def findings(**changes: object) -> list[Finding]:
    values: dict[str, object] = {"state": state(), "configs": CONFIGS, "registrations": CLOSED, **changes}
    return list(zookeeper_findings(SEPARATE, **values))  # type: ignore[arg-type]


def test_a_cluster_that_was_created_in_kraft_mode_has_no_finding() -> None:
    assert findings() == []
    assert findings(registrations=MetadataRegistrations(zk_migration=3)) == [], "the migration was finished"
    assert findings(registrations=None) == [], "a controller without the setting ends the migration"


@pytest.mark.parametrize(
    ("registrations", "reason"),
    [
        (MetadataRegistrations(zk_migration=1), "the newest ZkMigrationStateRecord in the metadata log is 1."),
        (MetadataRegistrations(zk_migration=2), "the newest ZkMigrationStateRecord in the metadata log is 2."),
        (
            MetadataRegistrations(zk_migration=1, migrating_brokers=frozenset({4})),
            "the metadata log registers node 4 in ZooKeeper mode.",
        ),
    ],
)
def test_an_open_migration_in_the_metadata_log_is_a_blocker(registrations: MetadataRegistrations, reason: str) -> None:
    (found,) = findings(registrations=registrations)
    assert (found.code, found.severity) == ("ZK-MIGRATION-OPEN", Severity.BLOCKER)
    assert found.sentence.endswith(f"is not finished: {reason}")
    assert MIGRATION in found.remedy


def test_a_controller_s_file_that_enables_the_migration_is_a_blocker() -> None:
    (found,) = findings(configs={**CONFIGS, 2: {MIGRATION: " True"}, 3: {MIGRATION: "false"}})
    assert found.code == "ZK-MIGRATION-OPEN"
    assert f"{MIGRATION} is true in the configuration of node 2." in found.sentence


def test_a_broker_in_zookeeper_mode_beside_a_quorum_is_a_blocker() -> None:
    seen = state()
    (features,) = [seen.nodes[5].features]
    assert features is not None
    nodes = {**seen.nodes, 5: replace(seen.nodes[5], features=replace(features, in_zookeeper_mode=True))}
    (found,) = findings(state=replace(seen, nodes=nodes))
    assert "node 5 runs in ZooKeeper mode." in found.sentence


def test_releases_without_zookeeper_have_no_finding() -> None:
    seen = state(nodes={node.node_id: node_state(node.node_id, R431) for node in SEPARATE.nodes})
    assert findings(state=seen, registrations=MetadataRegistrations(zk_migration=1)) == []
    mixed = state(nodes={n.node_id: node_state(n.node_id, R431 if n.node_id < 6 else R391) for n in SEPARATE.nodes})
    assert len(findings(state=mixed, registrations=MetadataRegistrations(zk_migration=1))) == 1


@pytest.mark.parametrize("config", [{}, {2: {MIGRATION: "${vault:a:b}"}, 1: {}, 3: {}}])
def test_what_is_neither_in_a_file_nor_in_a_log_is_unknown(config: dict[int, dict[str, str]]) -> None:
    (found,) = findings(configs=config, registrations=None)
    assert (found.code, found.severity) == ("ZK-MIGRATION-OPEN", Severity.BLOCKER)
    assert found.sentence.startswith("It is unknown whether a migration")
    hidden = replace(SEPARATE, runtime="none")
    (found,) = zookeeper_findings(hidden, state(), config, None)
    assert (found.code, found.severity) == ("NOT-OBSERVABLE", Severity.INFO)
    assert findings(configs=config) == [], "the log says that there is none"


def test_a_cluster_in_zookeeper_mode_is_refused_with_one_sentence() -> None:
    old = cluster(brokers=[1, 2])
    with pytest.raises(RefusedError, match="runs in ZooKeeper mode") as refused:
        refuse_zookeeper_mode(old, {1: True, 2: True})
    assert "Migrate the cluster to KRaft with Kafka 3.9 first" in refused.value.remedy
    refuse_zookeeper_mode(old, {})
    refuse_zookeeper_mode(old, {1: True, 2: False})
    refuse_zookeeper_mode(SEPARATE, {4: True})
