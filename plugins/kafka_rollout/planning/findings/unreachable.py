"""Settings with which a gate cannot pass: throttles of replication, a limit of the brokers' user, no snapshots."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address

from kafka_rollout.base.durations import duration
from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.model.configs import DynamicConfigs, NodeConfigs, entity_name, known_number
from kafka_rollout.model.plan import Direction, Plan
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.configuration import (
    SNAPSHOT_INTERVAL,
    SNAPSHOT_INTERVAL_DEFAULT_MS,
    snapshot_interval_ms,
)
from kafka_rollout.releases.facts import Release

REPLICATION_THROTTLED = FindingCode(
    "REPLICATION-THROTTLED",
    WARNING,
    "A throttle limits the replication of topics. After a restart, their replicas can stay out of sync.",
)
BROKER_USER_LIMITED = FindingCode(
    "BROKER-USER-LIMITED",
    WARNING,
    "A quota of request time limits the user of the brokers, or a super user, which they can use.",
)
THROTTLES_CHECK = Check(
    "replication-throttles",
    "Throttles and quotas that slow down the brokers",
    "upgrade.md#configuration-in-the-metadata",
    (REPLICATION_THROTTLED, BROKER_USER_LIMITED),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART),
    needs=(Need.SETTINGS, Need.BROKER_CONFIGS),
    examines=Examined.DYNAMIC,
)
IP_QUOTA_UNRESOLVED = FindingCode(
    "IP-QUOTA-UNRESOLVED",
    BLOCKER,
    "A quota of connections names a host that a node cannot resolve. At its start, the node applies neither this quota "
    "nor those after it, and reports an error, with which its gate does not pass.",
)
IP_QUOTAS_CHECK = Check(
    "ip-quotas",
    "Host names in quotas of connections",
    "upgrade.md#configuration-in-the-metadata",
    (IP_QUOTA_UNRESOLVED,),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART),
    needs=(Need.SETTINGS,),
    examines=Examined.DYNAMIC,
)
SNAPSHOT_NOT_EXPECTED = FindingCode(
    "SNAPSHOT-NOT-EXPECTED",
    (BLOCKER, WARNING, INFO),
    "The run waits for a snapshot of the metadata that a node does not write by time. A warning if the run need not "
    "wait, or only needs a change of the metadata.",
)
SNAPSHOT_WAIT = FindingCode(
    "SNAPSHOT-WAIT",
    (INFO,),
    "How long the run waits after a change of levels, until every node has written a snapshot of the metadata.",
)
SNAPSHOT_CHECK = Check(
    "snapshot-interval",
    "Snapshots that the run waits for",
    "upgrade.md#finalizing",
    (SNAPSHOT_NOT_EXPECTED, SNAPSHOT_WAIT),
    needs=(Need.CONFIGS,),
    examines=Examined.CONFIGS,
)
IDLE_INTERVAL = "metadata.max.idle.interval.ms"
_IDLE_DEFAULT_MS = 500
_HALVES = ("leader", "follower")
_UNLIMITED = (1 << 63) - 1
_REQUEST_TIME = "request_percentage"
_CONNECTIONS = "connection_creation_rate"


def throttle_findings(cluster: ClusterSpec, dynamic: DynamicConfigs) -> Iterator[Finding]:
    """Yield the throttle that kafka-reassign-partitions.sh, or another tool, left behind.

    A rate of a broker acts on the replicas that the topics list (ReplicationQuotaManager); one without the other does
    nothing. A reassignment in progress has a finding of its own.
    """
    rates: dict[str, str] = {}
    topics: set[str] = set()
    for half in _HALVES:
        listed = {
            topic
            for topic, settings in dynamic.topics.items()
            if settings.get(f"{half}.replication.throttled.replicas", "").strip()
        }
        rate = f"{half}.replication.throttled.rate"
        limits = {
            f"broker {node_id}": settings[rate] for node_id, settings in dynamic.brokers.items() if rate in settings
        }
        if rate in dynamic.all_brokers:
            limits["all brokers"] = dynamic.all_brokers[rate]
        limits = {who: value for who, value in limits.items() if value != str(_UNLIMITED)}
        if listed and limits:
            topics |= listed
            rates |= {f"{half} of {who}": value for who, value in limits.items()}
    if topics:
        listed_rates = few(f"{who}: {value} bytes/s" for who, value in sorted(rates.items()))
        yield REPLICATION_THROTTLED.found(
            "replication throttle",
            f"Replication of {count(len(topics), 'topic')} ({few(sorted(topics))}) is throttled ({listed_rates}). A "
            "replica that missed more than this while its broker restarted does not return to its ISR.",
            "If no reassignment runs, delete the throttle: " + _delete_throttle(cluster, dynamic, sorted(topics)),
        )


def _delete_throttle(cluster: ClusterSpec, dynamic: DynamicConfigs, topics: list[str]) -> str:
    """Return the commands. Each deletes what its entity has: kafka-configs.sh up to 3.9 refuses any other name."""
    script = f"kafka-configs.sh --bootstrap-server {cluster.bootstrap_servers} --alter"
    rates = [f"{half}.replication.throttled.rate" for half in _HALVES]
    lists = [f"{half}.replication.throttled.replicas" for half in _HALVES]

    def deleted(settings: Mapping[str, str], names: Iterable[str]) -> str:
        return ",".join(name for name in names if name in settings)

    parts = []
    if found := deleted(dynamic.all_brokers, rates):
        parts.append(f"{script} --entity-type brokers --entity-default --delete-config {found}")
    entities = (
        ("brokers", {str(node_id): deleted(found, rates) for node_id, found in sorted(dynamic.brokers.items())}),
        ("topics", {topic: deleted(dynamic.topics[topic], lists) for topic in topics}),
    )
    for kind, of_each in entities:
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for entity, names in of_each.items():
            alike[names].append(entity)
        for names, (first, *others) in alike.items():
            if names:
                each = f" (and {kind} {few(others)})" if others else ""
                parts.append(f"{script} --entity-type {kind} --entity-name {first} --delete-config {names}{each}")
    return f"{'; '.join(parts)}."


def quota_findings(cluster: ClusterSpec, configs: NodeConfigs, dynamic: DynamicConfigs) -> Iterator[Finding]:
    """Yield the quotas that limit super users, which the brokers can use themselves; without any, their unknown user.

    Replication is not limited by quotas of clients; requests to the controllers, such as heartbeats of brokers, are
    limited by request time (ControllerApis). The client id of these is the node id (NodeToControllerChannelManager).
    """
    users: defaultdict[str | None, list[int]] = defaultdict(list)
    for node_id, config in configs.items():
        for entry in config.get("super.users", "").split(";"):
            if (name := entry.strip().removeprefix("User:")) != entry.strip():
                users[name].append(node_id)
    limits = {frozenset(entity): values for entity, values in dynamic.quotas.items() if _REQUEST_TIME in values}
    for user, ids in users.items() or ((None, []),):
        limiting = dict.fromkeys(filter(None, (_quota_of(limits, user, str(node.node_id)) for node in cluster.brokers)))
        for entity in limiting:
            who = f"User {user} is a super user of {nodes(ids)}" if user else "The user of the brokers is unknown"
            yield BROKER_USER_LIMITED.found(
                f"user {user}" if user else "user of the brokers",
                f"{who}, and the quota {_REQUEST_TIME} of {entity_name(tuple(sorted(entity, reverse=True)))} is "
                f"{limits[entity][_REQUEST_TIME]}. If the brokers use it, their heartbeats to the controllers can be "
                "delayed.",
                f"If the brokers use this user: kafka-configs.sh --bootstrap-server {cluster.bootstrap_servers} "
                f"--alter {_entity_options(entity)} --delete-config {_REQUEST_TIME}.",
            )


def names_in_quotas(dynamic: DynamicConfigs) -> tuple[str, ...]:
    """Return the host names that quotas of IP addresses have instead of one: Kafka accepts what a controller resolves
    (ClientQuotaControlManager), and each node resolves it at its start (ClientQuotaMetadataManager)."""
    named = [dict(entity).get("ip") for entity in dynamic.quotas]
    return tuple(sorted({name for name in named if name and not _is_address(name)}))


def _is_address(text: str) -> bool:
    try:
        ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def ip_quota_findings(cluster: ClusterSpec, unresolved: Mapping[int, Iterable[str]]) -> Iterator[Finding]:
    """Yield the quotas whose host name nodes cannot resolve. `unresolved`: node id → these names."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for node_id, names in sorted(unresolved.items()):
        for name in names:
            by_name[name].append(node_id)
    script = f"kafka-configs.sh --bootstrap-server {cluster.bootstrap_servers} --alter --entity-type ips"
    for name, ids in sorted(by_name.items()):
        yield IP_QUOTA_UNRESOLVED.found(
            f"ip {name}",
            f"The quota {_CONNECTIONS} of ip {name} has a host name that {nodes(ids)} cannot resolve. At its start, "
            "a node applies neither this quota nor others after it, and metadata-apply-error-count (of a controller: "
            "metadata-error-count) rises, with which its gate does not pass.",
            f"Let the hosts of {nodes(ids)} resolve {name}, for example by a line in /etc/hosts. Then set the quota "
            f"for the address instead: `{script} --entity-name ADDRESS --add-config {_CONNECTIONS}=RATE`, and "
            f"`{script} --entity-name {shlex.quote(name)} --delete-config {_CONNECTIONS}`, for which the active "
            "controller and the machine of the command must resolve the name.",
        )


