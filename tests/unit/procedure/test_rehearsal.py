"""A rehearsal on the fake cluster: the copy starts, changes, is compared and goes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.gates.coordinators import CoordinatorAnswers, ids_for
from kafka_rollout.model.configs import ConfigCheck, ConfigKind, ConfigProblem, DynamicConfigs
from kafka_rollout.model.plan import Direction
from kafka_rollout.model.state import GroupState
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.rehearsal import Rehearsal
from kafka_rollout.rehearsal.job import RehearsalStoppedError, order_rehearsal
from kafka_rollout.rehearsal.result import (
    Contents,
    RehearsalOutcome,
    RehearsalResult,
    compare_contents,
    read_contents,
)
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports


def stopped(world: FakeCluster) -> FakeCluster:
    for node in world.nodes.values():
        node.running = None
    world.spec = replace(world.spec, approvers=())  # as the inventory of a sandbox
    return world


def rehearse(
    world: FakeCluster,
    folder: Path,
    *,
    stop: bool = False,
    real: Contents | None = None,
    unregistered: tuple[int, ...] = (99,),
    say: Callable[[str], None] = lambda line: None,
) -> tuple[RehearsalResult, list[str]]:
    """The result of an upgrade from 3.9.1 to 4.3.1 on a copy, and its progress."""
    lines: list[str] = []
    ports = fake_ports(stopped(world), folder)
    request = Request(target=R431, plans_features=False)
    job = order_rehearsal(request, world.spec.name, Direction.UPGRADE, [R391, R431], gate_timeout_s=60.0)
    job = replace(job, nodes=tuple(world.nodes), unregistered=unregistered, real=real, later=real)

    def on_line(line: str) -> None:
        lines.append(line)
        say(line)

    return Rehearsal(ports=ports, job=job, say=on_line, stop_asked=lambda: stop).run(), lines


def test_a_healthy_copy_passes_and_goes_back(tmp_path: Path) -> None:
    world = FakeCluster()
    result, lines = rehearse(world, tmp_path)
    assert (result.outcome, result.findings) == (RehearsalOutcome.PASSED, ())
    assert [phase.name for phase in result.phases] == [
        "start on 3.9.1",
        "comparison of the copy",
        "change",
        "comparison on 4.3.1",
        "rollback",
        "comparison back on 3.9.1",
    ]
    assert {node.running for node in world.nodes.values()} == {R391}
    assert len(result.node_seconds) == 12, "there and back"
    assert lines[0] == "starting 6 nodes on 3.9.1"


def test_a_broker_that_was_not_copied_is_removed_from_the_copy(tmp_path: Path) -> None:
    world = FakeCluster()
    world.find_unlisted_brokers = {99}
    assert rehearse(world, tmp_path)[0].outcome is RehearsalOutcome.PASSED
    assert world.find_unlisted_brokers == set()


def test_a_node_that_does_not_start_fails_with_its_last_error_at_once(tmp_path: Path) -> None:
    world = FakeCluster()
    world.cannot_start = {(12, R431)}
    began = world.clock.now()
    result, _ = rehearse(world, tmp_path)
    assert result.outcome is RehearsalOutcome.FAILED
    (finding,) = result.findings
    assert finding.sentence.startswith("broker-12 (12) does not start on 4.3.1: its log")
    assert world.clock.now() - began < 60, "no supervisor is waited for"


def test_a_copy_that_does_not_start_on_the_source_release_fails(tmp_path: Path) -> None:
    world = FakeCluster()
    world.cannot_start = {(11, R391)}
    result, _ = rehearse(world, tmp_path)
    (finding,) = result.findings
    assert "broker-11 (11) does not start on 3.9.1" in finding.sentence
    assert result.phases == ()


def test_a_prediction_does_not_fail_a_rehearsal(tmp_path: Path) -> None:
    """The started nodes show whether the configuration works."""
    world = FakeCluster()
    world.config_problems = {R431: ("Unknown value.",)}
    assert rehearse(world, tmp_path)[0].outcome is RehearsalOutcome.PASSED


def test_contents_that_a_copy_lacks_are_a_finding(tmp_path: Path) -> None:
    world = FakeCluster()
    ports = fake_ports(world, tmp_path / "real")
    real = read_contents(ports.admin, ports.clock, world.spec.brokers)
    real = replace(real, transactional_ids=("tx-1",))
    result, _ = rehearse(world, tmp_path, real=real)
    (finding,) = result.findings
    assert (finding.code, finding.subject) == ("REHEARSAL-DIFFERS", "contents on 3.9.1")


class WithGroup(FakeCluster):
    """A cluster with a group, whose brokers log that they load what they can lead."""

    PARTITION = f"{GROUPS_TOPIC}-1"

    def __init__(self) -> None:
        super().__init__()
        for number in range(3):
            self.add_partition(GROUPS_TOPIC, number, [11 + number, 11 + (number + 1) % 3], min_isr=1)
        self.groups.append(GroupState(group_id=next(iter(ids_for({1}, 3))), type="classic", state="Stable"))

    def start(self, node_id: int) -> None:
        super().start(node_id)
        for number in range(3):
            place = f"{GROUPS_TOPIC}-{number}"
            self.nodes[node_id].log += [
                "[2026-11-24 02:14:07,123] INFO Finished loading offsets and group metadata from "
                f"{place} in 5 milliseconds for epoch 3 (kafka.coordinator.group.GroupMetadataManager)",
                f"[2026-11-24 02:14:07,123] INFO Finished loading of metadata from {place} with epoch 3 in 5ms "
                "(org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime)",
            ]


def test_a_group_that_no_broker_lists_while_its_coordinator_moves_is_not_missing(tmp_path: Path) -> None:
    world = WithGroup()
    partition = world.PARTITION

    def say(line: str) -> None:
        if line.startswith("change: "):  # the comparison follows
            world.coordinator_answers[partition] = "NOT_COORDINATOR"
            world.clock.on_sleep = lambda seconds: world.coordinator_answers.clear() if seconds > 1 else None

    result, _ = rehearse(world, tmp_path, say=say)
    assert (result.outcome, result.findings) == (RehearsalOutcome.PASSED, ())


class OneBadReading(FakeCluster):
    """A cluster whose first inventory after `begin` lacks a topic."""

    losses: tuple[set[str], ...] = ()

    def begin(self) -> None:
        self.losses = ({"orders"},)

    @property
    def lost_in_the_roll(self) -> set[str]:
        lost, self.losses = (self.losses or (set(),))[0], self.losses[1:]
        return lost

    @lost_in_the_roll.setter
    def lost_in_the_roll(self, lost: set[str]) -> None:
        self.losses = (lost,) if lost else ()


def test_a_difference_that_a_second_reading_does_not_have_is_none(tmp_path: Path) -> None:
    world = OneBadReading()
    result, _ = rehearse(world, tmp_path, say=lambda line: world.begin() if line.startswith("change: ") else None)
    assert world.losses == (), "it was read"
    assert (result.outcome, result.findings) == (RehearsalOutcome.PASSED, ())


def test_no_node_counts_as_in_service_before_the_last_election(tmp_path: Path) -> None:
    """A node that passed passes again after another one got its leaderships back: its coordinators have moved."""
    world = WithGroup()
    partition = world.PARTITION
    asked: list[str] = []
    served: list[str] = []
    ended: list[bool] = []

    def say(line: str) -> None:
        if line.startswith("waiting for broker-13") and "leadership" in line:
            asked.append(line)
            world.coordinator_answers[partition] = "NOT_COORDINATOR"  # on broker 12, which has passed
        elif line.startswith("waiting for broker-12"):
            served.append(line)
            world.coordinator_answers.clear()
        elif line.startswith("start on"):
            ended.append(bool(world.coordinator_answers))

    world.topics["orders-2"] = replace(world.topics["orders-2"], leader=11)
    rehearse(world, tmp_path, say=say, unregistered=())
    assert asked, "an election was requested"
    assert (len(served), ended) == (1, [False])


def test_contents_that_are_lost_in_the_change_are_a_finding(tmp_path: Path) -> None:
    world = FakeCluster()

    def say(line: str) -> None:
        if "is done" in line:
            world.lost_in_the_roll = {"orders"}

    result, _ = rehearse(world, tmp_path, say=say)
    assert result.outcome is RehearsalOutcome.FAILED
    assert [finding.subject for finding in result.findings] == ["contents on 4.3.1", "contents back on 3.9.1"]
    assert "Topic orders is missing." in result.findings[0].sentence


@pytest.mark.parametrize("lost", ["message.format.version", "retention.ms"])
def test_only_a_setting_that_the_plan_named_as_dropped_can_be_lost(tmp_path: Path, lost: str) -> None:
    world = FakeCluster()
    own = {"message.format.version": "2.8", "retention.ms": "1000"}
    world.dynamic_configs = DynamicConfigs(topics={"orders": own})
    problem = ConfigProblem(
        kind=ConfigKind.TOPIC,
        name="orders",
        settings=(("message.format.version", "2.8"),),
        check=ConfigCheck.DROPPED,
        reason="Unsupported config message.format.version",
    )
    rejected = replace(problem, settings=(("retention.ms", "1000"),), check=ConfigCheck.VALUE)
    world.dynamic_config_problems[R431] = (problem, rejected)

    def say(line: str) -> None:
        if "is done" in line:
            left = {name: value for name, value in own.items() if name != lost}
            world.dynamic_configs = DynamicConfigs(topics={"orders": left})

    result, _ = rehearse(world, tmp_path, say=say)
    missing = f"Configuration {lost} of topic orders was {own[lost]} and is now missing."
    expected = lost == "message.format.version"
    assert [missing in found.sentence for found in result.findings] == ([] if expected else [True, True])
    phases = {phase.name: phase.sentence for phase in result.phases}
    for when in ("on 4.3.1", "back on 3.9.1"):
        sentence = phases[f"comparison {when}"]
        assert sentence.startswith(f"0 differences, and 1 that the plan expects. {missing}") is expected


def test_the_comparison_lists_expected_losses_as_sentences(tmp_path: Path) -> None:
    world = FakeCluster()
    lost = {f"s{number}": "1" for number in range(5)}
    world.dynamic_configs = DynamicConfigs(topics={"orders": lost})
    world.dynamic_config_problems[R431] = (
        ConfigProblem(
            kind=ConfigKind.TOPIC,
            name="orders",
            settings=tuple(lost.items()),
            check=ConfigCheck.DROPPED,
            reason="Unsupported config",
        ),
    )

    def say(line: str) -> None:
        if "is done" in line:
            world.dynamic_configs = DynamicConfigs()

    result, _ = rehearse(world, tmp_path, say=say)
    phases = {phase.name: phase.sentence for phase in result.phases}
    listed = " ".join(f"Configuration {name} of topic orders was 1 and is now missing." for name in lost)
    sentence = f"0 differences, and 5 that the plan expects. {listed}"
    assert phases["comparison on 4.3.1"].startswith(f"{sentence} New settings: ")
    assert phases["comparison back on 3.9.1"] == sentence


def test_a_stopped_rehearsal_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(RehearsalStoppedError, match="Nothing of it is left"):
        rehearse(FakeCluster(), tmp_path, stop=True)


def test_the_groups_of_a_partition_that_no_broker_serves_are_unknown_and_not_missing(tmp_path: Path) -> None:
    world = WithGroup()
    ports = fake_ports(world, tmp_path)

    def read(*uncovered: str) -> Contents:
        return read_contents(ports.admin, ports.clock, world.spec.brokers, uncovered=uncovered)

    before = read()
    world.coordinator_answers[world.PARTITION] = "NOT_COORDINATOR"
    (unknown,) = compare_contents(before, read())
    assert unknown.sentence == (
        "Not all groups could be read: Coordinator partitions are not served: __consumer_offsets-1 (NOT_COORDINATOR)."
    )
    assert unknown.fails
    assert read(world.PARTITION).inventory.unasked == {}, "a copy does not serve it"


def test_a_right_that_is_missing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = WithGroup()
    ports = fake_ports(world, tmp_path)
    asked: list[object] = []

    def refuse(*args: object) -> CoordinatorAnswers:
        asked.append(args)
        raise RefusedError("Broker 11 does not allow queries of groups for this user.")

    monkeypatch.setattr(FakeAdmin, "coordinators", refuse)
    contents = read_contents(ports.admin, ports.clock, world.spec.brokers)
    assert set(contents.inventory.unasked) == {"groups", "transactional_ids"}
    assert len(asked) == 1, "no repetition cures it"
