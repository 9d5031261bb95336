"""The ports of a FakeCluster, for fast tests of the steps. tests/contract holds them to the real ones.

FakeAdmin, FakeRuntime, FakeMetrics and FakeClasses are what the steps see of one `FakeCluster`; `fake_ports` puts
them together with the real run store and lock in a temporary folder. Time passes in rounds: a started node is back in
its ISRs after `catch_up_rounds` calls of `partitions()`; leadership comes back only when asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from kafka_rollout.base.errors import NotObservableError, RefusedError, TransientError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from kafka_rollout.control.lock import fence_cluster_ports
from kafka_rollout.features.min_isr import MIN_ISR
from kafka_rollout.features.requests import FeatureUpdateResult, undo_of
from kafka_rollout.gates.control import Reading
from kafka_rollout.gates.coordinators import CoordinatorAnswers, led_partitions
from kafka_rollout.gates.gate import Gate, GateKind, GateRef
from kafka_rollout.model.acls import Acl
from kafka_rollout.model.broker_views import BrokerView
from kafka_rollout.model.configs import ConfigSource, DynamicConfigs, Setting, SettingValues
from kafka_rollout.model.contents import ClusterInventory, LogStarts
from kafka_rollout.model.listeners import ListenerCertificate
from kafka_rollout.model.plan import Plan, ReleaseStep, Undo
from kafka_rollout.model.retention import Bound, KeptRecords, retention_of
from kafka_rollout.model.rights import MissingRight, Right
from kafka_rollout.model.state import (
    UNKNOWN_MIN_ISR,
    GroupState,
    Movements,
    NodeFeatures,
    NodeMetrics,
    PartitionState,
    QuorumState,
    RegisteredNodes,
    ReplicaState,
    RequestCount,
    TransactionState,
    find_current_brokers,
)
from kafka_rollout.model.topology import NodeSpec, OutsideCondition
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.nodes.runtimes.no_runtime import NoRuntime
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.rehearsal.job import RehearsalJob
from kafka_rollout.rehearsal.result import RehearsalResult
from kafka_rollout.releases.facts import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, Release
from kafka_rollout.run.events import Event
from kafka_rollout.run.traffic import TrafficVerdict
from tests.fakes.cluster import FakeCluster
from tests.fakes.kafka_classes import FakeClasses
from tests.fakes.logs import FakeLogs
from tests.fakes.metadata_logs import FakeMetadataLogs
from tests.fakes.runtime import FakeRuntime
from tests.records import change_lock, run_history
from tests.traffic import with_samples

_REGISTERS_CONTROLLERS_SINCE = Release(3, 7, 0)
_REGISTERS_CONTROLLERS_AT = 15  # metadata.version 3.7-IV0
_LISTS_FENCED_SINCE = Release(4, 0, 0)
_CONTROLLERS_REPORT_FINALIZED_SINCE = Release(3, 5, 0)


class FakeAdmin:
    """ClusterAdmin of a FakeCluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def cluster_id(self) -> str:
        self._any_broker()
        return "FAKEFAKEFAKEFAKEFAKEFA"

    def missing_rights(self, rights: Collection[Right] | None = None) -> tuple[MissingRight, ...]:
        self._any_broker()
        return tuple(one for one in self._cluster.missing_rights if rights is None or one.right in rights)

    def features(self, node: NodeSpec) -> NodeFeatures:
        release = self._cluster.release_of(node.node_id)
        if release is None or node.node_id in self._cluster.silent:
            raise TransientError(f"Node {node.node_id} ({node.name}) cannot be reached: connection refused.")
        facts = self._cluster.catalogue.get(release)
        reports = node.is_broker or release >= _CONTROLLERS_REPORT_FINALIZED_SINCE
        return NodeFeatures(
            supported={name: feature.supported for name, feature in facts.features.items()},
            finalized=dict(self._cluster.finalized) if reports else {},
            epoch=self._cluster.epoch if reports else None,
            in_zookeeper_mode=self._cluster.in_zookeeper_mode,
        )

    def certificates(self, node: NodeSpec, addresses: Sequence[str]) -> tuple[ListenerCertificate, ...]:
        self._cluster.certificate_addresses[node.node_id] = tuple(addresses)
        none = tuple(ListenerCertificate(address=address, problem="it does not speak TLS") for address in addresses)
        return self._cluster.certificates.get(node.node_id, none)

    def quorum(self, *, through_brokers: bool = True) -> QuorumState:
        world = self._cluster
        if world.leader is None or (world.leader in world.silent and not through_brokers):
            raise TransientError("No controller answers DescribeQuorum: there is no leader.")
        end = 1000 + world.rounds

        def replica(node_id: int) -> ReplicaState:
            node = world.nodes[node_id]
            now = int(self._cluster.clock.now() * 1000)
            caught_up = node.running is not None and node.behind == 0
            return ReplicaState(
                replica_id=node_id,
                log_end_offset=end if caught_up else end - 500,
                last_fetch_ms=now,
                last_caught_up_ms=now if caught_up else now - 60_000,
            )

        return QuorumState(
            leader_id=world.leader,
            leader_epoch=world.leader_epoch,
            high_watermark=world.epoch,  # what its nodes report as applied
            voters=tuple(map(replica, world.voters)),
            observers=tuple(
                replica(node.node_id)
                for node in world.spec.nodes
                if node.node_id not in world.voters and world.runs(node.node_id)
            ),
        )

    def registered(self, *, through: Collection[int] | None = None) -> RegisteredNodes:
        self._through(through)
        world = self._cluster
        brokers = {node.node_id for node in world.spec.brokers}
        up = {node_id for node_id in brokers if world.runs(node_id) and world.nodes[node_id].behind == 0}
        down = (brokers - up) | world.find_unlisted_brokers
        running = [node.running for node in world.nodes.values() if node.running is not None]
        lists_fenced = min(running) >= _LISTS_FENCED_SINCE
        controllers = {node.node_id for node in world.spec.controllers} | world.find_unlisted_controllers
        level = world.finalized.get(METADATA_VERSION, 0)
        registers = min(running) >= _REGISTERS_CONTROLLERS_SINCE and level >= _REGISTERS_CONTROLLERS_AT
        return RegisteredNodes(
            brokers=frozenset(up | down if lists_fenced else up),
            fenced=frozenset(down) if lists_fenced else None,
            controllers=frozenset(controllers) if registers else None,
        )

    def setting(self, name: str) -> SettingValues:
        self._through()
        world = self._cluster
        up = [n.node_id for n in world.spec.brokers if world.runs(n.node_id) and n.node_id not in world.silent]
        dynamic = world.dynamic_configs
        topics = {topic: values[name] for topic, values in dynamic.topics.items() if name in values}
        if name == MIN_ISR:
            own = {p.topic: str(p.min_isr) for p in world.topics.values() if p.topic not in world.inherit_min_isr}
            topics = {**own, **topics}
        return SettingValues(
            default=dynamic.all_brokers.get(name),
            brokers={node_id: world.broker_value(node_id, name, "1") for node_id in up},
            own={node_id: dynamic.brokers[node_id][name] for node_id in up if name in dynamic.brokers.get(node_id, {})},
            topics=topics,
        )

    def set_default_config(self, name: str, value: str, *, validate_only: bool) -> None:
        self._any_broker()
        if not validate_only:
            self._cluster.set_default(name, value)

    def node_config(self, node: NodeSpec) -> Mapping[str, str]:
        return dict(self._cluster.nodes[node.node_id].config)

    def settings_in_use(self, node: NodeSpec, names: Collection[str] | None = None) -> Mapping[str, Setting]:
        if not self._cluster.runs(node.node_id) or node.node_id in self._cluster.silent:
            raise TransientError(f"Node {node.node_id} does not respond.")
        known = self._cluster.catalogue.get(self._cluster.nodes[node.node_id].installed).config_names
        unset = {name: Setting(None, ConfigSource.DEFAULT) for name in known}
        found = {**unset, **self._cluster.settings_in_use(node.node_id)}
        return found if names is None else {name: found[name] for name in names if name in found}

    def partitions(
        self,
        *,
        through: Collection[int] | None = None,
        topics: Collection[str] | None = None,
        min_isr_age_s: float | None = 0.0,
    ) -> tuple[PartitionState, ...]:
        self._through(through)
        self._cluster.advance()
        found = sorted(self._cluster.partition_states(), key=lambda p: (p.topic, p.partition))
        return tuple(
            one if min_isr_age_s is not None else replace(one, min_insync_replicas=UNKNOWN_MIN_ISR)
            for one in found
            if topics is None or one.topic in topics
        )

    def coordinators(self, node: NodeSpec, partitions: Sequence[PartitionState]) -> CoordinatorAnswers:
        """`FakeCluster.coordinator_answers` replaces answers; groups and ids are those of the node's partitions."""
        world = self._cluster
        self.features(node)  # it must respond
        sizes = Counter(p.topic for p in partitions)
        led = {p.name for p in led_partitions(partitions, node.node_id)}

        def coordinated(topic: str, names: Iterable[str]) -> frozenset[str]:
            return frozenset(
                name for name in names if sizes[topic] and f"{topic}-{coordinator_partition(name, sizes[topic])}" in led
            )

        return CoordinatorAnswers(
            by_partition={name: world.coordinator_answers.get(name, "NONE") for name in led},
            groups=coordinated(GROUPS_TOPIC, (group.group_id for group in world.groups)),
            transactional_ids=coordinated(TRANSACTIONS_TOPIC, (t.transactional_id for t in world.transactions)),
        )

    def movements(self) -> Movements:
        self._through()
        return self._cluster.movements

    def groups(self) -> tuple[GroupState, ...]:
        self._through()
        return tuple(self._cluster.groups)

    def transactions(self) -> tuple[TransactionState, ...]:
        self._through()
        world = self._cluster
        return tuple(one for one in world.transactions if world.is_served(TRANSACTIONS_TOPIC, one.transactional_id))

    def inventory(
        self, *, configured_groups: Collection[str] = (), leaderless: bool = False, kept: bool = False
    ) -> ClusterInventory:
        self._through()
        world = self._cluster
        gone = world.lost_in_the_roll
        topics: dict[str, dict[str, object]] = {}
        dynamic = world.dynamic_configs
        configs: dict[str, Mapping[str, str]] = {
            **{f"topic {partition.topic}": world.own_configs(partition) for partition in world.topics.values()},
            **{f"broker {node_id}": values for node_id, values in dynamic.brokers.items()},
            "brokers": dynamic.all_brokers,
        }
        for partition in world.topics.values():
            if partition.topic not in gone:
                topic = topics.setdefault(partition.topic, {"id": partition.topic, "replicas": []})
                topic["replicas"] = [*cast("list[object]", topic["replicas"]), sorted(partition.replicas)]
        effective = world.effective()
        starts = {one.name: world.log_starts.get(one.name, 0) for one in world.topics.values()}
        bounds = {name: retention_of(effective.topics.settings(name)) for name in topics}
        never = {name for name, one in bounds.items() if one is not None and one.bound is Bound.START}
        return ClusterInventory(
            topics=topics,
            starts=starts,
            kept={
                one.name: KeptRecords(start=starts[one.name], from_offset=starts[one.name])
                for one in world.topics.values()
                if kept and one.topic in never
            },
            ends={partition.name: 10 + world.rounds for partition in world.topics.values()},
            groups={
                group.group_id: {"type": group.type, "has_members": group.is_active, "offsets": {}}
                for group in world.groups
                if world.is_served(GROUPS_TOPIC, group.group_id)
            },
            configs={resource: dict(values) for resource, values in configs.items() if values},
            acls=tuple(sorted(world.acls)),
            scram={},
            quotas={},
            unasked=world.unread_contents,
            group_configs=world.group_configs,
            effective=effective,
        )

    def log_starts(self, brokers: Collection[int], above: Mapping[str, int]) -> LogStarts:
        now, settings = self.inventory(), self._cluster.effective().topics
        led = {one.name for one in self._cluster.topics.values() if one.leader in brokers}
        starts = {name: now.starts[name] for name in led & above.keys() if now.starts[name] > above[name]}
        names = {name.rpartition("-")[0] for name in starts}
        return LogStarts(
            read_at=self._cluster.clock.now(),
            starts=starts,
            ids={name: now.topics[name]["id"] for name in names},
            retention={name: retention_of(settings.settings(name)) for name in names},
            led=len(led),
            asked=len(led & above.keys()),
        )

    def views(self, *, groups: Collection[str], topic_settings: Collection[str]) -> Mapping[int, BrokerView]:
        self._through()
        world = self._cluster
        acls = {str(acl): "" for acl in world.acls}
        return {
            broker.node_id: {"ACL": acls, **world.views.get(broker.node_id, {})}
            for broker in world.spec.brokers
            if world.nodes[broker.node_id].running
        }

    def acls(self) -> tuple[Acl, ...] | None:
        self._through()
        if self._cluster.acls_problem:
            raise NotObservableError(self._cluster.acls_problem, remedy="Delete that ACL.")
        return tuple(sorted(self._cluster.acls)) or None

    def settings(self) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        self._through()
        return {"group_configs": self._cluster.group_configs, "subscriptions": {}}

    def dynamic_configs(self) -> DynamicConfigs:
        """Only brokers report their own values."""
        self._through()
        found = self._cluster.dynamic_configs
        brokers = {node.node_id for node in self._cluster.spec.brokers}
        return replace(found, brokers={one: values for one, values in found.brokers.items() if one in brokers})

    def elect_preferred_leaders(self, partitions: Sequence[PartitionState]) -> None:
        self._any_broker()
        topics = self._cluster.topics
        away = []
        for asked in partitions:
            partition = topics.get(asked.name)
            if partition is None:
                continue
            if partition.preferred_leader in partition.isr and self._cluster.runs(partition.preferred_leader):
                topics[asked.name] = replace(partition, leader=partition.preferred_leader)
            else:
                away.append(asked.name)
        if away:
            raise TransientError(f"The preferred leader could not be elected for {', '.join(away)}.")

    def unregister_broker(self, node_id: int) -> None:
        self._cluster.find_unlisted_brokers.discard(node_id)

    def update_features(
        self, targets: Mapping[str, int], *, validate_only: bool, unsafe: bool = False
    ) -> tuple[FeatureUpdateResult, ...]:
        self._any_broker()
        world = self._cluster
        if world.leader is None:
            raise TransientError("UpdateFeatures cannot be answered now: NOT_CONTROLLER.")
        if not targets:
            return ()
        problem = next((why for name, level in targets.items() if (why := self._refusal(name, level))), "")
        if not problem:
            world.updates.append((dict(targets), validate_only))
            if not validate_only:
                if targets.get(ELR_VERSION, 0) > 0:
                    world.raise_elr()
                world.raise_levels(targets)
        error = "INVALID_UPDATE_VERSION" if problem else "NONE"
        return tuple(FeatureUpdateResult(feature=name, error=error, message=problem) for name in targets)

    def _refusal(self, feature: str, level: int) -> str:
        world = self._cluster
        if feature == METADATA_VERSION and level < world.finalized.get(feature, 0):
            newest = max(node.running for node in world.nodes.values() if node.running is not None)
            undo, _ = undo_of(world.catalogue.get(newest), feature, level, world.finalized[feature])
            if undo is not Undo.POSSIBLE:
                return f"Unsupported metadata.version downgrade from {world.finalized[feature]} to {level}."
        for node_id, node in world.nodes.items():
            if node.running is None or feature == KRAFT_VERSION:
                continue
            facts = world.catalogue.get(node.running).features.get(feature)
            if facts is None:
                return f"Node {node_id} does not support feature {feature}."
            if level not in facts.supported:
                return (
                    f"Invalid update version {level} for feature {feature}. Node {node_id} supports {facts.supported}."
                )
        for node_id, dropped in world.dropped.items():
            if level > 0 and feature in dropped:
                why = f"Broker {node_id} does not support this feature."
                return f"Invalid update version {level} for feature {feature}. {why}"
        return ""

    def close(self) -> None:
        """Nothing is open."""

    def _any_broker(self) -> None:
        world = self._cluster
        if not any(world.runs(node.node_id) and node.node_id not in world.silent for node in world.spec.brokers):
            raise TransientError("No broker can be reached: connection refused.")

    def _through(self, through: Collection[int] | None = None) -> None:
        """None: only brokers whose metadata is current by the quorum are believed, as by KafkaAdmin."""
        self._any_broker()
        if through is None and not find_current_brokers(self._cluster.spec, self.quorum(), {}):
            raise TransientError("No broker has fetched the newest metadata.")


