from __future__ import annotations

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.probes import Probe, ProbeOutcome
from kafka_rollout.planning.findings.authentication import authentication_findings, find_accepted, has_sasl
from kafka_rollout.releases.facts import Release

R402, R411 = Release(4, 0, 2), Release(4, 1, 1)
FORGED = "a token with a forged signature"


def probe(outcome: ProbeOutcome, what: str = FORGED, mechanism: str = "OAUTHBEARER", **more: object) -> Probe:
    return Probe(listener="CLIENTS", mechanism=mechanism, what=what, outcome=outcome, **more)  # type: ignore[arg-type]


def found(ahead: dict[int, tuple[Probe, ...]], now: dict[int, tuple[Probe, ...]] | None = None) -> list[Finding]:
    return list(authentication_findings({R411: ahead}, now or {}))


ACCEPTED, REFUSED = probe(ProbeOutcome.ACCEPTED), probe(ProbeOutcome.REFUSED)


def test_a_forged_token_that_only_the_target_accepts_is_a_blocker_with_the_override() -> None:
    (finding,) = found({1: (ACCEPTED,), 2: (ACCEPTED,)}, {1: (REFUSED,), 2: (REFUSED,)})
    assert (finding.code, finding.severity) == ("OAUTH-TOKENS-UNVERIFIED", Severity.BLOCKER)
    assert finding.subject == "listener CLIENTS of nodes 1, 2, release 4.1.1"
    assert f"accept {FORGED}" in finding.sentence
    assert "release_overrides of 4.1.1" in finding.remedy
    assert "BrokerJwtValidator" in finding.remedy


def test_a_wrong_password_that_is_accepted_is_a_blocker() -> None:
    (finding,) = found({1: (probe(ProbeOutcome.ACCEPTED, "a wrong password", "PLAIN"),)})
    assert (finding.code, finding.severity) == ("WRONG-PASSWORD-ACCEPTED", Severity.BLOCKER)


def test_what_the_running_release_accepts_too_is_a_warning_and_the_rest_a_blocker() -> None:
    unsigned = probe(ProbeOutcome.ACCEPTED, "a token without a signature")
    new, old = found({1: (ACCEPTED, unsigned)}, {1: (REFUSED, unsigned)})
    assert (new.severity, old.severity) == (Severity.BLOCKER, Severity.WARNING)
    assert "as well" in old.sentence


def test_what_was_refused_is_no_finding() -> None:
    assert not found({1: (REFUSED,)})


def test_an_unknown_outcome_is_shown_and_its_reason() -> None:
    (failed,) = found({1: (probe(ProbeOutcome.UNKNOWN, reason="The classes also refused a valid token."),)})
    assert (failed.code, failed.severity) == ("AUTHENTICATION-NOT-PROBED", Severity.WARNING)
    assert "also refused a valid token" in failed.sentence
    (own,) = found({1: (probe(ProbeOutcome.UNKNOWN, reason="a.Class is not a class of Kafka.", is_own=True),)})
    assert own.severity is Severity.INFO


def test_the_running_release_is_asked_only_about_nodes_that_accept_something() -> None:
    assert find_accepted({R402: {1: (REFUSED,)}, R411: {1: (REFUSED,), 2: (ACCEPTED,)}}) == {R411: (2,)}


def test_a_listener_whose_protocol_is_unknown_may_have_sasl() -> None:
    assert not has_sasl({"process.roles": "broker", "listeners": "PLAINTEXT://:9092"})
    assert has_sasl({"process.roles": "broker", "listeners": "SASL_SSL://:9092"})
    assert has_sasl({"process.roles": "broker", "listeners": "${file:/a:b}"})
