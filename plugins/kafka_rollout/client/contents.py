"""The contents and the configuration of a cluster, read from leaders, coordinators and any broker.

DescribeConfigs cannot leave out defaults. A request therefore names a limited number of resources.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_never
from uuid import UUID

from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from kafka.protocol.consumer import OffsetFetchRequest

from kafka_rollout.base.errors import FatalError, NotObservableError, RefusedError, TransientError
from kafka_rollout.base.lease import Fence, unfenced
from kafka_rollout.client.connection import NotOfferedError, ask_api_versions
from kafka_rollout.client.coordinators import describe_listed, list_groups_of, subscribed_topics
from kafka_rollout.client.features import node_features
from kafka_rollout.client.messages import DescribeShareGroupOffsetsRequest
from kafka_rollout.client.requests import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    ClusterConnections,
    ResourceType,
    Target,
    TopicMetadata,
    describe_configs,
    error_name,
    list_offsets,
    raise_for_error,
)
from kafka_rollout.model.acls import Acl
from kafka_rollout.model.config_values import ValueType
from kafka_rollout.model.configs import (
    HIDDEN,
    ConfigSource,
    ConfigTable,
    DynamicConfigs,
    EffectiveConfigs,
    QuotaEntity,
    Setting,
    SettingValues,
    entity_name,
)
from kafka_rollout.model.contents import SHARE_OFFSETS, ClusterInventory, LogStarts
from kafka_rollout.model.groups import CLASSIC, CONSUMER, SHARE, STREAMS
from kafka_rollout.model.retention import NAMES, Bound, KeptRecords, retention_of
from kafka_rollout.model.state import UNKNOWN_MIN_ISR
from kafka_rollout.releases.facts import GROUP_VERSION

_PARTITIONS_AT_ONCE = 1_000  # in one ListOffsets; to search a time, a broker reads the disk about twice for each
_AT_ONCE = 500  # resources in one request; a topic has about 40 settings
_MIN_ISR = "min.insync.replicas"
_MIN_ISR_AT_ONCE = 2_000  # topics in one request: a broker builds all settings of each before it chooses one
_RIGHT = "DESCRIBE_CONFIGS on CLUSTER"
# Kafka's ConfigSource of what was set for this resource itself: a broker also shows what is set for all brokers.
_OWN_SOURCE = {ResourceType.TOPIC: 1, ResourceType.BROKER: 2, ResourceType.CLIENT_METRICS: 7, ResourceType.GROUP: 8}
_OF_NODE = 2
_OF_ALL_BROKERS = 3
_OF_FILE = 4
_DEFAULT = 5
_SOURCES = {
    1: ConfigSource.TOPIC,
    _OF_NODE: ConfigSource.NODE,
    _OF_ALL_BROKERS: ConfigSource.ALL_BROKERS,
    _OF_FILE: ConfigSource.FILE,
    _DEFAULT: ConfigSource.DEFAULT,
}
_TYPES = dict(enumerate(ValueType, start=1))  # DescribeConfigsResponse.ConfigType; 0: a type that it does not know
_SET = 0  # AlterConfigOp.OpType
_NAMES = {ResourceType.CLIENT_METRICS: "client-metrics subscription"}
_ANY = 1
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
# A group that was deleted after it was listed, or one of a type that the finalized levels do not support.
_NO_OFFSETS = frozenset({"GROUP_ID_NOT_FOUND", "INVALID_GROUP_ID", "UNSUPPORTED_VERSION"})
_UNSUPPORTED = frozenset({"UNSUPPORTED_VERSION", "INVALID_REQUEST"})


def read_inventory(
    nodes: ClusterConnections,
    live: Sequence[Target],
    configured_groups: Collection[str] = (),
    *,
    leaderless: bool = False,
    kept: bool = False,
) -> ClusterInventory:
    """Raises TransientError where a broker does not respond, RefusedError with a missing right.

    `kept`: also search what retention keeps, which reads the index of each log once.
    """
    read_at = time.time()
    topics, partitions, source = _topics(nodes, leaderless=leaderless)
    by_id = {target.node_id: target for target in live}
    leaders = PartitionLeaders(nodes=nodes, live=by_id, partitions=partitions, leaderless=leaderless)
    unasked: dict[str, str] = {}
    groups = _groups(nodes, live, unasked)
    subscriptions, listed = list_configured(nodes, live[0], unasked)
    configs, effective = _all_configs(nodes, live, source, sorted(topics))
    of_groups = {*configured_groups, *(groups if listed is None else listed)}
    starts = leaders.offsets(EARLIEST)
    return ClusterInventory(
        topics=topics,
        ends=leaders.offsets(LATEST),
        read_at=read_at,
        starts=starts,
        kept=_kept(leaders, starts, effective.topics, read_at) if kept else {},
        groups=groups,
        configs=configs,
        group_configs=read_group_configs(nodes, live[0], sorted(of_groups), unasked),
        subscriptions=read_configs(nodes, live[0], ResourceType.CLIENT_METRICS, subscriptions),
        acls=_acls(nodes, unasked),
        scram=read_scram(nodes, unasked),
        quotas={entity_name(entity): dict(values) for entity, values in read_quotas(nodes).items()},
        unasked=unasked,
        effective=effective,
    )


def _topics(
    nodes: ClusterConnections, *, leaderless: bool
) -> tuple[dict[str, dict[str, Any]], dict[int, dict[str, list[int]]], Target]:
    """Topics by name, the partitions that each broker leads, and the broker that reported them."""
    listed, source = nodes.topics()
    topics: dict[str, dict[str, Any]] = {}
    leaders: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic in listed.values():
        topics[topic.name] = {
            "id": str(topic.topic_id),
            "replicas": [sorted(replicas) for _, _, replicas, _ in topic.partitions],
        }
        for number, leader, _, _ in topic.partitions:
            if leader < 0 and leaderless:
                continue
            if leader < 0:
                raise TransientError(f"{topic.name}-{number} has no leader, so its end offset is unknown.")
            leaders[leader][topic.name].append(number)
    return topics, leaders, source


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLeaders:
    """The leaders of all partitions, which report their offsets."""

    nodes: ClusterConnections
    live: Mapping[int, Target]
    partitions: Mapping[int, Mapping[str, Sequence[int]]]
    """Broker → topic → the partitions that it leads."""
    leaderless: bool

    def offsets(self, timestamp: int, topics: Collection[str] | None = None) -> dict[str, int]:
        """Return the offset of each partition at a timestamp of `list_offsets`; -1: no record is so young.

        `topics` None: all.
        """
        if silent := sorted(self.partitions.keys() - self.live.keys()):
            raise TransientError(f"Broker {silent[0]}, which leads partitions, is not among the brokers that respond.")

        def ask(leader: Target) -> dict[str, int]:
            led, found = self.partitions[leader.node_id], dict[str, int]()
            names = [(topic, number) for topic in led if topics is None or topic in topics for number in led[topic]]
            for begin in range(0, len(names), _PARTITIONS_AT_ONCE):
                found |= self._ask(leader, names[begin : begin + _PARTITIONS_AT_ONCE], timestamp)
            return found

        of_each = self.nodes.from_each([self.live[leader] for leader in self.partitions], ask)
        return dict(sorted(one for found in of_each for one in found.items()))

    def _ask(self, target: Target, names: Iterable[tuple[str, int]], timestamp: int) -> dict[str, int]:
        asked: defaultdict[str, list[int]] = defaultdict(list)
        for topic, number in names:
            asked[topic].append(number)
        found = {}
        for answer in self.nodes.ask(target, list_offsets(asked, timestamp)).topics:
            for partition in answer.partitions:
                # The high watermark has not advanced since the election: too few replicas are in sync (KIP-966).
                if self.leaderless and error_name(partition.error_code) == "OFFSET_NOT_AVAILABLE":
                    continue
                name = f"{answer.name}-{partition.partition_index}"
                raise_for_error(partition, f"an offset of {name}", target, "DESCRIBE on TOPIC")
                found[name] = partition.offset
        return found


def _kept(
    leaders: PartitionLeaders, starts: Mapping[str, int], topics: ConfigTable, now: float
) -> dict[str, KeptRecords]:
    """Return what retention keeps of each partition, where the settings show that. `now`: epoch seconds."""
    alike: defaultdict[tuple[Bound, int], set[str]] = defaultdict(set)
    for topic in topics.deviations:
        retention = retention_of(topics.settings(topic))
        if retention is not None and retention.bound is not None:
            alike[retention.bound, 0 if retention.bound is Bound.START else retention.margin_ms].add(topic)
    kept: dict[str, KeptRecords] = {}
    for (bound, margin_ms), names in alike.items():
        until = now + margin_ms / 1000
        match bound:
            case Bound.START:
                of_topics = (name for name in starts if name.rpartition("-")[0] in names)
                kept |= {name: KeptRecords(start=starts[name], from_offset=starts[name]) for name in of_topics}
            case Bound.TIME:
                for name, offset in leaders.offsets(int(now * 1000) - margin_ms, names).items():
                    if name in starts and offset >= 0:
                        kept[name] = KeptRecords(start=starts[name], from_offset=offset, until=until)
            case Bound.LOCAL:
                for name, offset in leaders.offsets(EARLIEST_LOCAL, names).items():
                    if name in starts and offset > starts[name]:  # else nothing is in remote storage alone
                        kept[name] = KeptRecords(start=starts[name], from_offset=offset - 1, until=until)
            case _:
                assert_never(bound)
    return dict(sorted(kept.items()))


def read_log_starts(
    nodes: ClusterConnections, live: Sequence[Target], brokers: Collection[int], above: Mapping[str, int]
) -> LogStarts:
    """As `ClusterQueries.log_starts`; raises as `read_inventory`."""
    read_at = time.time()
    topics, partitions, source = _topics(nodes, leaderless=True)
    led = {
        broker: {topic: [one for one in numbers if f"{topic}-{one}" in above] for topic, numbers in of_broker.items()}
        for broker, of_broker in partitions.items()
        if broker in brokers
    }
    by_id = {target.node_id: target for target in live}
    leaders = PartitionLeaders(nodes=nodes, live=by_id, partitions=led, leaderless=True)
    moved = {name: start for name, start in leaders.offsets(EARLIEST).items() if start > above[name]}
    names = sorted({name.rpartition("-")[0] for name in moved})
    settings = read_effective(nodes, source, ResourceType.TOPIC, names, NAMES) if names else {}
    return LogStarts(
        read_at=read_at,
        starts=moved,
        ids={name: topics[name]["id"] for name in names},
        retention={name: retention_of(settings.get(name, {})) for name in names},
        led=sum(len(of_topic) for broker in partitions.keys() & brokers for of_topic in partitions[broker].values()),
        asked=sum(len(of_topic) for of_broker in led.values() for of_topic in of_broker.values()),
    )


def _groups(nodes: ClusterConnections, live: Sequence[Target], unasked: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Type, whether it has members, the topics that these subscribe to, and offsets by group: committed offsets, of a
    share group the start offsets of its share partitions.
    """
    groups: dict[str, dict[str, Any]] = {}
    for broker in live:
        listed = list_groups_of(nodes, broker)
        for group in listed:
            groups[group.group_id] = {"type": group.type, "has_members": not group.is_empty, "offsets": {}}
        with_members = [one for one in listed if not one.is_empty and one.type in (CLASSIC, CONSUMER, STREAMS)]
        for group, answer in describe_listed(nodes, broker, with_members):
            groups[group.group_id]["subscribed"] = subscribed_topics(group, answer)
        sharing = [group.group_id for group in listed if group.type == SHARE]
        for name, (offsets, is_whole) in _share_offsets(nodes, broker, sharing, unasked).items():
            groups[name] |= {"offsets": offsets} if is_whole else {"offsets": offsets, "unread": True}
        committing = [group.group_id for group in listed if group.type != SHARE and group.state != "Dead"]
        if not committing:
            continue
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in committing],
            require_stable=False,
            min_version=8,
            max_version=9,  # from 10 on topics have no names
        )
        for group in nodes.ask(broker, request).groups:
            if error_name(group.error_code) in _NO_OFFSETS:
                continue
            raise_for_error(group, f"the offsets of group {group.group_id}", broker, "DESCRIBE on GROUP")
            groups[group.group_id]["offsets"] = {
                f"{topic.name}-{partition.partition_index}": partition.committed_offset
                for topic in group.topics
                for partition in topic.partitions
                if partition.committed_offset >= 0
            }
    return dict(sorted(groups.items()))


