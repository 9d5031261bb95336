"""Two names of one machine: what tells machines apart, and what is refused."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.model.host_state import HostState, UnitStop
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.unit_state import parse_unit, show_command
from kafka_rollout.planning.findings.hosts import host_problems
from kafka_rollout.releases.facts import Release
from tests.fakes.clock import FakeClock
from tests.fakes.host import FakeHost, machine_id
from tests.unit.builders import catalogue

R431 = Release(4, 3, 1)
BROKER = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="kafka-1"))
CONTROLLER = NodeSpec(
    node_id=101,
    name="c-1",
    roles=frozenset({Role.CONTROLLER}),
    service=ServiceSpec(host="c-1.example.com", unit="kafka-controller.service", symlink="/opt/kafka-c"),
)
FAR = ClusterSpec(name="far", runtime="ssh_service", nodes=(BROKER, CONTROLLER))
ONE = machine_id(name="kafka-1")


def runtime_on(host: FakeHost, clock: FakeClock) -> SshServiceRuntime:
    return SshServiceRuntime(FAR, host, Release.parse, sleep=clock.sleep, monotonic=clock.monotonic)


def codes(state: HostState) -> list[str]:
    wanted = {"HOST-NAMED-TWICE", "STOP-REACHES-OTHER-NODES"}
    return [one.code for one in host_problems(FAR, catalogue(), {1: state}, (R431,)) if one.code in wanted]


def test_two_names_of_one_machine_are_refused_and_its_nodes_are_on_one_host() -> None:
    host = FakeHost(machines={"kafka-1": ONE, "c-1.example.com": ONE})
    state = runtime_on(host, FakeClock()).host(BROKER, [R431])
    assert state.others == {101: "c-1.example.com"}
    script = replace(state, stop=UnitStop(commands=("/opt/kafka/bin/kafka-server-stop.sh",)))
    assert codes(script) == ["HOST-NAMED-TWICE", "STOP-REACHES-OTHER-NODES"]
    (found, *_) = (one for one in host_problems(FAR, catalogue(), {1: script}, (R431,)) if "TWICE" in one.code)
    assert "Host kafka-1 and c-1.example.com, the host of node 101, are one machine" in found.sentence


@pytest.mark.parametrize(
    "other",
    [
        machine_id(boot="2", name="kafka-1"),  # a clone has the machine id and the name of its template
        machine_id(namespace="4026532000", name="kafka-1"),  # a container of the same kernel
        machine_id(machine="0e", name="kafka-1"),
        machine_id(name="c-1"),  # a clone of a running machine has its boot id
    ],
)
def test_a_difference_shows_two_machines(other: str) -> None:
    host = FakeHost(machines={"kafka-1": ONE, "c-1.example.com": other})
    state = runtime_on(host, FakeClock()).host(BROKER, [R431])
    assert (state.others, codes(state)) == ({}, [])


def test_another_host_is_asked_again_after_a_minute_and_not_for_each_check() -> None:
    clock, asked = FakeClock(), list[str]()
    host = FakeHost(machines={"kafka-1": ONE, "c-1.example.com": machine_id(boot="2", name="c-1")})
    runtime = runtime_on(host, clock)
    host.on_command = lambda line: asked.append(line) if "kafka-controller" in line else None
    runtime.host(BROKER, [R431])
    runtime.host(BROKER, [R431])
    assert len(asked) == 1
    clock.sleep(61)
    host.machines["c-1.example.com"] = ONE  # the name leads to another machine now
    assert runtime.host(BROKER, [R431]).others == {101: "c-1.example.com"}


def test_a_host_that_does_not_respond_is_not_the_machine_that_does() -> None:
    host = FakeHost()

    def cut(line: str) -> None:
        if "kafka-controller" in line:
            raise TransientError("gone", remedy="x")

    host.on_command = cut
    assert runtime_on(host, FakeClock()).host(BROKER, [R431]).others == {}


def test_this_machine_reports_what_it_is_and_a_host_that_does_not_is_unknown() -> None:
    line = show_command("kafka.service").replace("systemctl", "true")
    shown = [subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout for _ in range(2)]
    first, again = (parse_unit(text).machine for text in shown)
    assert first == again != ""
    state = runtime_on(FakeHost(machines={"kafka-1": "//"}), FakeClock()).host(BROKER, [R431])
    assert "which machine it is (/proc/sys/kernel/random/boot_id)" in state.unknown


def test_an_alias_is_refused_because_the_journal_and_a_mask_do_not_know_it() -> None:
    runtime = runtime_on(FakeHost(unit_id="confluent-server.service"), FakeClock())
    with pytest.raises(
        UserError, match=r"kafka.service on host kafka-1 is an alias of confluent-server.service"
    ) as raised:
        runtime.process(BROKER)
    assert "Set `unit: confluent-server.service` for node kafka-1" in raised.value.remedy
    assert runtime_on(FakeHost(unit_id="kafka.service"), FakeClock()).process(BROKER).pid == 50
