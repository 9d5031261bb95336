"""What the consumer checks before it touches anything."""

from __future__ import annotations

import tomllib
from typing import Any

import kafka
import pytest
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer import JoinGroupResponse

from dynamic_protocol_consumer import DynamicProtocolConsumer, consumer
from dynamic_protocol_consumer.assignors import CooperativeStickyAssignor, RangeAssignor
from dynamic_protocol_consumer.coordinator import TESTED, DynamicCoordinator, check_kafka_python
from dynamic_protocol_consumer.member import Member
from dynamic_protocol_consumer.protocols import COOPERATIVE_STICKY, RANGE
from tests.paths import ROOT


def test_the_installed_kafka_python_is_one_it_fits_on() -> None:
    try:
        check_kafka_python()
    except RuntimeError as error:
        pytest.fail(str(error), pytrace=False)


def test_the_distribution_requires_the_versions_that_it_supports() -> None:
    project = tomllib.loads((ROOT / "consumer" / "pyproject.toml").read_text())["project"]
    major, minor, _ = map(int, TESTED.split("."))
    assert project["dependencies"] == [f"kafka-python>={TESTED},<{major}.{minor + 1}"]


def test_another_version_of_kafka_python_is_refused_with_the_tested_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "__version__", "3.1.0")
    with pytest.raises(RuntimeError, match=rf"3\.1\.0.*{TESTED}"):
        DynamicProtocolConsumer(bootstrap_servers="nowhere:1")


def test_a_coordinator_whose_methods_changed_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def changed(self: Any, offsets: Any, more: Any) -> None: ...

    monkeypatch.setattr(ConsumerCoordinator, "_send_offset_commit_request", changed)
    with pytest.raises(RuntimeError, match="_send_offset_commit_request"):
        check_kafka_python()
    monkeypatch.undo()
    monkeypatch.delattr(ConsumerCoordinator, "_lookup_assignor")
    with pytest.raises(RuntimeError, match="_lookup_assignor"):
        check_kafka_python()


def test_assignors_are_given_by_name_or_class_and_unknown_names_are_told() -> None:
    assert consumer._assignor("cooperative-sticky") is CooperativeStickyAssignor
    assert consumer._assignor(RangeAssignor) is RangeAssignor
    with pytest.raises(ValueError, match="cooperative-sticky, range"):
        DynamicProtocolConsumer(bootstrap_servers="nowhere:1", partition_assignment_strategy=["stick"])


@pytest.mark.parametrize(("leader", "lost"), [("", frozenset()), ("member-1", frozenset({("orders", 0)}))])
def test_a_response_without_a_leader_is_of_a_group_of_the_new_protocol(
    monkeypatch: pytest.MonkeyPatch, leader: str, lost: frozenset[tuple[str, int]]
) -> None:
    coordinator = DynamicCoordinator.__new__(DynamicCoordinator)
    both = (COOPERATIVE_STICKY, RANGE)
    coordinator._member = Member.start(both)
    monkeypatch.setattr(ConsumerCoordinator, "_process_join_group_response", lambda self, response, send_time: response)
    owned = frozenset({("orders", 0)})
    for epoch in (1, 5):
        response = JoinGroupResponse(
            version=7, error_code=0, generation_id=epoch, protocol_name="cooperative-sticky", leader=leader, members=[]
        )
        coordinator._process_join_group_response(response, 0.0)
        coordinator._member, handover = coordinator._member.assigned(owned=owned, assigned=owned)
    assert handover.lost == lost


def test_a_join_that_a_poll_did_not_wait_for_is_gone_on_with_though_its_reason_is_gone() -> None:
    coordinator = DynamicCoordinator.__new__(DynamicCoordinator)
    coordinator.config = {"group_id": "group", "api_version": (4, 3)}
    coordinator._subscription = SubscriptionState()
    coordinator._subscription.subscribe(["orders"])
    coordinator._joined_subscription = {"orders"}
    coordinator._assignment_snapshot = coordinator._metadata_snapshot = None
    coordinator.rejoin_needed = False
    coordinator.rejoining = False
    assert not coordinator.need_rejoin()
    coordinator.rejoining = True
    assert coordinator.need_rejoin()
    assert not ConsumerCoordinator.need_rejoin(coordinator)
    coordinator._subscription.unsubscribe()
    assert not coordinator.need_rejoin()
