"""The units that systemd stops with the unit of a node, as `systemctl show` names them."""

from __future__ import annotations

import pytest

from kafka_rollout.model.host_state import HostState, StoppedUnit
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

UNKNOWN = "the units that systemd stops with kafka.service (`systemctl show`)"

REQUIRED = "the units that kafka.service requires (`systemctl show`)"
STARTED = "the commands of other units that a start of kafka.service runs (`systemctl show`)"


def read(**depends: dict[str, str] | None) -> HostState:
    units = {f"{name.replace('_', '-')}": shown for name, shown in depends.items()}
    host = FakeHost(depends={name if "." in name else f"{name}.service": shown for name, shown in units.items()})
    return runtime_on(host).host(NODE, [Release(4, 3, 1)])


@pytest.mark.parametrize(
    ("shown", "setting"),
    [
        ("RequiredBy", "Requires"),
        ("RequisiteOf", "Requisite"),
        ("BoundBy", "BindsTo"),
        ("ConsistsOf", "PartOf"),
        ("PropagatesStopTo", "StopPropagatedFrom"),
    ],
)
def test_a_unit_that_stops_with_the_node_is_named_with_its_own_setting(shown: str, setting: str) -> None:
    (stopped,) = read(kafka={shown: "connect.service"}).stopped_units
    assert stopped == StoppedUnit(names=("connect.service",), of="kafka.service", settings=(setting,))


def test_units_that_want_the_node_or_conflict_with_it_do_not_stop_with_it() -> None:
    state = read(kafka={"WantedBy": "multi-user.target", "UpheldBy": "x.service", "ConflictedBy": "shutdown.target"})
    assert (state.stopped_units, state.unknown) == ((), ())


def test_a_stop_passes_from_unit_to_unit_and_each_is_read_once() -> None:
    units = {
        "kafka.service": {"Names": "kafka.service broker.service", "RequiredBy": "a.service kafka.target"},
        "kafka.target": {"ConsistsOf": "kafka.service controller.service", "RequiredBy": "a.service"},
        "controller.service": {"Names": "kafka-2.service controller.service", "BoundBy": "kafka.service"},
        "a.service": {"PropagatesStopTo": '"x\\\\x2dy.service"'},
    }
    asked: list[str] = []
    host = FakeHost(depends=units, on_command=asked.append)
    found = runtime_on(host).host(NODE, [Release(4, 3, 1)]).stopped_units
    assert {unit.names: (unit.of, *unit.settings) for unit in found} == {
        ("a.service",): ("kafka.service", "Requires"),
        ("kafka.target",): ("kafka.service", "Requires"),
        ("x\\x2dy.service",): ("a.service", "StopPropagatedFrom"),
        ("controller.service", "kafka-2.service"): ("kafka.target", "PartOf"),
    }
    assert [line.partition(" -- ")[2] for line in asked if "RequiredBy" in line] == [
        "kafka.service",
        "a.service kafka.target",
        "'x\\x2dy.service' controller.service",
    ]


def test_a_unit_that_depends_in_two_ways_has_both_settings() -> None:
    (stopped,) = read(kafka={"RequiredBy": "b.service", "BoundBy": "b.service"}).stopped_units
    assert stopped.settings == ("Requires", "BindsTo")


def test_what_systemd_does_not_show_of_one_of_the_units_is_unknown() -> None:
    link = (
        f"what else starts through {NODE.service.symlink} (`systemctl show`, /proc/*/cmdline)" if NODE.service else ""
    )
    assert set(read(kafka=None).unknown) == {UNKNOWN, link, REQUIRED, STARTED}
    state = read(kafka={"RequiredBy": "connect.service"}, connect=None)
    assert (state.unknown, state.stopped_units) == ((UNKNOWN,), ())
