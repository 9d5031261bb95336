"""Whether the controllers can elect a leader after all of them have stopped.

A controller publishes the metadata that it reads only when it knows the high watermark (MetadataLoader), which needs a
leader. So SCRAM credentials, delegation tokens, ACLs and dynamic values are not there while the first leader is
elected. One by one such controllers restart without an error, because the others have read theirs before: Kafka accepts
these settings (KAFKA-15513), and the cluster loses its quorum when all controllers stop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.formats.jaas import parse_jaas
from kafka_rollout.model.access_settings import EARLY_START
from kafka_rollout.model.acls import AUTHORIZER, AUTHORIZER_SETTINGS, STANDARD_AUTHORIZER
from kafka_rollout.model.configs import NodeConfigs, is_reference
from kafka_rollout.model.listeners import Listener, find_listeners
from kafka_rollout.model.quorum_addresses import CONTROLLER_LISTENERS, controller_listener_names
from kafka_rollout.model.starts import is_plugin
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec

_ONE_BY_ONE = "then restart the controllers one by one (kafka-rollout restart)."
QUORUM_CANNOT_START = FindingCode(
    "QUORUM-CANNOT-START",
    (BLOCKER, WARNING),
    "When all controllers have stopped, they cannot start together again: they need metadata to accept each other, and "
    "read it only with a leader. A blocker of a run that stops all controllers.",
)
QUORUM_START_UNKNOWN = FindingCode(
    "QUORUM-START-UNKNOWN",
    (WARNING, INFO),
    "It is unknown whether the controllers can elect a leader after all of them have stopped. A warning in a run that "
    "stops all controllers.",
)
QUORUM_START_CHECK = Check(
    "quorum-start",
    "Start of all controllers without a leader",
    "live-downgrade.md#when-it-is-possible",
    (QUORUM_CANNOT_START, QUORUM_START_UNKNOWN),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART),
    needs=(Need.QUORUM, Need.CONFIGS),
    examines=Examined.VOTERS,
)
ONE_VOTER = "The quorum has one voter, which elects itself."
MECHANISM = "sasl.mechanism.controller.protocol"
_SUPER_USERS, _ALLOW_EVERYONE = AUTHORIZER_SETTINGS
_ROUTE = (CONTROLLER_LISTENERS, "listener.security.protocol.map", MECHANISM)
_RIGHTS = (AUTHORIZER, _SUPER_USERS, _ALLOW_EVERYONE, EARLY_START)
_CLASSES = ("sasl.server.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class")
_OAUTH_SERVERS = ("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.jwks.endpoint.url")
_BUILDER, _KAFKAS_BUILDER = (
    "principal.builder.class",
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
)
_ANONYMOUS = "User:ANONYMOUS"
_FOR_ALL = (
    " Every client that connects to a controller without a login then has all rights: close its ports to clients."
)
_IN_CLEAR = " PLAIN sends the password, which SASL_PLAINTEXT does not encrypt."
_UNTIL_THEN = "A controller reads them only when the quorum has a leader, so after a stop of all controllers"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStart:
    """What the controllers read at a start."""

    cluster: ClusterSpec
    state: ClusterState
    """Of the running cluster."""
    configs: NodeConfigs
    """Of each node, at this start."""
    granted: frozenset[str] | None = None
    """Principals that an ACL lets act as a node; None: unknown, because of `not_granted`."""
    not_granted: str = ""
    dynamic: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Controller → its settings whose values in the metadata are not those of its file."""

    @property
    def voters(self) -> tuple[int, ...]:
        """The voters of the quorum; without a quorum that can be read, all controllers."""
        quorum = self.state.quorum
        found = quorum.voter_ids if quorum and quorum.voters else {node.node_id for node in self.cluster.controllers}
        return tuple(sorted(found))

    @property
    def files(self) -> Mapping[int, Mapping[str, str]]:
        """The configurations of the voters that are known."""
        return {voter: self.configs[voter] for voter in self.voters if voter in self.configs}


class _Reason(NamedTuple):
    """Why the start fails, or why that is unknown. `{nodes}` in the sentence stands for the controllers."""

    is_sure: bool
    subject: str
    sentence: str
    remedy: str


def needs_acls(found: QuorumStart) -> bool:
    """Return whether only the ACLs can show that the controllers are super users."""
    return any(_rights(found, None))


def quorum_start_findings(found: QuorumStart, *, stops_all: bool) -> Iterator[Finding]:
    """Yield the findings for one start of all controllers. `stops_all`: the run stops all of them."""
    if len(found.voters) < 2:
        return
    by_reason: defaultdict[_Reason, list[int]] = defaultdict(list)
    for voter, reason in _reasons(found, stops_all=stops_all):
        by_reason[reason].append(voter)
    for reason, voters in by_reason.items():
        code = QUORUM_CANNOT_START if reason.is_sure else QUORUM_START_UNKNOWN
        severity = code.severities[0 if stops_all else 1]
        sentence = reason.sentence.replace("{nodes}", nodes(voters))
        covers = [f"node {voter}: {reason.sentence}" for voter in voters]
        yield code.found(reason.subject, sentence, reason.remedy, severity=severity, covers=covers)


def _reasons(found: QuorumStart, *, stops_all: bool) -> Iterator[tuple[int, _Reason]]:
    for voter in found.voters:
        if voter in found.configs:
            yield from ((voter, reason) for reason in _login(found.configs[voter], found.files))
        elif stops_all:  # else Need.CONFIGS says it
            yield (
                voter,
                _Reason(
                    False,
                    "configuration files",
                    "The configuration of {nodes} is unknown, so it was not checked whether the controllers can start "
                    "without a leader.",
                    "Let this tool read the file of each controller, or approve the plan only if none of them needs "
                    "SCRAM or ACLs to reach the others.",
                ),
            )
    yield from _early(found)
    yield from _rights(found, found.granted)
    for voter, names in found.dynamic.items():
        yield (
            voter,
            _Reason(
                False,
                f"dynamic values: {few(names, limit=12)}",
                f"The metadata overrides {few(names)} in the file of {{nodes}}. {_UNTIL_THEN} the file counts.",
                "Write the value into the file of the controller, and restart this controller alone (kafka-rollout "
                "restart) to see that it serves.",
            ),
        )


def _listener(config: Mapping[str, str]) -> Listener | None:
    """Return the listener at which a controller reaches the others; None if it is unknown."""
    names = controller_listener_names(config)
    return next((one for one in find_listeners(config).all if names and one.name == names[0]), None)


def _mechanism(config: Mapping[str, str]) -> str:
    """It has no prefix of a listener (KafkaRaftManager.buildNetworkClient)."""
    return config.get(MECHANISM, "GSSAPI").strip().upper()


def _login(config: Mapping[str, str], files: Mapping[int, Mapping[str, str]]) -> Iterator[_Reason]:
    """Yield why a controller with this file cannot log in to the others. `files`: of all controllers."""
    if hidden := [name for name in _ROUTE if is_reference(config.get(name, ""))]:
        yield _hidden(hidden)
    listener, mechanism = _listener(config), _mechanism(config)
    if listener is None or MECHANISM in hidden or (listener.protocol and not listener.uses_sasl):
        return  # without controller.listener.names no release starts
    others = [one for file in files.values() if (one := _listener(file)) is not None and one.name == listener.name]
    classes = {one.settings.get(f"{mechanism.lower()}.{_CLASSES[0]}", "").strip() for one in others}
    classes |= {listener.settings.get(f"{mechanism.lower()}.{name}", "").strip() for name in _CLASSES[1:]}
    plugins = sorted(name for name in classes if is_plugin(name))
    if plugins:
        yield _unclear(
            f"{MECHANISM}={mechanism}",
            f"The login of {{nodes}} to the other controllers uses {mechanism} and classes of others ({few(plugins)})",
        )
    elif mechanism.startswith("SCRAM-"):
        yield _Reason(
            bool(listener.protocol),
            MECHANISM,
            f"The login of {{nodes}} to the other controllers uses {mechanism}, whose credentials and delegation "
            f"tokens are in the metadata. {_UNTIL_THEN} each refuses the votes of the others, and none is elected.",
            f"Add PLAIN to {listener.prefix}sasl.enabled.mechanisms of the controllers, and "
            f"{listener.prefix}plain.sasl.jaas.config to all nodes (on the controllers with user_NAME options). "
            f"Restart the controllers one by one (kafka-rollout restart). Then set {MECHANISM}=PLAIN on all nodes, and "
            "restart them one by one. Do not change the protocol of the listener instead: a restarted controller could "
            f"not reach the others.{_IN_CLEAR if listener.protocol == 'SASL_PLAINTEXT' else ''}",
        )
    elif mechanism == "OAUTHBEARER":
        urls = sorted({listener.setting(mechanism, name) for name in _OAUTH_SERVERS} - {""})
        if servers := [url for url in urls if not url.startswith("file:")]:
            yield _Reason(
                False,
                f"{MECHANISM}={mechanism}",
                f"The login of {{nodes}} to the other controllers uses tokens of {few(servers)}. If one of these "
                "servers works only while this cluster does, no leader is elected after a stop of all controllers.",
                "Approve the plan only if these servers work without this cluster.",
            )


def _early(found: QuorumStart) -> Iterator[tuple[int, _Reason]]:
    """A listener with an authorizer waits for the ACLs, except early.start.listeners, by default the controllers'."""
    for voter, config in found.files.items():
        names, early = controller_listener_names(config), config.get(EARLY_START)
        if not config.get(AUTHORIZER, "").strip() or early is None or is_reference(early) or not names:
            continue
        if names[0] not in {name.strip().upper() for name in early.split(",")}:
            yield (
                voter,
                _Reason(
                    config[AUTHORIZER].strip() == STANDARD_AUTHORIZER,
                    EARLY_START,
                    f"{EARLY_START} of {{nodes}} does not have {names[0]}, so this listener opens only when the ACLs "
                    f"are loaded. {_UNTIL_THEN} no controller receives a vote, and none is elected.",
                    f"Add {names[0]} to {EARLY_START} of all controllers, {_ONE_BY_ONE}",
                ),
            )


