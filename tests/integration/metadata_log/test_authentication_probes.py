"""Wrong credentials, given to the SASL servers of real releases."""

from __future__ import annotations

import pytest

from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.model.probes import Probe, ProbeOutcome
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache

pytestmark = pytest.mark.jvm

R391, R402, R411, R412, R440 = (Release.parse(text) for text in ("3.9.1", "4.0.2", "4.1.1", "4.1.2", "4.4.0"))
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_VALIDATOR = "sasl.oauthbearer.jwt.validator.class"
_HANDLER = "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class"
NODE = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.quorum.voters": "2@localhost:9093",
    "controller.listener.names": "CTL",
    "listeners": "TOKENS://localhost:9092,USERS://localhost:9094",
    "inter.broker.listener.name": "USERS",
    "listener.security.protocol.map": "TOKENS:SASL_PLAINTEXT,USERS:SASL_PLAINTEXT,CTL:PLAINTEXT",
    "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.users.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,GSSAPI",
    _HANDLER: f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
}


Outcomes = dict[tuple[str, str], Probe]
"""Mechanism and wrong credential → the probe."""


def ask(cache: ReleaseCache, release: Release, *configs: dict[str, str]) -> list[Outcomes]:
    found = JvmKafkaClasses(cache).authentication_probes(release, dict(enumerate(configs)))
    return [{(probe.mechanism, probe.what): probe for probe in probes} for probes in found.values()]


def accepted(probes: Outcomes) -> set[str]:
    return {what for (_, what), probe in probes.items() if probe.outcome is ProbeOutcome.ACCEPTED}


@pytest.mark.parametrize("release", [R402, *(pytest.param(one, marks=pytest.mark.full) for one in (R391, R412, R440))])
def test_wrong_credentials_are_refused_where_the_classes_are_those_of_kafka(
    release_cache: ReleaseCache, release: Release
) -> None:
    without = {name: value for name, value in NODE.items() if name != _HANDLER}
    probes, own, unsecured = ask(release_cache, release, NODE, {**NODE, _HANDLER: "com.example.Handler"}, without)
    assert not accepted(probes)
    outcomes = {key: probe.outcome for key, probe in probes.items() if key[0] != "GSSAPI"}
    assert set(outcomes.values()) == {ProbeOutcome.REFUSED}
    assert ("PLAIN", "a wrong password") in outcomes
    assert ("SCRAM-SHA-512", "a wrong password") in outcomes
    assert ("OAUTHBEARER", "a token with a forged signature") in outcomes
    assert ("OAUTHBEARER", "a token of another issuer") in outcomes
    (kerberos,) = (probe for key, probe in probes.items() if key[0] == "GSSAPI")
    (token,) = (probe for key, probe in own.items() if key[0] == "OAUTHBEARER")
    for unknown in (kerberos, token):
        assert (unknown.outcome, unknown.is_own) == (ProbeOutcome.UNKNOWN, True)
    assert "com.example.Handler" in token.reason
    # Kafka's default handler is for development: it takes tokens without a signature, and only these.
    assert accepted(unsecured) == {"a token without a signature"}


def test_forged_tokens_are_accepted_by_4_1_1_unless_the_validator_is_set(release_cache: ReleaseCache) -> None:
    """CVE-2026-33557."""
    by_default, verified = ask(release_cache, R411, NODE, {**NODE, _VALIDATOR: f"{_OAUTH}.BrokerJwtValidator"})
    assert "a token with a forged signature" in accepted(by_default)
    assert not accepted(verified)


def test_the_documentation_of_a_setting_is_that_of_the_release(release_cache: ReleaseCache) -> None:
    said = JvmKafkaClasses(release_cache).setting_documentation(R411, [_VALIDATOR, "no.such.setting"])
    assert said.keys() == {_VALIDATOR}
    assert "JwtValidator" in said[_VALIDATOR]
