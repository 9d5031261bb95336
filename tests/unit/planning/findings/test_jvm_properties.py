from __future__ import annotations

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.planning.findings.jvm_properties import (
    ALLOWED_FILES,
    ALLOWED_MODULES,
    ALLOWED_URLS,
    DISALLOWED_MODULES,
    jvm_findings,
    needs_jvm_arguments,
)
from kafka_rollout.releases.facts import Release

R390, R391, R400, R410, R420, R431, R440 = (
    Release(3, 9, 0), Release(3, 9, 1), Release(4, 0, 0), Release(4, 1, 0), Release(4, 2, 0), Release(4, 3, 1),
    Release(4, 4, 0),
)  # fmt: skip
LISTENER = "listener.name.clients.oauthbearer."
JWKS, TOKEN = f"{LISTENER}sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.token.endpoint.url"
OAUTH = {
    "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512, OAUTHBEARER",
    JWKS: "https://idp/jwks",
    TOKEN: "https://idp/token",
}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LDAP = "com.sun.security.auth.module.LdapLoginModule"
JAAS = {"listener.name.clients.plain.sasl.jaas.config": f'{LDAP} required userProvider="ldap://x";'}


def found(
    config: dict[str, str], release: Release, *arguments: str, unknown: bool = False, observable: bool = True
) -> list[Finding]:
    known = {} if unknown else {3: {release: arguments}}
    return list(jvm_findings({3: {release: config}}, known, observable=observable))


def test_oauth_urls_that_are_not_allowed_stop_a_node_of_4_0_from_starting() -> None:
    (finding,) = found(OAUTH, R400, "java", "-Xmx1g")
    assert (finding.code, finding.severity) == ("JVM-PROPERTY-MISSING", Severity.BLOCKER)
    assert finding.subject == "node 3, release 4.0.0"
    assert finding.sentence.startswith("Node 3 would not start on Kafka 4.0.0: the JVM property ")
    assert JWKS in finding.sentence
    assert f"Add -D{ALLOWED_URLS}=https://idp/jwks,https://idp/token to the arguments" in finding.remedy
    (finding,) = found(OAUTH, R431, f"-D{ALLOWED_URLS}=https://other, https://idp/jwks")
    assert TOKEN in finding.sentence
    assert JWKS not in finding.sentence
    assert f"-D{ALLOWED_URLS}=https://other,https://idp/jwks,https://idp/token" in finding.remedy, "others stay"
    assert found(OAUTH, R431, f"-D{ALLOWED_URLS}=https://idp/token,https://idp/jwks") == []


def test_the_last_of_two_arguments_counts() -> None:
    both = f"-D{ALLOWED_URLS}=https://idp/token,https://idp/jwks"
    assert found(OAUTH, R431, f"-D{ALLOWED_URLS}=", both) == []
    assert len(found(OAUTH, R431, both, f"-D{ALLOWED_URLS}=")) == 1


def test_3_9_1_refuses_only_what_a_set_property_lacks_and_earlier_releases_ignore_it() -> None:
    assert found(OAUTH, R391) == []
    assert len(found(OAUTH, R391, f"-D{ALLOWED_URLS}=https://other")) == 1
    assert found(OAUTH, R390, f"-D{ALLOWED_URLS}=https://other") == []


def test_a_node_without_the_mechanism_does_not_read_the_urls() -> None:
    config = {**OAUTH, "listener.name.clients.sasl.enabled.mechanisms": "PLAIN"}
    assert not needs_jvm_arguments(config)
    assert found(config, R431) == []
    assert not needs_jvm_arguments({"sasl.enabled.mechanisms": "OAUTHBEARER"}), "a handler without URLs"
    assert needs_jvm_arguments(OAUTH)
    assert needs_jvm_arguments({**OAUTH, "listener.name.clients.sasl.enabled.mechanisms": "${vault:a:b}"})


def test_unknown_arguments_are_not_safe() -> None:
    (finding,) = found(OAUTH, R431, unknown=True)
    assert (finding.code, finding.severity) == ("JVM-PROPERTY-MISSING", Severity.BLOCKER)
    assert finding.sentence.startswith("It is unknown whether node 3 would start on Kafka 4.3.1: ")
    assert f"-D{ALLOWED_URLS}=https://idp/jwks,https://idp/token" in finding.remedy
    (hidden,) = found(OAUTH, R431, unknown=True, observable=False)
    assert hidden.severity is Severity.WARNING
    assert found(OAUTH, R391, unknown=True) == [], "it starts without the property"


def test_a_url_of_a_config_provider_is_compared_by_the_operator() -> None:
    config = {**OAUTH, JWKS: "${vault:oauth:jwks}", TOKEN: ""}
    (finding,) = found(config, R431)
    assert finding.severity is Severity.BLOCKER
    assert f"-D{ALLOWED_URLS}=<value of {JWKS}>" in finding.remedy
    (finding,) = found(config, R431, f"-D{ALLOWED_URLS}=https://idp/jwks")
    assert finding.severity is Severity.WARNING
    assert "Compare these values" in finding.remedy


