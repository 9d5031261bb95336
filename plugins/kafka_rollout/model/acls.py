"""ACLs, the questions about them that two releases must answer alike, and the differences of the answers.

The text of an ACL does not say what a release does with it: from 4.4.0 on a host can be a range of addresses
(KIP-1276), which older releases compare as a literal name. So the authorizers of both releases decide the same
questions. They are made from the ACLs themselves: each principal, resource and operation, from the address of each
host, the first and last address of a range, and one outside; and a principal that no ACL names.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.wording import few
from kafka_rollout.releases.facts import Release

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZER = "authorizer.class.name"
AUTHORIZER_SETTINGS = ("super.users", "allow.everyone.if.no.acl.found")
"""What StandardAuthorizer reads of a node's configuration."""
ANYBODY, ANY = "User:*", "*"  # StandardAuthorizer has no wildcard for other types of principals
_DENY, _ALLOW = 2, 3  # AclPermissionType.code
_LITERAL, _PREFIXED = 3, 4  # PatternType.code
_ALL = 2
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12
_CREATE_TOKENS, _DESCRIBE_TOKENS, _TWO_PHASE_COMMIT = 13, 14, 15
OPERATIONS: Mapping[int, str] = {
    2: "ALL",
    _READ: "READ",
    _WRITE: "WRITE",
    _CREATE: "CREATE",
    _DELETE: "DELETE",
    _ALTER: "ALTER",
    _DESCRIBE: "DESCRIBE",
    _CLUSTER_ACTION: "CLUSTER_ACTION",
    _DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    _ALTER_CONFIGS: "ALTER_CONFIGS",
    _IDEMPOTENT_WRITE: "IDEMPOTENT_WRITE",
    _CREATE_TOKENS: "CREATE_TOKENS",
    _DESCRIBE_TOKENS: "DESCRIBE_TOKENS",
    _TWO_PHASE_COMMIT: "TWO_PHASE_COMMIT",
}
"""AclOperation.code → name."""
_RESOURCES = {2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}
_CLUSTER, _CLUSTER_NAME = 4, "kafka-cluster"
# Resource type → operations that Kafka checks on it (AclEntry.supportedOperations), for ACLs with ALL.
_SUPPORTED: Mapping[int, tuple[int, ...]] = {
    2: (_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS),
    3: (_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS),
    _CLUSTER: (
        *(_CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION),
        *(_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE),
    ),
    5: (_WRITE, _DESCRIBE, _TWO_PHASE_COMMIT),
    6: (_DESCRIBE,),
    7: (_CREATE_TOKENS, _DESCRIBE_TOKENS),
}
_IMPLIED: Mapping[int, int] = {
    **dict.fromkeys((_READ, _WRITE, _DELETE, _ALTER), _DESCRIBE),
    _ALTER_CONFIGS: _DESCRIBE_CONFIGS,
}
STRANGER = "User:kafka-rollout-probe"
_OTHER_NAME = "kafka-rollout-probe"
# Of the ranges for documentation (RFC 5737, RFC 3849): no client has such an address.
_ELSEWHERE = ("192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """One ACL, with the codes of Kafka's protocol (ResourceType, PatternType, AclOperation, AclPermissionType)."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        permission = {_DENY: "deny", _ALLOW: "allow"}.get(self.permission, f"permission {self.permission}")
        pattern = {_LITERAL: "", _PREFIXED: "prefixed "}.get(self.pattern_type, f"pattern type {self.pattern_type} ")
        return (
            f"{permission} {self.principal} {operation_name(self.operation)} from {self.host} on {pattern}"
            f"{_resource_type(self.resource_type)} {self.resource_name}"
        )

    def covers(self, resource_type: int, name: str) -> bool:
        """Return whether it is about the resource of this name."""
        if resource_type != self.resource_type:
            return False
        if self.pattern_type == _PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (ANY, name)


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """An operation on the resource of this name, with Kafka's codes."""

    operation: int
    resource_type: int
    resource_name: str

    def __str__(self) -> str:
        return f"{operation_name(self.operation)} on {_resource_type(self.resource_type)} {self.resource_name}"


@dataclass(frozen=True, slots=True)
class AclQuestion:
    """Actions that a principal (`User:alice`) tries from each of these IP addresses."""

    principal: str
    addresses: tuple[str, ...]
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclAnswers:
    """The answers of a release's authorizer."""

    unknown: tuple[Acl, ...]
    """ACLs with a value that the release does not have."""
    allowed: tuple[tuple[tuple[bool | None, ...], ...], ...]
    """Of each question, address and action in their order; None: the release does not know the operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessChange:
    """What one release allows a principal and another one denies."""

    principal: str
    more: bool
    """It is the later one that allows it."""
    actions: Mapping[Action, tuple[str, ...]]
    """Each with the addresses."""
    causes: tuple[Acl, ...]
    """The ACLs about the principal and these resources."""

    @property
    def decisions(self) -> tuple[str, ...]:
        """Each decision as text, with its direction: what an approver of the difference approves."""
        verb = "gains" if self.more else "loses"
        return tuple(
            f"{self.principal} {verb} {action} from {address}"
            for action, addresses in self.actions.items()
            for address in addresses
        )


def describe_access(change: AccessChange, before: Release, after: Release) -> str:
    """Return the difference as a sentence. `before`, `after`: the releases whose authorizers decided."""
    allows, denies = (after, before) if change.more else (before, after)
    principal = "Every principal" if change.principal == ANYBODY else change.principal
    by_place: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for action, addresses in change.actions.items():
        place = f"{_resource_type(action.resource_type)} {action.resource_name}"
        by_place[place, addresses].append(operation_name(action.operation))
    actions = few(
        (f"{few(names)} on {place} from {few(addresses)}" for (place, addresses), names in by_place.items()), limit=2
    )
    acls = few((f"'{acl}'" for acl in change.causes), limit=3)
    return (
        f"{principal} {'gains' if change.more else 'loses'} {actions}. Kafka {allows} allows it and Kafka {denies} "
        f"denies it, by the ACLs {acls}."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDifferences:
    """What a release does otherwise with ACLs than the one that runs."""

    unknown: tuple[Acl, ...] = ()
    """ACLs with an operation, resource type, pattern type or permission that the release does not know."""
    changes: tuple[AccessChange, ...] = ()


def allowed_as_node(acls: Iterable[Acl]) -> frozenset[str]:
    """Return the principals that an ACL lets act as a node of the cluster (CLUSTER_ACTION)."""
    return frozenset(
        acl.principal
        for acl in acls
        if acl.permission == _ALLOW and acl.covers(_CLUSTER, _CLUSTER_NAME) and acl.operation in (_ALL, _CLUSTER_ACTION)
    )


def operation_name(code: int) -> str:
    return OPERATIONS.get(code, f"operation {code}")


def _resource_type(code: int) -> str:
    return _RESOURCES.get(code, f"resource type {code}")


def questions_of(acls: Iterable[Acl]) -> tuple[AclQuestion, ...]:
    """Return the questions whose answers show what the ACLs mean. Empty without an ACL."""
    of_principal: dict[str, list[Acl]] = defaultdict(list)
    for acl in sorted(set(acls)):
        of_principal[acl.principal].append(acl)
    if not of_principal:
        return ()
    common = of_principal.pop(ANYBODY, [])
    found = [_question(STRANGER, [], [*common, *_first(of_principal.values())])]
    found += [_question(principal, own, common) for principal, own in of_principal.items() if ":" in principal]
    return tuple(question for question in found if question.actions)


def _first(of_principals: Iterable[Sequence[Acl]]) -> list[Acl]:
    """Return some ACL of another principal, so that a principal without any is asked too."""
    return [acl for one in of_principals for acl in one[:1]][:1]


def _question(principal: str, own: Sequence[Acl], common: Sequence[Acl]) -> AclQuestion:
    """`common`: ACLs for everybody. They count where they are about a resource of `own`; without `own` all do."""
    names = {place for acl in own or common for place in _places(acl)}
    names |= {
        place for acl in common for place in _places(acl) if any(one.covers(*place) for one in own)
    }  # a pattern of the principal covers a resource that only an ACL for everybody names
    asked = [*own, *common]
    by_type: dict[int, list[Acl]] = defaultdict(list)
    for acl in asked:
        by_type[acl.resource_type].append(acl)
    actions = {
        Action(operation, *place)
        for place in names
        for acl in by_type[place[0]]
        if acl.covers(*place)
        for operation in _operations(acl)
    }
    return AclQuestion(principal, _addresses(dict.fromkeys(acl.host for acl in asked)), tuple(sorted(actions)))


def _places(acl: Acl) -> tuple[tuple[int, str], ...]:
    """Return (resource type, name) of resources that the ACL is about."""
    kind, name = acl.resource_type, acl.resource_name
    if kind == _CLUSTER:
        return ((kind, _CLUSTER_NAME),)
    if acl.pattern_type == _PREFIXED:
        return (kind, name), (kind, f"{name}{_OTHER_NAME}")
    return ((kind, _OTHER_NAME if name == ANY else name),)


def _operations(acl: Acl) -> tuple[int, ...]:
    if acl.operation == _ALL:
        return _SUPPORTED.get(acl.resource_type, ())
    implied = _IMPLIED.get(acl.operation)
    return (acl.operation,) if implied is None else (acl.operation, implied)


def _addresses(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return IP addresses that the hosts name, those at the ends of ranges and beside them, and one of no client."""
    found: dict[str, None] = {}
    ranges: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
    for host in hosts:
        address, slash, _ = host.partition("/")
        try:
            found[str(ipaddress.ip_address(address.strip()))] = None
            if not slash:
                continue
            network = ipaddress.ip_network(host.strip(), strict=False)
        except ValueError:  # no client has such an address
            continue
        ranges.append(network)
        first, last = int(network.network_address), int(network.broadcast_address)
        of = ipaddress.IPv4Address if network.version == 4 else ipaddress.IPv6Address
        for number in (first - 1, first, last, last + 1):
            if 0 <= number < 1 << network.max_prefixlen:
                found[str(of(number))] = None
    elsewhere = (one for one in _ELSEWHERE if not any(ipaddress.ip_address(one) in network for network in ranges))
    if (other := next(elsewhere, None)) is not None:
        found[other] = None
    return tuple(found)


def compare_answers(
    acls: Iterable[Acl], questions: Sequence[AclQuestion], before: AclAnswers, after: AclAnswers
) -> tuple[AccessChange, ...]:
    """Return what the second release decides otherwise, by principal: first what it denies, then what it allows."""
    found = []
    known = sorted(set(acls))
    for question, old, new in zip(questions, before.allowed, after.allowed, strict=True):
        changed: dict[bool, dict[Action, list[str]]] = {False: defaultdict(list), True: defaultdict(list)}
        for address, was, now in zip(question.addresses, old, new, strict=True):
            for action, one, other in zip(question.actions, was, now, strict=True):
                if one is not None and other is not None and one != other:
                    changed[other][action].append(address)
        for more, actions in changed.items():
            if actions:
                principals = (question.principal, ANYBODY)
                causes = [
                    acl
                    for acl in known
                    if acl.principal in principals
                    and any(acl.covers(action.resource_type, action.resource_name) for action in actions)
                ]
                found.append(
                    AccessChange(
                        principal=ANYBODY if question.principal == STRANGER else question.principal,
                        more=more,
                        actions={action: tuple(addresses) for action, addresses in sorted(actions.items())},
                        causes=tuple(causes),
                    )
                )
    return tuple(found)
