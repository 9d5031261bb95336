from __future__ import annotations

import shlex
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.gates.counters import OTHERS, expected_broker_errors, expected_errors
from kafka_rollout.model.configs import HIDDEN, ConfigCheck, ConfigKind, ConfigProblem, DynamicConfigs
from kafka_rollout.model.node_log import BROKER_SETTINGS
from kafka_rollout.model.topology import Role
from kafka_rollout.planning.findings.dynamic_configs import (
    NAMED,
    OBSERVED,
    dynamic_config_findings,
    find_dropped,
    find_removed_settings,
    retention_findings,
    retention_of,
    unread_config_finding,
)
from kafka_rollout.releases.facts import Release
from tests.unit.builders import R341, R391, R431, SEPARATE, catalogue

TOO_SMALL = "Invalid value 14000 for configuration segment.bytes: Value must be at least 1048576"
BOOTSTRAP = "broker-1:9092,broker-2:9092"


def problem(kind: ConfigKind, name: str, check: ConfigCheck = ConfigCheck.VALUE, **settings: str) -> ConfigProblem:
    values = tuple((key.replace("_", "."), value) for key, value in settings.items())
    return ConfigProblem(kind=kind, name=name, settings=values, check=check, reason=TOO_SMALL)


def findings(
    *problems: ConfigProblem,
    dynamic: DynamicConfigs | None = None,
    release: Release = R431,
    source: Release = R391,
) -> tuple[Finding, ...]:
    return dynamic_config_findings(
        catalogue(), release, problems, dynamic or DynamicConfigs(), BOOTSTRAP, source=source
    )


def command_of(finding: Finding) -> str:
    return finding.remedy.partition("`")[2].rpartition("`")[0]


def test_a_topic_that_stops_a_broker_is_a_blocker_with_kafkas_sentence_and_the_command() -> None:
    (found,) = findings(problem(ConfigKind.TOPIC, "orders", segment_bytes="14000"))
    assert (found.severity, found.code) == (Severity.BLOCKER, "DYNAMIC-CONFIG-REJECTED")
    assert found.subject == "4.3.1, topic orders, segment.bytes"
    assert found.sentence.startswith(f"Topic orders has segment.bytes=14000. Kafka 4.3.1: {TOO_SMALL}. ")
    assert command_of(found) == (
        "kafka-configs.sh --bootstrap-server broker-1:9092,broker-2:9092 --alter --entity-type topics "
        "--entity-name orders --delete-config segment.bytes"
    )


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        (ConfigKind.BROKER, "3", "--entity-type brokers --entity-name 3"),
        (ConfigKind.ALL_BROKERS, "", "--entity-type brokers --entity-default"),
        (ConfigKind.CLIENT_METRICS, "latency", "--entity-type client-metrics --entity-name latency"),
        (ConfigKind.GROUP, "billing team", "--entity-type groups --entity-name 'billing team'"),
        (
            ConfigKind.QUOTA,
            "user alice client-id (default)",
            "--entity-type users --entity-name alice --entity-type clients --entity-default",
        ),
    ],
)
def test_the_command_names_the_resource(kind: ConfigKind, name: str, options: str) -> None:
    dynamic = DynamicConfigs(quotas={(("user", "alice"), ("client-id", None)): {"a": 1.0}})
    (found,) = findings(problem(kind, name, a_b="1"), dynamic=dynamic)
    assert command_of(found).endswith(f"--alter {options} --delete-config a.b")


def test_what_no_broker_has_shown_is_a_blocker_that_says_so() -> None:
    assert (ConfigKind.GROUP, ConfigCheck.TOGETHER) not in OBSERVED
    (found,) = findings(problem(ConfigKind.GROUP, "billing", ConfigCheck.TOGETHER, a="1", b="2"))
    assert found.severity is Severity.BLOCKER
    assert "effect on a node of this release is unknown" in found.sentence
    assert command_of(found).endswith("--delete-config a,b")


def test_a_value_that_a_broker_ignores_is_a_warning() -> None:
    (found,) = findings(problem(ConfigKind.ALL_BROKERS, "", log_segment_bytes="20000"))
    assert (found.severity, found.code) == (Severity.WARNING, "DYNAMIC-CONFIG-IGNORED")
    assert found.sentence.startswith("The default of all brokers has log.segment.bytes=20000.")


