from __future__ import annotations

import pytest

from dynamic_protocol_consumer.member import Handover, Member
from dynamic_protocol_consumer.protocols import (
    COOPERATIVE_STICKY,
    RANGE,
    Assignor,
    RebalanceProtocol,
    highest_common_protocol,
)
from tests.unit.consumer.coordinator import most_voted

P0, P1, P2 = (("orders", number) for number in range(3))
COOPERATIVE_ONLY = Assignor(name="mine", protocols=frozenset({RebalanceProtocol.COOPERATIVE}))


def cooperative_member() -> Member:
    member, _ = (
        Member.start([COOPERATIVE_STICKY, RANGE])
        .joined(1, "cooperative-sticky")
        .assigned(owned=frozenset(), assigned=frozenset({P0, P1}))
    )
    return member


def test_a_member_of_both_assignors_starts_eager_and_follows_the_selected_one() -> None:
    member = Member.start([COOPERATIVE_STICKY, RANGE])
    assert member.protocol is RebalanceProtocol.EAGER
    after_range, _ = member.joined(1, "range").assigned(owned=frozenset(), assigned=frozenset({P0}))
    assert after_range.protocol is RebalanceProtocol.EAGER
    assert after_range.to_revoke_before_joining(frozenset({P0})) == {P0}
    member = cooperative_member()
    assert member.protocol is RebalanceProtocol.COOPERATIVE
    assert not member.to_revoke_before_joining(frozenset({P0, P1}))


def test_a_member_of_the_cooperative_assignor_alone_starts_cooperative() -> None:
    assert Member.start([COOPERATIVE_STICKY]).protocol is RebalanceProtocol.COOPERATIVE


def test_assignors_without_a_common_protocol_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="mine, range"):
        highest_common_protocol([COOPERATIVE_ONLY, RANGE])
    with pytest.raises(ValueError, match="none"):
        highest_common_protocol([])


def test_a_cooperative_rebalance_revokes_what_moves_and_asks_for_the_next() -> None:
    member, handover = (
        cooperative_member()
        .joined(2, "cooperative-sticky")
        .assigned(owned=frozenset({P0, P1}), assigned=frozenset({P1, P2}))
    )
    assert handover == Handover(revoked=frozenset({P0}), added=frozenset({P2}), rejoin=True)
    assert not member.refused([P0, P1, P2])


def test_the_short_circuit_loses_what_moves_and_blocks_its_commits_until_it_comes_back() -> None:
    member, handover = (
        cooperative_member().joined(2, "range").assigned(owned=frozenset({P0, P1}), assigned=frozenset({P1, P2}))
    )
    assert handover == Handover(lost=frozenset({P0}), added=frozenset({P2}))
    assert member.protocol is RebalanceProtocol.EAGER
    member = member.took_over(handover.added)
    assert member.refused([P0, P1, P2]) == {P0}
    member, handover = member.joined(3, "range").assigned(owned=frozenset(), assigned=frozenset({P0}))
    assert not member.took_over(handover.added).refused([P0])


def test_partitions_claimed_from_before_a_missed_generation_are_lost_even_if_assigned_again() -> None:
    member, handover = (
        cooperative_member()
        .joined(4, "cooperative-sticky")
        .assigned(owned=frozenset({P0, P1}), assigned=frozenset({P1}))
    )
    assert handover == Handover(lost=frozenset({P0, P1}), added=frozenset({P1}), rejoin=True)
    assert member.refused([P0, P1]) == {P0, P1}
    assert member.took_over(handover.added).refused([P0, P1]) == {P0}


def in_new_group(member: Member, epoch: int, assignor: str = "cooperative-sticky") -> Member:
    return member.joined(epoch, assignor, in_classic_group=False)


def test_epochs_of_a_group_of_the_new_protocol_may_jump_and_nothing_is_lost() -> None:
    owned = frozenset({P0, P1})
    member, handover = in_new_group(cooperative_member(), 2).assigned(owned=owned, assigned=owned)
    assert handover == Handover()
    member, handover = in_new_group(member, 7).assigned(owned=owned, assigned=owned)
    assert handover == Handover()
    member, handover = in_new_group(member, 9).assigned(owned=owned, assigned=frozenset({P1}))
    assert handover == Handover(revoked=frozenset({P0}), rejoin=True)
    assert not member.refused(owned)


@pytest.mark.parametrize("to_classic", [True, False])
def test_a_generation_that_was_missed_before_the_group_changed_its_protocol_counts(to_classic: bool) -> None:
    owned = frozenset({P0, P1})
    member = cooperative_member()
    if to_classic:
        member, _ = in_new_group(member, 2).assigned(owned=owned, assigned=owned)
    joined = member.joined(9, "cooperative-sticky", in_classic_group=to_classic)
    _, handover = joined.assigned(owned=owned, assigned=frozenset({P1}))
    assert handover.lost == owned


def test_the_assignor_of_a_group_of_the_new_protocol_is_no_short_circuit() -> None:
    """The coordinator returns the member's own first assignor, and respects what the member owns."""
    owned = frozenset({P0, P1})
    member, handover = in_new_group(cooperative_member(), 2, "range").assigned(owned=owned, assigned=frozenset({P1}))
    assert handover == Handover(revoked=frozenset({P0}), rejoin=True), "it must join without the revoked partition"
    assert not member.refused(owned)


def test_a_short_circuit_whose_assignment_is_pending_counts_after_the_change_of_the_protocol() -> None:
    owned = frozenset({P0, P1})
    pending = cooperative_member().joined(2, "range")
    _, handover = in_new_group(pending, 3).assigned(owned=owned, assigned=frozenset({P1}))
    assert handover.lost == owned


def test_a_coordinator_that_repeats_the_generation_takes_nothing_away() -> None:
    member, handover = (
        cooperative_member().joined(1, "cooperative-sticky").assigned(owned=frozenset({P0}), assigned=frozenset({P0}))
    )
    assert handover == Handover()
    assert member.protocol is RebalanceProtocol.COOPERATIVE


def test_the_votes_decide_among_the_assignors_that_all_members_support() -> None:
    ours, java, old = ("cooperative-sticky", "range"), ("range", "cooperative-sticky"), ("range",)
    assert most_voted([ours, ours, java]) == ("cooperative-sticky",)
    assert most_voted([ours, java, java]) == ("range",)
    assert most_voted([ours, java]) == ("cooperative-sticky", "range")
    assert most_voted([ours, ours, ours, old]) == ("range",)
    assert most_voted([("cooperative-sticky",), old]) == ()