def _share_offsets(
    nodes: ClusterConnections, broker: Target, groups: Sequence[str], unasked: dict[str, str]
) -> dict[str, tuple[dict[str, int], bool]]:
    """Return share group → partition → start offset, of those that its coordinator has read (KIP-932), and whether
    the broker reported all of the group.

    Without those that the share coordinator has not set yet, or cannot read: the broker reports both as -1, without an
    error (GroupCoordinatorService.describeShareGroupAllOffsets).
    """
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id=name, topics=None) for name in groups])
    try:
        answers = nodes.ask(broker, request).groups if groups else ()
    except NotOfferedError as error:  # 4.0 has share groups as a preview
        unasked[SHARE_OFFSETS] = error.sentence
        return {name: ({}, False) for name in groups}
    found: dict[str, tuple[dict[str, int], bool]] = {}
    for group in answers:
        code = error_name(group.error_code)
        if code in _UNSUPPORTED:
            unasked[SHARE_OFFSETS] = f"{broker.who} does not serve share groups at the finalized levels."
            found[group.group_id] = {}, False
        if code in _NO_OFFSETS | _UNSUPPORTED:
            continue
        raise_for_error(group, f"the start offsets of share group {group.group_id}", broker, "DESCRIBE on GROUP")
        offsets: dict[str, int] = {}
        for topic in group.topics:
            for partition in topic.partitions:
                name = f"{topic.topic_name}-{partition.partition_index}"
                if partition.error_code:
                    why = f"{broker.who} answered with {error_name(partition.error_code)} for {name}"
                    unasked[SHARE_OFFSETS] = f"{why} of share group {group.group_id}."
                elif partition.start_offset >= 0:
                    offsets[name] = partition.start_offset
        is_whole = not any(partition.error_code for topic in group.topics for partition in topic.partitions)
        found[group.group_id] = offsets, is_whole
    return found


