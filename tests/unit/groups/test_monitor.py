from __future__ import annotations

from dataclasses import replace

from kafka_rollout.groups.monitor import MonitoredGroups
from kafka_rollout.model.groups import DescribedGroup, GroupMember


def member(name: str, *partitions: int) -> GroupMember:
    assigned = tuple(("t", number) for number in partitions)
    return GroupMember(client_id=name, host="/h", member_id=name, assigned=assigned)


def group(
    *members: GroupMember,
    state: str = "Stable",
    assignor: str = "range",
    kind: str = "classic",
    epoch: int | None = None,
) -> DescribedGroup:
    return DescribedGroup(group_id="g", type=kind, state=state, assignor=assignor, members=members, epoch=epoch)


def bare(seen: DescribedGroup) -> DescribedGroup:
    """As a coordinator describes it between two generations: no assignor, nobody has anything."""
    nothing = tuple(replace(each, assigned=()) for each in seen.members)
    return replace(seen, state="PreparingRebalance", assignor="", members=nothing)


def watched(*checks: DescribedGroup | None) -> dict[str, object]:
    """One check a second."""
    watch = MonitoredGroups()
    for at, seen in enumerate(checks):
        watch.add([seen] if seen else [], float(at))
    (told,) = watch.to_dict()["groups"]
    return dict(told)


TWO = group(member("a", 0), member("b", 1))
COOPERATIVE = replace(TWO, assignor="cooperative-sticky")


def test_a_quiet_group_has_no_rebalance_and_its_partitions_always_an_owner() -> None:
    told = watched(TWO, TWO, TWO)
    assert (told["rebalances"], told["unowned_partition_s"], told["watched_s"]) == (0, 0, 2.0)


def test_while_an_eager_group_rebalances_nobody_owns_anything() -> None:
    told = watched(TWO, bare(TWO), bare(TWO), TWO)
    assert (told["rebalances"], told["unowned_partition_s"], told["longest_unowned_s"]) == (1, 4.0, 2.0)


def test_a_cooperative_group_keeps_what_its_members_have() -> None:
    assert watched(COOPERATIVE, bare(COOPERATIVE), COOPERATIVE)["unowned_partition_s"] == 0
    without_b = replace(COOPERATIVE, members=COOPERATIVE.members[:1])
    assert watched(COOPERATIVE, bare(without_b), without_b)["unowned_s"] == {"t-1": 2.0}


def test_a_rebalance_between_two_looks_is_seen_by_its_traces() -> None:
    assert watched(TWO, group(member("a", 0), member("c", 1)))["rebalances"] == 1
    assert watched(TWO, group(member("a", 1), member("b", 0)))["rebalances"] == 1


def test_rebalances_of_the_newer_types_are_their_epochs() -> None:
    first, later = (replace(TWO, type="consumer", epoch=epoch) for epoch in (3, 6))
    assert watched(first, later)["rebalances"] == 3


def test_a_coordinator_that_is_gone_is_time_in_which_nobody_told() -> None:
    told = watched(TWO, None, TWO)
    assert (told["unseen_s"], told["unowned_partition_s"], told["rebalances"]) == (1.0, 0, 0)


def test_a_group_that_appears_later_is_watched_from_then_on() -> None:
    assert watched(None, TWO, TWO)["watched_s"] == 1.0
