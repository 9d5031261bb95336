"""What clients and administrators put into a cluster, to be found again whatever is done to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec
from tests.waiting import wait_until
from tools.any_requests import AnyRequests
from tools.demo.local_cluster import LocalCluster

WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RECORDS = 120
_TOPICS = {"orders": 4, "audit": 1}
_GROUPS = {"billing": "classic", "shipping": "consumer"}
_WAIT_S = 300.0  # a busy machine
# Types of resources that confluent-kafka does not know: of a subscription (16), of groups (32); `planned` is none yet.
SETTINGS = {
    (16, "latency"): ("interval.ms", "60000"),
    (32, "shipping"): ("consumer.session.timeout.ms", "50000"),
    (32, "planned"): ("consumer.heartbeat.interval.ms", "6000"),
}


def fill(cluster: LocalCluster, *, settings: bool = True) -> None:
    """Topics with records and settings, groups of both protocols and settings of groups, a client-metrics subscription,
    an ACL, a SCRAM user, a quota, a broker's setting. `settings` False: none of groups, which 4.0 was the first to
    know, and no subscription."""
    admin = _admin(cluster.spec)
    copies = min(3, len(cluster.spec.brokers))
    topics = [NewTopic(name, number, copies, config={"retention.ms": "-1"}) for name, number in _TOPICS.items()]
    _wait(admin.create_topics(topics))
    producer = Producer({"bootstrap.servers": cluster.spec.bootstrap_servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("orders", f"order {number}".encode(), key=str(number).encode())
    producer.produce("audit", b"begun")
    assert producer.flush(_WAIT_S) == 0
    for group, protocol in _GROUPS.items():
        _read(cluster.spec, group, protocol, RECORDS // 2)
    acl = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    _wait(admin.create_acls([acl]))
    scram = UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")
    _wait(admin.alter_user_scram_credentials([scram]))
    setting = ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
    _wait(
        admin.incremental_alter_configs(
            [ConfigResource("broker", _some_broker(cluster.spec), incremental_configs=[setting])]
        )
    )
    _set_quota(cluster.spec)
    if settings:
        set_settings(cluster.spec)
    wait_until_all_know(cluster.spec)


def wait_until_all_know(spec: ClusterSpec) -> None:
    """Until every broker goes by what the cluster has decided so far: the controller answers before the brokers have
    read of it. The epoch of a broker's features is the last offset of the metadata that it has, and the controller
    appends a record at least every half a second: a broker that has a later one is through with those before it."""
    with KafkaAdmin(spec, timeout_s=60) as admin:
        end = wait_until(lambda: admin.quorum().high_watermark, _WAIT_S)
        wait_until(lambda: all((admin.features(node).epoch or 0) >= end for node in spec.brokers), _WAIT_S)


def contents(spec: ClusterSpec) -> dict[str, Any]:
    """All that `fill` put there, and what it left in the cluster's own topics, in a form that can be compared."""
    admin = _admin(spec)
    listed = admin.list_topics(timeout=_WAIT_S).topics
    partitions = [TopicPartition(name, number) for name, topic in listed.items() for number in topic.partitions]
    ends = admin.list_offsets({partition: OffsetSpec.latest() for partition in partitions}, request_timeout=_WAIT_S)
    resources = [ConfigResource("topic", name) for name in listed] + [ConfigResource("broker", _some_broker(spec))]
    configs = admin.describe_configs(resources)
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    credentials = admin.describe_user_scram_credentials().result(_WAIT_S)
    return {
        "topics": {name: sorted(topic.partitions) for name, topic in listed.items()},
        "replicas": {f"{n}-{p}": sorted(one.replicas) for n, t in listed.items() for p, one in t.partitions.items()},
        # Coordinators write to their own topics while they are asked.
        "ends": {
            f"{partition.topic}-{partition.partition}": end.result(_WAIT_S).offset
            for partition, end in ends.items()
            if not partition.topic.startswith("__")
        },
        "configs": {
            f"{resource.restype.name} {resource.name}": {
                name: entry.value for name, entry in found.result(_WAIT_S).items() if entry.source in {1, 3}
            }
            for resource, found in configs.items()
        },
        "records": sorted(_read_all(spec)),
        "groups": {group: _committed(spec, group) for group in _GROUPS},
        "acls": sorted(map(str, admin.describe_acls(everything).result(_WAIT_S))),
        "scram": {
            user: sorted(f"{one.mechanism.name} {one.iterations}" for one in found.scram_credential_infos)
            for user, found in credentials.items()
        },
        "quotas": _quotas(spec),
        "settings": _settings(spec),
    }


