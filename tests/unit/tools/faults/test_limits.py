"""A fault leaves alone what the cluster cannot spare, and a stop at a wrong time is found."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from kafka_rollout.model.topology import NodeSpec, Role
from tools.faults.kinds import Kind
from tools.faults.limits import Impaired, Stop, can_be_spared, choose_target, unsafe_stops
from tools.faults.plan import Fault, Moment


def node(node_id: int, *roles: Role) -> NodeSpec:
    return NodeSpec(node_id=node_id, name=f"node-{node_id}", roles=frozenset(roles))


SEPARATE = [*(node(100 + i, Role.CONTROLLER) for i in (1, 2, 3)), *(node(i, Role.BROKER) for i in (1, 2, 3))]
COMBINED = [node(i, Role.BROKER, Role.CONTROLLER) for i in (1, 2, 3)]
PAUSE = Fault(
    number=1,
    kind=Kind.PAUSE_NODE,
    at=Moment(event="stopping", nth=1),
    delay_s=0,
    for_s=5,
    elsewhere=True,
    pick=0,
)


def targets(fault: Fault, nodes: list[NodeSpec], here: int | None, impaired: Collection[int]) -> set[int | None]:
    found = (choose_target(replace(fault, pick=pick), nodes, here=here, impaired=impaired) for pick in range(20))
    return {None if one is None else one.node_id for one in found}


def test_a_fault_hits_any_other_node_while_all_are_in_sync() -> None:
    assert targets(PAUSE, SEPARATE, 1, ()) == {2, 3, 101, 102, 103}
    assert targets(replace(PAUSE, elsewhere=False), SEPARATE, 1, ()) == {1}


def test_while_a_broker_is_replaced_no_other_broker_is_hit() -> None:
    assert targets(PAUSE, SEPARATE, 1, {1}) == {101, 102, 103}
    assert targets(PAUSE, COMBINED, 1, {1}) == {1}, "the node in its step is the only one"


def test_two_impaired_nodes_leave_nothing_to_hit() -> None:
    assert targets(PAUSE, COMBINED, 1, {1, 2}) == {None}


def test_a_fault_of_a_role_hits_no_other() -> None:
    assert targets(replace(PAUSE, kind=Kind.CUT_BROKER), SEPARATE, 101, ()) == {1, 2, 3}
    assert targets(replace(PAUSE, kind=Kind.PARTITION_CONTROLLER), SEPARATE, 1, ()) == {101, 102, 103}


def test_a_connection_of_the_worker_is_cut_at_any_time() -> None:
    assert targets(replace(PAUSE, kind=Kind.CUT_SSH), COMBINED, None, {1, 2, 3}) == {1, 2, 3}


def test_a_broker_can_be_spared_while_a_controller_is_impaired() -> None:
    assert can_be_spared(SEPARATE[3], SEPARATE, {101})
    assert not can_be_spared(SEPARATE[3], SEPARATE, {2})
    assert not can_be_spared(COMBINED[0], COMBINED, {2})


PAUSED = Impaired(node_id=2, kind=Kind.PAUSE_NODE, since=100.0, until=130.0)


@pytest.mark.parametrize(
    ("stop", "impaired", "unsafe"),
    [
        (Stop(node_id=1, at=115.0), PAUSED, True),
        (Stop(node_id=1, at=115.0), replace(PAUSED, until=None), True),
        (Stop(node_id=1, at=104.0), PAUSED, False),  # a check that began before the fault
        (Stop(node_id=1, at=128.0), PAUSED, False),  # the observation of the end can be this late
        (Stop(node_id=1, at=140.0), PAUSED, False),
        (Stop(node_id=2, at=115.0), PAUSED, False),  # the node itself
        (Stop(node_id=101, at=115.0), PAUSED, False),  # another role
        (Stop(node_id=1, at=115.0), replace(PAUSED, kind=Kind.FILL_DISK), False),  # it may still be in sync
    ],
)
def test_a_stop_is_unsafe_while_another_node_was_known_to_be_out(stop: Stop, impaired: Impaired, unsafe: bool) -> None:
    assert bool(unsafe_stops([stop], [impaired], SEPARATE)) is unsafe


def test_the_sentence_of_an_unsafe_stop_names_both_nodes() -> None:
    (sentence,) = unsafe_stops([Stop(node_id=1, at=115.0)], [PAUSED], SEPARATE)
    assert "Node 1 was stopped 15.0 s after pause-node began on node 2" in sentence