def _all_configs(
    nodes: ClusterConnections, live: Sequence[Target], source: Target, topics: Sequence[str]
) -> tuple[dict[str, dict[str, str]], EffectiveConfigs]:
    """What is set of topics, of each broker, and of all brokers together; and all effective values.

    Topics: of the broker that listed them. Another one may not know a new topic yet, and its settings would be missing.
    """
    of_topics = read_effective(nodes, source, ResourceType.TOPIC, topics)
    of_brokers = {
        name: settings
        for broker in live
        for name, settings in read_effective(nodes, broker, ResourceType.BROKER, [str(broker.node_id)]).items()
    }
    all_brokers = read_configs(nodes, live[0], ResourceType.BROKER, [""]).get("", {})
    configs = {
        **{f"topic {name}": _set_as(ConfigSource.TOPIC, settings) for name, settings in of_topics.items()},
        "brokers": all_brokers,
        **{f"broker {name}": _set_as(ConfigSource.NODE, settings) for name, settings in of_brokers.items()},
    }
    effective = EffectiveConfigs(
        brokers=ConfigTable.of_resources(of_brokers), topics=ConfigTable.of_resources(of_topics)
    )
    return {resource: values for resource, values in configs.items() if values}, effective


def _set_as(source: ConfigSource, settings: Mapping[str, Setting]) -> dict[str, str]:
    return {name: str(setting.value) for name, setting in settings.items() if setting.source is source}


