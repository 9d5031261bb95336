"""Groups in every order of events: no member writes over another's offsets, and each ends where it should."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dynamic_protocol_consumer.protocols import COOPERATIVE_STICKY, RANGE, Assignor, RebalanceProtocol
from tests.unit.consumer.simulation import Group

OLD = (RANGE,)
NEW = (COOPERATIVE_STICKY, RANGE)
RANGE_FIRST = (RANGE, COOPERATIVE_STICKY)  # Java's default since 3.0
NAMES = ("a", "b", "c", "d")
PARTITIONS = frozenset(("orders", number) for number in range(6))

names = st.sampled_from(NAMES)


class AnyOrder(RuleBasedStateMachine):
    """Old and new members that come, go, consume, commit, miss rebalances and crash, in any order."""

    short_circuit = True

    def __init__(self) -> None:
        super().__init__()
        self.group = Group(partitions=PARTITIONS, short_circuit=self.short_circuit)

    def alive(self, name: str) -> bool:
        return name in self.group.processes

    @initialize(kinds=st.lists(st.sampled_from([OLD, NEW, NEW]), max_size=3))
    def begin_with(self, kinds: list[tuple[Assignor, ...]]) -> None:
        for name, assignors in zip(NAMES, kinds, strict=False):
            self.group.start(name, assignors)
        self.group.settle()

    @rule(name=names, assignors=st.sampled_from([OLD, NEW, RANGE_FIRST]))
    def start(self, name: str, assignors: Sequence[Assignor]) -> None:
        if not self.alive(name):
            self.group.start(name, assignors)

    @rule(name=names)
    def stop(self, name: str) -> None:
        if self.alive(name):
            self.group.stop(name)

    @rule(name=names)
    def crash(self, name: str) -> None:
        if self.alive(name):
            self.group.crash(name)

    @rule()
    def expire_sessions(self) -> None:
        self.group.expire_sessions()

    @rule(name=names, steps=st.lists(st.sampled_from(["poll", "answer_join", "answer_sync"]), min_size=1, max_size=3))
    def rebalance_one(self, name: str, steps: list[str]) -> None:
        for step in steps:
            if self.alive(name):
                getattr(self.group, step)(name)

    @rule(name=names, commits=st.booleans(), delivered=st.integers(0, 6))
    def work(self, name: str, commits: bool, delivered: int) -> None:
        if self.alive(name):
            self.group.consume(name)
            if commits:
                self.group.send_commit(name)
            for _ in range(delivered):
                self.group.deliver_commit(name)

    @rule(data=st.data())
    def complete_join(self, data: st.DataObject) -> None:
        self.group.pick = lambda candidates: data.draw(st.sampled_from(candidates))
        self.group.complete_join()
        self.group.pick = min

    @rule(data=st.data(), order=st.permutations(NAMES), late=st.sets(names), deaf=st.sets(names))
    def rebalance(self, data: st.DataObject, order: list[str], late: set[str], deaf: set[str]) -> None:
        """Those who are not late join; those who are not deaf hear what came of it."""
        for name in order:
            self.rebalance_one(name, [] if name in late else ["poll"])
        self.complete_join(data)
        for answer in ("answer_join", "answer_sync"):
            for name in order:
                self.rebalance_one(name, [] if name in deaf else [answer])

    @precondition(lambda self: self.group.processes)
    @rule()
    def leave_in_peace(self) -> None:
        self.group.settle()
        assert_each_partition_has_one_owner(self.group)

    @invariant()
    def nobody_writes_over_another(self) -> None:
        assert not self.group.coordinator.overwrites


class AnyOrderWithoutShortCircuit(AnyOrder):
    short_circuit = False


def assert_each_partition_has_one_owner(group: Group) -> None:
    owned = [partition for process in group.processes.values() for partition in process.owned]
    assert sorted(owned) == sorted(PARTITIONS)


def migrated(count: int = 4) -> Group:
    group = Group(partitions=PARTITIONS)
    for name in NAMES[:count]:
        group.start(name, NEW)
    group.settle()
    assert group.protocols == {RebalanceProtocol.COOPERATIVE}
    return group


MACHINE_SETTINGS = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_in_any_order_of_events_no_member_writes_over_anothers_offsets() -> None:
    run_state_machine_as_test(AnyOrder, settings=MACHINE_SETTINGS)


def test_without_the_short_circuit_the_simulator_finds_the_corruption_of_the_document() -> None:
    group = leader_of_old_code_in_a_cooperative_group(short_circuit=False)
    (overwrite, *_) = group.coordinator.overwrites
    assert overwrite.member != overwrite.owner
    assert not group.refusals


def test_with_the_short_circuit_the_same_events_end_in_refused_commits() -> None:
    group = leader_of_old_code_in_a_cooperative_group(short_circuit=True)
    assert not group.coordinator.overwrites
    assert group.refusals
    assert group.protocols == {RebalanceProtocol.EAGER}
    group.stop("a")
    group.settle()
    assert group.protocols == {RebalanceProtocol.COOPERATIVE}
    assert_each_partition_has_one_owner(group)


def test_without_the_short_circuit_any_order_of_events_finds_a_corruption_too() -> None:
    with pytest.raises(AssertionError, match="overwrites"):
        run_state_machine_as_test(
            AnyOrderWithoutShortCircuit,
            settings=settings(MACHINE_SETTINGS, max_examples=5000, derandomize=True, phases=[Phase.generate]),
        )


def leader_of_old_code_in_a_cooperative_group(*, short_circuit: bool) -> Group:
    """The document's example: the last old member misses a rebalance and comes back as the leader."""
    group = Group(partitions=PARTITIONS, short_circuit=short_circuit)
    group.start("a", OLD)
    for name in ("b", "c"):
        group.start(name, NEW)
    group.settle()
    group.crash("a")
    group.settle()  # without it, b and c turn COOPERATIVE
    assert group.protocols == {RebalanceProtocol.COOPERATIVE}
    for name in ("b", "c"):
        group.consume(name)
    group.start("a", OLD)
    group.coordinator.leader = ""
    group.pick = lambda candidates: next((name for name in candidates if name.startswith("a")), min(candidates))
    group.settle()
    assert group.coordinator.leader.startswith("a")
    return group


