"""Small clusters and a small catalogue to reason about: numbers as measured on released brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.counters import COUNTERS
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.state import (
    ClusterState,
    NodeFeatures,
    NodeMetrics,
    NodeState,
    PartitionState,
    ProcessState,
    QuorumState,
    RegisteredNodes,
    ReplicaState,
    RequestCount,
)
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.planning.findings.starts import ObservedStarts
from kafka_rollout.planning.observation import PlanObservation
from kafka_rollout.releases.facts import (
    AffectedReleases,
    Catalogue,
    CoordinatorClass,
    FeatureFacts,
    MetadataVersionLevel,
    Release,
    ReleaseFacts,
    Review,
    ReviewSource,
    VersionRange,
)

R340, R341, R391, R421, R431 = (Release.parse(text) for text in ("3.4.0", "3.4.1", "3.9.1", "4.2.1", "4.3.1"))
CHANGED = {8, 11, 13, 14, 15, 17, 23, 30}
NOW = 1_700_000_000.0
APPLIED = 100  # offset of the metadata that the nodes have applied
WELL_COUNTERS = {**dict.fromkeys(COUNTERS, 0), "active_brokers": 3}
REQUESTS = (RequestCount(api="Fetch", version=12, count=100),)


def feature(
    name: str, low: int, high: int, latest: int | None = None, default: int | None = None, **needs: Mapping[str, int]
) -> FeatureFacts:
    """`latest`: the highest stable level. `default`: the default level. `needs`: level_<n>={feature: level}."""
    latest = high if latest is None else latest
    return FeatureFacts(
        name=name,
        supported=VersionRange(low, high),
        latest_production=latest,
        default_level=latest if default is None else default,
        dependencies={int(key.removeprefix("level_")): value for key, value in needs.items()},
    )


def facts(
    release: Release,
    coordinator_class: CoordinatorClass,
    *features: FeatureFacts,
    java: int = 8,
    config_names: Iterable[str] = (),
) -> ReleaseFacts:
    by_name = {f.name: f for f in features}
    highest = by_name["metadata.version"].supported
    return ReleaseFacts(
        release=release,
        features=by_name,
        metadata_versions=tuple(
            MetadataVersionLevel(level=level, name=f"IV{level}", changed=level in CHANGED)
            for level in range(highest.min, highest.max + 1)
        ),
        coordinator_logs={},
        coordinator_class=coordinator_class,
        built_at=date(2017 + release.major, release.minor + 1, release.patch + 1),
        java_minimum=java,
        java_maximum_with_sasl=22 if release < Release(3, 9, 1) else None,
        config_names=frozenset(config_names),
        config_defaults={},
        oldest_requests={"Fetch": 4, "Produce": 3} if release.major >= 4 else {},
        config_resources=frozenset({"TOPIC", "BROKER", *(("CLIENT_METRICS", "GROUP") if release.major >= 4 else ())}),
        has_current_metadata_version_metric=release > Release(3, 5, 0),
        has_snapshot_emitter_metrics=release > Release(3, 5, 0),
        logging="log4j2" if release.major >= 4 else "reload4j",
    )


def all_read(until: date) -> tuple[Review, ...]:
    releases = (AffectedReleases(first=R340),)
    return tuple(Review(source=source, until=until, releases=releases) for source in ReviewSource)


def catalogue(*more: ReleaseFacts) -> Catalogue:
    known = (
        facts(
            R340, CoordinatorClass.INTOLERANT, feature("metadata.version", 1, 8), config_names=["old.key", "log.dirs"]
        ),
        facts(R341, CoordinatorClass.TOLERANT, feature("metadata.version", 1, 8), config_names=["old.key", "log.dirs"]),
        facts(
            R391,
            CoordinatorClass.TOLERANT,
            feature("metadata.version", 1, 21),
            feature("kraft.version", 0, 1),
            config_names=["old.key", "log.dirs"],
        ),
        facts(R421, CoordinatorClass.EMITTING, *four(29), java=17, config_names=["log.dirs"]),
        facts(R431, CoordinatorClass.EMITTING, *four(30), java=17, config_names=["log.dirs"]),
        *more,
    )
    return Catalogue({f.release: f for f in known}, reviews=all_read(max(f.built_at for f in known if f.built_at)))


def four(level: int) -> tuple[FeatureFacts, ...]:
    return (
        feature("metadata.version", 7, level),
        feature("kraft.version", 0, 1),
        feature("group.version", 0, 1, level_1={"metadata.version": 22}),
        feature("transaction.version", 0, 2, level_2={"metadata.version": 22}),
        feature("share.version", 0, 1, level_1={"metadata.version": 26}),
    )


def cluster(controllers: Iterable[int] = (), brokers: Iterable[int] = (), combined: Iterable[int] = ()) -> ClusterSpec:
    def node(node_id: int, *roles: Role) -> NodeSpec:
        return NodeSpec(
            node_id=node_id,
            name=f"node-{node_id}",
            roles=frozenset(roles),
            prometheus_url="set",
            jolokia_url="set",
        )

    return ClusterSpec(
        name="orders",
        snapshot_interval_s=0.0,
        nodes=(
            *(node(i, Role.CONTROLLER) for i in controllers),
            *(node(i, Role.BROKER) for i in brokers),
            *(node(i, Role.CONTROLLER, Role.BROKER) for i in combined),
        ),
    )


COMBINED = cluster(combined=[1, 2, 3])
SEPARATE = cluster(controllers=[1, 2, 3], brokers=[4, 5, 6])


def partition(topic: str, number: int, replicas: list[int], **other: Any) -> PartitionState:
    """`min_isr`: min.insync.replicas."""
    values: dict[str, Any] = {"leader": replicas[0], "isr": tuple(replicas), "min_isr": 2, **other}
    values["min_insync_replicas"] = values.pop("min_isr")
    values["isr"] = tuple(values["isr"])
    return PartitionState(topic=topic, partition=number, replicas=tuple(replicas), **values)


def node_state(
    node_id: int,
    release: Release | None = R391,
    *,
    supported: Mapping[str, tuple[int, int]] | None = None,
    finalized: Mapping[str, int] | None = None,
    epoch: int | None = APPLIED,
    **metrics: Any,
) -> NodeState:
    ranges = {"metadata.version": (1, 21), "kraft.version": (0, 1)} if supported is None else supported
    return NodeState(
        node_id=node_id,
        process=ProcessState(pid=1000 + node_id, started_at=NOW - 60, installed=release),
        features=NodeFeatures(
            supported={name: VersionRange(*values) for name, values in ranges.items()},
            finalized={"metadata.version": 21} if finalized is None else finalized,
            epoch=epoch,
        ),
        metrics=NodeMetrics(
            **{"release": release, "requests": REQUESTS, "counters": WELL_COUNTERS, "partition_count": 0, **metrics}
        ),
    )


def silent(node_id: int, problem: str = "connection refused") -> NodeState:
    return NodeState(node_id=node_id, process=ProcessState(pid=None), features=None, metrics=None, problem=problem)


def quorum(voters: Iterable[int], leader: int, observers: Iterable[int] = (), **lags: int) -> QuorumState:
    """`lags`: n<id>=records behind."""
    end = 10_000
    # Far enough in the past that only the offsets speak.
    behind_since = int(NOW * 1000) - 60_000

    def replica(node_id: int) -> ReplicaState:
        lag = lags.get(f"n{node_id}", 0)
        caught_up = int(NOW * 1000) if node_id == leader else (behind_since if lag else int(NOW * 1000) - 100)
        fetched = caught_up if node_id == leader else int(NOW * 1000) - 100
        return ReplicaState(
            replica_id=node_id, log_end_offset=end - lag, last_fetch_ms=fetched, last_caught_up_ms=caught_up
        )

    return QuorumState(
        leader_id=leader,
        leader_epoch=5,
        high_watermark=APPLIED + 1,
        voters=tuple(replica(i) for i in voters),
        observers=tuple(replica(i) for i in observers),
    )


def dynamic(static: QuorumState) -> QuorumState:
    """Return the same quorum with directory ids (KIP-853)."""
    voters = tuple(replace(one, directory_id=f"directory-of-{one.replica_id}") for one in static.voters)
    return replace(static, voters=voters)


def state(spec: ClusterSpec = SEPARATE, release: Release | None = R391, **other: Any) -> ClusterState:
    """A cluster that is well: every node answers, one topic of three replicas; `other` replaces parts of it."""
    controllers = [n.node_id for n in spec.controllers]
    brokers = [n.node_id for n in spec.brokers]
    values: dict[str, Any] = {
        "cluster_id": "abc",
        "observed_at": NOW,
        "nodes": {n.node_id: node_state(n.node_id, release) for n in spec.nodes},
        "quorum": quorum(controllers, controllers[-1], [b for b in brokers if b not in controllers]),
        "registered": RegisteredNodes(
            brokers=frozenset(brokers), fenced=frozenset(), controllers=frozenset(controllers)
        ),
        "partitions": tuple(partition("orders", i, brokers[i:] + brokers[:i]) for i in range(len(brokers)))
        if len(brokers) >= 3
        else (),
        **other,
    }
    return ClusterState(**values)


def replace_node(before: ClusterState, node: NodeState) -> dict[int, NodeState]:
    return {**before.nodes, node.node_id: node}


def observation(seen: ClusterState, **other: Any) -> PlanObservation:
    """What was observed for a plan: one log directory and Java 17 on every node."""
    ids = [node.node_id for node in SEPARATE.nodes]
    values: dict[str, Any] = {
        "cluster": SEPARATE,
        "catalogue": catalogue(),
        "configs": {node_id: {"log.dirs": f"/data/{node_id}"} for node_id in ids},
        "starts": ObservedStarts(),
        "dynamic": DynamicConfigs(),
        "java": dict.fromkeys(ids, 17),
        **other,
    }
    return PlanObservation(state=seen, **values)


def host_state(**changes: Any) -> HostState:
    """A host that is ready for 4.3.1."""
    ready = HostState(
        name="kafka-4",
        unit="kafka.service",
        symlink="/opt/kafka",
        folders={R431: "/opt/kafka_2.13-4.3.1"},
        releases=frozenset({R431}),
        symlink_can_switch=True,
        stop_timeout_s=300.0,
    )
    return replace(ready, **changes)
