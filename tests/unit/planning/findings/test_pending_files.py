"""What a restart brings into effect: lines of the files that the processes have not read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.config_values import ValueType
from kafka_rollout.model.configs import HIDDEN, ConfigSource, Setting
from kafka_rollout.model.host_state import StartFile, StartFileKind
from kafka_rollout.planning.findings.pending import SinceStart, pending_findings, read_approved

FILE, DEFAULT, NODE = ConfigSource.FILE, ConfigSource.DEFAULT, ConfigSource.NODE


def sentences(configs: dict[int, dict[str, str]], used: dict[str, dict[str, Setting]]) -> list[str]:
    return [finding.sentence for finding in findings(configs, used)]


def findings(configs: dict[int, dict[str, str]], used: dict[str, dict[str, Setting]], **other: Any) -> list[Finding]:
    in_use = {int(node_id): settings for node_id, settings in used.items()}
    return list(pending_findings(sorted(configs), SinceStart(configs=configs, in_use=in_use, **other)))


def test_a_new_a_changed_and_a_removed_line_are_named_with_their_nodes() -> None:
    used = {
        "num.io.threads": Setting("8", DEFAULT),
        "log.flush.interval.ms": Setting("1000", FILE),
        "compression.type": Setting("zstd", FILE),
    }
    lines = {"num.io.threads": "16", "log.flush.interval.ms": "2000"}
    kept = {"log.flush.interval.ms": "1000", "compression.type": "zstd"}
    assert sentences({1: lines, 2: lines, 3: kept}, {"1": used, "2": used, "3": used}) == [
        "compression.type of nodes 1, 2 is zstd now, and the default after the restart.",
        "log.flush.interval.ms of nodes 1, 2 is 1000 now, and 2000 after the restart.",
        "num.io.threads of nodes 1, 2 is 8 now, and 16 after the restart.",
    ]


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("a:1, b:2", Setting("a:1,b:2", FILE)),
        ("True", Setting("true", FILE)),
        ("0168", Setting("168", FILE)),
        ("${file:/secrets:x}", Setting("seen", FILE)),
        ("new", Setting(HIDDEN, FILE)),
        ("8", Setting("16", NODE)),
        ("", Setting(None, DEFAULT)),
        ("0.50", Setting("0.5", FILE, ValueType.DOUBLE)),
        ("5e-1", Setting("0.5", FILE, ValueType.DOUBLE)),
        (" TRUE ", Setting("true", FILE, ValueType.BOOLEAN)),
        ("+604800000", Setting("604800000", FILE, ValueType.LONG)),
        ("delete , compact,delete", Setting("delete,compact", FILE, ValueType.LIST)),
        ("a.B ", Setting("a.B", FILE, ValueType.CLASS)),
    ],
)
def test_a_line_that_changes_nothing_or_cannot_be_compared_is_no_finding(line: str, setting: Setting) -> None:
    assert sentences({1: {"setting": line}}, {"1": {"setting": setting}}) == []


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("TRUE", Setting("true", FILE, ValueType.STRING)),
        ("1.0", Setting("1", FILE, ValueType.STRING)),
        ("b,a", Setting("a,b", FILE, ValueType.LIST)),
        ("a,a", Setting("a", FILE, ValueType.STRING)),
        ("0.51", Setting("0.5", FILE, ValueType.DOUBLE)),
        ("many", Setting("0.5", FILE, ValueType.DOUBLE)),
    ],
)
def test_a_text_that_means_something_else_by_its_type_is_a_change(line: str, setting: Setting) -> None:
    assert len(sentences({1: {"setting": line}}, {"1": {"setting": setting}})) == 1


def test_a_new_line_of_a_setting_without_a_value_is_not_quoted_because_it_can_be_a_secret() -> None:
    assert sentences({1: {"ssl.key.password": "never-shown"}}, {"1": {"ssl.key.password": Setting(None, DEFAULT)}}) == [
        "ssl.key.password of node 1 is empty now, and as in the file after the restart."
    ]


def test_a_value_that_kafka_derives_from_another_line_is_no_finding() -> None:
    used = {"broker.id": Setting("1", FILE), "node.id": Setting("1", FILE)}
    assert sentences({1: {"node.id": "1"}}, {"1": used}) == []
    assert sentences({1: {"broker.id": "1"}}, {"1": used}) == []
    (found,) = findings({1: {"broker.id": "2"}}, {"1": {"node.id": Setting("1", FILE)}})
    assert (found.code, found.sentence) == (
        "FILE-CHANGES-MEMBERSHIP",
        "node.id of node 1 is 1 now, and 2 after the restart.",
    )


def test_a_controller_whose_values_kafka_does_not_show_is_no_finding() -> None:
    assert sentences({1: {"num.io.threads": "16"}}, {"2": {"num.io.threads": Setting("8", DEFAULT)}}) == []


@pytest.mark.parametrize(
    ("name", "before", "after", "code"),
    [
        ("log.retention.ms", None, "60000", "FILE-CHANGES-DATA"),
        ("log.retention.hours", "168", "1", "FILE-CHANGES-DATA"),
        ("log.retention.hours", "168", "336", "FILE-NOT-READ"),
        ("log.retention.bytes", "1000", "-1", "FILE-NOT-READ"),
        ("log.retention.bytes", "-1", "1000", "FILE-CHANGES-DATA"),
        ("log.cleanup.policy", "compact", "delete", "FILE-CHANGES-DATA"),
        ("log.dirs", "/a,/b", "/a", "FILE-CHANGES-DATA"),
        ("controller.quorum.voters", "1@a:1,2@b:1", "1@a:1", "FILE-CHANGES-MEMBERSHIP"),
        ("node.id", "1", "2", "FILE-CHANGES-MEMBERSHIP"),
        ("process.roles", "broker", "broker,controller", "FILE-CHANGES-MEMBERSHIP"),
        ("listeners", "PLAINTEXT://:9092", "PLAINTEXT://:9093", "FILE-CHANGES-MEMBERSHIP"),
        ("num.io.threads", "8", "16", "FILE-NOT-READ"),
        ("min.insync.replicas", "2", "1", "FILE-CHANGES-DATA"),
        ("min.insync.replicas", "1", "2", "FILE-NOT-READ"),
        ("default.replication.factor", "3", "1", "FILE-CHANGES-DATA"),
        ("transaction.state.log.min.isr", "2", "1", "FILE-CHANGES-DATA"),
        ("unclean.leader.election.enable", "false", "TRUE", "FILE-CHANGES-DATA"),
        ("unclean.leader.election.enable", "true", "false", "FILE-NOT-READ"),
        ("authorizer.class.name", "a.StandardAuthorizer", "", "FILE-CHANGES-ACCESS"),
        ("ssl.client.auth", "required", "none", "FILE-CHANGES-ACCESS"),
        ("listener.name.external.ssl.client.auth", "required", "none", "FILE-CHANGES-ACCESS"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512", "SCRAM-SHA-512,PLAIN", "FILE-CHANGES-ACCESS"),
        ("principal.builder.class", None, "com.example.Everybody", "FILE-CHANGES-ACCESS"),
        ("listener.security.protocol.map", "A:SASL_SSL", "A:PLAINTEXT", "FILE-CHANGES-ACCESS"),
    ],
)
def test_a_change_that_deletes_data_or_changes_membership_or_access_has_a_stronger_word(
    name: str, before: str | None, after: str, code: str
) -> None:
    used = {name: Setting(before, FILE if before else DEFAULT)}
    found = findings({1: {name: after}, 2: {name: after}}, {"1": used, "2": used})
    assert {one.code for one in found} == {code}
    strong = code != "FILE-NOT-READ"
    assert {one.severity for one in found} == {Severity.WARNING if strong else Severity.INFO}
    assert len(found) == (2 if strong else 1), "each node's change is approved on its own"
    assert read_approved(found) == ({1: {name: after}, 2: {name: after}} if strong else {})


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("super.users", "User:admin;User:mallory"),
        ("allow.everyone.if.no.acl.found", "true"),
        ("listener.name.external.ssl.client.auth", "none"),
        ("listener.name.external.plain.sasl.server.callback.handler.class", "com.example.Anybody"),
    ],
)
def test_a_new_line_about_access_that_the_process_does_not_list_is_a_change(name: str, line: str) -> None:
    """Kafka lists settings that are not its own, and those of a listener, only where the process has read a line."""
    (found,) = findings({1: {name: line}}, {"1": {"num.io.threads": Setting("8", DEFAULT)}})
    assert (found.code, found.subject) == ("FILE-CHANGES-ACCESS", f"{name}={line} of node 1")
    assert found.sentence == f"{name} of node 1 is empty now, and {line} after the restart."


def test_a_removed_line_about_access_is_a_change_although_its_value_is_hidden() -> None:
    (found,) = findings({1: {}}, {"1": {"super.users": Setting(HIDDEN, FILE)}})
    assert (found.code, found.sentence) == (
        "FILE-CHANGES-ACCESS",
        "super.users of node 1 is hidden now, and the default after the restart.",
    )


def test_a_line_about_access_that_cannot_be_compared_counts_as_changed_with_its_file() -> None:
    used = {"1": {"super.users": Setting(HIDDEN, FILE), "ssl.client.auth": Setting("required", FILE)}}
    files = {1: (_file(StartFileKind.CONFIGURATION, 2000.0),)}
    lines = {1: {"super.users": "User:admin", "ssl.client.auth": "${env:AUTH}"}}
    assert findings(lines, used, files=files, started_at={1: 3000.0}) == []
    found = findings(lines, used, files=files, started_at={1: 1000.0})
    assert [(one.code, one.subject) for one in found] == [
        ("FILE-CHANGES-ACCESS", "ssl.client.auth=${env:AUTH} of node 1"),
        ("FILE-CHANGES-ACCESS", "super.users=User:admin of node 1"),
    ]


def test_a_login_of_a_listener_is_a_change_of_access_and_is_not_quoted() -> None:
    name = "listener.name.external.plain.sasl.jaas.config"
    line = 'Plain required user_mallory="never-shown";'
    (new,) = findings({1: {name: line}}, {"1": {}})
    hidden = {"1": {name: Setting(HIDDEN, FILE)}}
    edited = [
        found
        for at in (2000.0, 2001.0)
        for files in [{1: (_file(StartFileKind.CONFIGURATION, at),)}]
        for found in findings({1: {name: line}}, hidden, files=files, started_at={1: 1000.0})
    ]
    assert [(one.code, one.subject) for one in (new, *edited)] == [
        ("FILE-CHANGES-ACCESS", f"{name}=as in the file of node 1"),
        ("FILE-CHANGES-ACCESS", f"{name}=as in the file of 1970-01-01T00:33:20Z of node 1"),
        ("FILE-CHANGES-ACCESS", f"{name}=as in the file of 1970-01-01T00:33:21Z of node 1"),
    ], "a secret that is changed again is another finding"
    assert not any("never-shown" in one.sentence for one in (new, *edited))


def _file(kind: StartFileKind, changed_at: float | None, path: str = "/etc/kafka/x") -> StartFile:
    return StartFile(path=path, kind=kind, changed_at=changed_at)


@pytest.mark.parametrize("kind", [kind for kind in StartFileKind if kind is not StartFileKind.CONFIGURATION])
def test_every_file_that_a_start_reads_is_compared_with_the_start_of_the_process(kind: StartFileKind) -> None:
    def found(changed_at: float | None) -> list[tuple[str, Severity]]:
        files = {1: (_file(kind, changed_at),)}
        seen = findings({1: {}}, {"1": {}}, files=files, started_at={1: 1000.0})
        return [(one.code, one.severity) for one in seen]

    assert found(999.0) == found(1001.0) == []
    is_identity = kind is StartFileKind.IDENTITY
    severity = Severity.WARNING if is_identity or kind is StartFileKind.PROGRAM else Severity.INFO
    assert found(1060.0) == ([] if is_identity else [("FILE-CHANGED", severity)]), "the node writes it itself"
    assert found(1200.0) == [("FILE-CHANGED", severity)]
    assert found(None) == [("FILE-CHANGE-UNKNOWN", Severity.INFO)]


def test_a_file_that_is_gone_can_have_been_removed_since_the_start_if_its_folder_has_changed() -> None:
    def found(changed_at: float | None) -> list[tuple[str, str]]:
        gone = replace(_file(StartFileKind.UNIT, changed_at, "/etc/default/kafka"), is_absent=True)
        seen = findings({1: {}}, {"1": {}}, files={1: (gone,)}, started_at={1: 1000.0})
        return [(one.code, one.subject) for one in seen]

    assert found(999.0) == [], "there was none at the start either"
    assert found(1060.0) == [("FILE-CHANGE-UNKNOWN", "removed files of node 1")]
    assert found(None) == [("FILE-CHANGE-UNKNOWN", "files of node 1")]


def test_a_changed_configuration_whose_lines_cannot_be_compared_is_a_warning() -> None:
    files = {1: (_file(StartFileKind.CONFIGURATION, 2000.0, "/etc/kafka/server.properties"),)}
    (unread,) = findings({1: {"num.io.threads": "16"}}, {}, files=files, started_at={1: 1000.0})
    assert (unread.code, unread.severity) == ("FILE-CHANGED", Severity.WARNING)
    assert "does not report the values that it uses" in unread.sentence
    (same,) = findings({1: {}}, {"1": {}}, files=files, started_at={1: 1000.0})
    assert (same.code, same.severity) == ("FILE-CHANGED", Severity.INFO)
    used = {"1": {"num.io.threads": Setting("8", DEFAULT)}}
    (line,) = findings({1: {"num.io.threads": "16"}}, used, files=files, started_at={1: 1000.0})
    assert line.code == "FILE-NOT-READ", "its lines say more"
    (unknown,) = findings({1: {}}, {"1": {}}, files=files)
    assert unknown.code == "FILE-CHANGE-UNKNOWN"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("log.message.timestamp.before.max.ms", "3600000", "FILE-NOT-READ"),
        ("controller.quorum.auto.join.enable", "true", "FILE-CHANGES-MEMBERSHIP"),
        ("zookeeper.metadata.migration.enable", "true", "FILE-CHANGES-MEMBERSHIP"),
        ("log.retention.bytes", "1", "FILE-CHANGES-DATA"),
        ("early.start.listeners", "CONTROLLER", "FILE-CHANGES-ACCESS"),
    ],
)
@pytest.mark.parametrize("used", [{}, {"hidden": True}], ids=["not listed", "listed as a secret"])
def test_a_line_that_only_a_later_release_of_the_plan_obeys_comes_into_effect(
    name: str, value: str, code: str, used: dict[str, bool]
) -> None:
    in_use = {"1": {name: Setting(HIDDEN, FILE, ValueType.UNKNOWN)} if used else {}}
    assert [one.code for one in findings({1: {name: value}}, in_use)] in ([], ["FILE-CHANGES-ACCESS"])
    (found,) = findings({1: {name: value}}, in_use, obeyed_later=frozenset({name}))
    assert found.code == code
    shown = "as in the file" if code == "FILE-NOT-READ" else value  # it can be a secret
    assert found.sentence == f"{name} of node 1 is ignored by the running release now, and {shown} after the restart."


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("super.users", "FILE-CHANGES-ACCESS"),
        ("log.retention.ms", "FILE-CHANGES-DATA"),
        ("listeners", "FILE-CHANGES-MEMBERSHIP"),
        ("ssl.keystore.password", "FILE-CHANGED"),
    ],
)
def test_a_value_in_the_file_of_a_config_provider_counts_as_changed_with_this_file(name: str, code: str) -> None:
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    lines = {"config.providers.file.class": provider, name: "${file:/etc/kafka/values.properties:key}"}
    used = {"1": {name: Setting("old", FILE)}}
    own = StartFile(path="/etc/kafka/server.properties", kind=StartFileKind.CONFIGURATION, changed_at=50.0)

    def codes(path: str, changed_at: float) -> list[str]:
        provided = StartFile(path=path, kind=StartFileKind.PROVIDED, changed_at=changed_at)
        found = findings({1: lines}, used, files={1: (own, provided)}, started_at={1: 100.0})
        return [one.code for one in found if one.code != "FILE-CHANGED" or code == "FILE-CHANGED"]

    assert code in codes("/etc/kafka/values.properties", 200.0)
    assert codes("/etc/kafka/values.properties", 99.0) == []
    if code != "FILE-CHANGED":
        assert codes("/etc/kafka/others.properties", 200.0) == []
