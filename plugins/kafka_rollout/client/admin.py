"""Administration of one cluster: features, quorum, registrations, partitions, leaders (port ClusterAdmin).

Each request is sent to the node that it concerns. Clients for whole clusters choose a node themselves, fail on older
responses to DescribeQuorum, or cannot connect to controllers.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.base.internal_topics import METADATA_TOPIC
from kafka_rollout.base.lease import Fence, unfenced
from kafka_rollout.base.system.clock import SystemClock
from kafka_rollout.base.time_limits import RESPONSE_S
from kafka_rollout.client.broker_views import read_views
from kafka_rollout.client.certificates import read_certificates
from kafka_rollout.client.connection import ask_api_versions
from kafka_rollout.client.contents import (
    MinIsrValues,
    read_acls,
    read_dynamic_configs,
    read_inventory,
    read_log_starts,
    read_node_config,
    read_setting,
    read_settings,
    read_settings_in_use,
    set_default_config,
)
from kafka_rollout.client.coordinators import ask_coordinators, list_groups, list_transactions
from kafka_rollout.client.features import node_features, send_feature_updates
from kafka_rollout.client.messages import UnregisterBrokerRequest
from kafka_rollout.client.requests import (
    CONTROLLER_ENDPOINTS,
    ClusterConnections,
    SilentNodes,
    Target,
    TopicMetadata,
    error_name,
    raise_for_error,
    target_of,
)
from kafka_rollout.client.rights import find_denied_topics, find_missing, find_missing_on_controllers
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.features.requests import FeatureUpdateResult
from kafka_rollout.formats.layouts import ZERO_UUID
from kafka_rollout.gates.coordinators import CoordinatorAnswers
from kafka_rollout.model.acls import Acl
from kafka_rollout.model.broker_views import BrokerView
from kafka_rollout.model.configs import DynamicConfigs, Setting, SettingValues
from kafka_rollout.model.contents import ClusterInventory, LogStarts
from kafka_rollout.model.listeners import ListenerCertificate
from kafka_rollout.model.quorum_addresses import Address, parse_address
from kafka_rollout.model.rights import ALTER_CLUSTER, PINNING, READING, MissingRight, Right
from kafka_rollout.model.state import (
    UNKNOWN_MIN_ISR,
    GroupState,
    Movements,
    NodeFeatures,
    PartitionState,
    QuorumState,
    RegisteredNodes,
    ReplicaState,
    TransactionState,
    find_current_brokers,
)
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.facts import METADATA_VERSION

_PREFERRED = 0  # election type
# Results of an election that need no repetition: the leader is elected already, or the partition was deleted.
_SETTLED = frozenset({"NONE", "ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION"})


class KafkaAdmin:
    """ClusterAdmin over the addresses of the inventory.

    Every call ends within `timeout_s` (seconds). Connections stay open between calls and are opened again when lost.
    `silent`: as for ClusterConnections.
    Raises TransientError where no node responds now, RefusedError with the name of a missing right or version.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        security: ClientSecurity | None = None,
        *,
        timeout_s: float = RESPONSE_S,
        fence: Fence = unfenced,
        silent: SilentNodes | None = None,
    ) -> None:
        self._fence = fence
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._security = security or ClientSecurity()
        self._silent = silent or SilentNodes()
        self._nodes = ClusterConnections(cluster, self._security, timeout_s=timeout_s, silent=self._silent)
        self._min_isr = MinIsrValues(self._nodes)
        self._last_leader: int | None = None

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._nodes.close()

    def cluster_id(self) -> str:
        return str(self._describe_cluster(self._nodes.brokers).cluster_id)

    def missing_rights(self, rights: Collection[Right] | None = None) -> tuple[MissingRight, ...]:
        principal = self._security.principal
        wanted = (*READING, ALTER_CLUSTER, *PINNING) if rights is None else rights
        missing = [MissingRight(right=right, principal=principal) for right in find_missing(self._nodes, wanted)]
        if rights is not None:
            return tuple(missing)
        denied = [
            MissingRight(right=right, principal=principal, denied_to=denied_to)
            for right, denied_to in find_denied_topics(self._nodes).items()
        ]
        of_controllers = self._security.of_controllers.principal
        separate = [node.node_id for node in self._cluster.controllers if not node.is_broker]
        on_controllers = [
            MissingRight(right=right, principal=of_controllers, listener=Role.CONTROLLER)
            for right in find_missing_on_controllers(self._nodes, separate)
        ]
        return (*missing, *denied, *on_controllers)

    def features(self, node: NodeSpec) -> NodeFeatures:
        """ApiVersions of this node: on the broker listener if it has one, else on the controller listener."""
        target = self._target(node)
        return node_features(ask_api_versions(lambda request: self._nodes.ask(target, request)))

    def certificates(self, node: NodeSpec, addresses: Sequence[str]) -> tuple[ListenerCertificate, ...]:
        listeners = (
            (node.broker_address, self._security),
            (node.controller_address, self._security.of_controllers),
        )
        own = [address for address, security in listeners if address and security.uses_tls]
        target = target_of(node, Role.BROKER) or target_of(node, Role.CONTROLLER)
        limit_s = self._timeout_s if target is None else self._silent.limit(target, self._timeout_s)
        return read_certificates(dict.fromkeys([*own, *addresses]), timeout_s=limit_s)

    def _target(self, node: NodeSpec) -> Target:
        target = target_of(node, Role.BROKER) or target_of(node, Role.CONTROLLER)
        if target is None:  # of a discovered cluster: an inventory has the address of each node
            raise TransientError(
                f"The address of node {node.node_id} ({node.name}) is unknown: no broker reports it.",
                remedy="Start the node, or read its log and fix the error.",
            )
        return target

    def quorum(self, *, through_brokers: bool = True) -> QuorumState:
        """DescribeQuorum of the leader of the metadata quorum, directly or through a broker."""
        # Brokers last: they forward the request, and their answer can take as long as an election.
        targets = self._controllers_leader_first()
        if through_brokers or not targets:
            targets += self._nodes.brokers
        quorum: QuorumState = self._nodes.first_answer(targets, describe_quorum(), read_quorum)
        self._last_leader = quorum.leader_id
        return quorum

    def registered(self, *, through: Collection[int] | None = None) -> RegisteredNodes:
        """Brokers and controllers in the cluster's metadata, including unlisted ones that no longer run."""
        nodes = self._through(through)
        answer = self._describe_cluster(nodes.brokers, include_fenced_brokers=True)
        controllers = self._registered_controllers()
        return RegisteredNodes(
            brokers=frozenset(broker.broker_id for broker in answer.brokers),
            fenced=frozenset(broker.broker_id for broker in answer.brokers if broker.is_fenced)
            if answer.version >= 2
            else None,
            controllers=frozenset(controllers) or None,
            controller_addresses=controllers,
            broker_addresses=_addresses(answer.brokers),
        )

    def _registered_controllers(self) -> Mapping[int, Address]:
        """Return controller → registered address; empty if the release lists none.

        Below metadata.version 15 (3.7-IV0) no controller is registered, so an empty answer proves nothing.
        """
        if not self._nodes.controllers:
            return {}
        try:
            answer = self._describe_cluster(
                self._controllers_leader_first(), endpoint_type=CONTROLLER_ENDPOINTS, min_version=1
            )
        except RefusedError:
            return {}
        return _addresses(answer.brokers)

    def _controllers_leader_first(self) -> list[Target]:
        return sorted(self._nodes.controllers, key=lambda t: t.node_id != self._last_leader)

    def _describe_cluster(self, targets: Sequence[Target], **fields: Any) -> Any:
        """The first response to DescribeCluster; UNSUPPORTED_VERSION is not an error, its response has no nodes.

        A new release below metadata.version 15 answers it for controllers.
        """

        def accept(response: Any, target: Target) -> Any:
            if error_name(response.error_code) != "UNSUPPORTED_VERSION" or "endpoint_type" not in fields:
                raise_for_error(response, "DescribeCluster", target)
            return response

        return self._nodes.first_answer(targets, DescribeClusterRequest(**fields), accept)

    def partitions(
        self,
        *,
        through: Collection[int] | None = None,
        topics: Collection[str] | None = None,
        min_isr_age_s: float | None = 0.0,
    ) -> tuple[PartitionState, ...]:
        """The partitions of these topics by name, internal topics included; None: of all that the user can describe."""
        found, target = self._through(through).topics(names=topics)
        values: Mapping[str, Mapping[int, int]] = {name: {} for name in found}
        if min_isr_age_s is not None:
            values = self._read_min_isr(found, target, min_isr_age_s)
        return tuple(
            PartitionState(
                topic=name,
                partition=number,
                leader=leader,
                replicas=replicas,
                isr=isr,
                min_insync_replicas=of_topic.get(number, UNKNOWN_MIN_ISR),
            )
            for name, of_topic in sorted(values.items())
            for number, leader, replicas, isr in found[name].partitions
        )

    def _read_min_isr(
        self, topics: Mapping[str, TopicMetadata], target: Target, age_s: float
    ) -> dict[str, dict[int, int]]:
        """Ask `target` for the values of topics, and each broker that can lead a partition for its own value."""
        return self._min_isr.of(topics, target, self._nodes.brokers, age_s=age_s)

    def movements(self) -> Movements:
        """Replicas that move between brokers (reassignments), or between directories of one broker, now."""

        def reassigned(response: Any, target: Target) -> tuple[str, ...]:
            raise_for_error(response, "ListPartitionReassignments", target)
            return tuple(
                sorted(f"{topic.name}-{p.partition_index}" for topic in response.topics for p in topic.partitions)
            )

        nodes, live = self._current()
        moving = nodes.from_each(live, self._moving_directories)
        request = ListPartitionReassignmentsRequest(timeout_ms=int(self._timeout_s * 1000), topics=None)
        return Movements(
            reassigned=nodes.first_answer(nodes.brokers, request, reassigned),
            directories=tuple(sorted(name for of_broker in moving for name in of_broker)),
        )

    def _moving_directories(self, broker: Target) -> list[str]:
        """A replica that is copied to another directory is a future replica there (KIP-113)."""
        response = self._nodes.ask(broker, DescribeLogDirsRequest(topics=None))
        raise_for_error(response, "DescribeLogDirs", broker)
        if not response.results:  # the response of an older version to a user without the right
            raise RefusedError(
                f"{broker.who} lists no log directory.", remedy="Grant DESCRIBE on CLUSTER to the user of this tool."
            )
        # An offline directory lists no replicas; its partitions are not in sync.
        return [
            f"{topic.name}-{partition.partition_index} on broker {broker.node_id}"
            for directory in response.results
            for topic in directory.topics
            for partition in topic.partitions
            if partition.is_future_key
        ]

    def groups(self) -> tuple[GroupState, ...]:
        """Groups of all coordinators, by id; raises TransientError while one of them still loads."""
        return list_groups(*self._current())

    def transactions(self) -> tuple[TransactionState, ...]:
        """Transactional ids of all coordinators; raises TransientError while one of them still loads."""
        return list_transactions(*self._current())

    def coordinators(self, node: NodeSpec, partitions: Sequence[PartitionState]) -> CoordinatorAnswers:
        target = target_of(node, Role.BROKER)
        if target is None:
            return CoordinatorAnswers(by_partition={}, groups=frozenset(), transactional_ids=frozenset())
        return ask_coordinators(self._nodes, target, partitions)

    def inventory(
        self, *, configured_groups: Collection[str] = (), leaderless: bool = False, kept: bool = False
    ) -> ClusterInventory:
        """The contents of the cluster; raises TransientError while a leader or a coordinator does not respond."""
        return read_inventory(*self._current(), configured_groups, leaderless=leaderless, kept=kept)

    def log_starts(self, brokers: Collection[int], above: Mapping[str, int]) -> LogStarts:
        return read_log_starts(*self._current(), brokers, above)

    def views(self, *, groups: Collection[str], topic_settings: Collection[str]) -> Mapping[int, BrokerView]:
        return read_views(*self._current(), groups=groups, topic_settings=topic_settings)

    def acls(self) -> tuple[Acl, ...] | None:
        return read_acls(self._through(None))

    def settings(self) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        return read_settings(*self._current())

    def dynamic_configs(self) -> DynamicConfigs:
        return read_dynamic_configs(*self._current())

    def setting(self, name: str) -> SettingValues:
        return read_setting(*self._current(), name)

    def set_default_config(self, name: str, value: str, *, validate_only: bool) -> None:
        fence = unfenced if validate_only else self._fence
        set_default_config(self._nodes, name, value, validate_only=validate_only, fence=fence)

    def node_config(self, node: NodeSpec) -> Mapping[str, str]:
        """DescribeConfigs of the node itself. Controllers answer it from 3.7 on (KIP-919)."""
        return read_node_config(self._nodes, self._target(node))

    def settings_in_use(self, node: NodeSpec, names: Collection[str] | None = None) -> Mapping[str, Setting]:
        return read_settings_in_use(self._nodes, self._target(node), names)

    def _through(self, through: Collection[int] | None) -> ClusterConnections:
        """The connections to these brokers; None: to those whose metadata is current; empty: to all.

        A broker that is cut off from the controllers answers with its last metadata. Raises TransientError if the
        quorum shows no broker that is current. A user who cannot read the quorum is answered by any broker.
        """
        if through is None:
            try:
                through = find_current_brokers(self._cluster, self.quorum(), {})
            except RefusedError:
                through = ()
            else:
                if not through:
                    raise TransientError(
                        "No broker has fetched the newest metadata.",
                        remedy="Check that the brokers reach the active controller.",
                    )
        return self._nodes.narrowed(through)

    def _current(self) -> tuple[ClusterConnections, tuple[Target, ...]]:
        """The connections to the brokers with current metadata, and all unfenced brokers by one of them.

        Unfenced brokers have the inventory's address or, if the inventory lacks them, their own. All of them must
        respond: each can coordinate groups that no other broker lists. Those with current metadata are the first.
        """
        nodes = self._through(None)
        return nodes, self._live_brokers(nodes)

    def _live_brokers(self, nodes: ClusterConnections) -> tuple[Target, ...]:
        first = {target.node_id for target in nodes.brokers}
        listed = {target.node_id: target for target in self._nodes.brokers}
        return tuple(
            listed.get(broker.broker_id)
            or Target(
                node_id=broker.broker_id,
                address=f"{broker.host}:{broker.port}",
                who=f"Broker {broker.broker_id} at {broker.host}:{broker.port}",
            )
            for broker in sorted(
                self._describe_cluster(nodes.brokers).brokers, key=lambda b: (b.broker_id not in first, b.broker_id)
            )
        )

    def elect_preferred_leaders(self, partitions: Sequence[PartitionState]) -> None:
        """ElectLeaders in one request; raises TransientError with the partitions that got none."""
        if not partitions:
            return
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for partition in partitions:
            by_topic[partition.topic].append(partition.partition)
        topic = ElectLeadersRequest.TopicPartitions
        request = ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=[topic(topic=name, partitions=numbers) for name, numbers in by_topic.items()],
            timeout_ms=int(self._timeout_s * 1000),
            min_version=1,
        )
        refused = self._nodes.first_answer(self._nodes.brokers, request, _not_elected)
        if refused:
            raise TransientError(
                f"The preferred leader could not be elected for {', '.join(sorted(refused))}.",
                remedy="It may be possible once the preferred replica is back in sync.",
            )

    def unregister_broker(self, node_id: int) -> None:
        """UnregisterBroker. Raises TransientError where no broker responds, RefusedError with a missing right."""

        def accept(response: Any, target: Target) -> None:
            if error_name(response.error_code) != "BROKER_ID_NOT_REGISTERED":
                raise_for_error(response, f"the registration of broker {node_id}", target, "ALTER on CLUSTER")

        request = UnregisterBrokerRequest(broker_id=node_id)
        self._nodes.first_answer(self._nodes.brokers, request, accept, fence=self._fence)

    def update_features(
        self, targets: Mapping[str, int], *, validate_only: bool, unsafe: bool = False
    ) -> tuple[FeatureUpdateResult, ...]:
        """UpdateFeatures of all `targets` in one request; a level below 1 removes the feature.

        Raises TransientError when the response was lost: unless `validate_only`, the levels may be finalized then, so
        read them before you repeat the call.
        """
        if not targets:
            return ()
        return send_feature_updates(
            self._nodes,
            targets,
            self._read_finalized(),
            validate_only=validate_only,
            unsafe=unsafe,
            timeout_s=self._timeout_s,
            fence=unfenced if validate_only else self._fence,
            clock=SystemClock(),
        )

    def _read_finalized(self) -> Mapping[str, int]:
        """Finalized levels of the broker with the highest epoch: older levels would give the wrong upgrade type."""
        answers = []
        failures = []
        for node in self._cluster.brokers:
            try:
                answers.append(self.features(node))
            except (TransientError, RefusedError) as error:
                failures.append(error)
        if not answers:
            raise failures[0] if failures else TransientError("There is no broker to query for finalized features.")
        newest = max(answers, key=lambda f: -1 if f.epoch is None else f.epoch)
        if METADATA_VERSION not in newest.finalized:
            raise FatalError(
                f"No broker of cluster {self._cluster.name} reports a finalized {METADATA_VERSION}.",
                remedy="Use this command only for clusters in KRaft mode.",
            )
        return newest.finalized


