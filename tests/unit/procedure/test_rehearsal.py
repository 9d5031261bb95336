"""A rehearsal on the fake cluster: the copy starts, changes, is compared and goes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.model.configs import ConfigCheck, ConfigKind, ConfigProblem, DynamicConfigs
from kafka_rollout.model.plan import Direction
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.rehearsal import Rehearsal
from kafka_rollout.rehearsal.job import RehearsalStoppedError, order_rehearsal
from kafka_rollout.rehearsal.result import Contents, RehearsalOutcome, RehearsalResult, read_contents
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports


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
    say: Callable[[str], None] = lambda line: None,
) -> tuple[RehearsalResult, list[str]]:
    """The result of an upgrade from 3.9.1 to 4.3.1 on a copy, and its progress."""
    lines: list[str] = []
    ports = fake_ports(stopped(world), folder)
    request = Request(target=R431, plans_features=False)
    job = order_rehearsal(request, world.spec.name, Direction.UPGRADE, [R391, R431], gate_timeout_s=60.0)
    job = replace(job, nodes=tuple(world.nodes), unregistered=(99,), real=real, later=real)

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
    real = read_contents(ports.admin, ports.clock)
    real = replace(real, transactional_ids=("tx-1",))
    result, _ = rehearse(world, tmp_path, real=real)
    (finding,) = result.findings
    assert (finding.code, finding.subject) == ("REHEARSAL-DIFFERS", "contents on 3.9.1")


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