def _rights(found: QuorumStart, granted: frozenset[str] | None) -> Iterator[tuple[int, _Reason]]:
    """Yield why a controller refuses the votes of the others: before it has loaded ACLs, StandardAuthorizer allows only
    super users, also with allow.everyone.if.no.acl.found."""
    for voter, config in found.files.items():
        authorizer = config.get(AUTHORIZER, "").strip()
        if not authorizer:
            continue
        if hidden := [name for name in _RIGHTS if is_reference(config.get(name, ""))]:
            yield voter, _hidden(hidden)
            continue
        if authorizer != STANDARD_AUTHORIZER:
            yield voter, _unclear(AUTHORIZER, f"{authorizer} of {{nodes}} decides about the votes of controllers")
            continue
        named = config.get(_SUPER_USERS, "").split(";")
        supers = {name.strip() for name in named if name.strip()}
        principals = {_principal(file, config) for other, file in found.files.items() if other != voter}
        for principal in sorted(name for name in principals if name is not None and name not in supers):
            yield (
                voter,
                _Reason(
                    True,
                    f"{_SUPER_USERS}: {principal}",
                    f"{_SUPER_USERS} of {{nodes}} does not have {principal}, as which other controllers log in. Its "
                    f"rights are in the metadata. {_UNTIL_THEN} its votes are refused, and no leader is elected.",
                    f"Add {principal} to {_SUPER_USERS} of all controllers, {_ONE_BY_ONE}"
                    f"{_FOR_ALL if principal == _ANONYMOUS else ''}",
                ),
            )
        if None in principals and (why := _why_not_super(config, supers, granted, found.not_granted)):
            yield (
                voter,
                _Reason(
                    False,
                    f"{_SUPER_USERS} of controllers",
                    f"After a stop of all controllers, votes count for {{nodes}} only if they are of "
                    f"{_SUPER_USERS} ({few(sorted(supers)) or 'none'}). The principals of the other controllers are "
                    f"unknown: {why}",
                    f"Compare {_SUPER_USERS} with the principals in kafka-authorizer.log of the controllers (requests "
                    f"VOTE and FETCH). If one is missing, add it to the files of all controllers, {_ONE_BY_ONE}",
                ),
            )


def _why_not_super(
    config: Mapping[str, str], supers: set[str], granted: frozenset[str] | None, not_granted: str
) -> str:
    """Return why controllers that this one serves need not be super users; empty if nothing else gives them the right.

    Without an ACL and a default that allow it, only super users can be the followers that the quorum has now.
    """
    if config.get(_ALLOW_EVERYONE, "").strip().lower() == "true":
        return f"{_ALLOW_EVERYONE} gives them their rights now."
    if granted is None:
        return not_granted or "the ACLs were not read."
    others = sorted(granted - supers)
    return f"ACLs give {few(others)} the right of a node now." if others else ""


def _principal(sender: Mapping[str, str], receiver: Mapping[str, str]) -> str | None:
    """Return the principal of a controller at another one, as DefaultKafkaPrincipalBuilder makes it; None if unknown.

    That of a certificate depends on its content and on ssl.principal.mapping.rules.
    """
    listener = _listener(sender)
    at = next((one for one in find_listeners(receiver).served if listener and one.name == listener.name), None)
    if listener is None or at is None or at.settings.get(_BUILDER, _KAFKAS_BUILDER).strip() != _KAFKAS_BUILDER:
        return None
    if listener.protocol == "PLAINTEXT":
        return _ANONYMOUS
    if listener.protocol == "SSL":
        return _ANONYMOUS if at.settings.get("ssl.client.auth", "none").strip().lower() == "none" else None
    mechanism = _mechanism(sender)
    if not listener.uses_sasl or mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        return None
    line = listener.settings.get(f"{mechanism.lower()}.sasl.jaas.config", "")
    try:
        module, options = parse_jaas(line)
    except ValueError:
        return None
    is_known = not is_plugin(module) and not is_reference(line) and options.get("tokenauth") != "true"
    return f"User:{options['username']}" if is_known and "username" in options else None


def _hidden(names: Iterable[str]) -> _Reason:
    return _unclear(few(names, limit=12), f"Config providers have {few(names)} of {{nodes}}")


def _unclear(subject: str, why: str) -> _Reason:
    return _Reason(
        False,
        subject,
        f"{why}, so it was not checked whether the controllers can elect a leader after all of them have stopped.",
        "Approve the plan only if the controllers need neither SCRAM credentials nor ACLs nor another part of this "
        "cluster to accept each other.",
    )
