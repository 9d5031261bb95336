"""Findings about ZooKeeper: clusters that use it, and migrations to KRaft that are not finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import BLOCKER, NOT_OBSERVABLE, Check, Finding, FindingCode, Need
from kafka_rollout.base.wording import nodes
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.model.configs import NodeConfigs, is_reference
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.not_observable import not_observable
from kafka_rollout.releases.facts import Release

MIGRATION = "zookeeper.metadata.migration.enable"
_WITHOUT_ZOOKEEPER = Release(4, 0, 0)
_FINISH = (
    "Finish the migration with the running release: restart every broker in KRaft mode, then every controller without "
    f"{MIGRATION} and zookeeper.connect. Then plan again."
)


ZK_MIGRATION_OPEN = FindingCode(
    "ZK-MIGRATION-OPEN",
    BLOCKER,
    "A migration from ZooKeeper to KRaft is not finished, or it is unknown whether it is.",
    _FINISH,
)
ZOOKEEPER_CHECK = Check(
    "zookeeper-migration",
    "Migration from ZooKeeper",
    "upgrade.md#findings",
    (ZK_MIGRATION_OPEN, NOT_OBSERVABLE),
    needs=(Need.NODES,),
)


def refuse_zookeeper_mode(cluster: ClusterSpec, answers: Mapping[int, bool]) -> None:
    """Raise RefusedError if the cluster has no quorum. `answers`: broker id → whether it runs in ZooKeeper mode."""
    if answers and all(answers.values()) and not cluster.controllers:
        raise RefusedError(
            f"Cluster {cluster.name} runs in ZooKeeper mode, which this tool does not support.",
            remedy="Migrate the cluster to KRaft with Kafka 3.9 first (kafka.apache.org/39/operations/kraft).",
        )


def can_migrate(state: ClusterState) -> bool:
    """Return whether a node runs a release that supports ZooKeeper."""
    return any(release < _WITHOUT_ZOOKEEPER for release in state.releases)


def zookeeper_findings(
    cluster: ClusterSpec, state: ClusterState, configs: NodeConfigs, registrations: MetadataRegistrations | None
) -> Iterable[Finding]:
    """Yield the findings. `registrations`: of the metadata log; None if it was not read.

    Kafka 4.0 and later ignore the state of a migration: after the roll, nothing leads back to ZooKeeper. A controller
    without the setting ends the migration when it becomes active, so files without it are enough.
    """
    if not can_migrate(state):
        return
    modes = sorted(i for i, node in state.nodes.items() if node.features and node.features.in_zookeeper_mode)
    files = sorted(i for i, config in configs.items() if config.get(MIGRATION, "").strip().lower() == "true")
    unknown = sorted(i for i, config in configs.items() if is_reference(config.get(MIGRATION, "")))
    reasons = []
    if modes:
        reasons.append(f"{nodes(modes)} {'runs' if len(modes) == 1 else 'run'} in ZooKeeper mode")
    if files:
        reasons.append(f"{MIGRATION} is true in the configuration of {nodes(files)}")
    if registrations is not None and registrations.migrates_from_zookeeper:
        brokers = registrations.migrating_brokers
        reasons.append(
            f"the metadata log registers {nodes(sorted(brokers))} in ZooKeeper mode"
            if brokers
            else f"the newest ZkMigrationStateRecord in the metadata log is {registrations.zk_migration}"
        )
    if reasons:
        yield ZK_MIGRATION_OPEN.found(
            "metadata quorum",
            f"The migration of this cluster from ZooKeeper to KRaft is not finished: {'; '.join(reasons)}.",
        )
    elif registrations is not None or not (unknown or any(node.node_id not in configs for node in cluster.controllers)):
        return
    elif cluster.manages_nodes:
        yield ZK_MIGRATION_OPEN.found(
            "metadata quorum",
            "It is unknown whether a migration from ZooKeeper to KRaft is open. No controller's metadata log can be "
            f"read, and the value of {MIGRATION} in a controller's file is unknown.",
            "Give the tool the right to read the metadata log of a controller (docs/hosts.md), then plan again.",
        )
    else:
        yield not_observable(
            "migration from ZooKeeper",
            "The metadata log and the files of all controllers, which show an open migration from ZooKeeper,",
            "If this cluster used ZooKeeper before, check that the metric ZkMigrationState of the active controller is "
            "0 or 3.",
        )
