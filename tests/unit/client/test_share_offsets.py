"""The start offsets of share groups are part of the contents of a cluster (KIP-932)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.admin import ListGroupsRequest

from kafka_rollout.client.connection import NotOfferedError
from kafka_rollout.client.contents import _groups
from kafka_rollout.client.messages import DescribeShareGroupOffsetsRequest
from kafka_rollout.client.requests import ClusterConnections, Target

BROKER = Target(node_id=1, address="broker-1:9092", who="Node 1 (broker-1)")
UNSUPPORTED_VERSION, NOT_LEADER = 35, 6


class Nodes:
    """A broker with two share groups; `jobs` has read one partition of three."""

    def __init__(self, *, offers: bool = True, of_group: int = 0, of_partition: int = 0) -> None:
        self._offers, self._of_group, self._of_partition = offers, of_group, of_partition

    def ask(self, target: Target, request: Any) -> Any:
        if isinstance(request, ListGroupsRequest):
            groups = [
                SimpleNamespace(group_id=name, group_type="share", group_state="Empty", protocol_type="share")
                for name in ("idle", "jobs")
            ]
            return SimpleNamespace(error_code=0, groups=groups)
        assert isinstance(request, DescribeShareGroupOffsetsRequest)
        if not self._offers:
            raise NotOfferedError("Node 1 (broker-1) does not support it.", remedy="Its release is too old.")
        partitions = [
            SimpleNamespace(partition_index=0, start_offset=1000, error_code=0),
            SimpleNamespace(partition_index=1, start_offset=-1, error_code=0),
            SimpleNamespace(partition_index=2, start_offset=0, error_code=self._of_partition),
        ]
        topics = {"idle": [], "jobs": [SimpleNamespace(topic_name="orders", partitions=partitions)]}
        return SimpleNamespace(
            groups=[
                SimpleNamespace(group_id=one.group_id, error_code=self._of_group, topics=topics[one.group_id])
                for one in request.groups
            ]
        )


def read(nodes: Nodes) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """Group → offsets, and what could not be read."""
    unasked: dict[str, str] = {}
    groups = _groups(cast(ClusterConnections, nodes), [BROKER], unasked)
    assert {group["type"] for group in groups.values()} == {"share"}
    return {name: group["offsets"] for name, group in groups.items()}, unasked


def test_start_offsets_are_read_without_those_that_do_not_exist() -> None:
    assert read(Nodes()) == ({"idle": {}, "jobs": {"orders-0": 1000, "orders-2": 0}}, {})


def test_what_a_broker_cannot_report_is_named() -> None:
    none = {"idle": {}, "jobs": {}}
    assert read(Nodes(offers=False)) == (none, {"share_offsets": "Node 1 (broker-1) does not support it."})
    assert read(Nodes(of_group=UNSUPPORTED_VERSION)) == (
        none,
        {"share_offsets": "Node 1 (broker-1) does not serve share groups at the finalized levels."},
    )
    found, unasked = read(Nodes(of_partition=NOT_LEADER))
    assert found["jobs"] == {"orders-0": 1000}, "an offset beside an error code is none"
    assert unasked["share_offsets"].endswith("for orders-2 of share group jobs.")


@pytest.mark.parametrize(
    ("nodes", "unread"),
    [
        (Nodes(), []),
        (Nodes(of_partition=NOT_LEADER), ["jobs"]),
        (Nodes(of_group=UNSUPPORTED_VERSION), ["idle", "jobs"]),
        (Nodes(offers=False), ["idle", "jobs"]),
    ],
)
def test_a_group_is_unread_if_one_of_its_offsets_is(nodes: Nodes, unread: list[str]) -> None:
    groups = _groups(cast(ClusterConnections, nodes), [BROKER], {})
    assert [name for name, group in groups.items() if group.get("unread")] == unread
