"""Which method lowers metadata.version, and why a less disruptive one does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.base.findings import WARNING
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import Role
from kafka_rollout.planning.findings.cluster_state import RF_ONE_TOPIC
from kafka_rollout.planning.lowering import (
    choose_lowering,
    live_obstacles,
)
from tests.unit.builders import R341, R431, SEPARATE, catalogue, node_state, replace_node, state

IDS = [node.node_id for node in SEPARATE.nodes]
CONTROLLER, LIVE, OFFLINE = Lowering.ONLINE, Lowering.LIVE, Lowering.OFFLINE


@pytest.mark.parametrize(
    ("refused", "obstacles", "allowed", "chosen"),
    [
        ("", ("a reason",), Lowering.OFFLINE, CONTROLLER),
        ("Kafka refuses.", (), Lowering.ONLINE, CONTROLLER),
        ("Kafka refuses.", (), Lowering.LIVE, LIVE),
        ("Kafka refuses.", (), Lowering.OFFLINE, LIVE),
        ("Kafka refuses.", ("a reason",), Lowering.LIVE, CONTROLLER),
        ("Kafka refuses.", ("a reason",), Lowering.OFFLINE, OFFLINE),
    ],
)
def test_the_least_disruptive_method_that_is_possible_and_allowed(
    refused: str, obstacles: tuple[str, ...], allowed: Lowering, chosen: Lowering
) -> None:
    choice = choose_lowering(refused, obstacles, allowed, lowers_binary=True)
    assert choice.lowering is chosen
    assert choice.not_live == (obstacles[0] if refused and obstacles else "")


def test_without_an_older_binary_only_the_controller_lowers_it() -> None:
    choice = choose_lowering("Kafka refuses.", (), Lowering.OFFLINE, lowers_binary=False)
    assert choice.lowering is CONTROLLER


def test_separate_controllers_of_a_release_that_supports_the_level_have_no_obstacle() -> None:
    assert live_obstacles(SEPARATE, catalogue(), _seen(), 29, ()) == ()
    assert (
        live_obstacles(
            SEPARATE, catalogue(), _seen(), 29, (RF_ONE_TOPIC.found("topic a", "It.", "Do.", severity=WARNING),)
        )
        == ()
    )


def test_a_combined_node_a_level_and_what_prevents_a_roll_are_obstacles() -> None:
    first, *others = SEPARATE.nodes
    both = replace(first, roles=frozenset({Role.BROKER, Role.CONTROLLER}))
    some_combined = replace(SEPARATE, nodes=(both, *others))
    (found,) = live_obstacles(some_combined, catalogue(), _seen(), 29, ())
    assert found == f"node {first.node_id} would stop serving, because a combined node is controller and broker"
    older = replace(_seen(), nodes=replace_node(_seen(), node_state(IDS[0], R341)))
    (found,) = live_obstacles(SEPARATE, catalogue(), older, 29, ())
    assert found == f"node {IDS[0]} runs 3.4.1, which does not support metadata.version 29"
    (found,) = live_obstacles(SEPARATE, catalogue(), _seen(), 29, (RF_ONE_TOPIC.found("topic a", "It.", "Do."),))
    assert found == "RF-ONE-TOPIC of topic a prevents a rolling downgrade"


def test_a_node_that_does_not_report_its_release_is_an_obstacle() -> None:
    nodes = {node_id: node for node_id, node in _seen().nodes.items() if node_id != IDS[0]}
    (found,) = live_obstacles(SEPARATE, catalogue(), replace(_seen(), nodes=nodes), 29, ())
    assert found == f"the release of node {IDS[0]} is unknown"


def _seen() -> ClusterState:
    return state(nodes={node_id: node_state(node_id, R431) for node_id in IDS})