def _addresses(nodes: Iterable[Any]) -> dict[int, Address]:
    """Return node → its address in a response to DescribeCluster. A fenced broker has none."""
    found = {one.broker_id: parse_address(f"{one.host}:{one.port}") for one in nodes}
    return {node_id: address for node_id, address in found.items() if address is not None}


def _not_elected(response: Any, target: Target) -> list[str]:
    raise_for_error(response, "ElectLeaders", target, "ALTER on CLUSTER")
    refused = []
    for result in response.replica_election_results:
        for partition in result.partition_result:
            name = error_name(partition.error_code)
            if name.endswith("AUTHORIZATION_FAILED"):
                raise_for_error(partition, "ElectLeaders", target, "ALTER on CLUSTER")
            if name not in _SETTLED:
                refused.append(f"{result.topic}-{partition.partition_id} ({name})")
    return refused


def describe_quorum() -> Any:
    """DescribeQuorum of the metadata log."""
    topic = DescribeQuorumRequest.TopicData
    return DescribeQuorumRequest(
        topics=[topic(topic_name=METADATA_TOPIC, partitions=[topic.PartitionData(partition_index=0)])]
    )


def read_quorum(response: Any, target: Target) -> QuorumState:
    """Return the state in a response to `describe_quorum`. Raises as `raise_for_error` does."""
    raise_for_error(response, "DescribeQuorum", target)
    partition = response.topics[0].partitions[0]
    raise_for_error(partition, "DescribeQuorum", target)
    return QuorumState(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=_replicas(partition.current_voters),
        observers=_replicas(partition.observers),
        voter_addresses={
            node.node_id: tuple(Address(one.host.rstrip(".").lower(), one.port) for one in node.listeners)
            for node in response.nodes or ()
        },
    )


def _replicas(found: Iterable[Any]) -> tuple[ReplicaState, ...]:
    """One state for each id, the one that fetched last.

    A broker that ran a release before KIP-853 is listed twice for LeaderState.OBSERVER_SESSION_TIMEOUT_MS (5 minutes).
    """
    by_age = sorted(map(_replica, found), key=lambda r: (r.last_fetch_ms or 0, r.log_end_offset))
    return tuple(replica for _, replica in sorted({replica.replica_id: replica for replica in by_age}.items()))


def _directory_id(found: UUID | None) -> str:
    """Return Kafka's text form; "" for none, such as the zeros of a voter of a static quorum."""
    text = base64.urlsafe_b64encode((found or UUID(int=0)).bytes).decode()[:-2]
    return "" if text == ZERO_UUID else text


def _replica(replica: Any) -> ReplicaState:
    fetched, caught_up = replica.last_fetch_timestamp, replica.last_caught_up_timestamp
    return ReplicaState(
        replica_id=replica.replica_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_ms=None if fetched is None or fetched < 0 else fetched,
        last_caught_up_ms=None if caught_up is None or caught_up < 0 else caught_up,
        directory_id=_directory_id(replica.replica_directory_id),
    )