@pytest.mark.parametrize("kind", [ConfigKind.TOPIC, ConfigKind.GROUP, ConfigKind.CLIENT_METRICS])
def test_what_a_release_drops_is_a_warning_that_it_is_lost_on_the_old_release_too(kind: ConfigKind) -> None:
    (found,) = findings(problem(kind, "orders", ConfigCheck.DROPPED, a_b="1", c="2"))
    assert (found.severity, found.code) == (Severity.WARNING, "DYNAMIC-CONFIG-DROPPED")
    assert "has a.b=1, c=2. " in found.sentence
    assert "Its nodes drop such settings" in found.sentence
    assert "nodes with such a snapshot have lost them, and other nodes can still have them." in found.sentence
    assert found.remedy.startswith("Note the values")
    assert command_of(found).endswith("--entity-name orders --delete-config a.b,c")
    assert found.remedy.endswith("Set them again after a return to a release that has them.")


@pytest.mark.parametrize("kind", [ConfigKind.TOPIC, ConfigKind.GROUP])
def test_an_ignored_setting_blocks_every_change_until_one_command_removes_all(kind: ConfigKind) -> None:
    (found,) = findings(problem(kind, "orders", ConfigCheck.NAME, a_b="1", c="2"))
    assert (found.severity, found.code) == (Severity.WARNING, "DYNAMIC-CONFIG-UNKNOWN")
    assert found.sentence.endswith(
        "The release ignores such settings, but until one command removes all of them, it rejects every other change "
        f"of the {kind}'s configuration."
    )
    assert found.remedy.startswith("Remove the settings with `")
    assert command_of(found).endswith("--entity-name orders --delete-config a.b,c")


@pytest.mark.parametrize("check", [ConfigCheck.NAME, ConfigCheck.DROPPED])
def test_nobody_is_told_to_note_a_value_that_is_hidden(check: ConfigCheck) -> None:
    (found,) = findings(replace(problem(ConfigKind.TOPIC, "orders", check), settings=(("own", HIDDEN),)))
    assert found.remedy.startswith("The release that runs does not have the setting either. Remove the setting with `")


def test_a_hidden_setting_of_a_broker_is_a_secret_that_the_running_release_has() -> None:
    secret = replace(problem(ConfigKind.BROKER, "3", ConfigCheck.NAME), settings=(("own.password", HIDDEN),))
    (found,) = findings(secret)
    assert found.remedy.startswith("Remove the setting with `")


def test_metadata_errors_are_expected_of_what_is_ignored_and_not_of_unknown_names() -> None:
    """LogConfig ignores a name that it does not define, without an error."""
    for check in (ConfigCheck.NAME, ConfigCheck.DROPPED):
        plan: Any = SimpleNamespace(findings=findings(problem(ConfigKind.TOPIC, "orders", check, a="1")))
        assert expected_errors(plan, R431) == (), check
    kind = ConfigKind.CLIENT_METRICS
    plan = SimpleNamespace(findings=findings(problem(kind, "latency", ConfigCheck.VALUE, a="1")))
    assert expected_errors(plan, R431) == ("client metrics latency",)
    plan = SimpleNamespace(
        findings=findings(*(problem(kind, f"s{n}", ConfigCheck.VALUE, a="1") for n in range(NAMED + 1)))
    )
    assert expected_errors(plan, R431)[-1] == OTHERS


def test_errors_of_settings_of_a_broker_are_expected_of_that_broker_once_for_each_role() -> None:
    """DynamicConfigPublisher validates them again for listeners with keystores, although the broker ignores them."""
    plan: Any = SimpleNamespace(findings=findings(problem(ConfigKind.BROKER, "4", ConfigCheck.VALUE, a="1", b="2")))
    assert expected_errors(plan, R431) == ()
    assert expected_broker_errors(plan, R431, SEPARATE) == {4: frozenset(BROKER_SETTINGS[:1])}
    combined = replace(SEPARATE, nodes=tuple(replace(node, roles=frozenset(Role)) for node in SEPARATE.nodes))
    assert expected_broker_errors(plan, R431, combined) == {4: frozenset(BROKER_SETTINGS)}
    assert expected_broker_errors(plan, R391, SEPARATE) == {}, "the finding is about another release"
    unknown: Any = SimpleNamespace(findings=findings(problem(ConfigKind.BROKER, "4", ConfigCheck.NAME, a="1")))
    assert expected_broker_errors(unknown, R431, SEPARATE) == {}
    many = (problem(ConfigKind.BROKER, str(n), ConfigCheck.VALUE, a="1") for n in range(NAMED + 1))
    plan = SimpleNamespace(findings=findings(*many))
    assert expected_errors(plan, R431) == (OTHERS,)


