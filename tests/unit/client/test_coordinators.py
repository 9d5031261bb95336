"""Groups of a coordinator that moves while it is queried."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.connection import NotOfferedError
from kafka_rollout.client.coordinators import groups_of_broker, list_groups, subscribed_topics
from kafka_rollout.client.messages import StreamsGroupDescribeRequest
from kafka_rollout.client.requests import ClusterConnections, Target
from kafka_rollout.model.groups import DescribedGroup

BROKER = Target(node_id=1, address="broker-1:9092", who="Broker 1")
NOT_COORDINATOR, LOADING, NOT_AVAILABLE, GROUP_ID_NOT_FOUND, NOT_AUTHORIZED = 16, 14, 15, 69, 30


class Nodes:
    """A broker that lists one group and answers its description with an error code."""

    def __init__(self, code: int) -> None:
        self._code = code

    def from_each(self, targets: Any, ask: Any) -> list[Any]:
        return [ask(target) for target in targets]

    def ask(self, target: Target, request: Any) -> Any:
        if isinstance(request, ListGroupsRequest):
            group = SimpleNamespace(group_id="g", group_type="classic", group_state="Stable", protocol_type="consumer")
            return SimpleNamespace(error_code=0, groups=[group])
        return SimpleNamespace(groups=[SimpleNamespace(group_id="g", error_code=self._code, members=["one"])])


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_group_that_moves_between_list_and_description_is_no_group_without_members(code: int) -> None:
    with pytest.raises(TransientError, match="the members of group g now"):
        list_groups(cast(ClusterConnections, Nodes(code)), [BROKER])


@pytest.mark.parametrize(("code", "members"), [(0, 1), (GROUP_ID_NOT_FOUND, None), (NOT_AUTHORIZED, None)])
def test_a_deleted_or_hidden_group_has_an_unknown_number_of_members(code: int, members: int | None) -> None:
    (group,) = list_groups(cast(ClusterConnections, Nodes(code)), [BROKER])
    assert (group.group_id, group.members) == ("g", members)


class NodesOf41(Nodes):
    """A broker of 4.1: it loads and lists groups of streams, and does not describe them."""

    def __init__(self, state: str) -> None:
        super().__init__(0)
        self._state = state

    def ask(self, target: Target, request: Any) -> Any:
        if isinstance(request, StreamsGroupDescribeRequest):
            raise NotOfferedError("Broker 1 does not support StreamsGroupDescribe.", remedy="Its release is too old.")
        if not isinstance(request, ListGroupsRequest):
            return SimpleNamespace(
                groups=[SimpleNamespace(group_id="a", error_code=30, members=[], group_state="Empty")]
            )
        groups = [
            SimpleNamespace(group_id=name, group_type=kind, group_state=self._state, protocol_type=kind)
            for name, kind in (("a", "classic"), ("b", "streams"), ("c", "of a later release"))
        ]
        return SimpleNamespace(error_code=0, groups=groups)


@pytest.mark.parametrize(("state", "active"), [("Empty", False), ("NotReady", True)])
def test_a_listed_group_that_its_broker_cannot_describe_counts_by_its_state(state: str, active: bool) -> None:
    nodes = cast(ClusterConnections, NodesOf41(state))
    groups = list_groups(nodes, [BROKER])
    assert [(group.group_id, group.members, group.is_active) for group in groups] == [
        (name, None, active) for name in "abc"
    ]
    described = {group.group_id: group for group in groups_of_broker(nodes, BROKER)}
    assert [described[name].is_empty for name in "bc"] == [not active] * 2
    assert ["does not describe" in described[name].problem for name in "bc"] == [active] * 2


class NodesOfStreams(Nodes):
    """A broker with a group of Kafka Streams: two tasks of one subtopology, and one of another."""

    def ask(self, target: Target, request: Any) -> Any:
        if isinstance(request, ListGroupsRequest):
            group = SimpleNamespace(group_id="app", group_type="streams", group_state="Stable", protocol_type="streams")
            return SimpleNamespace(error_code=0, groups=[group])
        topology = SimpleNamespace(subtopologies=[_subtopology("0", "orders", "prices"), _subtopology("1", "app-sums")])
        members = [_of_streams(self._code == 1, {"0": [0, 1]}), _of_streams(False, {"0": [2], "1": [0]})]
        answer = {"group_epoch": 3, "topology": topology if self._code == 0 else None, "members": members}
        return SimpleNamespace(groups=[SimpleNamespace(group_id="app", error_code=0, group_state="Stable", **answer)])


def _subtopology(name: str, *topics: str) -> Any:
    made = [SimpleNamespace(name=one) for one in topics if one.startswith("app-")]
    sources = [one for one in topics if not one.startswith("app-")]
    return SimpleNamespace(subtopology_id=name, source_topics=sources, repartition_source_topics=made)


def _of_streams(is_classic: bool, tasks: dict[str, list[int]]) -> Any:
    active = [SimpleNamespace(subtopology_id=name, partitions=numbers) for name, numbers in tasks.items()]
    return SimpleNamespace(
        member_id="m",
        client_id="c",
        client_host="/h",
        instance_id=None,
        is_classic=is_classic,
        assignment=SimpleNamespace(active_tasks=active, standby_tasks=[]),
    )


def test_a_member_of_streams_has_the_partitions_of_its_tasks() -> None:
    (group,) = groups_of_broker(cast(ClusterConnections, NodesOfStreams(0)), BROKER)
    first, second = (member.assigned for member in group.members)
    assert first == (("orders", 0), ("orders", 1), ("prices", 0), ("prices", 1))
    assert second == (("app-sums", 0), ("orders", 2), ("prices", 2))
    (answer,) = NodesOfStreams(0).ask(BROKER, None).groups
    assert subscribed_topics(group, answer) == ["app-sums", "orders", "prices"]
    (unready,) = groups_of_broker(cast(ClusterConnections, NodesOfStreams(1)), BROKER)
    assert [member.assigned for member in unready.members] == [(), ()]


CLASSIC_GROUP = DescribedGroup(group_id="g", type="classic", state="Stable", protocol_type="consumer")


def subscription(*topics: str) -> bytes:
    return bytes(ConsumerProtocolSubscription(version=1, topics=[*topics], user_data=b"", owned_partitions=[]).encode())


def of_consumer(*names: str, assigned: tuple[str, ...] = ()) -> Any:
    topics = [SimpleNamespace(topic_name=name, partitions=[0]) for name in assigned]
    return SimpleNamespace(subscribed_topic_names=[*names], assignment=SimpleNamespace(topic_partitions=topics))


@pytest.mark.parametrize(
    ("group", "members", "topics"),
    [
        (CLASSIC_GROUP, [subscription("b", "a"), subscription("c")], ["a", "b", "c"]),
        (CLASSIC_GROUP, [subscription("a"), b""], None),  # in a rebalance
        (CLASSIC_GROUP, [b"\x00"], None),
        (CLASSIC_GROUP, [], None),
        (replace(CLASSIC_GROUP, protocol_type="connect"), [subscription("a")], None),
        (replace(CLASSIC_GROUP, type="consumer"), [of_consumer("a"), of_consumer(assigned=("b",))], ["a", "b"]),
        (replace(CLASSIC_GROUP, type="streams"), [of_consumer("a")], None),
    ],
)
def test_the_topics_that_members_subscribe_to_are_known_or_unknown(
    group: DescribedGroup, members: list[Any], topics: list[str] | None
) -> None:
    """A pattern of the consumer protocol has no names: then it is the assignment."""
    told = [SimpleNamespace(member_metadata=one) if isinstance(one, bytes) else one for one in members]
    assert subscribed_topics(group, SimpleNamespace(error_code=0, members=told)) == topics
    assert subscribed_topics(group, SimpleNamespace(error_code=NOT_AUTHORIZED, members=told)) is None
