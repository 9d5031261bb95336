"""What DescribeQuorum told of a cluster in the middle of its roll from 3.4.1 to 4.3.1."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafka_rollout.client.admin import read_quorum
from kafka_rollout.model.quorum_addresses import Address


def replica(replica_id: int, log_end_offset: int, fetched: int = -1, directory: UUID | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        replica_directory_id=directory,
        replica_id=replica_id,
        log_end_offset=log_end_offset,
        last_fetch_timestamp=fetched,
        last_caught_up_timestamp=fetched,
    )


def answer(*observers: SimpleNamespace) -> Any:
    partition = SimpleNamespace(
        error_code=0,
        leader_id=101,
        leader_epoch=5,
        high_watermark=2045,
        current_voters=[replica(101, 2046, 435607)],
        observers=list(observers),
    )
    nodes = [
        SimpleNamespace(node_id=101, listeners=[SimpleNamespace(name="CONTROLLER", host="C1.", port=9093)]),
        SimpleNamespace(node_id=102, listeners=[]),
    ]
    return SimpleNamespace(error_code=0, topics=[SimpleNamespace(partitions=[partition])], nodes=nodes)


def test_the_addresses_of_the_voters_are_read() -> None:
    quorum = read_quorum(answer(), SimpleNamespace(who="node 101"))  # type: ignore[arg-type]
    assert quorum.voter_addresses == {101: (Address("c1", 9093),), 102: ()}


NOW = replica(2, 2045, 435595)
FORMER = replica(2, 1865, 369056)  # the same broker before its upgrade, when it had no directory id


@pytest.mark.parametrize("observers", [(NOW, FORMER), (FORMER, NOW)])
def test_a_broker_that_is_listed_twice_is_the_one_that_fetched_last(observers: tuple[SimpleNamespace, ...]) -> None:
    quorum = read_quorum(answer(*observers), SimpleNamespace(who="node 101"))  # type: ignore[arg-type]
    assert [(one.replica_id, one.log_end_offset) for one in quorum.observers] == [(2, 2045)]
    assert quorum.lag(2) == 1


def test_without_times_the_longer_log_counts() -> None:
    quorum = read_quorum(answer(replica(2, 2045), replica(2, 1865)), SimpleNamespace(who="node 101"))  # type: ignore[arg-type]
    assert quorum.lag(2) == 1
    assert quorum.observers[0].last_fetch_ms is None


def test_a_replica_has_the_directory_id_as_meta_properties_has_it() -> None:
    formatted = replica(3, 2045, directory=UUID(hex="94ae5ca72c1b4b5e8f3df3d5b54c9a17"))
    static = replica(4, 2045, directory=UUID(int=0))
    quorum = read_quorum(answer(formatted, static), SimpleNamespace(who="node 101"))  # type: ignore[arg-type]
    assert [one.directory_id for one in quorum.observers] == ["lK5cpywbS16PPfPVtUyaFw", ""]
    assert [one.directory_id for one in quorum.voters] == [""], "the leader of an older release does not report it"
