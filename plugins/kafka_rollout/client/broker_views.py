"""What each broker has of the metadata that clients set. All have the same, unless records were lost on one.

A release reads a record that it does not know as nothing, and writes its snapshots without it. A node that is replaced
later starts from its own snapshot, so it never reads the record again (MetadataLoader, SnapshotGenerator).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafka_rollout.base.errors import NotObservableError
from kafka_rollout.client.contents import (
    list_configured,
    read_acls,
    read_configs,
    read_group_configs,
    read_quotas,
    read_scram,
)
from kafka_rollout.client.requests import ClusterConnections, ResourceType, Target
from kafka_rollout.model.broker_views import BrokerView
from kafka_rollout.model.configs import entity_name


def read_views(
    nodes: ClusterConnections, live: Sequence[Target], *, groups: Collection[str], topic_settings: Collection[str]
) -> Mapping[int, BrokerView]:
    """Return broker id → what it has.

    `groups`: ids to query in addition to those that the brokers list. `topic_settings`: the names that are queried of
    all topics. Raises TransientError where a broker does not respond, RefusedError with a missing right.
    """
    topics = sorted(nodes.topics()[0]) if topic_settings else []
    listed = nodes.from_each(live, lambda broker: list_configured(nodes, broker, {})[1])
    of_groups = sorted({*groups, *(name for names in listed for name in names or ())})
    known: dict[str, list[Mapping[str, str]]] = {}

    def shared(kind: str, had: Mapping[str, str]) -> Mapping[str, str]:
        """Return what an earlier broker has if it is the same: hundreds of brokers can have thousands of ACLs each."""
        others = known.setdefault(kind, [])
        found = next((one for one in others if one == had), had)
        if found is had:
            others.append(had)
        return found

    def read(broker: Target) -> BrokerView:
        unasked: dict[str, str] = {}
        subscriptions, _ = list_configured(nodes, broker, unasked)
        view: dict[str, Mapping[str, str]] = {}
        if "subscriptions" not in unasked:
            of_each = read_configs(nodes, broker, ResourceType.CLIENT_METRICS, subscriptions)
            view["client-metrics subscription"] = _texts({name: of_each.get(name, {}) for name in subscriptions})
        of_group = read_group_configs(nodes, broker, of_groups, unasked)
        if "group_configs" not in unasked:
            view["configuration of group"] = _texts(of_group)
        scram = read_scram(nodes, unasked, broker)
        if "scram" not in unasked:
            view["SCRAM user"] = _texts(scram)
        try:
            view["ACL"] = {str(acl): "" for acl in read_acls(nodes, broker) or ()}
            view["readable list"] = {"of ACLs": ""}
        except NotObservableError:  # the broker has an ACL that its release does not know
            view["readable list"] = {}
        view["quota of"] = _texts({entity_name(name): values for name, values in read_quotas(nodes, broker).items()})
        if topics:
            configured = read_configs(nodes, broker, ResourceType.TOPIC, topics, sorted(topic_settings))
            view["configuration of topic"] = _texts(configured)
        return {kind: shared(kind, had) for kind, had in view.items()}

    return {broker.node_id: view for broker, view in zip(live, nodes.from_each(live, read), strict=True)}


def _texts(values: Mapping[str, Mapping[str, object]]) -> Mapping[str, str]:
    """Return the values of each subject as one text, whatever their order."""
    return {subject: ", ".join(f"{name}={own[name]}" for name in sorted(own)) for subject, own in values.items()}
