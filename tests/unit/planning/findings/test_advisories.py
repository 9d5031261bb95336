from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.findings import Finding, Need, Severity
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.state import ClientSoftware, ClusterState, GroupState, NodeMetrics, TransactionState
from kafka_rollout.planning.findings.advisories import (
    AdvisoryFacts,
    Applicability,
    advisory_findings,
    age_findings,
    judge_advisories,
    review_findings,
    review_note,
)
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release, ReviewSource
from tests.paths import INCLUDE
from tests.unit.builders import SEPARATE, all_read, state

OAUTH = {
    "process.roles": "broker",
    "listeners": "CLIENTS://:9092",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL",
    "listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER",
}
KAFKAS = "org.apache.kafka.common.security.oauthbearer"
HANDLER = "listener.name.clients.oauthbearer.sasl.server.callback.handler.class"
ALL = [node.node_id for node in SEPARATE.nodes]


@cache
def released() -> Catalogue:
    return load_catalogue(INCLUDE)


def path_of(*texts: str) -> list[Release]:
    return [Release.parse(text) for text in texts]


def facts(
    path: list[Release],
    *,
    level: int = 30,
    elr: int = 0,
    levels: Mapping[str, int] | None = None,
    config: Mapping[str, str] | None = None,
    seen: ClusterState | None = None,
    unknown: Mapping[Need, str] | None = None,
    dynamic: DynamicConfigs | None = None,
) -> AdvisoryFacts:
    configs = {} if config is None else {release: dict.fromkeys(ALL, config) for release in path}
    return AdvisoryFacts(
        cluster=SEPARATE,
        finalized={METADATA_VERSION: level, "eligible.leader.replicas.version": elr, **(levels or {})},
        state=state(SEPARATE) if seen is None else seen,
        configs=configs,
        java=dict.fromkeys(ALL, 17),
        unknown=unknown or {},
        dynamic=dynamic,
    )


def answers(*path: str, **known: Any) -> dict[str, Applicability]:
    releases = path_of(*path)
    judged = judge_advisories(released(), releases, facts(releases, **known))
    return {one.advisory.id: one.answered.answer for one in judged}


def findings(*path: str, observable: bool = True, **known: Any) -> dict[str, Finding]:
    releases = path_of(*path)
    judged = judge_advisories(released(), releases, facts(releases, **known))
    found = advisory_findings(judged, observable=observable)
    return {finding.subject.rpartition(", ")[2]: finding for finding in found}


def test_a_defect_of_the_source_of_a_release_on_the_way_and_of_the_target_is_shown_with_its_source() -> None:
    seen = replace(
        state(SEPARATE),
        groups=(GroupState(group_id="g", type="consumer", state="Stable"),),
        transactions=(TransactionState(transactional_id="t", state="Empty", producer_id=1),),
    )
    found = findings("3.5.1", "4.1.0", "4.2.0", config={}, seen=seen)
    assert found["KAFKA-15353"].subject == "Kafka 3.5.1, KAFKA-15353"
    assert found["KAFKA-19862"].subject == "Kafka 4.1.0, KAFKA-19862"
    target = found["KAFKA-20322"]
    assert (target.code, target.severity) == ("RELEASE-ADVISORY", Severity.WARNING)
    assert target.sentence.startswith("Known defect, which applies here.")
    assert target.sentence.endswith("Source: upgrade notes of 4.2.1.")
    assert target.remedy == "Use 4.2.1 or later."


def test_a_corrected_release_does_not_have_the_defect() -> None:
    assert "KAFKA-20322" not in answers("4.2.1", "4.3.1", config={})
    assert "KAFKA-15353" not in answers("3.5.2", "3.9.1", config={})


def test_a_defect_whose_condition_the_cluster_does_not_meet_is_no_finding() -> None:
    assert answers("4.1.2", "4.2.0", config={})["KAFKA-20322"] is Applicability.NO
    assert "KAFKA-20322" not in findings("4.1.2", "4.2.0", config={})


def test_what_was_not_observed_is_unknown_and_not_absent() -> None:
    unseen = findings("4.1.2", "4.2.0", config={}, unknown={Need.GROUPS: "no rights"})["KAFKA-20322"]
    assert (unseen.code, unseen.severity) == ("ADVISORY-UNKNOWN", Severity.WARNING)
    assert "unknown whether it applies here" in unseen.sentence
    assert "transactional ids" in unseen.sentence
    assert answers("4.0.2", "4.1.1")["CVE-2026-33557"] is Applicability.UNKNOWN  # no configuration was read
    assert (
        answers("4.0.2", "4.1.1", config={**OAUTH, "listeners": "${file:/a:b}"})["CVE-2026-33557"]
        is Applicability.UNKNOWN
    )


def test_a_defect_of_low_levels_needs_the_level_and_the_setting() -> None:
    several = {"log.dirs": "/a, /b"}
    assert answers("3.9.1", "4.3.1", level=16, config=several)["KAFKA-16606"] is Applicability.YES
    assert answers("3.9.1", "4.3.1", level=17, config=several)["KAFKA-16606"] is Applicability.NO
    assert answers("3.9.1", "4.3.1", level=16, config={"log.dirs": "/a"})["KAFKA-16606"] is Applicability.NO
    (remedy,) = [one.remedy for one in released().advisories if one.id == "KAFKA-16606"]
    assert "as soon as all brokers run 3.7.0 or later" in remedy, "no earlier release has the level"


def test_only_the_nodes_that_meet_all_conditions_are_named() -> None:
    path = path_of("3.9.1", "4.3.1")
    one = replace(
        facts(path, level=16), configs={r: {**{node_id: {} for node_id in ALL}, 4: {"log.dirs": "/a,/b"}} for r in path}
    )
    judged = {found.advisory.id: found for found in judge_advisories(released(), path, one)}
    assert judged["KAFKA-16606"].answered.nodes == (4,)


def test_a_defect_of_clients_applies_if_such_a_client_is_connected() -> None:
    unknown = findings("3.9.1", "4.1.0", config={})["KAFKA-19012"]
    assert (unknown.code, unknown.severity) == ("ADVISORY-UNKNOWN", Severity.INFO)
    seen = state(SEPARATE)
    clients = (
        ClientSoftware(name="apache-kafka-java", version="3.6.1", connections=4),
        ClientSoftware(name="librdkafka", version="2.3.0", connections=1),
    )
    node = replace(seen.nodes[4], metrics=NodeMetrics(clients=clients))
    seen = replace(seen, nodes={**seen.nodes, 4: node})
    found = findings("4.3.0", "4.3.1", config={}, seen=seen)["KAFKA-19012"]
    assert (found.code, found.severity) == ("RELEASE-ADVISORY", Severity.WARNING)
    assert "4 connections of Java clients 3.6.1" in found.sentence


def test_the_source_alone_is_a_reason_to_leave_it_unless_the_defect_strikes_during_the_roll() -> None:
    config = {"log.dirs": "/a"}
    assert findings("3.5.0", "3.9.2", config=config)["CVE-2023-34455"].severity is Severity.INFO
    assert findings("3.5.0", "3.9.2", config=config)["KAFKA-15353"].severity is Severity.WARNING


