"""Rights (ACLs) that this tool needs, the command that grants each, and the findings about missing ones.

docs/security.md lists the same rights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """An operation (AclOperation) on a resource. `name`: `*` for all names; a `*` at its end stands for a prefix.

    `purpose`: the things that the tool reads or changes with this right.
    """

    operation: str
    resource: str
    name: str
    purpose: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource}" + ("" if self.resource == CLUSTER else f" {self.name}")

    def command(self, bootstrap_servers: str, principal: str) -> str:
        """Return the kafka-acls.sh command that allows it."""
        operation = "".join(word.capitalize() for word in self.operation.split("_"))
        option = f"--{self.resource.lower().replace('_', '-')}"
        prefix = self.name.removesuffix("*")
        if self.resource == CLUSTER:
            where = option
        elif prefix in ("", self.name):
            where = f"{option} '{self.name}'"
        else:
            where = f"{option} '{prefix}' --resource-pattern-type prefixed"
        return (
            f"kafka-acls.sh --bootstrap-server {bootstrap_servers} --command-config ADMIN.properties --add "
            f"--allow-principal '{principal}' --operation {operation} {where}"
        )


ALTER_CLUSTER = Right("ALTER", CLUSTER, "kafka-cluster", "elect leaders, finalize levels and unregister brokers")
LIST_CONTROLLERS = Right("ALTER", CLUSTER, "kafka-cluster", "list the registered controllers")
LIST_PARTITIONS = Right("DESCRIBE", TOPIC, "*", "list every partition with its replicas")
# For each command that reads a cluster.
READING = (
    Right("DESCRIBE", CLUSTER, "kafka-cluster", "read the quorum, all groups, moving replicas, ACLs and SCRAM users"),
    Right("DESCRIBE_CONFIGS", CLUSTER, "kafka-cluster", "read the settings of brokers, quotas and client metrics"),
    LIST_PARTITIONS,
    Right("DESCRIBE_CONFIGS", TOPIC, "*", "read min.insync.replicas and the other settings of topics"),
    Right("READ", TOPIC, GROUPS_TOPIC, "scan the records of groups"),
    Right("READ", TOPIC, TRANSACTIONS_TOPIC, "scan the records of transactions"),
    Right("READ", TOPIC, SHARE_TOPIC, "scan the records of share groups"),
    Right("DESCRIBE", GROUP, "*", "describe every group and read its committed offsets"),
    Right("DESCRIBE_CONFIGS", GROUP, "*", "read the settings of groups"),
    Right("DESCRIBE", TRANSACTIONAL_ID, "*", "list every transactional id"),
)
# For each run that changes a cluster; ALTER on CLUSTER implies DESCRIBE.
CHANGING = (*READING[1:], ALTER_CLUSTER)
# For a run that sets the cluster-wide default of min.insync.replicas before it finalizes; others do not need it.
PINNING = (Right("ALTER_CONFIGS", CLUSTER, "kafka-cluster", "set a default with --pin-min-insync-replicas"),)
# For the test traffic and its own topics, groups and transactional ids.
TRAFFIC = (
    Right("CREATE", TOPIC, "kafka-rollout-traffic-*", "create the topics of the test traffic"),
    Right("WRITE", TOPIC, "kafka-rollout-traffic-*", "produce test records"),
    Right("READ", TOPIC, "kafka-rollout-traffic-*", "consume test records"),
    Right("DELETE", TOPIC, "kafka-rollout-traffic-*", "delete the topics of the test traffic"),
    Right("READ", GROUP, "kafka-rollout-*", "consume in a group and commit offsets"),
    Right("DELETE", GROUP, "kafka-rollout-*", "delete the groups of the test traffic"),
    Right("WRITE", TRANSACTIONAL_ID, "kafka-rollout-traffic-*", "produce test records in transactions"),
)


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
            return Need.RESPONSES


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
    RightsOf.CONTROLLERS: (LIST_CONTROLLERS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRight:
    """A right that a user of this tool does not have. `principal`: as Kafka names the user, if it is known.

    `listener`: of the nodes that refuse.
    """

    right: Right
    principal: str | None
    listener: Role = Role.BROKER

    @property
    def sentence(self) -> str:
        who = self.principal or "The user of this tool"
        where = " on the controllers" if self.listener is Role.CONTROLLER else ""
        return f"{who} does not have the right {self.right}{where}. It is needed to {self.right.purpose}."

    def remedy(self, bootstrap_servers: str) -> str:
        """Return the command that grants the right. ACLs are those of all nodes, controllers included."""
        return f"Run: {self.right.command(bootstrap_servers, self.principal or 'User:NAME')}"


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
    return tuple(_finding(cluster, one) for one in missing)


def find_rights_of_checks(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> tuple[Finding, ...]:
    """Return a warning for each right to read that a check needs; without it, checks are unknown."""
    return tuple(_finding(cluster, one, WARNING) for one in missing if one.right in READING)


def find_rights_of_runs(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> tuple[Finding, ...]:
    """Return a finding for each right that some run needs and its user does not have.

    A warning: only a run with one option needs it. Info: no run manages the nodes of this cluster.
    """
    return tuple(
        _finding(cluster, one, INFO if not cluster.manages_nodes else WARNING if one.right in PINNING else BLOCKER)
        for one in missing
    )


def refuse_without_reading(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> None:
    """Raise RefusedError with all missing rights if one of them is needed to observe the cluster."""
    if any(one.right in READING for one in missing):
        refuse_missing_rights(cluster, missing)


def refuse_missing_rights(cluster: ClusterSpec, missing: Sequence[MissingRight]) -> None:
    """Raise RefusedError with all missing rights, if there are any."""
    if missing:
        found = [_finding(cluster, one) for one in missing]
        raise RefusedError(
            " ".join(f"{finding.code}: {finding.sentence}" for finding in found),
            remedy=" ".join(finding.remedy for finding in found),
        )


def _finding(cluster: ClusterSpec, missing: MissingRight, severity: Severity = BLOCKER) -> Finding:
    subject = f"{missing.right} ({missing.listener} listener)"
    return RIGHT_MISSING.found(subject, missing.sentence, missing.remedy(cluster.bootstrap_servers), severity=severity)
