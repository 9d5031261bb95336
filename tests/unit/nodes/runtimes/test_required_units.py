"""The units without which systemd does not start the unit of a node, and their findings."""

from __future__ import annotations

import pytest

from kafka_rollout.model.host_state import HostState
from kafka_rollout.planning.findings.required_units import required_unit_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

UNKNOWN = "the units that kafka.service requires (`systemctl show`)"


def read(own: dict[str, str], **units: dict[str, str] | None) -> HostState:
    depends: dict[str, dict[str, str] | None] = {f"{name}.service": shown for name, shown in units.items()}
    return runtime_on(FakeHost(depends={"kafka.service": own, **depends})).host(NODE, [Release(4, 3, 1)])


BLOCKED, WARNED = [("REQUIRED-UNIT-DOWN", "blocker")], [("REQUIRED-UNIT-DOWN", "warning")]
AGAIN = [("START-CONDITION", "warning")]


@pytest.mark.parametrize(
    ("setting", "shown", "expected"),
    [
        ("Requires", {}, []),
        ("Requires", {"LoadState": "not-found", "ActiveState": "inactive"}, BLOCKED),
        ("BindsTo", {"LoadState": "masked"}, BLOCKED),
        ("Requires", {"ActiveState": "failed", "Result": "exit-code"}, WARNED),
        ("BindsTo", {"ActiveState": "inactive"}, WARNED),
        ("Requires", {"ActiveState": "inactive", "Type": "oneshot", "Result": "success"}, AGAIN),
        ("Requires", {"ActiveState": "active", "Type": "oneshot", "Result": "success"}, []),
        ("Requires", {"ActiveState": "failed", "Type": "oneshot", "Result": "exit-code"}, WARNED),
        ("Requires", {"ActiveState": "inactive", "ConditionResult": "no"}, []),
        ("Requires", {"ActiveState": "reloading"}, []),
        ("Requisite", {"ActiveState": "inactive", "Type": "oneshot", "Result": "success"}, BLOCKED),
        ("Requisite", {"ActiveState": "activating"}, []),
        ("Wants", {"LoadState": "not-found", "ActiveState": "inactive"}, []),
    ],
)
def test_a_unit_that_the_start_of_the_node_needs_is_found_before_the_stop(
    setting: str, shown: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    state = read({setting: "sysinit.target zookeeper.service"}, zookeeper=shown)
    found = list(required_unit_findings(NODE, state))
    assert [(one.code, one.severity.value) for one in found] == expected
    assert all(f"{setting}=zookeeper.service" in one.sentence for one in found)
    assert UNKNOWN not in state.unknown


def test_a_unit_is_known_by_another_name_and_by_a_name_in_quotes() -> None:
    other = {"Id": "zookeeper-3.service", "Names": "zookeeper-3.service zk.service", "ActiveState": "failed"}
    (found,) = required_unit_findings(NODE, read({"Requires": "zk.service"}, zk=other))
    assert "Requires=zk.service, which is failed" in found.sentence
    assert read({"Requires": '"var-x\\\\x2dy.mount"'}).required_units[0].name == "var-x\\x2dy.mount"


# As systemd 252 showed it after the file of c.service was removed: `c` was still active, and the start of kafka was
# refused ("Unit c.service not found.").
REMOVED = {"LoadState": "not-found", "ActiveState": "active"}


@pytest.mark.parametrize(
    ("of_kafka", "of_b", "shown", "expected"),
    [
        ("Requires", "Requires", REMOVED, BLOCKED),
        ("BindsTo", "BindsTo", {"LoadState": "masked"}, BLOCKED),
        ("Requires", "Requisite", {"ActiveState": "inactive"}, BLOCKED),
        ("Requires", "Requires", {"ActiveState": "failed", "Result": "exit-code"}, WARNED),
        ("Requires", "Requires", {}, []),
        ("Requisite", "Requires", REMOVED, []),
        ("Requires", "Wants", REMOVED, []),
    ],
)
def test_a_unit_that_a_required_unit_requires_is_needed_too(
    of_kafka: str, of_b: str, shown: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    state = read({of_kafka: "b.service"}, b={"Requires": "kafka.service", of_b: "c.service"}, c=shown)
    found = list(required_unit_findings(NODE, state))
    assert [(one.code, one.severity.value) for one in found] == expected
    assert all("kafka.service needs b.service to start, and b.service" in one.sentence for one in found)
    assert all("remove the line from b.service (" in one.remedy for one in found)


def test_all_units_of_one_distance_are_read_with_one_command() -> None:
    asked: list[str] = []
    units = {
        "kafka.service": {"Requires": "a.service b.service"},
        "a.service": {"Requires": "c.service b.service"},
        "b.service": {"BindsTo": "c.service"},
        "c.service": {"Requires": "a.service"},
    }
    state = runtime_on(FakeHost(depends=units, on_command=asked.append)).host(NODE, [Release(4, 3, 1)])
    assert [(one.name, one.of) for one in state.required_units] == [
        ("a.service", "kafka.service"),
        ("b.service", "kafka.service"),
        ("c.service", "a.service"),
    ]
    lines = [line.partition(" -- ")[2] for line in asked if ",Requires,Requisite," in line]
    assert lines == ["kafka.service", "a.service b.service", "c.service"]


def test_a_unit_that_only_must_be_active_for_one_unit_is_followed_if_another_one_starts_it() -> None:
    own = {"Requisite": "a.service", "Requires": "b.service"}
    state = read(own, a={"Requires": "c.service"}, b={"Requires": "a.service"}, c=REMOVED)
    found = list(required_unit_findings(NODE, state))
    assert [(one.code, one.severity.value, one.subject) for one in found] == [(*BLOCKED[0], "node 1, c.service")]


def test_what_systemd_does_not_show_is_unknown() -> None:
    assert UNKNOWN in read({"Requires": "zk.service"}, zk=None).unknown
    assert read({}).required_units == ()