def test_forged_tokens_block_a_plan_onto_an_affected_release_and_not_a_plan_away_from_it() -> None:
    safe = "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator"
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    config = {**OAUTH, "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": handler}
    key = "sasl.oauthbearer.jwt.validator.class"
    for path in (("4.0.2", "4.1.1"), ("4.0.2", "4.1.0", "4.3.1"), ("4.3.1", "4.1.1")):
        found = findings(*path, config=config)["CVE-2026-33557"]
        assert found.severity is Severity.BLOCKER, path
        assert "release_overrides" in found.remedy
    assert findings("4.1.1", "4.1.2", config=config)["CVE-2026-33557"].severity is Severity.INFO
    assert answers("4.0.2", "4.1.1", config={**config, key: safe})["CVE-2026-33557"] is Applicability.NO
    assert (
        answers("4.0.2", "4.1.1", config={**config, f"listener.name.clients.{key}": safe})["CVE-2026-33557"]
        is Applicability.NO
    )
    plain = {**config, "listener.name.clients.sasl.enabled.mechanisms": "PLAIN"}
    assert answers("4.0.2", "4.1.1", config=plain)["CVE-2026-33557"] is Applicability.NO
    assert "CVE-2026-33557" not in answers("4.0.2", "4.1.2", config=config)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"sasl.oauthbearer.jwt.validator.class": f"{KAFKAS}.DefaultJwtValidator"}, Applicability.YES),
        ({"sasl.oauthbearer.jwt.validator.class": f"{KAFKAS}.ClientJwtValidator"}, Applicability.YES),
        ({"sasl.oauthbearer.jwt.validator.class": "com.example.Validator"}, Applicability.UNKNOWN),
        ({HANDLER: "com.example.OAuthBearerValidatorCallbackHandler"}, Applicability.UNKNOWN),
        ({HANDLER: "com.example.Handler"}, Applicability.UNKNOWN),
        ({HANDLER: ""}, Applicability.NO),  # unsecured tokens, which is another finding
    ],
)
def test_a_class_of_others_that_validates_tokens_is_unknown_and_does_not_block(
    changed: dict[str, str], expected: Applicability
) -> None:
    config = {**OAUTH, HANDLER: f"{KAFKAS}.OAuthBearerValidatorCallbackHandler", **changed}
    assert answers("4.0.2", "4.1.1", config=config)["CVE-2026-33557"] is expected
    if expected is Applicability.UNKNOWN:
        found = findings("4.0.2", "4.1.1", config=config)["CVE-2026-33557"]
        assert (found.code, found.severity) == ("ADVISORY-UNKNOWN", Severity.WARNING)
        assert "what com.example." in found.sentence


def test_an_unknown_blocker_blocks_only_where_the_tool_could_have_known() -> None:
    assert findings("4.0.2", "4.1.1")["CVE-2026-33557"].severity is Severity.BLOCKER
    assert findings("4.0.2", "4.1.1", observable=False)["CVE-2026-33557"].severity is Severity.WARNING


def test_a_release_is_reviewed_only_if_every_source_was_read_for_it() -> None:
    catalogue = replace(released(), reviews=all_read(date(2026, 6, 17)))
    assert list(review_findings(catalogue, path_of("4.3.1"))) == []
    (later,) = review_findings(catalogue, path_of("4.3.1", "4.4.0"))
    assert (later.code, later.severity, later.subject) == ("RELEASE-NOT-REVIEWED", Severity.WARNING, "release 4.4.0")
    assert "built on 2026-10-06" in later.sentence
    without = tuple(one for one in catalogue.reviews if one.source is not ReviewSource.ISSUES)
    (found,) = review_findings(replace(catalogue, reviews=without), path_of("4.3.1"))
    assert found.severity is Severity.INFO
    assert "fixed blocker and critical issues" in found.sentence
    assert "CVE" not in found.sentence
    (found,) = review_findings(replace(catalogue, reviews=()), path_of("4.3.1"))
    assert found.severity is Severity.WARNING
    assert all(source in found.sentence for source in ReviewSource)


def test_a_release_without_a_build_day_is_not_reviewed() -> None:
    r431 = Release(4, 3, 1)
    known = {r431: replace(released().get(r431), built_at=None)}
    (found,) = review_findings(replace(released(), releases=known, reviews=all_read(date(2026, 11, 28))), [r431])
    assert "on a day that its jars do not show" in found.sentence


def test_no_release_counts_as_reviewed_whose_list_of_fixed_issues_was_not_read() -> None:
    unread = {release: released().unread(release) for release in released()}
    assert all(ReviewSource.ISSUES in sources for sources in unread.values())
    assert ReviewSource.UPGRADE_NOTES in unread[Release(4, 4, 0)]
    (found,) = review_findings(released(), path_of("4.3.1"))
    assert (found.code, found.severity) == ("RELEASE-NOT-REVIEWED", Severity.INFO)