def _ask(nodes: ClusterConnections, broker: Target | None, request: Any) -> tuple[Any, Target]:
    """Return the response of the broker, and the broker; None: of any."""
    return nodes.any_broker(request) if broker is None else (nodes.ask(broker, request), broker)


def read_acls(nodes: ClusterConnections, broker: Target | None = None) -> tuple[Acl, ...] | None:
    """Return all ACLs, sorted, as this broker has them; None: as any broker has. None if there is no authorizer.

    Raises NotObservableError if the broker cannot list them, RefusedError without the right.
    """
    response, target = _ask(
        nodes,
        broker,
        DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        ),
    )
    error = error_name(response.error_code)
    if error == "SECURITY_DISABLED":
        return None
    if error == "UNKNOWN_SERVER_ERROR":
        # DescribeAclsResponse.validate: "Contain UNKNOWN elements"
        raise NotObservableError(
            f"Node {target.node_id} cannot list the ACLs ({error}): a release does so while one of them has an "
            "operation or a resource type that it does not know.",
            remedy="Read the ACLs with the newest release that ran the cluster, and delete that ACL.",
        )
    raise_for_error(response, "ACLs", target)
    return tuple(
        sorted(
            Acl(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                pattern_type=resource.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission=acl.permission_type,
            )
            for resource in response.resources
            for acl in resource.acls
        )
    )


