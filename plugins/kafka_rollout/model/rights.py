"""Rights (ACLs) that this tool needs, the command that grants each, and the findings about missing ones.

docs/security.md lists the same rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.findings import (
    BLOCKER,
    INFO,
    WARNING,
    Check,
    CheckOf,
    Examined,
    Finding,
    FindingCode,
    Need,
    Severity,
)
from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.model.topology import ClusterSpec, Role

CLUSTER, TOPIC, GROUP, TRANSACTIONAL_ID = "CLUSTER", "TOPIC", "GROUP", "TRANSACTIONAL_ID"  # Kafka's ResourceType
# An allowed operation of these also allows DESCRIBE (StandardAuthorizerData, IMPLIES_DESCRIBE).
IMPLY_DESCRIBE = frozenset({"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"})


@dataclass(frozen=True, slots=True)
class Right:
    """An operation (AclOperation) on a resource."""

    operation: str
    resource: str
    name: str
    """`*` for all names; a `*` at its end stands for a prefix."""
    purpose: str
    """The things that the tool reads or changes with this right."""
    requests: tuple[str, ...]
    """The requests of Kafka's protocol that need it; ClusterConnections sends no others."""

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource}" + ("" if self.resource == CLUSTER else f" {self.name}")


def grant_commands(rights: Iterable[Right], bootstrap_servers: str, principal: str) -> tuple[str, ...]:
    """Return the kafka-acls.sh commands that allow these rights: one for each resource."""
    operations: dict[tuple[str, str], dict[str, None]] = {}
    for right in rights:
        operations.setdefault((right.resource, right.name), {})[right.operation] = None
    begin = f"kafka-acls.sh --bootstrap-server {bootstrap_servers} --command-config ADMIN.properties --add"
    return tuple(
        f"{begin} --allow-principal {_quoted(principal)} {_operations(of_resource)} {_where(*resource)}"
        for resource, of_resource in operations.items()
    )


def _operations(names: Iterable[str]) -> str:
    return " ".join(f"--operation {''.join(word.capitalize() for word in name.split('_'))}" for name in names)


def _where(resource: str, name: str) -> str:
    option = f"--{resource.lower().replace('_', '-')}"
    prefix = name.removesuffix("*")
    if resource == CLUSTER:
        return option
    if prefix in ("", name):
        return f"{option} {_quoted(name)}"
    return f"{option} {_quoted(prefix)} --resource-pattern-type prefixed"


def _quoted(text: str) -> str:
    """Return a word of a shell: a name of a certificate can have an apostrophe."""
    return "'" + text.replace("'", "'\\''") + "'"