_Entity = frozenset[tuple[str, str | None]]


def _quota_of(limits: Collection[_Entity], user: str | None, client_id: str) -> _Entity | None:
    """Return the entity whose quota counts for requests of a user with a client id (ClientQuotaManager).

    `user`: None if it is unknown; then only the defaults and the client ids.
    """
    of_clients = (("client-id", client_id), ("client-id", None))
    of_users = (("user", user), ("user", None)) if user else (("user", None),)
    order = [
        *(frozenset(parts) for one in of_users for parts in (*((one, client) for client in of_clients), (one,))),
        *(frozenset([client]) for client in of_clients),
    ]
    return next((entity for entity in order if entity in limits), None)


def _entity_options(entity: _Entity) -> str:
    kinds = {"user": "users", "client-id": "clients"}
    return " ".join(
        f"--entity-type {kinds[kind]} {'--entity-default' if name is None else f'--entity-name {name}'}"
        for kind, name in sorted(entity, reverse=True)
    )


def writes_nothing_when_idle(config: Mapping[str, str]) -> bool:
    """Return whether the active controller with this configuration writes no records of its own."""
    return known_number(config, IDLE_INTERVAL, _IDLE_DEFAULT_MS) == 0


def snapshot_findings(
    cluster: ClusterSpec, plan: Plan, planned: Mapping[Release, NodeConfigs], *, finalizes: bool
) -> Iterator[Finding]:
    """Yield the nodes that write no snapshot by time (SnapshotGenerator), and the idle interval that lets none begin.

    `planned`: release → configuration of each node on it. An upgrade waits on the target, a downgrade on the source.
    `finalizes`: this run changes levels, so its gate waits.
    """
    is_down = plan.direction is Direction.DOWNGRADE
    if not (plan.feature_changes or (is_down and plan.release_steps)):
        return
    waits = bool(plan.online_changes) and (finalizes or is_down)
    configs = planned[plan.source if is_down else plan.path[-1]]
    never = [
        node_id
        for node_id, config in sorted(configs.items())
        if known_number(config, SNAPSHOT_INTERVAL, SNAPSHOT_INTERVAL_DEFAULT_MS) == 0
    ]
    if never:
        can_lower = plan.release_steps and not is_down
        yield SNAPSHOT_NOT_EXPECTED.found(
            f"{SNAPSHOT_INTERVAL} of {nodes(never)}",
            f"{SNAPSHOT_INTERVAL} of {nodes(never)} is 0, so no snapshot is written by time. The gate after the change "
            "of levels waits for a snapshot of every node.",
            "Set snapshot_interval_s of the inventory."
            if can_lower
            else f"Set {SNAPSHOT_INTERVAL} in the files of these nodes, and restart them (kafka-rollout restart).",
            severity=BLOCKER if waits else WARNING,
        )
    idle = [node.node_id for node in cluster.controllers if writes_nothing_when_idle(configs.get(node.node_id, {}))]
    intervals = {node_id: snapshot_interval_ms(config) for node_id, config in configs.items()}
    if intervals and not never:
        longest = max(intervals.values())
        slowest = [node_id for node_id, interval in sorted(intervals.items()) if interval == longest]
        what = "A change of levels" if is_down else "Finalizing"
        yield SNAPSHOT_WAIT.found(
            f"cluster {cluster.name}",
            f"{what} takes up to {duration(longest / 1000)} after the levels have changed: the run then waits until "
            f"every node has written a snapshot of the metadata ({SNAPSHOT_INTERVAL} is {longest} on "
            f"{nodes(slowest)}).",
            "No action needed. The next release step waits for it."
            if is_down
            else "No action needed. The new levels count before. The run holds no lock while it waits, and you can end "
            "it: `kafka-rollout stop`, or *Stop here*.",
        )
    if idle and not never:
        yield SNAPSHOT_NOT_EXPECTED.found(
            f"{IDLE_INTERVAL} of {nodes(idle)}",
            f"{IDLE_INTERVAL} of {nodes(idle)} is 0, so an idle cluster writes no records. A node writes a snapshot "
            "only when it applies a record after the snapshot interval.",
            "While the gate waits, change something in the metadata, for example create and delete a topic.",
            severity=WARNING if waits else INFO,
        )