def _acls(nodes: ClusterConnections, unasked: dict[str, str]) -> tuple[Acl, ...]:
    try:
        acls = read_acls(nodes)
    except NotObservableError as error:
        unasked["acls"] = error.sentence
        return ()
    if acls is None:
        unasked["acls"] = "The cluster has no authorizer."
    return acls or ()


def read_scram(
    nodes: ClusterConnections, unasked: dict[str, str], broker: Target | None = None
) -> dict[str, dict[str, Any]]:
    """Return user → mechanism → iterations, as this broker has them; None: as any broker has."""
    try:
        response, target = _ask(nodes, broker, DescribeUserScramCredentialsRequest(users=None))
    except NotOfferedError as error:  # before 3.5 a cluster in KRaft mode has no SCRAM users
        unasked["scram"] = error.sentence
        return {}
    if error_name(response.error_code) in _UNSUPPORTED:
        unasked["scram"] = "This metadata.version has no SCRAM users."
        return {}
    raise_for_error(response, "SCRAM users", target)
    return {
        user.user: {
            _MECHANISMS.get(info.mechanism, str(info.mechanism)): info.iterations for info in user.credential_infos
        }
        for user in sorted(response.results, key=lambda user: str(user.user))
    }


def read_dynamic_configs(nodes: ClusterConnections, live: Sequence[Target]) -> DynamicConfigs:
    """Everything that is configured in the metadata. Raises as `read_configs` does."""
    topics, target = nodes.topics()
    settings = read_settings(nodes, live)
    # Only a broker itself can report its settings.
    of_each = nodes.from_each(
        live, lambda broker: read_configs(nodes, broker, ResourceType.BROKER, [str(broker.node_id)])
    )
    return DynamicConfigs(
        topics=read_configs(nodes, target, ResourceType.TOPIC, sorted(topics)),
        brokers={int(broker_id): values for brokers in of_each for broker_id, values in brokers.items()},
        all_brokers=read_configs(nodes, live[0], ResourceType.BROKER, [""]).get("", {}),
        groups=settings["group_configs"],
        subscriptions=settings["subscriptions"],
        quotas=read_quotas(nodes),
    )


def read_settings(nodes: ClusterConnections, live: Sequence[Target]) -> dict[str, dict[str, dict[str, str]]]:
    """Settings of the kinds that older releases do not support. Raises as `read_configs` does.

    Every broker is queried: during a rolling upgrade only the newer brokers can report them.
    """
    settings: dict[str, dict[str, dict[str, str]]] = {"group_configs": {}, "subscriptions": {}}
    configured = nodes.from_each(live, lambda target: (target, *list_configured(nodes, target, {})))
    existing: set[str] = set()
    if any(listed is None for _, _, listed in configured):
        listed_by_each = nodes.from_each(live, lambda broker: list_groups_of(nodes, broker))
        existing = {group.group_id for listed in listed_by_each for group in listed}
    for target, subscriptions, listed in configured:
        groups = sorted(existing if listed is None else listed)
        settings["group_configs"] |= read_group_configs(nodes, target, groups, {})
        settings["subscriptions"] |= read_configs(nodes, target, ResourceType.CLIENT_METRICS, subscriptions)
    return settings


