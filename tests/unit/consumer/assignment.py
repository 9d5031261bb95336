"""What leaders compute: the range assignor, which ignores ownership, and the cooperative sticky one (KIP-429)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dynamic_protocol_consumer.protocols import COOPERATIVE_STICKY, Partition
from tests.unit.consumer.coordinator import Claim


def assign(
    assignor: str, partitions: Iterable[Partition], claims: Mapping[str, Claim]
) -> dict[str, frozenset[Partition]]:
    """Partitions of one topic over the members, by assignor name."""
    compute = _cooperative_sticky if assignor == COOPERATIVE_STICKY.name else _range
    return compute(sorted(partitions), claims)


def _range(partitions: list[Partition], claims: Mapping[str, Claim]) -> dict[str, frozenset[Partition]]:
    each, extra = divmod(len(partitions), len(claims))
    assignment, at = {}, 0
    for index, member in enumerate(sorted(claims)):
        size = each + (index < extra)
        assignment[member] = frozenset(partitions[at : at + size])
        at += size
    return assignment


def _cooperative_sticky(partitions: list[Partition], claims: Mapping[str, Claim]) -> dict[str, frozenset[Partition]]:
    """Balanced, with as few moves as that takes; what moves is first given to nobody."""
    owner: dict[Partition, str] = {}
    for member in sorted(claims, key=lambda name: (claims[name].generation, name)):
        for partition in claims[member].owned:
            owner[partition] = member  # the younger claim wins
    wanted: dict[str, list[Partition]] = {member: [] for member in sorted(claims)}
    homeless: list[Partition] = []
    each, extra = divmod(len(partitions), len(claims))
    for partition in partitions:
        kept = wanted.get(owner.get(partition, ""))
        if kept is None or len(kept) > each or (len(kept) == each and extra == 0):
            homeless.append(partition)
            continue
        kept.append(partition)
        extra -= len(kept) > each
    for partition in homeless:
        min(wanted.values(), key=len).append(partition)
    return {
        member: frozenset(partition for partition in theirs if owner.get(partition, member) == member)
        for member, theirs in wanted.items()
    }
