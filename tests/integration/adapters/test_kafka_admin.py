"""KafkaAdmin against real brokers and controllers of the oldest and the newest release that we roll.

What holds for every cluster is claimed in tests/contract; here is what is particular to a release, and coordinators.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.admin import UpdateFeaturesRequest

from kafka_rollout.client import features as kafka_features
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.model.state import GroupState, NodeFeatures
from kafka_rollout.releases.facts import METADATA_VERSION, VersionRange
from tests.integration.conftest import MakeCluster
from tests.integration.harness.cluster_contents import SETTINGS, set_settings, wait_until_all_know
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration


def _create_topic(cluster: LocalCluster, name: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, len(cluster.spec.brokers))])[name].result(60)
    wait_until_all_know(cluster.spec)


def _eventually(what: Callable[[], bool]) -> bool:
    return bool(wait_until(what, 180))


class Test340:
    """3.4.0: DescribeQuorum v1, DescribeCluster v0, controllers that tell no finalized features."""

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, make_shared_cluster: MakeCluster) -> LocalCluster:
        return make_shared_cluster("3.4.0", name="old", size=1, metadata_version="3.3-IV3")

    @pytest.fixture(scope="class")
    @classmethod
    def admin(cls, cluster: LocalCluster) -> Iterator[KafkaAdmin]:
        with KafkaAdmin(cluster.spec) as admin:
            yield admin

    def test_broker_and_controller_each_tell_what_they_can(self, cluster: LocalCluster, admin: KafkaAdmin) -> None:
        supported = {METADATA_VERSION: VersionRange(1, 8)}
        broker, controller = admin.features(cluster.spec.brokers[0]), admin.features(cluster.spec.controllers[0])
        assert (broker.supported, broker.finalized) == (supported, {METADATA_VERSION: 7})
        assert broker.epoch is not None
        assert controller == NodeFeatures(supported=supported, finalized={}, epoch=None)

    def test_the_quorum_is_described_by_the_controller_and_through_a_broker(
        self, cluster: LocalCluster, admin: KafkaAdmin
    ) -> None:
        brokers_only = replace(cluster.spec, nodes=cluster.spec.brokers)
        with KafkaAdmin(brokers_only) as through_broker:
            for quorum in (admin.quorum(), through_broker.quorum()):
                assert quorum.leader_id == cluster.spec.controllers[0].node_id
                assert quorum.lag(quorum.leader_id) == 0
                assert [observer.replica_id for observer in quorum.observers] == [cluster.spec.brokers[0].node_id]

    def test_what_this_release_cannot_say_is_none(self, cluster: LocalCluster, admin: KafkaAdmin) -> None:
        registered = admin.registered()
        assert registered.brokers == {cluster.spec.brokers[0].node_id}
        assert (registered.fenced, registered.controllers) == (None, None)

    def test_what_can_be_applied_of_a_request_is_and_each_feature_has_its_own_answer(
        self, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for version in (0, 1):  # the second finds the level there
            _applies_a_part(cluster, monkeypatch, version, level=8)

    def test_a_downgrade_is_sent_as_one_safe_or_unsafe(self, admin: KafkaAdmin) -> None:
        (safe,) = admin.update_features({METADATA_VERSION: 6}, validate_only=True)
        (unsafe,) = admin.update_features({METADATA_VERSION: 6}, validate_only=True, unsafe=True)
        assert "UNSAFE_DOWNGRADE" in safe.message
        assert "Unsafe metadata downgrade is not supported" in unsafe.message

    def test_settings_that_came_later_are_told_apart_from_none(self, admin: KafkaAdmin) -> None:
        found = admin.inventory(configured_groups=["billing"])
        assert (found.group_configs, found.subscriptions) == ({}, {})
        assert "has no configuration of groups" in found.unasked["group_configs"]
        assert "does not support ListConfigResources" in found.unasked["subscriptions"]
        assert admin.settings() == {"group_configs": {}, "subscriptions": {}}

    def test_classic_groups_have_state_and_members(self, cluster: LocalCluster, admin: KafkaAdmin) -> None:
        _create_topic(cluster, "orders-classic")
        assert _groups_while_consuming(cluster, admin, "classic") == ("classic", "Stable", 1)

    def test_what_retention_keeps_is_read(self, cluster: LocalCluster, admin: KafkaAdmin) -> None:
        _create_topic(cluster, "orders-kept")
        producer = Producer({"bootstrap.servers": cluster.spec.bootstrap_servers})
        for age_s in (5 * 86_400, 0):  # of seven days
            producer.produce("orders-kept", b"x", partition=0, timestamp=int((time.time() - age_s) * 1000))
            assert producer.flush(30) == 0
        found = admin.inventory(kept=True)
        kept = found.kept["orders-kept-0"]
        assert (kept.start, kept.from_offset, found.starts["orders-kept-0"]) == (0, 1, 0)
        assert kept.until == found.read_at + 3.5 * 86_400
        assert admin.inventory().kept == {}


def test_391_too_applies_what_it_can(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster("3.9.1", layout="combined", size=1, metadata_version="3.7-IV4")
    for version, level in ((0, 20), (1, 21)):
        _applies_a_part(cluster, monkeypatch, version, level=level)


def _applies_a_part(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, version: int, *, level: int) -> None:
    """UpdateFeatures in one of its versions: metadata.version rises, and group.version is refused."""
    monkeypatch.setattr(kafka_features, "UpdateFeaturesRequest", _UpToVersion(version))
    with KafkaAdmin(cluster.spec) as admin:
        answers = admin.update_features({METADATA_VERSION: level, "group.version": 1}, validate_only=False)
        assert {answer.feature: answer.error for answer in answers} == {
            METADATA_VERSION: "NONE",
            "group.version": "INVALID_UPDATE_VERSION",
        }
        broker = cluster.spec.brokers[0]
        assert _eventually(lambda: admin.features(broker).finalized[METADATA_VERSION] == level)


class _UpToVersion:
    """UpdateFeaturesRequest as a client that knows no later version makes it."""

    FeatureUpdateKey = UpdateFeaturesRequest.FeatureUpdateKey

    def __init__(self, version: int) -> None:
        self._version = version

    def __call__(self, **fields: Any) -> UpdateFeaturesRequest:
        return UpdateFeaturesRequest(max_version=self._version, **fields)


class Test431:
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, make_shared_cluster: MakeCluster) -> LocalCluster:
        return make_shared_cluster("4.3.1", name="new", layout="combined", size=3)

    @pytest.fixture(scope="class")
    @classmethod
    def admin(cls, cluster: LocalCluster) -> Iterator[KafkaAdmin]:
        with KafkaAdmin(cluster.spec) as admin:
            yield admin

    def test_ranges_that_begin_at_zero_are_told(self, cluster: LocalCluster, admin: KafkaAdmin) -> None:
        for node in cluster.spec.nodes:
            assert admin.features(node).supported["kraft.version"] == VersionRange(0, 1)
            assert admin.features(node).supported[METADATA_VERSION] == VersionRange(7, 30)

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_groups_of_both_protocols(self, cluster: LocalCluster, admin: KafkaAdmin, protocol: str) -> None:
        _create_topic(cluster, f"orders-{protocol}")
        assert _groups_while_consuming(cluster, admin, protocol) == (protocol, "Stable", 1)

    def test_settings_of_groups_and_subscriptions_are_in_the_inventory_also_without_a_group(
        self, cluster: LocalCluster, admin: KafkaAdmin
    ) -> None:
        set_settings(cluster.spec)

        def told() -> bool:
            found = admin.inventory()
            told: dict[tuple[int, str], object] = {(32, name): of for name, of in found.group_configs.items()}
            told |= {(16, name): of for name, of in found.subscriptions.items()}
            return told == {resource: dict([setting]) for resource, setting in SETTINGS.items()}

        assert _eventually(told)
        found = admin.inventory()
        assert {"group_configs", "subscriptions"}.isdisjoint(found.unasked)
        assert admin.settings() == {"group_configs": found.group_configs, "subscriptions": found.subscriptions}

    def test_transactional_ids_of_all_coordinators(self, cluster: LocalCluster, admin: KafkaAdmin) -> None:
        _create_topic(cluster, "paid")
        ids = {f"transaction-{number}" for number in range(6)}  # spread over the brokers
        for transactional_id in ids:
            producer = Producer(
                {"bootstrap.servers": cluster.spec.bootstrap_servers, "transactional.id": transactional_id}
            )
            producer.init_transactions(180)
            producer.begin_transaction()
            producer.produce("paid", b"1")
            producer.commit_transaction(180)

        def committed() -> bool:
            return {t.transactional_id: t.state for t in admin.transactions()} == dict.fromkeys(ids, "CompleteCommit")

        assert _eventually(committed)

    def test_start_offsets_of_share_groups_are_in_the_inventory(self, cluster: LocalCluster, admin: KafkaAdmin) -> None:
        _create_topic(cluster, "shared", 1)
        producer = Producer({"bootstrap.servers": cluster.spec.bootstrap_servers})
        consumer = ShareConsumer({"bootstrap.servers": cluster.spec.bootstrap_servers, "group.id": "jobs"})
        consumer.subscribe(["shared"])

        def moved() -> bool:
            producer.produce("shared", b"1")
            producer.flush(10)
            consumer.poll(timeout=1.0)  # acknowledges what the one before returned
            return admin.inventory().groups.get("jobs", {}).get("offsets", {}).get("shared-0", 0) > 0

        assert _eventually(moved)
        consumer.close()
        found = admin.inventory()
        assert found.groups["jobs"]["type"] == "share"
        assert "share_offsets" not in found.unasked

    def test_with_a_killed_broker_the_rest_answers_within_the_time_limit(self, cluster: LocalCluster) -> None:
        """Last of its class: the cluster is one node short from here on."""
        with KafkaAdmin(cluster.spec, timeout_s=20) as admin:
            victim = cluster.spec.node(admin.quorum().leader_id)
            assert victim.node_id in admin.registered().brokers
            cluster.runtime.stop(victim, deadline_s=0, force=True)
            began = time.monotonic()
            assert admin.cluster_id() == cluster.cluster_id
            assert admin.partitions()
            assert time.monotonic() - began < 2 * 20  # each call has the time limit
            assert _eventually(lambda: admin.quorum().leader_id != victim.node_id)
            assert _eventually(lambda: victim.node_id in (admin.registered().fenced or ()))
            assert _eventually(lambda: len(admin.transactions()) == 6)
            assert _eventually(lambda: len(admin.groups()) >= 2)
            registered = admin.registered()
            assert victim.node_id in registered.brokers
            assert victim.node_id in (registered.controllers or ())
            assert str(registered.controller_addresses[victim.node_id]) == victim.controller_address


def _groups_while_consuming(cluster: LocalCluster, admin: KafkaAdmin, protocol: str) -> tuple[str, str, int | None]:
    """Type, state and members of a group with one consumer of `orders-<protocol>` in it, whose topics are known."""
    group_id = f"readers-{protocol}"
    settings = {"bootstrap.servers": cluster.spec.bootstrap_servers, "group.id": group_id, "group.protocol": protocol}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([f"orders-{protocol}"])

        found: list[GroupState] = []

        def stable() -> bool:
            consumer.poll(0.2)
            found[:] = [group for group in admin.groups() if group.group_id == group_id]
            return [group.state for group in found] == ["Stable"]

        assert _eventually(stable), found
        assert admin.inventory().groups[group_id]["subscribed"] == [f"orders-{protocol}"]
        return found[0].type, found[0].state, found[0].members
    finally:
        consumer.close()