def read_node_config(nodes: ClusterConnections, target: Target) -> dict[str, str]:
    """Return the configuration file of a node, without secrets and names that its release does not know.

    A dynamic value overrides the one of the file, which is then a synonym. Raises NotObservableError without the right.
    """
    request = describe_configs([(ResourceType.BROKER, str(target.node_id))], synonyms=True)
    try:
        (result,) = nodes.ask(target, request).results
        raise_for_error(result, "its configuration", target, _RIGHT)
    except (RefusedError, FatalError) as error:
        raise NotObservableError(error.sentence, remedy=error.remedy) from error
    lines = {
        config.name: value.value
        for config in result.configs
        for value in config.synonyms
        if (value.name, value.source) == (config.name, _OF_FILE) and value.value is not None
    }
    if "node.id" in lines:
        lines.pop("broker.id", None)  # added by the node (KafkaConfig.populateSynonyms)
    return lines


def read_settings_in_use(
    nodes: ClusterConnections, target: Target, names: Collection[str] | None = None
) -> dict[str, Setting]:
    """Return the effective settings of a node's process. Controllers answer it from 3.7 on (KIP-919).

    Raises NotObservableError without the right, and where the node does not offer it.
    """
    node_id = str(target.node_id)
    keys = None if names is None else sorted(names)
    try:
        in_use = read_effective(nodes, target, ResourceType.BROKER, [node_id], keys)[node_id]
    except (RefusedError, FatalError) as error:
        raise NotObservableError(error.sentence, remedy=error.remedy) from error
    return in_use if names is None else {name: setting for name, setting in in_use.items() if name in names}


def read_setting(nodes: ClusterConnections, live: Sequence[Target], name: str) -> SettingValues:
    """Return one setting of brokers and topics, from every unfenced broker. Raises as `read_configs` does."""
    topics, source = nodes.topics()
    default: str | None = None
    brokers: dict[int, str] = {}
    own: dict[int, str] = {}

    def ask(target: Target) -> Any:
        request = describe_configs([(ResourceType.BROKER, str(target.node_id))], [name], synonyms=True)
        (result,) = nodes.ask(target, request).results
        return result

    for target, result in zip(live, nodes.from_each(live, ask), strict=True):
        raise_for_error(result, f"{name} of broker {target.node_id}", target, _RIGHT)
        for setting in result.configs:
            if setting.name != name:  # a broker that ignores the names
                continue
            brokers[target.node_id] = str(setting.value)
            sources = {synonym.source: synonym.value for synonym in setting.synonyms if synonym.name == name}
            if sources.get(_OF_NODE) is not None:
                own[target.node_id] = sources[_OF_NODE]
            default = sources.get(_OF_ALL_BROKERS, default)
    return SettingValues(
        default=default,
        brokers=brokers,
        own=own,
        topics={
            topic: values[name]
            for topic, values in read_configs(nodes, source, ResourceType.TOPIC, sorted(topics), [name]).items()
        },
    )