def test_a_broker_that_would_start_without_tiered_storage_blocks() -> None:
    """Its log begins with the first local segment, and the next leader deletes what is before it."""
    tiered = problem(ConfigKind.TOPIC, "orders", ConfigCheck.UPDATE, remote_storage_enable="true")
    (found,) = findings(tiered)
    assert (found.severity, found.code) == (Severity.BLOCKER, "TIERED-STORAGE-LOST")
    assert found.remedy.startswith("Set remote.log.storage.system.enable=true in the file of every broker")
    assert "--delete-config" not in found.remedy
    (found,) = findings(tiered, source=R341)  # which has no remote records
    assert (found.severity, found.code) == (Severity.WARNING, "DYNAMIC-CONFIG-IGNORED")


def test_only_dropped_settings_are_collected_for_the_comparison() -> None:
    found = find_dropped(
        [
            problem(ConfigKind.TOPIC, "orders", ConfigCheck.DROPPED, b="1", a="1"),
            problem(ConfigKind.TOPIC, "orders", ConfigCheck.DROPPED, b="1", c="1"),
            problem(ConfigKind.TOPIC, "orders", ConfigCheck.NAME, d="1"),
            problem(ConfigKind.CLIENT_METRICS, "latency", ConfigCheck.DROPPED, e="1"),
        ]
    )
    assert found == {"topic orders": ["a", "b", "c"], "client-metrics subscription latency": ["e"]}


@pytest.mark.parametrize("kind", [ConfigKind.BROKER, ConfigKind.ALL_BROKERS])
def test_a_broker_setting_that_a_release_drops_is_a_blocker_because_no_broker_has_shown_it(kind: ConfigKind) -> None:
    (found,) = findings(problem(kind, "3", ConfigCheck.DROPPED, a_b="1"))
    assert (found.severity, found.code) == (Severity.BLOCKER, "DYNAMIC-CONFIG-REJECTED")


def test_a_missing_class_is_a_blocker_unless_the_release_has_no_such_resources() -> None:
    missing = problem(ConfigKind.GROUP, "", ConfigCheck.MISSING)
    (found,) = findings(missing)
    assert (found.severity, found.code) == (Severity.BLOCKER, "DYNAMIC-CONFIG-UNCHECKED")
    assert findings(missing, release=R341) == ()
    assert findings(problem(ConfigKind.TOPIC, "", ConfigCheck.MISSING), release=R341) != ()


def test_many_topics_with_one_problem_get_a_finding_each_up_to_a_limit() -> None:
    many = [problem(ConfigKind.TOPIC, f"orders-{number}", segment_bytes="14000") for number in range(NAMED + 3)]
    found = findings(*many)
    assert len(found) == NAMED + 1
    assert found[-1].severity is Severity.BLOCKER
    assert "3 further topics with segment.bytes=14000" in found[-1].sentence


def test_a_name_from_outside_cannot_forge_a_line_or_a_second_command() -> None:
    name = "bill\ning; rm -rf / '\u202e"
    (found,) = findings(problem(ConfigKind.GROUP, name, a="1\n2"))
    assert "\n" not in found.subject + found.sentence + found.remedy
    assert "\u202e" not in found.subject + found.sentence + found.remedy
    words = shlex.split(command_of(found))
    assert words[words.index("--entity-name") + 1] == "bill\\ning; rm -rf / '\\u202e"


def test_a_broker_setting_that_the_release_no_longer_has_is_found_by_the_catalogue() -> None:
    dynamic = DynamicConfigs(brokers={3: {"old.key": "1", "log.dirs": "x"}}, all_brokers={"own.plugin": "1"})
    removed = find_removed_settings(catalogue(), R391, R431, dynamic)
    assert [(one.kind, one.name, one.settings) for one in removed] == [(ConfigKind.BROKER, "3", (("old.key", "1"),))]
    (found,) = findings(*removed)
    assert found.severity is Severity.WARNING
    assert find_removed_settings(catalogue(), R341, R391, dynamic) == ()


