"""What a node reads at its start: plugin classes by the node's own jars, files by what was seen of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.starts import AUTHORIZER, ClassPlaces, FileRemark, NamedFile, PluginClass
from kafka_rollout.planning.findings.configuration import config_findings
from kafka_rollout.planning.findings.starts import (
    START_FILES_CHECK,
    ObservedFiles,
    ObservedPlugin,
    ObservedStarts,
    start_findings,
)
from kafka_rollout.releases.facts import Release

R431 = Release(4, 3, 1)
NAME, FOLDER, OLD = "com.example.Authorizer", "/opt/kafka/4.3.1/libs", "/opt/kafka/3.9.1/libs/opa.jar"
PLACES = {
    "found": ClassPlaces(folder=FOLDER, jars={NAME: ("/opt/plugins/opa.jar",)}),
    "left behind": ClassPlaces(folder=FOLDER, left_behind={NAME: (OLD,)}),
    "nowhere": ClassPlaces(folder=FOLDER),
    "not brought": ClassPlaces(folder=FOLDER, unknown="host kafka-1 has no folder /opt/kafka/4.3.1/libs yet"),
    "not observable": None,
}


def _plugins(places: ClassPlaces | None, setting: str = AUTHORIZER) -> tuple[Finding, ...]:
    one = ObservedPlugin(release=R431, plugin=PluginClass(setting=setting, name=NAME), places=places)
    return start_findings(ObservedStarts(plugins={1: (one,), 2: (one,)}))


@pytest.mark.parametrize(
    ("case", "severity", "fact"),
    [
        ("found", Severity.INFO, "It is in /opt/plugins/opa.jar."),
        ("left behind", Severity.BLOCKER, f"It is in {OLD}, and no jar in {FOLDER} has it."),
        ("nowhere", Severity.BLOCKER, f"No jar in {FOLDER} and none that the process has loaded has it."),
        ("not brought", Severity.WARNING, "has it: host kafka-1 has no folder"),
        ("not observable", Severity.WARNING, "It is unknown whether a node on 4.3.1 has it."),
    ],
)
def test_a_plugin_is_judged_by_the_jars_of_the_node(case: str, severity: Severity, fact: str) -> None:
    (found,) = _plugins(PLACES[case])
    assert (found.code, found.severity) == ("PLUGIN-CLASS", severity)
    assert fact in found.sentence
    assert found.subject == f"nodes 1, 2, {AUTHORIZER}, release 4.3.1"
    if severity is Severity.BLOCKER:
        assert FOLDER in found.remedy
    if severity is Severity.WARNING:
        assert "KAFKA_ROLLOUT_PLUGINS" in found.remedy


def test_no_remedy_advises_to_remove_an_authorizer() -> None:
    gone = f"Class kafka.security.authorizer.AclAuthorizer of {AUTHORIZER} is not on the class path"
    problems = (gone, "num.io.threads is wrong", f"Invalid value x for configuration {AUTHORIZER}: no class")
    findings = [one for places in PLACES.values() for one in _plugins(places)]
    findings += [
        one
        for first, second in product(problems, problems)
        for one in config_findings(R431, {1: tuple(dict.fromkeys((first, second)))})
    ]
    assert len(findings) == len(PLACES) + len(problems) ** 2
    for one in findings:
        assert "emove" not in one.remedy
        if AUTHORIZER in one.sentence:
            assert f"Keep {AUTHORIZER}: without an authorizer" in one.remedy
    (standard,) = config_findings(R431, {1: (gone,)})
    assert "org.apache.kafka.metadata.authorizer.StandardAuthorizer" in standard.remedy


def _file(**values: object) -> tuple[Finding, ...]:
    one = NamedFile(setting="ssl.keystore.location", path="/etc/kafka/node.p12", **values)  # type: ignore[arg-type]
    files = ObservedFiles(names=("ssl.keystore.location",), files=(one,), started_at=1000.0)
    return start_findings(ObservedStarts(files={1: files}))


def test_a_file_that_the_running_process_has_read_is_proved_by_it() -> None:
    assert _file(changed_at=999.0) == ()
    (changed,) = _file(changed_at=1000.0)
    assert (changed.code, changed.severity) == ("START-FILE-UNKNOWN", Severity.WARNING)
    assert "It has changed since the process started." in changed.sentence
    (hidden,) = _file(problem="Permission denied")
    assert "does not see its date either: Permission denied" in hidden.sentence
    (missing,) = _file(is_absent=True)
    assert (missing.code, missing.severity) == ("START-FILE-MISSING", Severity.BLOCKER)


def test_a_file_of_a_config_provider_must_exist_and_its_change_is_another_finding() -> None:
    def found(**seen: Any) -> list[str]:
        one = NamedFile(setting="ssl.keystore.password", path="/etc/kafka/secrets.properties", **seen)
        files = ObservedFiles(names=(one.setting,), files=(one,), started_at=1000.0)
        return [finding.code for finding in start_findings(ObservedStarts(files={1: files}))]

    assert found(is_absent=True) == found(is_absent=True, readable_at="/x") == ["START-FILE-MISSING"]
    assert found(changed_at=2000.0) == found(problem="Permission denied") == found(changed_at=1.0) == []
    assert _file(is_absent=True, readable_at="/srv/node/node.p12") == (), "Kafka's own classes say so"


def test_files_of_a_cluster_without_a_runtime_are_not_observable() -> None:
    files = ObservedFiles(names=("ssl.keystore.location",), files=None)
    checked = START_FILES_CHECK.ran(start_findings(ObservedStarts(files={1: files})))
    assert "not observable: The files in ssl.keystore.location of node 1" in checked.result({}).text
    assert START_FILES_CHECK.ran(start_findings(ObservedStarts(files={1: ObservedFiles(files=None)}))).findings == ()


def test_a_stopped_node_has_proved_nothing() -> None:
    one = NamedFile(setting="ssl.keystore.location", path="/etc/kafka/node.p12", changed_at=1.0)
    (found,) = start_findings(ObservedStarts(files={1: ObservedFiles(names=(one.setting,), files=(one,))}))
    assert "The node does not run" in found.sentence


def test_the_problems_of_a_path_name_their_release() -> None:
    first = ObservedStarts(rejected={1: ("a",), 2: ()})
    both = ObservedStarts().then(first, Release(4, 0, 2), is_target=False).then(first, R431, is_target=True)
    assert both.rejected == {1: ("4.0.2: a", "a"), 2: ()}


def test_the_remarks_of_each_release_of_a_path_are_kept_once() -> None:
    both, old, new = FileRemark("both"), FileRemark("old"), FileRemark("new", is_unknown=True)
    first, second = ObservedStarts(remarks={1: (both, old), 2: (old,)}), ObservedStarts(remarks={1: (both, new)})
    path = ObservedStarts().then(first, Release(4, 0, 2), is_target=False).then(second, R431, is_target=True)
    assert path.remarks == {1: (both, old, new), 2: (old,)}
    severities = [one.severity for one in start_findings(path)]
    assert severities == [Severity.INFO, Severity.INFO, Severity.WARNING, Severity.INFO]
