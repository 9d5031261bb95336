from __future__ import annotations

from functools import cache

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.planning.findings.new_settings import (
    find_new_settings,
    names_to_explain,
    new_setting_findings,
    uses,
)
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Catalogue, Release
from tests.paths import INCLUDE
from tests.unit.builders import SEPARATE

BROKERS = [4, 5, 6]
ALL = [node.node_id for node in SEPARATE.nodes]
OAUTH = {
    "process.roles": "broker",
    "listeners": "CLIENTS://:9092",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER",
}
PLAIN = {**OAUTH, "listener.name.clients.sasl.enabled.mechanisms": "PLAIN"}
VALIDATOR = "sasl.oauthbearer.jwt.validator.class"


@cache
def released() -> Catalogue:
    return load_catalogue(INCLUDE)


def new(source: str, target: str, config: dict[str, str], **finalized: int) -> dict[str, list[int]]:
    levels = {"metadata.version": 20, **{name.replace("_", "."): level for name, level in finalized.items()}}
    path = (Release.parse(source), Release.parse(target))
    found = find_new_settings(SEPARATE, released(), path, dict.fromkeys(ALL, config), levels)
    return {name: list(ids) for name, ids in found.items()}


def findings(source: str, target: str, config: dict[str, str]) -> dict[str, Finding]:
    old, release = Release.parse(source), Release.parse(target)
    found = new(source, target, config)
    said = {VALIDATOR: "<p>The fully-qualified class name of the <code>JwtValidator</code>.</p> More."}
    return {one.subject: one for one in new_setting_findings(released(), old, release, found, said)}


def test_a_setting_that_chooses_the_validator_of_tokens_is_found_without_a_table_of_settings() -> None:
    assert new("4.0.2", "4.1.1", OAUTH)[VALIDATOR] == ALL
    found = findings("4.0.2", "4.1.1", OAUTH)[f"configuration {VALIDATOR}"]
    assert (found.code, found.severity) == ("CONFIG-NEW-SETTING", Severity.WARNING)
    assert "oauthbearer.DefaultJwtValidator" in found.sentence
    assert "Kafka's documentation: The fully-qualified class name of the JwtValidator." in found.sentence
    assert "release_overrides of 4.1.1" in found.remedy


def test_an_area_that_no_node_uses_is_left_out() -> None:
    assert not any(name.startswith("sasl.oauthbearer") for name in new("4.0.2", "4.1.1", PLAIN))
    assert not any(name.startswith(("group.share.", "group.streams.")) for name in new("4.0.2", "4.3.1", {}))
    assert "remote.log.manager.follower.thread.pool.size" not in new("4.1.2", "4.2.2", {})


def test_a_used_area_is_shown() -> None:
    assert "group.share.max.share.sessions" in new("4.0.2", "4.1.1", {}, share_version=1)
    tiered = {"remote.log.storage.system.enable": "true"}
    assert new("4.1.2", "4.2.2", tiered)["remote.log.manager.follower.thread.pool.size"] == BROKERS
    assert new("4.3.1", "4.4.0", OAUTH)["sasl.oauthbearer.allow.unverified.issuer"] == ALL


def test_what_is_unknown_counts_as_used() -> None:
    hidden = {**PLAIN, "listener.name.clients.sasl.enabled.mechanisms": "${file:/a:b}"}
    assert VALIDATOR in new("4.0.2", "4.1.1", hidden)
    assert uses({"remote.log.storage.system.enable": "${file:/a:b}"}, {}, "remote.fetch.max.wait.ms")
    assert uses({}, {}, "group.share.max.size")  # no level is known


def test_a_setting_of_the_file_is_not_new() -> None:
    assert VALIDATOR not in new("4.0.2", "4.1.1", {**OAUTH, f"listener.name.clients.{VALIDATOR}": "a.Class"})


def test_all_other_settings_are_one_finding() -> None:
    found = findings("4.2.1", "4.2.2", {})
    (only,) = found.values()
    assert (only.subject, only.severity) == ("configuration, other new settings", Severity.INFO)
    assert "max.decompressed.message.bytes 2147483639 (nodes 1, 2, 3, 4, 5, 6)" in only.sentence


def test_a_downgrade_shows_settings_that_come_back() -> None:
    assert "max.decompressed.message.bytes" in new("4.3.1", "4.2.2", {})


def test_only_what_a_finding_explains_is_read_from_the_jar() -> None:
    found = new("4.0.2", "4.1.1", OAUTH)
    names = names_to_explain(released(), Release(4, 1, 1), found)
    assert VALIDATOR in names
    assert "transaction.two.phase.commit.enable" in found.keys() - set(names)