def test_files_of_assertions_must_be_allowed_from_4_1_on() -> None:
    config = {"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER", "sasl.oauthbearer.assertion.file": "/etc/a.jwt"}
    (finding,) = found(config, R410)
    assert f"-D{ALLOWED_FILES}=/etc/a.jwt" in finding.remedy
    assert found(config, R410, f"-D{ALLOWED_FILES}=/etc/a.jwt") == []
    assert found(config, R400) == []


@pytest.mark.parametrize(
    "text",
    [
        f"{PLAIN} required a=1; {LDAP} optional;",
        f'{PLAIN} required\n  password="a;b";\n  {LDAP}\n  requisite;',
        f"/* {PLAIN} required; */ {LDAP} required;",
        f"{PLAIN} required // the first;\n;{LDAP} SUFFICIENT;",
    ],
)
def test_every_login_module_of_a_section_is_read(text: str) -> None:
    (finding,) = found({"a.sasl.jaas.config": text}, R391)
    assert f"it refuses the login modules {LDAP}." in finding.sentence


@pytest.mark.parametrize(
    "text", [f'{PLAIN} required password="; {LDAP} required;";', f"{PLAIN} required; // {LDAP} required;"]
)
def test_a_module_in_a_password_or_a_comment_is_none(text: str) -> None:
    assert found({"a.sasl.jaas.config": text}, R391) == []


def test_the_ldap_login_module_is_refused_by_default_from_3_9_1_on() -> None:
    assert found(JAAS, R390) == []
    (finding,) = found(JAAS, R391)
    assert f"it refuses the login modules {LDAP}." in finding.sentence
    assert f"-D{DISALLOWED_MODULES}=com.sun.security.auth.module.JndiLoginModule to" in finding.remedy
    assert found(JAAS, R391, f"-D{DISALLOWED_MODULES}=com.sun.security.auth.module.JndiLoginModule") == []
    (finding,) = found(JAAS, R431)
    assert f"-D{ALLOWED_MODULES}={LDAP} to" in finding.remedy
    assert found(JAAS, R431, f"-D{ALLOWED_MODULES}={LDAP}") == []
    (finding,) = found(JAAS, R391, f"-D{ALLOWED_MODULES}={LDAP}")
    assert finding.severity is Severity.BLOCKER, "3.9 does not have this property"
    (finding,) = found(JAAS, R431, unknown=True)
    assert finding.severity is Severity.BLOCKER
    scram = {"a.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;"}
    assert found(scram, R431) == found(scram, R431, unknown=True) == []
    (finding,) = found(scram, R420, f"-D{ALLOWED_MODULES}={LDAP}")
    assert f"-D{ALLOWED_MODULES}={LDAP},org.apache.kafka.common.security.scram.ScramLoginModule to" in finding.remedy


def test_a_jwks_url_needs_an_expected_audience_and_issuer_from_4_4_on() -> None:
    allowed = f"-D{ALLOWED_URLS}=https://idp/token,https://idp/jwks"
    claims = found(OAUTH, R440, allowed)
    assert {finding.code for finding in claims} == {"OAUTH-CLAIM-UNVERIFIED"}
    assert [finding.remedy.split(" ")[1] for finding in claims] == [
        "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer",
    ]  # fmt: skip
    scoped = {
        f"{LISTENER}sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    assert found({**OAUTH, **scoped}, R440, allowed) == []
    elsewhere = {"listener.name.other.oauthbearer.sasl.oauthbearer.expected.audience": "kafka"}
    assert len(found({**OAUTH, **elsewhere}, R440, allowed)) == 2
    own = {"sasl.oauthbearer.jwt.validator.class": "com.example.Validator"}
    assert found({**OAUTH, **own}, R440, allowed) == []


def test_handlers_in_the_package_that_4_0_removed_are_named() -> None:
    name = f"{LISTENER}sasl.server.callback.handler.class"
    old = {**OAUTH, name: "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"}
    allowed = f"-D{ALLOWED_URLS}=https://idp/token,https://idp/jwks"
    (finding,) = found(old, R400, allowed)
    assert finding.code == "OAUTH-HANDLER-REMOVED"
    assert name in finding.sentence
    assert found(old, R391) == []


def test_nodes_with_the_same_reason_are_one_finding() -> None:
    configs = {node_id: {R431: OAUTH} for node_id in (1, 2, 3)}
    (finding,) = jvm_findings(configs, {node_id: {R431: ()} for node_id in configs})
    assert finding.subject == "nodes 1, 2, 3, release 4.3.1"