class FakeMetrics:
    """Metrics of a FakeCluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def read(self, node: NodeSpec) -> NodeMetrics:
        release = self._cluster.release_of(node.node_id)
        if release is None or node.node_id in self._cluster.silent:
            raise TransientError(f"Neither agent of node {node.node_id} ({node.name}) answers.")
        facts = self._cluster.catalogue.get(release)
        level = self._cluster.finalized.get(METADATA_VERSION)
        known = level if facts.has_current_metadata_version_metric else None
        return NodeMetrics(
            release=release,
            java_version=self._cluster.java,
            current_metadata_version_prometheus=known,
            current_metadata_version_jolokia=known,
            snapshot_age_ms=1000 if facts.has_snapshot_emitter_metrics else None,
            snapshot_bytes=4096 if facts.has_snapshot_emitter_metrics else None,
            requests=(RequestCount(api="Metadata", version=12, count=1),),
        )


class FakeOutside:
    """Values of conditions from outside of a FakeCluster: `outside` has a reading, or readings of which the last stays.

    `outside_reads`: names that were read; `outside_not_before`: with the time after which the reading must begin.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def read(self, outside: OutsideCondition, *, not_before: float = 0.0) -> Reading:
        self._cluster.outside_reads.append(outside.name)
        self._cluster.outside_not_before.append(not_before)
        readings = self._cluster.outside[outside.name]
        return readings.pop(0) if len(readings) > 1 else readings[0]