def assert_clients_data_is_kept(spec: ClusterSpec, before: Mapping[str, Any]) -> None:
    """Compare everything of `contents` that neither other topics nor a change of the release touch."""
    kept, now = ("records", "groups", "acls", "scram", "quotas", "settings"), contents(spec)
    assert {part: now[part] for part in kept} == {part: before[part] for part in kept}


def _admin(spec: ClusterSpec) -> AdminClient:
    return AdminClient({"bootstrap.servers": spec.bootstrap_servers, "log_level": 0})


def _some_broker(spec: ClusterSpec) -> str:
    return str(spec.brokers[0].node_id)


def _wait(futures: Any) -> None:
    for future in futures.values():
        future.result(_WAIT_S)


def _read(spec: ClusterSpec, group: str, protocol: str, number: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": spec.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(["orders"])
        _consume(consumer, number)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _read_all(spec: ClusterSpec) -> list[str]:
    """Every record of the topics, by no group."""
    consumer = Consumer(
        {"bootstrap.servers": spec.bootstrap_servers, "group.id": "nobody", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(name, number, 0) for name, many in _TOPICS.items() for number in range(many)])
        found = _consume(consumer, RECORDS + 1)
        return [f"{one.topic()}-{one.partition()}@{one.offset()} {one.value().decode()}" for one in found]
    finally:
        consumer.close()


def _consume(consumer: Consumer, number: int) -> list[Any]:
    """This number of records. Among them librdkafka returns errors, such as a topic that a broker does not know yet."""
    found: list[Any] = []

    def are_there() -> bool:
        polled = consumer.consume(number - len(found), timeout=1)
        found.extend(one for one in polled if one.error() is None)
        return len(found) == number

    wait_until(are_there, _WAIT_S, every_s=0)
    return found


def _committed(spec: ClusterSpec, group: str) -> dict[str, int]:
    consumer = Consumer({"bootstrap.servers": spec.bootstrap_servers, "group.id": group})
    try:
        asked = [TopicPartition("orders", number) for number in range(_TOPICS["orders"])]
        return {f"{one.topic}-{one.partition}": one.offset for one in consumer.committed(asked, timeout=_WAIT_S)}
    finally:
        consumer.close()


def _set_quota(spec: ClusterSpec) -> None:
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="user", entity_name="alice")],
                ops=[entry.OpData(key="producer_byte_rate", value=123456.0, remove=False)],
            )
        ],
        validate_only=False,
    )
    assert [one.error_code for one in _ask(spec, request).entries] == [0]


def _quotas(spec: ClusterSpec) -> list[str]:
    answer = _ask(spec, DescribeClientQuotasRequest(components=[], strict=False))
    return sorted(
        f"{', '.join(f'{e.entity_type} {e.entity_name}' for e in one.entity)}: "
        f"{', '.join(f'{v.key} {v.value}' for v in one.values)}"
        for one in answer.entries
    )


def set_settings(spec: ClusterSpec, *, delete: bool = False) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[resource.AlterableConfig(name=key, config_operation=int(delete), value=value)],
            )
            for (kind, name), (key, value) in SETTINGS.items()
        ],
        validate_only=False,
    )
    answer = _ask(spec, request)
    assert {one.error_code for one in answer.responses} == {0}, answer


def _settings(spec: ClusterSpec) -> dict[str, str]:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=kind, resource_name=name, configuration_keys=[key])
            for (kind, name), (key, _) in SETTINGS.items()
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    return {
        f"{result.resource_name} {one.name}": one.value
        for result in _ask(spec, request).results
        for one in result.configs
        if one.config_source in {7, 8}  # set for a subscription or a group, and no default
    }


def _ask(spec: ClusterSpec, request: Any) -> Any:
    """Whatever broker answers."""
    connections = AnyRequests(spec, ClientSecurity(), timeout_s=_WAIT_S)
    try:
        return connections.first_answer(connections.brokers, request, lambda response, _: response)
    finally:
        connections.close()


def contents_kept(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a downgrade's comparison with the state before. It found nothing that needs an approver."""
    (compared,) = [one for one in report["state_comparisons"] if one["after"] == "downgrade"]
    assert compared["digest"] == "", [one for one in compared["differences"] if not one["foretold"]]
    return dict(compared)