ALTER_CLUSTER = Right(
    "ALTER",
    CLUSTER,
    "kafka-cluster",
    "elect leaders, finalize levels and unregister brokers",
    ("ElectLeaders", "UpdateFeatures", "UnregisterBroker"),
)
# ALTER implies DESCRIBE, which DescribeQuorum needs.
LIST_CONTROLLERS = Right(
    "ALTER", CLUSTER, "kafka-cluster", "list the registered controllers", ("DescribeCluster", "DescribeQuorum")
)
CONTROLLERS_CONFIGS = Right(
    "DESCRIBE_CONFIGS",
    CLUSTER,
    "kafka-cluster",
    "read the settings of controllers that are not brokers",
    ("DescribeConfigs",),
)
LIST_PARTITIONS = Right(
    "DESCRIBE", TOPIC, "*", "list every partition with its replicas", ("Metadata", "ListOffsets", "OffsetFetch")
)
# For each command that reads a cluster.
READING = (
    Right(
        "DESCRIBE",
        CLUSTER,
        "kafka-cluster",
        "read the quorum, all groups, moving replicas, ACLs and SCRAM users",
        (
            "DescribeQuorum",
            "DescribeCluster",
            "ListGroups",
            "ListPartitionReassignments",
            "DescribeLogDirs",
            "DescribeAcls",
            "DescribeUserScramCredentials",
        ),
    ),
    Right(
        "DESCRIBE_CONFIGS",
        CLUSTER,
        "kafka-cluster",
        "read the settings of brokers, quotas and client metrics",
        ("DescribeConfigs", "DescribeClientQuotas", "ListConfigResources"),
    ),
    LIST_PARTITIONS,
    Right(
        "DESCRIBE_CONFIGS",
        TOPIC,
        "*",
        "read min.insync.replicas and the other settings of topics",
        ("DescribeConfigs",),
    ),
    Right("READ", TOPIC, GROUPS_TOPIC, "scan the records of groups", ("Fetch",)),
    Right("READ", TOPIC, TRANSACTIONS_TOPIC, "scan the records of transactions", ("Fetch",)),
    Right("READ", TOPIC, SHARE_TOPIC, "scan the records of share groups", ("Fetch",)),
    Right(
        "DESCRIBE",
        GROUP,
        "*",
        "describe every group and read its committed offsets",
        (
            "DescribeGroups",
            "ConsumerGroupDescribe",
            "ShareGroupDescribe",
            "StreamsGroupDescribe",
            "OffsetFetch",
            "DescribeShareGroupOffsets",
        ),
    ),
    Right("DESCRIBE_CONFIGS", GROUP, "*", "read the settings of groups", ("DescribeConfigs",)),
    Right(
        "DESCRIBE",
        TRANSACTIONAL_ID,
        "*",
        "list every transactional id",
        ("DescribeTransactions", "ListTransactions"),
    ),
)
# For each run that changes a cluster; ALTER on CLUSTER implies DESCRIBE.
CHANGING = (*READING[1:], ALTER_CLUSTER)
# For a run that sets the cluster-wide default of min.insync.replicas before it finalizes; others do not need it.
PINNING = (
    Right(
        "ALTER_CONFIGS",
        CLUSTER,
        "kafka-cluster",
        "set a default with --pin-min-insync-replicas",
        ("IncrementalAlterConfigs",),
    ),
)
# For the test traffic and its own topics, groups and transactional ids, mostly by librdkafka.
TRAFFIC = (
    Right("CREATE", TOPIC, "kafka-rollout-traffic-*", "create the topics of the test traffic", ("CreateTopics",)),
    Right("WRITE", TOPIC, "kafka-rollout-traffic-*", "produce test records", ()),
    Right("READ", TOPIC, "kafka-rollout-traffic-*", "consume test records", ()),
    Right("ALTER", TOPIC, "kafka-rollout-traffic-*", "add partitions of the test traffic for new brokers", ()),
    Right("DELETE", TOPIC, "kafka-rollout-traffic-*", "delete the topics of the test traffic", ()),
    Right("READ", GROUP, "kafka-rollout-*", "consume in a group and commit offsets", ("Heartbeat",)),
    Right("DELETE", GROUP, "kafka-rollout-*", "delete the groups of the test traffic", ("DeleteGroups",)),
    Right("WRITE", TRANSACTIONAL_ID, "kafka-rollout-traffic-*", "produce test records in transactions", ("EndTxn",)),
)
OF_CONTROLLERS = (LIST_CONTROLLERS, CONTROLLERS_CONFIGS)
_WITHOUT_A_RIGHT = frozenset({"ApiVersions"})
REQUESTS: Mapping[Role, frozenset[str]] = {
    Role.BROKER: _WITHOUT_A_RIGHT
    | {name for right in (*READING, *CHANGING, *PINNING, *TRAFFIC) for name in right.requests},
    Role.CONTROLLER: _WITHOUT_A_RIGHT | {name for right in OF_CONTROLLERS for name in right.requests},
}
"""Listener → the requests for which a right above is granted."""


def need_of(right: Right) -> Need:
    """Return what is unknown without a right to read."""
    match (right.resource, right.operation):
        case ("TOPIC", "READ"):
            return Need.LOGS
        case ("TOPIC", _):
            return Need.TOPICS
        case (_, "DESCRIBE_CONFIGS"):
            return Need.SETTINGS
        case ("GROUP" | "TRANSACTIONAL_ID", _):
            return Need.GROUPS
        case _:
            return Need.QUORUM


class RightsOf(StrEnum):
    """A user of this tool in Kafka."""

    READ_ONLY = "read-only"
    CHANGES = "changes"
    PINNING = "pinning"
    TRAFFIC = "traffic"
    CONTROLLERS = "controllers"

    @property
    def users(self) -> str:
        """Which user of docs/security.md has them."""
        return _USERS[self]