class FakeRehearsals:
    """Rehearsals of a FakeCluster: `rehearsed` is the result; without one, the nodes have no files."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def rehearse(self, job: RehearsalJob, on_progress: Callable[[str], None]) -> RehearsalResult:
        on_progress(f"rehearsing {job.source} to {job.target}")
        if self._cluster.rehearsed is None:
            raise RefusedError("The nodes have no files.", remedy="Continue without a rehearsal.")
        return self._cluster.rehearsed


class FakeTraffic:
    """The test traffic of a run on a FakeCluster, which does not take place: without samples of its own, records were
    acknowledged in each second of the run.
    """

    def __init__(self, cluster: FakeCluster, events: Callable[[], Sequence[Event]]) -> None:
        self._cluster = cluster
        self._events = events

    def check(self) -> TrafficVerdict | None:
        if self._cluster.traffic_problem:
            raise TransientError(self._cluster.traffic_problem)
        found = self._cluster.traffic
        return found if found is None or found.series else with_samples(found, self._events())


def hidden_bench(cluster: FakeCluster, home: Path, *, metrics: bool = False, run_id: str = "run-1") -> ClusterPorts:
    """The fake cluster as a managed service shows it: brokers alone, no hosts, without `metrics` no agents."""
    spec = replace(cluster.spec, nodes=cluster.spec.brokers, runtime="none")
    agents = FakeMetrics(cluster) if metrics else NodeMetricsReader()
    runtime = NoRuntime(spec, FakeAdmin(cluster), agents)
    ports = replace(fake_ports(cluster, home, run_id=run_id), cluster=spec, metrics=agents, runtime=runtime)
    return fence_cluster_ports(ports)


def fake_ports(cluster: FakeCluster, home: Path, *, run_id: str = "run-1", call: str = "") -> ClusterPorts:
    """The ports of the fake cluster; record and lock are the real ones under `home`."""
    run = run_history(home, cluster.spec.name, run_id, clock=cluster.clock.now)
    ports = ClusterPorts(
        run_id=run_id,
        cluster=cluster.spec,
        catalogue=cluster.catalogue,
        admin=FakeAdmin(cluster),
        runtime=FakeRuntime(cluster),
        metrics=FakeMetrics(cluster),
        outside=FakeOutside(cluster),
        classes=FakeClasses(cluster),
        logs=FakeLogs(cluster),
        metadata_logs=FakeMetadataLogs(cluster),
        rehearsals=FakeRehearsals(cluster),
        traffic=FakeTraffic(cluster, run.events),
        run=run,
        lock=change_lock(home, clock=cluster.clock.now, call=call),
        clock=cluster.clock,
    )
    return fence_cluster_ports(ports)


def in_step(ports: ClusterPorts, plan: Plan, release_step: str, node_id: int) -> tuple[ReleaseStep, NodeSpec]:
    """Release step and node by their keys, as the functions that change a node take them."""
    return plan.release_step(release_step), ports.cluster.node(node_id)


def gate_of(ports: ClusterPorts, plan: Plan, kind: GateKind, release_step: str, node_id: int) -> Gate:
    """A gate of a node, by the keys of its release step and node."""
    return GateRef(kind=kind, release_step=release_step, node_id=node_id).resolve(plan, ports.cluster)