@pytest.mark.parametrize(
    ("defect", "affected", "corrected"),
    [
        ("KAFKA-18844", ("3.8.1", "3.9.0"), ("3.8.1", "3.9.1")),  # registrations judged by levels of before
        ("KAFKA-18991", ("3.9.1", "4.0.0"), ("3.9.1", "4.0.1")),  # records of an older leader
        ("KAFKA-19367", ("3.9.1", "4.0.0"), ("3.9.1", "4.0.1")),  # epochs of producers
    ],
)
def test_a_defect_of_a_roll_or_of_data_is_known_until_its_correction(
    defect: str, affected: tuple[str, ...], corrected: tuple[str, ...]
) -> None:
    assert defect in answers(*affected)
    assert defect not in answers(*corrected)


def test_a_target_that_is_older_than_the_source_names_lost_fixes_and_newer_releases() -> None:
    (found,) = age_findings(released(), path_of("4.2.2", "4.3.1"))
    assert (found.code, found.severity) == ("TARGET-OLDER-THAN-SOURCE", Severity.WARNING)
    assert "4.3.1 was built on 2026-06-17, before 4.2.2 (2026-09-22)" in found.sentence
    assert "CVE-2026-111115" in found.sentence
    assert "4.4.0" in found.remedy
    assert list(age_findings(released(), path_of("4.2.1", "4.3.1"))) == []
    (down,) = age_findings(released(), path_of("4.3.1", "4.1.2"))
    assert down.severity is Severity.INFO
    (via,) = age_findings(released(), path_of("3.9.2", "4.1.1", "4.4.0"))
    assert via.subject == "release 4.1.1"
    assert "4.1.2" in via.remedy


def test_the_note_says_until_when_the_list_was_reviewed_and_what_does_not_apply() -> None:
    path = path_of("4.1.2", "4.2.0")
    note = review_note(released(), judge_advisories(released(), path, facts(path, config={})))
    assert note.startswith("upgrade notes read for 3.3.0 to 4.2.1 and 4.3.0 to 4.3.1, until 2026-11-28; CVE list read")
    assert "fixed blocker and critical issues not read" in note
    assert "does not apply: " in note


@pytest.mark.parametrize(
    ("registrations", "expected"),
    [
        (None, Applicability.UNKNOWN),
        (MetadataRegistrations(), Applicability.NO),
        (MetadataRegistrations(zk_migration=3), Applicability.YES),
        (MetadataRegistrations(zk_migration=1), Applicability.YES),
        (MetadataRegistrations(zk_migration=4), Applicability.UNKNOWN),  # UNINITIALIZED
        (MetadataRegistrations(migrating_brokers=frozenset({4})), Applicability.YES),
    ],
)
def test_a_migration_from_zookeeper_is_read_in_the_metadata_log(
    registrations: MetadataRegistrations | None, expected: Applicability
) -> None:
    path = path_of("3.4.1", "3.5.1")
    judged = judge_advisories(released(), path, replace(facts(path, config={}), registrations=registrations))
    assert {one.advisory.id: one.answered.answer for one in judged}["KAFKA-15552"] is expected