_USERS = {
    RightsOf.READ_ONLY: "the user of observe, plan, check, groups and scans",
    RightsOf.CHANGES: "the user of upgrades, downgrades, restarts and feature changes",
    RightsOf.PINNING: "in addition, for runs with --pin-min-insync-replicas",
    RightsOf.TRAFFIC: "the user of the test traffic",
    RightsOf.CONTROLLERS: "the user of the controllers' listener",
}
RIGHTS: Mapping[RightsOf, tuple[Right, ...]] = {
    RightsOf.READ_ONLY: READING,
    RightsOf.CHANGES: CHANGING,
    RightsOf.PINNING: PINNING,
    RightsOf.TRAFFIC: TRAFFIC,
    RightsOf.CONTROLLERS: OF_CONTROLLERS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRight:
    """A right that a user of this tool does not have."""

    right: Right
    principal: str | None
    """As Kafka names the user, if it is known."""
    listener: Role = Role.BROKER
    """Of the nodes that refuse."""
    denied_to: tuple[str, ...] = ()
    """Principals of the ACLs that deny this right on this one resource; empty if no ACL allows it."""

    @property
    def is_to_read(self) -> bool:
        """Whether an observation needs it."""
        return self.right in READING or bool(self.denied_to)

    @property
    def sentence(self) -> str:
        who = self.principal or "The user of this tool"
        where = " on the controllers" if self.listener is Role.CONTROLLER else ""
        if self.denied_to:
            return (
                f"An ACL denies {who} the right {self.right}: the brokers hide this topic. It is needed to "
                f"{self.right.purpose}."
            )
        return f"{who} does not have the right {self.right}{where}. It is needed to {self.right.purpose}."


def _remedies(
    cluster: ClusterSpec, missing: Sequence[MissingRight], severity: Callable[[MissingRight], Severity]
) -> list[str]:
    """Return the remedy for each missing right: the one command for all that are missing on its resource.

    A right that only some runs need has its own command. ACLs are those of all nodes, controllers included.
    """
    alike: dict[tuple[object, ...], list[Right]] = {}

    def key(gap: MissingRight) -> tuple[object, ...]:
        return gap.principal, gap.right.resource, gap.right.name, severity(gap)

    for gap in missing:
        if not gap.denied_to:
            alike.setdefault(key(gap), []).append(gap.right)
    remedies = []
    for gap in missing:
        if gap.denied_to:
            remedies.append(_removal(cluster, gap))
        else:
            commands = grant_commands(alike[key(gap)], cluster.bootstrap_servers, gap.principal or "User:NAME")
            remedies.append(f"Run: {commands[0]}")
    return remedies


def _removal(cluster: ClusterSpec, gap: MissingRight) -> str:
    where = _where(gap.right.resource, gap.right.name)
    return (
        f"Remove the ACL that denies it: list them with kafka-acls.sh --bootstrap-server {cluster.bootstrap_servers} "
        f"--command-config ADMIN.properties --list {where} (principals: {', '.join(gap.denied_to)})."
    )


RIGHT_MISSING = FindingCode(
    "RIGHT-MISSING", (BLOCKER, WARNING, INFO), "A user of this tool does not have a right in Kafka that a run needs."
)
RIGHTS_CHECK = Check(
    "user-rights",
    "Rights of this tool's users in Kafka",
    "security.md#rights",
    (RIGHT_MISSING,),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.FEATURES, CheckOf.INVENTORY),
    needs=(),
    examines=Examined.RIGHTS,
)


def right_findings(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> tuple[Finding, ...]:
    """Return a blocker for each right that a run needs and its user does not have."""
    return _findings(cluster, missing)


def find_rights_of_checks(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> tuple[Finding, ...]:
    """Return a warning for each right to read that a check needs; without it, checks are unknown."""
    needed = [gap for gap in missing if gap.is_to_read or gap.right == CONTROLLERS_CONFIGS]
    return _findings(cluster, needed, lambda gap: WARNING)


def find_rights_of_runs(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> tuple[Finding, ...]:
    """Return a finding for each right that some run needs and its user does not have.

    A warning: only a run with one option needs it. Info: no run manages the nodes of this cluster.
    """

    def severity(gap: MissingRight) -> Severity:
        return INFO if not cluster.manages_nodes else WARNING if gap.right in PINNING else BLOCKER

    return _findings(cluster, missing, severity)


def refuse_without_reading(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> None:
    """Raise RefusedError with all missing rights if one of them is needed to observe the cluster."""
    if any(gap.is_to_read for gap in missing):
        refuse_missing_rights(cluster, missing)


def refuse_missing_rights(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> None:
    """Raise RefusedError with all missing rights, if there are any."""
    if missing:
        findings = _findings(cluster, missing)
        raise RefusedError(
            " ".join(f"{finding.code}: {finding.sentence}" for finding in findings),
            remedy=" ".join(dict.fromkeys(finding.remedy for finding in findings)),
        )


def _findings(
    cluster: ClusterSpec,
    missing: Sequence[MissingRight],
    severity: Callable[[MissingRight], Severity] = lambda gap: BLOCKER,
) -> tuple[Finding, ...]:
    return tuple(
        RIGHT_MISSING.found(f"{gap.right} ({gap.listener} listener)", gap.sentence, remedy, severity=severity(gap))
        for gap, remedy in zip(missing, _remedies(cluster, missing, severity), strict=True)
    )