def test_configuration_that_could_not_be_read_is_a_blocker() -> None:
    found = unread_config_finding("Broker 3 has no right DESCRIBE_CONFIGS.", "Grant it.")
    assert (found.severity, found.remedy) == (Severity.BLOCKER, "Grant it.")
    assert "Broker 3 has no right DESCRIBE_CONFIGS." in found.sentence


@pytest.mark.parametrize(
    ("kind", "name", "prefix", "check", "warning"),
    [
        (ConfigKind.TOPIC, "orders", "", ConfigCheck.NAME, "DYNAMIC-CONFIG-UNKNOWN"),
        (ConfigKind.TOPIC, "orders", "", ConfigCheck.DROPPED, "DYNAMIC-CONFIG-DROPPED"),
        (ConfigKind.BROKER, "3", "log.", ConfigCheck.NAME, "DYNAMIC-CONFIG-UNKNOWN"),
    ],
)
def test_a_removed_limit_of_timestamps_without_a_replacement_is_a_blocker(
    kind: ConfigKind, name: str, prefix: str, check: ConfigCheck, warning: str
) -> None:
    removed = f"{prefix}message.timestamp.difference.max.ms"
    limits = [f"{prefix}message.timestamp.{end}.max.ms" for end in ("before", "after")]
    lost = replace(problem(kind, name, check), settings=((removed, "60000"),))

    def configured(*names: str) -> DynamicConfigs:
        values = dict.fromkeys((removed, *names), "60000")
        if kind is ConfigKind.TOPIC:
            return DynamicConfigs(topics={name: values})
        return DynamicConfigs(brokers={3: values})

    for names in ((), limits[:1]):
        (found,) = findings(lost, dynamic=configured(*names))
        assert (found.severity, found.code) == (Severity.BLOCKER, "DYNAMIC-CONFIG-REJECTED")
        assert all(limit in found.remedy for limit in limits)
        assert "Without message.timestamp.difference.max.ms, its brokers would accept" in found.sentence
    (found,) = findings(lost, dynamic=configured(*limits))
    assert (found.severity, found.code) == (Severity.WARNING, warning)


def test_a_limit_of_timestamps_that_the_source_does_not_have_either_is_a_warning() -> None:
    removed = replace(
        problem(ConfigKind.TOPIC, "orders", ConfigCheck.DROPPED),
        settings=(("message.timestamp.difference.max.ms", HIDDEN),),
    )
    (found,) = findings(removed)
    assert (found.severity, found.code) == (Severity.WARNING, "DYNAMIC-CONFIG-DROPPED")


def test_a_topic_that_forgets_deletions_during_a_stop_is_named() -> None:
    """A follower that was down for longer has the older value of the key, and no tombstone."""
    compact = {"cleanup.policy": "compact,delete", "delete.retention.ms": "100"}
    topics = {
        "state": compact,
        "day": {**compact, "delete.retention.ms": "86400000"},
        "events": {**compact, "cleanup.policy": "delete"},
        "__consumer_offsets": {"cleanup.policy": "compact", "delete.retention.ms": "60000"},
    }
    (found,) = retention_findings(DynamicConfigs(topics=topics), {}, ())
    assert (found.code, found.severity, found.covers) == (
        "DELETE-RETENTION-SHORT",
        Severity.WARNING,
        ("__consumer_offsets", "state"),
    )
    assert "__consumer_offsets: 60000, state: 100" in found.sentence
    (stops,) = retention_findings(DynamicConfigs(topics=topics), {}, (), stops=True)
    assert (stops.severity, stops.covers) == (Severity.BLOCKER, ("__consumer_offsets",))
    assert retention_findings(DynamicConfigs(topics={"state": compact}), {}, (), stops=True) == ()


def test_topics_forget_deletions_by_the_values_of_the_broker_that_leads_them_too() -> None:
    files = {4: {"log.cleanup.policy": "compact"}, 5: {"log.cleaner.delete.retention.ms": "60000"}}
    own = DynamicConfigs(topics={"state": {"cleanup.policy": "compact"}})
    assert retention_of(own, files, ["plain"]) == {"state": 60_000, "plain": 86_400_000}
    (found,) = retention_findings(own, files, ["plain"])
    assert found.covers == ("state",)
    default = replace(own, all_brokers={"log.cleaner.delete.retention.ms": "7200000"}, brokers={4: {}})
    assert retention_of(default, files, []) == {"state": 7_200_000}
