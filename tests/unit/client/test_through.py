"""Partitions and registrations are asked of the brokers that the caller names, because others can have old metadata."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.requests import ClusterConnections, Target
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from tests.unit.builders import quorum

BROKERS = tuple(
    NodeSpec(node_id=i, name=f"broker-{i}", roles=frozenset({Role.BROKER}), broker_address=f"a:{i}") for i in (1, 2, 3)
)


@pytest.mark.parametrize("call", ["partitions", "registered"])
@pytest.mark.parametrize(("through", "asked"), [((2, 3), [2, 3]), ((), [1, 2, 3])])
def test_only_the_named_brokers_are_asked(
    monkeypatch: pytest.MonkeyPatch, call: str, through: Collection[int], asked: list[int]
) -> None:
    seen: list[list[int]] = []

    def answer(connections: ClusterConnections, targets: Collection[Target], *args: Any, **options: Any) -> Any:
        seen.append([target.node_id for target in targets])
        raise RefusedError("Not sent.")

    monkeypatch.setattr(ClusterConnections, "first_answer", answer)
    with (
        KafkaAdmin(ClusterSpec(name="demo", nodes=BROKERS), ClientSecurity()) as admin,
        pytest.raises(RefusedError, match="Not sent"),
    ):
        getattr(admin, call)(through=through)
    assert seen == [asked]


CLUSTER = ClusterSpec(name="demo", nodes=BROKERS)
READERS: dict[str, Callable[[KafkaAdmin], object]] = {
    "partitions": lambda admin: admin.partitions(),
    "registered": lambda admin: admin.registered(),
    "groups": lambda admin: admin.groups(),
    "transactions": lambda admin: admin.transactions(),
    "inventory": lambda admin: admin.inventory(),
    "settings": lambda admin: admin.settings(),
    "dynamic_configs": lambda admin: admin.dynamic_configs(),
    "setting": lambda admin: admin.setting("min.insync.replicas"),
    "movements": lambda admin: admin.movements(),
}


def brokers_asked(monkeypatch: pytest.MonkeyPatch, read: Callable[[KafkaAdmin], object], quorum: object) -> list[int]:
    """Return the brokers that are asked first, after the quorum."""
    seen: list[list[int]] = []

    def state(admin: KafkaAdmin) -> object:
        if isinstance(quorum, Exception):
            raise quorum
        return quorum

    def answer(connections: ClusterConnections, targets: Collection[Target], *args: Any, **options: Any) -> Any:
        seen.append([target.node_id for target in targets])
        raise RefusedError("Not sent.")

    monkeypatch.setattr(KafkaAdmin, "quorum", state)
    monkeypatch.setattr(ClusterConnections, "first_answer", answer)
    with KafkaAdmin(CLUSTER, ClientSecurity()) as admin, pytest.raises(RefusedError, match="Not sent"):
        read(admin)
    return seen[0]


@pytest.mark.parametrize("reader", READERS)
def test_what_is_true_of_the_cluster_is_asked_of_brokers_with_current_metadata(
    monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    cut_off = quorum([101], 101, [1, 2, 3], n1=5_000)
    assert brokers_asked(monkeypatch, READERS[reader], cut_off) == [2, 3]


def test_a_user_who_cannot_read_the_quorum_is_answered_by_any_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = RefusedError("It does not allow DescribeQuorum.")
    assert brokers_asked(monkeypatch, READERS["groups"], refused) == [1, 2, 3]


def test_without_a_broker_with_current_metadata_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = quorum([101], 101, [1, 2, 3], n1=5_000, n2=5_000, n3=5_000)
    monkeypatch.setattr(KafkaAdmin, "quorum", lambda admin: behind)
    with KafkaAdmin(CLUSTER, ClientSecurity()) as admin, pytest.raises(TransientError, match="newest metadata"):
        admin.groups()
