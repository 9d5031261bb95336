"""Whether all controllers can start together: what they need to accept each other must not come from the metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.acls import STANDARD_AUTHORIZER, Acl, allowed_as_node
from kafka_rollout.planning.findings.quorum_start import (
    QUORUM_CANNOT_START,
    QUORUM_START_UNKNOWN,
    QuorumStart,
    needs_acls,
    quorum_start_findings,
)
from tests.unit.builders import cluster, quorum, state

SPEC = cluster(controllers=[1, 2, 3], brokers=[4, 5])
L = "listener.name.controller"
PLAIN = f"{L}.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ADMIN = {PLAIN: f'{MODULE} username="admin" password="username=\\"eve\\"" user_admin="x";'}
SASL = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    f"{L}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "PLAIN",
    **ADMIN,
}
SCRAM = {**SASL, "sasl.mechanism.controller.protocol": "SCRAM-SHA-512"}
TLS = {"controller.listener.names": "CONTROLLER", "listener.security.protocol.map": "CONTROLLER:SSL"}
MUTUAL = {**TLS, f"{L}.ssl.client.auth": "required"}
OPEN = {"controller.listener.names": "CONTROLLER"}
RIGHTS = {"authorizer.class.name": STANDARD_AUTHORIZER}
SUPER = {**RIGHTS, "super.users": "User:root; User:admin"}


def find(config: dict[str, str], *, stops_all: bool = True, **other: Any) -> list[Finding]:
    """`n3`: lines of controller 3."""
    files = {node.node_id: {**config, **other.pop(f"n{node.node_id}", {})} for node in SPEC.controllers}
    for node in SPEC.controllers:
        files[node.node_id].setdefault("listeners", "CONTROLLER://:9093")
    start = QuorumStart(cluster=SPEC, state=other.pop("state", state(SPEC)), configs=files, **other)
    return list(quorum_start_findings(start, stops_all=stops_all))


def one(config: dict[str, str], **other: Any) -> Finding:
    (found,) = find(config, **other)
    return found


def test_scram_of_the_controllers_blocks_a_stop_of_all_of_them() -> None:
    found = one(SCRAM)
    assert (found.code, found.severity) == (QUORUM_CANNOT_START.code, Severity.BLOCKER)
    assert found.sentence.startswith("The login of nodes 1, 2, 3 to the other controllers uses SCRAM-SHA-512")
    assert "Add PLAIN" in found.remedy
    assert "listener.name.controller.sasl.enabled.mechanisms" in found.remedy
    # Controllers of two protocols do not reach each other, so no restart one by one leads from one to the other.
    assert "Do not change the protocol" in found.remedy
    assert "does not encrypt" in found.remedy
    tls = {**SCRAM, "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT"}
    assert "does not encrypt" not in one(tls).remedy
    assert one(SCRAM, stops_all=False).severity is Severity.WARNING


@pytest.mark.parametrize(
    "config",
    [
        SASL,
        {**SASL, f"{L}.sasl.mechanism.controller.protocol": "SCRAM-SHA-512"},  # Kafka reads it without a prefix only
        {**SASL, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
        {**OPEN, "sasl.mechanism.controller.protocol": "SCRAM-SHA-512"},
        {**MUTUAL, "sasl.mechanism.controller.protocol": "SCRAM-SHA-512"},
        {**SASL, "sasl.mechanism.controller.protocol": "GSSAPI"},
        {**SASL, **SUPER},
        {**SASL, **SUPER, "early.start.listeners": "controller"},
        {**OPEN, **RIGHTS, "super.users": "User:ANONYMOUS"},
        {**TLS, **RIGHTS, "super.users": "User:ANONYMOUS"},
    ],
)
def test_controllers_that_need_no_metadata_have_no_finding(config: dict[str, str]) -> None:
    assert find(config) == []


def test_a_super_user_without_a_login_is_everyone() -> None:
    assert "all rights" in one({**OPEN, **RIGHTS}).remedy
    assert "all rights" not in one({**SASL, **RIGHTS}).remedy


def test_one_controller_with_scram_is_named() -> None:
    found = one(SASL, n3=SCRAM)
    assert "login of node 3 to" in found.sentence


def test_a_quorum_of_one_voter_elects_itself_and_an_observer_does_not_count() -> None:
    seen = state(SPEC)
    assert seen.quorum is not None
    alone = replace(seen, quorum=replace(seen.quorum, voters=seen.quorum.voters[:1]))
    assert find(SCRAM, state=alone) == []
    two = replace(seen, quorum=replace(seen.quorum, voters=seen.quorum.voters[:2]))
    assert find(SASL, state=two, n3=SCRAM) == []


def test_a_quorum_that_is_unknown_counts_as_all_controllers() -> None:
    assert find(SCRAM, state=replace(state(SPEC), quorum=None))


@pytest.mark.parametrize(
    ("config", "code", "says"),
    [
        ({**SASL, **RIGHTS}, QUORUM_CANNOT_START, "does not have User:admin"),
        (
            {**SASL, **RIGHTS, "allow.everyone.if.no.acl.found": "true"},
            QUORUM_CANNOT_START,
            "does not have User:admin",
        ),
        ({**SASL, **RIGHTS, "super.users": "User:Admin"}, QUORUM_CANNOT_START, "does not have User:admin"),
        ({**OPEN, **RIGHTS, "super.users": "User:admin"}, QUORUM_CANNOT_START, "User:ANONYMOUS"),
        ({**TLS, **SUPER}, QUORUM_CANNOT_START, "User:ANONYMOUS"),
        ({**SASL, **SUPER, "early.start.listeners": ""}, QUORUM_CANNOT_START, "does not have CONTROLLER"),
        ({**SASL, **SUPER, "early.start.listeners": "BROKER"}, QUORUM_CANNOT_START, "opens only when the ACLs"),
        ({**MUTUAL, **SUPER}, QUORUM_START_UNKNOWN, "the ACLs were not read"),
        ({**SASL, **SUPER, PLAIN: ""}, QUORUM_START_UNKNOWN, "principals of the other controllers are unknown"),
        ({**SASL, **SUPER, PLAIN: "${vault:a:b}"}, QUORUM_START_UNKNOWN, "principals of the other controllers"),
        ({**SASL, **SUPER, f"{L}.principal.builder.class": "org.example.B"}, QUORUM_START_UNKNOWN, "are unknown"),
        ({**SASL, "authorizer.class.name": "org.example.A"}, QUORUM_START_UNKNOWN, "org.example.A of nodes 1, 2, 3"),
        ({**SASL, **SUPER, "super.users": "${vault:a:b}"}, QUORUM_START_UNKNOWN, "Config providers have super.users"),
        (
            {**SCRAM, "sasl.mechanism.controller.protocol": "${vault:a:b}"},
            QUORUM_START_UNKNOWN,
            "Config providers have sasl.mechanism.controller.protocol",
        ),
        (
            {**SCRAM, f"{L}.scram-sha-512.sasl.server.callback.handler.class": "org.example.H"},
            QUORUM_START_UNKNOWN,
            "classes of others (org.example.H)",
        ),
        (
            {
                **SASL,
                "sasl.mechanism.controller.protocol": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://kafka1:8090/token",
                f"{L}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://kafka1:8090/jwks",
            },
            QUORUM_START_UNKNOWN,
            "https://kafka1:8090/jwks, https://kafka1:8090/token",
        ),
    ],
)
def test_what_controllers_need_of_the_metadata_blocks_and_what_is_unknown_is_a_doubt(
    config: dict[str, str], code: Any, says: str
) -> None:
    found = one(config)
    assert (found.code, says in found.sentence) == (code.code, True), found.sentence
    assert found.remedy
    assert found.severity is (Severity.BLOCKER if code is QUORUM_CANNOT_START else Severity.WARNING)
    later = one(config, stops_all=False)
    assert later.severity is (Severity.WARNING if code is QUORUM_CANNOT_START else Severity.INFO)


def test_a_listener_whose_protocol_is_hidden_is_a_doubt_with_scram() -> None:
    found = find({**SCRAM, "listener.security.protocol.map": "${vault:a:b}"})
    assert {finding.code for finding in found} == {QUORUM_START_UNKNOWN.code}
    assert any("SCRAM-SHA-512" in finding.sentence for finding in found)


def acl(principal: str, **other: Any) -> Acl:
    made = {"resource_type": 4, "resource_name": "kafka-cluster", "pattern_type": 3, "host": "*", "operation": 9}
    return Acl(**{**made, "principal": principal, "permission": 3, **other})


@pytest.mark.parametrize(
    ("acls", "is_doubtful"),
    [
        ([], False),
        ([acl("User:admin")], False),
        ([acl("User:alice", operation=8), acl("User:alice", resource_type=2), acl("User:alice", permission=2)], False),
        ([acl("User:CN=controller")], True),
        ([acl("User:CN=controller", operation=2, resource_name="*")], True),
        ([acl("User:*")], True),
    ],
)
def test_without_an_acl_that_allows_it_the_principals_of_the_running_quorum_are_super_users(
    acls: list[Acl], *, is_doubtful: bool
) -> None:
    """Those of certificates: they depend on ssl.principal.mapping.rules."""
    found = find({**MUTUAL, **SUPER}, granted=allowed_as_node(acls))
    assert bool(found) is is_doubtful
    assert all("ACLs give" in finding.sentence for finding in found)


def test_a_default_that_allows_everyone_proves_no_super_user() -> None:
    found = one({**MUTUAL, **SUPER, "allow.everyone.if.no.acl.found": "true"}, granted=frozenset())
    assert "allow.everyone.if.no.acl.found gives them" in found.sentence


def test_the_acls_are_read_only_where_they_decide() -> None:
    def needs(config: dict[str, str]) -> bool:
        return needs_acls(QuorumStart(cluster=SPEC, state=state(SPEC), configs=dict.fromkeys((1, 2, 3), config)))

    assert needs({**MUTUAL, **SUPER, "listeners": "CONTROLLER://:9093"})
    assert not needs({**SASL, **SUPER, "listeners": "CONTROLLER://:9093"})
    assert not needs({**SASL, "listeners": "CONTROLLER://:9093"})


def test_a_controller_whose_file_is_unknown_is_a_doubt_where_all_stop() -> None:
    start = QuorumStart(cluster=SPEC, state=state(SPEC), configs={1: SASL, 2: SASL, 4: SCRAM})
    (found,) = quorum_start_findings(start, stops_all=True)
    assert (found.code, "node 3" in found.sentence) == (QUORUM_START_UNKNOWN.code, True)
    assert list(quorum_start_findings(start, stops_all=False)) == [], "Need.CONFIGS reports it"


def test_a_value_in_the_metadata_that_is_not_that_of_the_file_is_a_doubt() -> None:
    found = one(SASL, dynamic={2: (f"{L}.ssl.keystore.location",)})
    assert (found.code, "in the file of node 2. " in found.sentence) == (QUORUM_START_UNKNOWN.code, True)


def test_a_voter_that_the_inventory_lacks_is_a_doubt() -> None:
    seen = replace(state(SPEC), quorum=quorum([1, 2, 3, 9], 1))
    assert "node 9" in one(SASL, state=seen).sentence
