"""When a node counts as impaired: until it was observed back, also if another fault follows at once."""

from __future__ import annotations

from typing import cast

import pytest

from kafka_rollout.model.topology import NodeSpec, Role
from tools.faults.health import Health
from tools.faults.kinds import Kind
from tools.faults.world import World

COMBINED = NodeSpec(node_id=3, name="node-3", roles=frozenset({Role.BROKER, Role.CONTROLLER}))
CONTROLLER = NodeSpec(node_id=101, name="node-101", roles=frozenset({Role.CONTROLLER}))


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def health(clock: list[float]) -> Health:
    return Health(world=cast(World, None), now=lambda: clock[0])


def test_a_broker_that_was_in_sync_between_two_faults_was_impaired_twice(health: Health, clock: list[float]) -> None:
    health.impair(COMBINED, Kind.PAUSE_NODE)
    clock[0] = 110.0
    health.fault_ended(COMBINED)
    health.recovered(COMBINED, 112.0)
    assert health.impaired == {3}, "no other controller is impaired yet"
    clock[0] = 115.0
    health.impair(COMBINED, Kind.CUT_BROKER)
    assert [(one.kind, one.since, one.until) for one in health.all_times()] == [
        (Kind.PAUSE_NODE, 100.0, 112.0),
        (Kind.CUT_BROKER, 115.0, None),
    ]


def test_a_broker_that_was_not_in_sync_between_two_faults_was_impaired_once(health: Health, clock: list[float]) -> None:
    health.impair(COMBINED, Kind.PAUSE_NODE)
    health.fault_ended(COMBINED)
    clock[0] = 115.0
    health.impair(COMBINED, Kind.CUT_BROKER)
    assert [(one.since, one.until) for one in health.all_times()] == [(100.0, None)]


def test_a_controller_is_impaired_until_its_fault_ends_and_spared_for_some_time(
    health: Health, clock: list[float]
) -> None:
    health.impair(CONTROLLER, Kind.KILL_NODE)
    clock[0] = 105.0
    health.fault_ended(CONTROLLER)
    health.recovered(CONTROLLER, 106.0)
    assert health.impaired == {101}
    health.recovered(CONTROLLER, 116.0)
    assert health.impaired == frozenset()
    assert [(one.since, one.until) for one in health.all_times()] == [(100.0, 105.0)]