@pytest.mark.parametrize("order", list(itertools.permutations(NAMES)))
@pytest.mark.parametrize("crashes", [False, True])
def test_one_rolling_bounce_takes_a_group_from_range_to_cooperative(order: tuple[str, ...], crashes: bool) -> None:
    group = Group(partitions=PARTITIONS)
    for name in NAMES:
        group.start(name, OLD)
    group.settle()
    for name in order:
        assert group.protocols == {RebalanceProtocol.EAGER}
        (group.crash if crashes else group.stop)(name)
        group.start(name, NEW)
        group.settle()
        assert_each_partition_has_one_owner(group)
    assert group.protocols == {RebalanceProtocol.COOPERATIVE}
    assert not group.coordinator.overwrites
    assert not group.refusals


def test_in_a_cooperative_group_only_partitions_that_move_are_revoked() -> None:
    group = migrated()
    before = {name: process.owned for name, process in group.processes.items()}
    group.handovers.clear()
    group.stop("b")
    group.settle()
    group.start("b", NEW)
    group.settle()
    given_up = {name: frozenset[tuple[str, int]]() for name in NAMES}
    for name, handover in group.handovers:
        assert not handover.lost
        given_up[name] |= handover.revoked
    for name in ("a", "c", "d"):
        after = group.processes[name].owned
        assert not before[name] & after & given_up[name]


def test_members_go_back_to_range_one_by_one_and_nothing_is_overwritten() -> None:
    group = migrated()
    for name in NAMES:
        for other in group.processes:
            group.consume(other)
        group.stop(name)
        group.start(name, OLD)
        group.settle()
        assert group.protocols == {RebalanceProtocol.EAGER}
        assert_each_partition_has_one_owner(group)
    assert not group.coordinator.overwrites


def test_a_group_goes_back_and_forth_with_every_old_member_that_comes_and_goes() -> None:
    group = migrated(3)
    for _ in range(3):
        group.start("d", OLD)
        group.settle()
        assert group.protocols == {RebalanceProtocol.EAGER}
        group.stop("d")
        group.settle()
        assert group.protocols == {RebalanceProtocol.COOPERATIVE}
        assert_each_partition_has_one_owner(group)
    assert not group.coordinator.overwrites


@pytest.mark.parametrize("heard", [True, False])
def test_what_was_given_away_in_a_rebalance_whose_outcome_a_member_never_heard_is_lost(heard: bool) -> None:
    """An old member comes and goes; "b" joined that generation, perhaps heard of range, and got no assignment."""
    group = migrated(2)
    group.stop("a")
    group.settle()
    group.consume("b")
    group.start("a", OLD)
    for name in ("a", "b"):
        group.poll(name)
    group.coordinator.leader = group.processes["a"].id
    group.complete_join()
    if heard:
        group.answer_join("b")
    group.answer_join("a")
    group.answer_sync("a")
    given = group.processes["a"].owned
    for _ in range(2):
        group.consume("a")
    group.stop("a")  # its offsets are ahead of what "b" remembers
    group.answer_sync("b")
    group.settle()
    assert given < group.processes["b"].owned
    assert {group.processes["b"].positions[partition] for partition in given} == {2}
    group.stop("b")
    assert not group.coordinator.overwrites