def set_default_config(
    nodes: ClusterConnections, name: str, value: str, *, validate_only: bool, fence: Fence = unfenced
) -> None:
    """Set the cluster-wide default of a broker setting. Raises TransientError if the response was lost.

    `fence` is called before each request is sent.
    """
    config = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = config(
        resource_type=int(ResourceType.BROKER),
        resource_name="",
        configs=[config.AlterableConfig(name=name, config_operation=_SET, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[change], validate_only=validate_only)
    response, target = nodes.any_broker(request, fence=fence)
    for result in response.responses:
        raise_for_error(result, f"the cluster-wide default of {name}", target, "ALTER_CONFIGS on CLUSTER")


def list_configured(
    nodes: ClusterConnections, target: Target, unasked: dict[str, str]
) -> tuple[list[str], list[str] | None]:
    """Names of client-metrics subscriptions, and of groups with a configuration.

    None instead of the groups where only the configuration of existing groups can be queried (before KIP-1142).
    """
    request = ListConfigResourcesRequest(resource_types=[ResourceType.CLIENT_METRICS, ResourceType.GROUP])
    try:
        answer = nodes.ask(target, request)
    except NotOfferedError as error:
        unasked["subscriptions"] = error.sentence
        return [], None
    raise_for_error(answer, "configured resources", target, _RIGHT)
    names: dict[int, list[str]] = defaultdict(list)
    for resource in answer.config_resources:
        names[resource.resource_type].append(resource.resource_name)
    return names[ResourceType.CLIENT_METRICS], names[ResourceType.GROUP] if request.API_VERSION >= 1 else None


def ask_group_configs(nodes: ClusterConnections, target: Target, names: Sequence[str]) -> Any:
    """Return the response about the configuration of groups. Raises NotOfferedError if the release has none.

    A broker below 4.0 logs an error with a stack trace for a type of resources that it does not have.
    """
    features = node_features(ask_api_versions(lambda request: nodes.ask(target, request)))
    if GROUP_VERSION not in features.supported:
        raise NotOfferedError(f"{target.who} has no configuration of groups.", remedy="Its release is too old.")
    return nodes.ask(target, describe_configs([(ResourceType.GROUP, name) for name in names]))


def read_group_configs(
    nodes: ClusterConnections, target: Target, groups: Sequence[str], unasked: dict[str, str]
) -> dict[str, dict[str, str]]:
    try:
        return read_configs(nodes, target, ResourceType.GROUP, groups)
    except NotOfferedError as error:
        unasked["group_configs"] = error.sentence
        return {}


def read_configs(
    nodes: ClusterConnections,
    target: Target,
    kind: ResourceType,
    names: Sequence[str],
    keys: Sequence[str] | None = None,
) -> dict[str, dict[str, str]]:
    """Name → settings of the resources of a kind that are set in the cluster's metadata. `keys`: of these names only.

    Values of files and defaults are left out, also resources without a value, or that were just deleted. Raises
    TransientError where a broker does not respond, RefusedError with a missing right, NotOfferedError where the node
    has no configuration of groups.
    """
    dynamic: dict[str, dict[str, str]] = {}
    for result in _described(nodes, target, kind, names, keys):
        name = result.resource_name
        own = _OF_ALL_BROKERS if (kind, name) == (ResourceType.BROKER, "") else _OWN_SOURCE[kind]
        values = {
            config.name: HIDDEN if config.is_sensitive else str(config.value)
            for config in result.configs
            if config.config_source == own
        }
        if values:
            dynamic[name] = values
    return dynamic


def read_effective(
    nodes: ClusterConnections,
    target: Target,
    kind: ResourceType,
    names: Sequence[str],
    keys: Sequence[str] | None = None,
) -> dict[str, dict[str, Setting]]:
    """Name → all settings of the resources, with files and defaults. `keys`, errors: as for `read_configs`."""
    kept: dict[Setting, Setting] = {}  # topics share most values: one object for each

    def setting(config: Any) -> Setting:
        source = _SOURCES.get(config.config_source, ConfigSource.OTHER)
        secret = None if source is ConfigSource.DEFAULT else HIDDEN
        of = _TYPES.get(config.config_type, ValueType.UNKNOWN)
        read = Setting(secret if config.is_sensitive else config.value, source, of)
        return kept.setdefault(read, read)

    return {
        result.resource_name: {config.name: setting(config) for config in result.configs}
        for result in _described(nodes, target, kind, names, keys)
    }


def _described(
    nodes: ClusterConnections,
    target: Target,
    kind: ResourceType,
    names: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    at_once: int = _AT_ONCE,
) -> Iterator[Any]:
    """Results of DescribeConfigs, without those of topics that were just deleted."""
    for begin in range(0, len(names), at_once):
        some = names[begin : begin + at_once]
        if kind is ResourceType.GROUP:
            response = ask_group_configs(nodes, target, some)
        else:
            response = nodes.ask(target, describe_configs([(kind, name) for name in some], keys))
        for result in response.results:
            error = error_name(result.error_code)
            if error == "UNKNOWN_TOPIC_OR_PARTITION":
                continue
            if kind is ResourceType.GROUP and error in _UNSUPPORTED:
                raise NotOfferedError(f"{target.who} has no configuration of groups.", remedy="Its release is too old.")
            what = f"the configuration of {_NAMES.get(kind, kind.name.lower())} {result.resource_name}".rstrip()
            right = "DESCRIBE_CONFIGS on TOPIC" if kind is ResourceType.TOPIC else "DESCRIBE_CONFIGS"
            raise_for_error(result, what, target, right)
            yield result


class _TopicValue(NamedTuple):
    value: int
    is_own: bool
    """Of the topic; else of the broker that was asked."""
    read_at: float


class MinIsrValues:
    """min.insync.replicas of partitions. Values are kept in one process: of topics by topic id, of brokers by node id.

    A leader uses the value of the topic, else that of its own broker (Partition.effectiveMinIsr), and brokers can
    differ. So a partition of a topic without an own value has the highest value of the brokers with a replica.
    """

    def __init__(self, nodes: ClusterConnections, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._nodes, self._monotonic = nodes, monotonic
        self._known: dict[UUID, _TopicValue] = {}  # a topic that was created again has another id
        self._of_brokers: dict[int, tuple[int, float]] = {}

    def of(
        self, topics: Mapping[str, TopicMetadata], target: Target, brokers: Iterable[Target], *, age_s: float
    ) -> dict[str, dict[int, int]]:
        """Return name → partition number → value, none older than `age_s`; without topics that were just deleted.

        `topics`: name → metadata as `target` reported it. Another broker may not know a new topic yet. `brokers`: those
        that can be asked. UNKNOWN_MIN_ISR if a broker that can lead the partition does not respond.
        """
        now = self._monotonic()
        known = self._of_topics(topics, target, now, age_s)
        inherit = [name for name, found in known.items() if not found.is_own]
        leading = {one for name in inherit for _, leader, _, isr in topics[name].partitions for one in (leader, *isr)}
        of_brokers = self._of_each([one for one in brokers if one.node_id in leading], now, age_s)

        def value(name: str, replicas: Iterable[int]) -> int:
            found = [] if known[name].is_own else [of_brokers[one] for one in replicas if one in of_brokers]
            return max(found, default=known[name].value)

        return {
            name: {number: value(name, replicas) for number, _, replicas, _ in topics[name].partitions}
            for name in known
        }

    def _of_topics(
        self, topics: Mapping[str, TopicMetadata], target: Target, now: float, age_s: float
    ) -> dict[str, _TopicValue]:
        kept = {
            name: found
            for name, topic in topics.items()
            if (found := self._known.get(topic.topic_id)) is not None and now - found.read_at < age_s
        }
        missing = sorted(topics.keys() - kept.keys())
        read = {
            result.resource_name: next(
                _TopicValue(int(config.value), config.config_source == _OWN_SOURCE[ResourceType.TOPIC], now)
                for config in result.configs
                if config.name == _MIN_ISR
            )
            for result in _described(
                self._nodes, target, ResourceType.TOPIC, missing, [_MIN_ISR], at_once=_MIN_ISR_AT_ONCE
            )
        }
        # Only topics that still exist: ids of deleted ones are never reported again.
        if missing:
            self._known = {topics[name].topic_id: value for name, value in (kept | read).items()}
        return kept | read

    def _of_each(self, brokers: Sequence[Target], now: float, age_s: float) -> dict[int, int]:
        """Return broker → value. Empty without the right to read it: then the answer about the topic counts."""
        asked = [one for one in brokers if now - self._of_brokers.get(one.node_id, (0, -math.inf))[1] >= age_s]

        def ask(broker: Target) -> int:
            try:
                found = read_effective(self._nodes, broker, ResourceType.BROKER, [str(broker.node_id)], [_MIN_ISR])[
                    str(broker.node_id)
                ]
            except TransientError:
                return UNKNOWN_MIN_ISR
            return int(found[_MIN_ISR].value or UNKNOWN_MIN_ISR)

        try:
            values = self._nodes.from_each(asked, ask)
        except RefusedError:
            return {}
        for broker, value in zip(asked, values, strict=True):
            self._of_brokers[broker.node_id] = (value, now if value != UNKNOWN_MIN_ISR else -math.inf)
        return {one.node_id: self._of_brokers[one.node_id][0] for one in brokers}


def read_quotas(nodes: ClusterConnections, broker: Target | None = None) -> dict[QuotaEntity, Mapping[str, float]]:
    """Return entity → key → value, as this broker has them; None: as any broker has."""
    response, target = _ask(nodes, broker, DescribeClientQuotasRequest(components=[], strict=False))
    raise_for_error(response, "quotas", target, _RIGHT)
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }
