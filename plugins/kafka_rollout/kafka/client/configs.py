"""Configuration of a cluster: DescribeConfigs, ListConfigResources, DescribeClientQuotas, IncrementalAlterConfigs.

DescribeConfigs cannot leave out defaults. A request therefore names a limited number of resources.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import (
    DescribeClientQuotasRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

from kafka_rollout.base.errors import FatalError, NotObservableError, RefusedError
from kafka_rollout.base.fence import Fence, unfenced
from kafka_rollout.kafka.client.connection import NotOfferedError
from kafka_rollout.kafka.client.coordinators import list_groups_of
from kafka_rollout.kafka.client.requests import (
    ClusterConnections,
    ResourceType,
    Target,
    describe_configs,
    error_name,
    raise_for_error,
)
from kafka_rollout.model.configs import HIDDEN, ConfigSource, DynamicConfigs, QuotaEntity, Setting, SettingValues

_AT_ONCE = 500  # resources in one request; a topic has about 40 settings
_UNSUPPORTED = frozenset({"UNSUPPORTED_VERSION", "INVALID_REQUEST"})
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
_SET = 0  # AlterConfigOp.OpType
_NAMES = {ResourceType.CLIENT_METRICS: "client-metrics subscription"}


def read_dynamic_configs(nodes: ClusterConnections, live: Sequence[Target]) -> DynamicConfigs:
    """Everything that is configured in the metadata. Raises as `read_configs` does."""
    topics, target = nodes.topics()
    brokers, all_brokers = read_broker_configs(nodes, live)
    settings = read_settings(nodes, live)
    return DynamicConfigs(
        topics=read_configs(nodes, target, ResourceType.TOPIC, sorted(topics)),
        brokers=brokers,
        all_brokers=all_brokers,
        groups=settings["group_configs"],
        subscriptions=settings["subscriptions"],
        quotas=read_quotas(nodes),
    )


def read_settings(nodes: ClusterConnections, live: Sequence[Target]) -> dict[str, dict[str, dict[str, str]]]:
    """Settings of the kinds that older releases do not support. Raises as `read_configs` does.

    Every broker is queried: during a rolling upgrade only the newer brokers can report them.
    """
    found: dict[str, dict[str, dict[str, str]]] = {"group_configs": {}, "subscriptions": {}}
    configured = nodes.from_each(live, lambda target: (target, *list_configured(nodes, target, {})))
    existing: set[str] = set()
    if any(listed is None for _, _, listed in configured):
        listed_by_each = nodes.from_each(live, lambda broker: list_groups_of(nodes, broker))
        existing = {group.group_id for listed in listed_by_each for group in listed}
    for target, subscriptions, listed in configured:
        groups = sorted(existing if listed is None else listed)
        found["group_configs"] |= read_group_configs(nodes, target, groups, {})
        found["subscriptions"] |= read_configs(nodes, target, ResourceType.CLIENT_METRICS, subscriptions)
    return found


def read_broker_configs(
    nodes: ClusterConnections, live: Sequence[Target]
) -> tuple[dict[int, dict[str, str]], dict[str, str]]:
    """Return the settings of each broker, which only this broker can report, and those of all brokers together."""
    of_all = read_configs(nodes, live[0], ResourceType.BROKER, [""]).get("", {})
    of_each = nodes.from_each(
        live, lambda broker: read_configs(nodes, broker, ResourceType.BROKER, [str(broker.node_id)])
    )
    brokers = {broker.node_id: values for broker, found in zip(live, of_each, strict=True) for values in found.values()}
    return brokers, of_all


def read_node_config(nodes: ClusterConnections, target: Target) -> dict[str, str]:
    """Return the configuration file of a node, without secrets and names that its release does not know.

    A dynamic value overrides the one of the file, which is then a synonym. Raises NotObservableError without the right.
    """
    request = describe_configs([(ResourceType.BROKER, str(target.node_id))], synonyms=True)
    try:
        (result,) = nodes.ask(target, request).results
        raise_for_error(
            result.error_code,
            what="its configuration",
            who=target.who,
            right="DESCRIBE_CONFIGS on CLUSTER",
            message=result.error_message,
        )
    except (RefusedError, FatalError) as error:
        raise NotObservableError(error.sentence, remedy=error.remedy) from error
    found = {
        one.name: value.value
        for one in result.configs
        for value in one.synonyms
        if (value.name, value.source) == (one.name, _OF_FILE) and value.value is not None
    }
    if "node.id" in found:
        found.pop("broker.id", None)  # added by the node (KafkaConfig.populateSynonyms)
    return found


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
        _check(result, f"{name} of broker {target.node_id}", target)
        for setting in result.configs:
            if setting.name != name:  # a broker that ignores the names
                continue
            brokers[target.node_id] = str(setting.value)
            sources = {one.source: one.value for one in setting.synonyms if one.name == name}
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

    def request() -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest(
            resources=[
                config(
                    resource_type=int(ResourceType.BROKER),
                    resource_name="",
                    configs=[config.AlterableConfig(name=name, config_operation=_SET, value=value)],
                )
            ],
            validate_only=validate_only,
        )

    response, target = nodes.any_broker(request, fence=fence)
    for result in response.responses:
        _check(result, f"the cluster-wide default of {name}", target, right="ALTER_CONFIGS on CLUSTER")


def _check(result: Any, what: str, target: Target, *, right: str = "DESCRIBE_CONFIGS on CLUSTER") -> None:
    raise_for_error(result.error_code, what=what, who=target.who, right=right, message=result.error_message)


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
    raise_for_error(answer.error_code, what="configured resources", who=target.who, right="DESCRIBE_CONFIGS on CLUSTER")
    names: dict[int, list[str]] = defaultdict(list)
    for one in answer.config_resources:
        names[one.resource_type].append(one.resource_name)
    return names[ResourceType.CLIENT_METRICS], names[ResourceType.GROUP] if request.API_VERSION >= 1 else None


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
    found: dict[str, dict[str, str]] = {}
    for result in _described(nodes, target, kind, names, keys):
        name = result.resource_name
        own = _OF_ALL_BROKERS if (kind, name) == (ResourceType.BROKER, "") else _OWN_SOURCE[kind]
        values = {
            one.name: HIDDEN if one.is_sensitive else str(one.value)
            for one in result.configs
            if one.config_source == own
        }
        if values:
            found[name] = values
    return found


def read_effective(
    nodes: ClusterConnections, target: Target, kind: ResourceType, names: Sequence[str]
) -> dict[str, dict[str, Setting]]:
    """Name → all settings of the resources, with files and defaults. Raises as `read_configs` does."""
    kept: dict[Setting, Setting] = {}  # topics share most values: one object for each

    def setting(one: Any) -> Setting:
        source = _SOURCES.get(one.config_source, ConfigSource.OTHER)
        secret = None if source is ConfigSource.DEFAULT else HIDDEN
        read = Setting(secret if one.is_sensitive else one.value, source)
        return kept.setdefault(read, read)

    return {
        result.resource_name: {one.name: setting(one) for one in result.configs}
        for result in _described(nodes, target, kind, names)
    }


def _described(
    nodes: ClusterConnections,
    target: Target,
    kind: ResourceType,
    names: Sequence[str],
    keys: Sequence[str] | None = None,
) -> Iterator[Any]:
    """Results of DescribeConfigs, without those of topics that were just deleted."""
    for begin in range(0, len(names), _AT_ONCE):
        resources = [(kind, name) for name in names[begin : begin + _AT_ONCE]]
        for result in nodes.ask(target, describe_configs(resources, keys)).results:
            error = error_name(result.error_code)
            if error == "UNKNOWN_TOPIC_OR_PARTITION":
                continue
            if kind is ResourceType.GROUP and error in _UNSUPPORTED:
                raise NotOfferedError(f"{target.who} has no configuration of groups.", remedy="Its release is too old.")
            raise_for_error(
                result.error_code,
                what=f"the configuration of {_NAMES.get(kind, kind.name.lower())} {result.resource_name}".rstrip(),
                who=target.who,
                right="DESCRIBE_CONFIGS",
                message=result.error_message,
            )
            yield result


def read_quotas(nodes: ClusterConnections) -> dict[QuotaEntity, Mapping[str, float]]:
    response, target = nodes.any_broker(lambda: DescribeClientQuotasRequest(components=[], strict=False))
    raise_for_error(response.error_code, what="quotas", who=target.who, right="DESCRIBE_CONFIGS on CLUSTER")
    return {
        tuple((one.entity_type, one.entity_name) for one in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }
