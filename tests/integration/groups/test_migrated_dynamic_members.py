"""Members of the dynamic rebalance protocol in a group that is migrated to the new protocol (KIP-848)."""

from __future__ import annotations

import pytest

from dynamic_protocol_consumer.member import Member
from dynamic_protocol_consumer.protocols import RebalanceProtocol
from tests.integration.conftest import MakeCluster
from tests.integration.harness.groups.foreign_members import ConfluentMember
from tests.integration.harness.groups.members import LiveGroup, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full]


def test_members_of_the_new_protocol_come_and_go_and_ours_lose_nothing(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The online migration of a group: the generation of a member is its epoch then, which jumps."""
    jumps: list[int] = []
    joined = Member.joined

    def join_and_note(member: Member, generation: int, assignor: str, *, in_classic_group: bool = True) -> Member:
        if not in_classic_group and not member.in_classic_group and member.generation is not None:
            jumps.append(generation - member.generation)
        return joined(member, generation, assignor, in_classic_group=in_classic_group)

    monkeypatch.setattr(Member, "joined", join_and_note)
    others: dict[str, ConfluentMember] = {}
    settings = {"group.initial.rebalance.delay.ms": "0"}
    cluster = make_cluster("4.3.1", layout="combined", size=1, extra_config=settings)
    with LiveGroup(servers=cluster.spec.bootstrap_servers, topic="migration", partitions=12) as group:
        group.overrides["heartbeat_interval_ms"] = 3000  # several changes of the group between two heartbeats
        group.new("first")
        group.new("second")
        group.wait_settled()
        group.wait_protocol(RebalanceProtocol.COOPERATIVE)
        try:
            others["new-0"] = ConfluentMember(group, "new-0", None)
            wait_until(
                lambda: bool(group.described.get("new-0")), "the first member of the new protocol has partitions"
            )
            group.wait_settled(others=group.foreign)
            for attempt in range(10):
                names = [f"new-{attempt}-{number}" for number in range(3)]
                others |= {name: ConfluentMember(group, name, None) for name in names}
                wait_until(lambda names=names: all(map(group.described.get, names)), "they have partitions")
                group.wait_settled(others=group.foreign)
                for name in names:
                    others.pop(name).stop()
                group.wait_settled(others=group.foreign)
                if max(jumps, default=0) > 1:
                    break
            assert max(jumps) > 1, jumps
        finally:
            for other in others.values():
                other.stop()
        group.wait_settled()
        assert [failure for worker in group.workers.values() for failure in worker.failures] == []
        group.finish()