def test_every_advisory_concerns_a_release_of_the_catalogue() -> None:
    catalogue = released()
    assert len({advisory.id for advisory in catalogue.advisories}) == len(catalogue.advisories) > 10
    for advisory in catalogue.advisories:
        assert any(advisory.affects(release) for release in catalogue), advisory.id


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"when": [{"kind": "setting", "nam": "log.dirs"}]}, "advisories.0.when"),
        ({"when": [{"kind": "weather"}]}, "advisories.0.when"),
        ({"severity": "blocker", "when": [{"kind": "unobservable", "what": "the weather"}]}, "must be observable"),
        ({"source": ""}, "needs affected releases and a source"),
        ({"severity": "bad"}, "severity"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_place(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    document = json.loads((INCLUDE / "advisories.json").read_text())
    document["advisories"] = [{**document["advisories"][0], **change}]
    (tmp_path / "advisories.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match=problem):
        load_catalogue(INCLUDE, tmp_path)


TIERED = {"remote.storage.enable": "true"}


def tiered(*path: str, **known: Any) -> tuple[Applicability, Finding | None]:
    config = known.pop("config", {})
    known["config"] = None if config is None else {"remote.log.storage.system.enable": "true", **config}
    return answers(*path, **known)["KAFKA-20732"], findings(*path, **known).get("KAFKA-20732")


def of_topic(**settings: str) -> DynamicConfigs:
    return DynamicConfigs(topics={"orders": {name.replace("_", "."): value for name, value in settings.items()}})


@pytest.mark.parametrize(
    ("dynamic", "config", "expected"),
    [
        (DynamicConfigs(), {}, Applicability.NO),
        (of_topic(retention_bytes="1000"), {}, Applicability.NO),
        (of_topic(remote_storage_enable="true"), {}, Applicability.NO),  # the default of retention.bytes is -1
        (of_topic(remote_storage_enable="true", retention_bytes="1000"), {}, Applicability.YES),
        (of_topic(remote_storage_enable="TRUE", retention_bytes="0"), {}, Applicability.YES),
        (of_topic(remote_storage_enable="true"), {"log.retention.bytes": "1000"}, Applicability.YES),
        (
            of_topic(remote_storage_enable="true", retention_bytes="-1"),
            {"log.retention.bytes": "1000"},
            Applicability.NO,
        ),
        (of_topic(remote_storage_enable="true"), {"log.retention.bytes": "${file:/a:b}"}, Applicability.UNKNOWN),
        (of_topic(remote_storage_enable="true"), None, Applicability.UNKNOWN),  # no file was read
        (of_topic(remote_storage_enable="true", retention_bytes="-1"), None, Applicability.NO),
        (None, {}, Applicability.UNKNOWN),
        (None, {"remote.log.storage.system.enable": "false"}, Applicability.NO),
    ],
)
def test_a_defect_of_topics_is_decided_by_the_values_in_effect(
    dynamic: DynamicConfigs | None, config: dict[str, str] | None, expected: Applicability
) -> None:
    assert tiered("3.9.1", "4.3.1", dynamic=dynamic, config=config)[0] is expected


def test_a_dynamic_default_of_brokers_has_precedence_over_their_files() -> None:
    dynamic = of_topic(remote_storage_enable="true")
    everywhere = replace(dynamic, all_brokers={"log.retention.bytes": "-1"})
    assert tiered("3.9.1", "4.3.1", dynamic=everywhere, config=None)[0] is Applicability.NO
    assert tiered("3.9.1", "4.3.1", dynamic=everywhere, config={"log.retention.bytes": "9"})[0] is Applicability.NO
    one = replace(everywhere, brokers={5: {"log.retention.bytes": "9"}})
    assert tiered("3.9.1", "4.3.1", dynamic=one)[0] is Applicability.YES


def test_a_run_that_changes_leaders_on_affected_brokers_is_blocked_with_the_topics_and_a_remedy_in_order() -> None:
    dynamic = DynamicConfigs(topics={topic: {**TIERED, "retention.bytes": "1000"} for topic in ("logs", "orders")})
    _, found = tiered("3.9.1", "4.3.1", dynamic=dynamic)
    assert found is not None
    assert (found.code, found.severity) == ("RELEASE-ADVISORY", Severity.BLOCKER)
    assert "2 topics (logs, orders)" in found.sentence
    first, last = found.remedy.index("retention.bytes=-1"), found.remedy.index("4.4.0")
    assert first < last
    assert "local.retention.bytes" in found.remedy  # its default, -2, is retention.bytes
    # Leaders change on the source too, while its nodes are replaced.
    _, leaving = tiered("4.3.1", "4.4.0", dynamic=dynamic)
    assert leaving is not None
    assert leaving.severity is Severity.BLOCKER
    _, unknown = tiered("4.3.1", "4.3.1", dynamic=None)
    assert unknown is not None
    assert (unknown.code, unknown.severity) == ("ADVISORY-UNKNOWN", Severity.BLOCKER)
    _, no_restart = tiered("4.3.1", dynamic=dynamic)
    assert no_restart is not None
    assert no_restart.severity is Severity.WARNING


def test_an_interrupted_copy_makes_retention_delete_too_much_until_copies_that_ended_count_alone() -> None:
    """KAFKA-17062: the restart of a broker interrupts its copies, also on the source."""
    dynamic = of_topic(remote_storage_enable="true", retention_bytes="1000")
    config = {"remote.log.storage.system.enable": "true"}
    for path in (("3.7.2", "3.8.1"), ("3.5.2", "3.6.0"), ("3.8.0", "3.9.1")):
        found = findings(*path, dynamic=dynamic, config=config)["KAFKA-17062"]
        assert found.severity is Severity.BLOCKER
        assert "retention.bytes=-1" in found.remedy
    for path in (("3.5.2", "3.8.1"), ("3.8.1", "3.9.1")):
        assert "KAFKA-17062" not in answers(*path, dynamic=dynamic, config=config)
    unlimited = of_topic(remote_storage_enable="true")
    assert answers("3.7.2", "3.8.1", dynamic=unlimited, config=config)["KAFKA-17062"] is Applicability.NO


@pytest.mark.parametrize(
    ("path", "dirs", "blocks"),
    [
        (("3.9.1", "3.7.2"), "/a,/b", True),
        (("3.5.2", "3.6.0"), "/a,/b", True),
        (("3.5.2", "3.6.0"), "/a", False),
        (("3.7.2", "3.8.0"), "/a,/b", False),
    ],
)
def test_tiered_storage_with_several_log_directories_is_refused_before_a_broker_stops(
    path: tuple[str, ...], dirs: str, *, blocks: bool
) -> None:
    """Brokers of 3.6 and 3.7 do not start with both."""
    config = {"remote.log.storage.system.enable": "true", "log.dirs": dirs}
    found = findings(*path, config=config, dynamic=DynamicConfigs()).get("tiered-storage-in-one-directory")
    assert (found is not None and found.severity is Severity.BLOCKER) is blocks
    off = findings(*path, config={"log.dirs": dirs}, dynamic=DynamicConfigs())
    assert "tiered-storage-in-one-directory" not in off


def test_a_quota_callback_of_others_fails_on_fenced_brokers_until_its_correction() -> None:
    """KAFKA-20746: each restart of a broker fences it."""
    config = {"client.quota.callback.class": "com.acme.Quotas"}
    for path in (("3.9.1", "4.0.0"), ("4.2.0", "4.2.1"), ("4.3.1", "4.4.0")):
        assert findings(*path, config=config)["KAFKA-20746"].severity is Severity.WARNING
        assert answers(*path, config={})["KAFKA-20746"] is Applicability.NO
    for path in (("3.9.1", "4.2.2"), ("4.2.2", "4.4.0")):
        assert "KAFKA-20746" not in answers(*path, config=config)


def test_a_topology_of_streams_applications_that_is_regrouped_is_named_with_the_release_that_does_it() -> None:
    found = findings("4.3.0", "4.3.1")["KAFKA-20464"]
    assert "changelog" in found.remedy
    assert "KAFKA-20464" not in answers("4.2.2", "4.4.0")


@pytest.mark.parametrize(("level", "applies"), [(1, Applicability.YES), (0, Applicability.NO)])
def test_the_last_known_leader_is_not_elected_on_a_target_that_counts_with_eligible_replicas(
    level: int, applies: Applicability
) -> None:
    """KAFKA-19522: a downgrade to 4.0.x keeps the level, which 4.0 supports."""
    assert answers("4.1.1", "4.0.2", elr=level)["KAFKA-19522"] is applies
    assert "KAFKA-19522" not in answers("4.1.1", "4.1.0", elr=level)


def test_share_groups_of_the_early_access_are_not_upgraded_and_not_taken_back_to_it() -> None:
    groups = replace(state(SEPARATE), groups=(GroupState(group_id="g", type="share", state="Empty"),))
    used = DynamicConfigs(topics={"__share_group_state": {}})
    for path, name in ((("4.0.1", "4.3.1"), "share-groups-of-4.0"), (("4.2.1", "4.0.2"), "share-groups-before-4.1")):
        for known in ({"seen": groups, "dynamic": DynamicConfigs()}, {"dynamic": used}):
            assert findings(*path, config={}, **known)[name].severity is Severity.BLOCKER
        assert answers(*path, config={}, dynamic=DynamicConfigs())[name] is Applicability.NO
        assert answers(*path, config={})[name] is Applicability.UNKNOWN, "the topics were not read"
    assert not {"share-groups-of-4.0", "share-groups-before-4.1"} & answers("4.1.1", "4.3.1", dynamic=used).keys()
    assert "share-groups-of-4.0" not in answers("3.9.1", "4.3.1", dynamic=used)


THREADS = {"num.io.threads": "16"}


@pytest.mark.parametrize(
    ("dynamic", "expected", "nodes"),
    [
        (None, Applicability.UNKNOWN, ()),
        (DynamicConfigs(), Applicability.NO, ()),
        (DynamicConfigs(all_brokers={"log.retention.ms": "1"}), Applicability.NO, ()),
        (DynamicConfigs(all_brokers=THREADS), Applicability.YES, ()),
        (DynamicConfigs(brokers={5: THREADS}), Applicability.YES, (5,)),
        (DynamicConfigs(brokers={5: THREADS}, all_brokers=THREADS), Applicability.YES, ()),
        (DynamicConfigs(brokers={1: THREADS}), Applicability.NO, ()),  # a controller
    ],
)
def test_a_dynamic_value_that_a_start_can_lose_is_found_for_one_broker_and_for_all(
    dynamic: DynamicConfigs | None, expected: Applicability, nodes: tuple[int, ...]
) -> None:
    """KAFKA-20890: a start refuses a number of threads far from that of the file."""
    path = path_of("4.3.1", "4.4.0")
    judged = judge_advisories(released(), path, facts(path, config={}, dynamic=dynamic))
    answered = {one.advisory.id: one.answered for one in judged}["KAFKA-20890"]
    assert (answered.answer, answered.nodes) == (expected, nodes)
    if expected is Applicability.YES:
        assert answered.seen == ("num.io.threads",)


def of_groups(*types: str) -> ClusterState:
    groups = tuple(GroupState(group_id=one, type=one, state="Stable") for one in types)
    transactions = (TransactionState(transactional_id="t", state="Empty", producer_id=1),)
    return replace(state(SEPARATE), groups=groups, transactions=transactions)


@pytest.mark.parametrize(
    ("defect", "affected", "corrected"),
    [
        ("KAFKA-20634", (("3.9.1", "4.0.0"), ("4.2.1", "4.4.0")), (("3.9.1", "4.2.2"), ("4.3.1", "4.4.0"))),
        ("KAFKA-20845", (("4.1.0", "4.1.2"), ("4.2.2", "4.3.1")), (("4.0.1", "4.1.0"), ("4.2.2", "4.4.0"))),
        ("KAFKA-20310", (("3.9.1", "4.0.0"), ("4.2.1", "4.2.2")), (("3.9.1", "4.3.0"),)),
        ("KAFKA-20979", (("3.9.1", "4.2.2"), ("4.2.2", "4.3.1")), ()),
        ("KAFKA-20601", (("4.2.1", "4.2.2"), ("4.2.2", "4.3.1")), (("3.9.1", "4.4.0"),)),
        ("KAFKA-20640", (("4.2.0", "4.2.1"), ("4.2.2", "4.3.0")), (("4.2.2", "4.3.1"),)),
        ("KAFKA-20742", (("4.1.2", "4.2.2"),), (("4.1.2", "4.4.0"),)),
        ("KAFKA-20661", (("4.3.1", "4.4.0"),), (("3.7.2", "3.8.1"),)),
    ],
)
def test_a_defect_of_groups_transactions_storage_or_the_quorum_is_known_until_its_correction(
    defect: str, affected: tuple[tuple[str, ...], ...], corrected: tuple[tuple[str, ...], ...]
) -> None:
    config = {"group.consumer.max.size": "100", "group.consumer.migration.policy": "DISABLED"}
    known: dict[str, Any] = {
        "config": config,
        "levels": {"transaction.version": 2, "kraft.version": 1},
        "seen": of_groups("classic", "consumer", "share"),
        "dynamic": DynamicConfigs(),
    }
    for path in affected:
        assert findings(*path, **known)[defect].severity is Severity.WARNING, path
    for path in corrected:
        assert defect not in findings(*path, **known), path


def test_a_group_of_the_default_size_and_policy_meets_no_defect_of_them() -> None:
    consumers = {"config": {}, "seen": of_groups("consumer")}
    found = answers("4.0.0", "4.2.1", **consumers)
    assert found["KAFKA-20601"] is found["KAFKA-20640"] is Applicability.NO
