"""Features on real brokers: what the nodes say, what the controller says, and answers that never come."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.feature_updates.levels import check_for_narrower_nodes, ensure_levels
from kafka_rollout.feature_updates.update import apply_features, plan_features
from kafka_rollout.features.requests import (
    FeatureAction,
    FeatureOrder,
    FeatureRequest,
    FeatureUpdateStatus,
    RequestKind,
)
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from tests.integration.conftest import MakeCluster
from tests.integration.harness.faults.proxy import Proxy
from tests.integration.harness.feature_harness import Command, approved, codes, eventually, has_groups, opened, planned
from tools.demo.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

UPDATE_FEATURES = 57


class TestFrom340:
    """A broker and a controller of 3.4.0, rolled to 4.3.1 the broker first: the order that loses ranges. The
    broker of 4.3.1 supports an unstable metadata.version 31 here; a controller with the same setting says 30."""

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, make_shared_cluster: MakeCluster) -> LocalCluster:
        unstable = {"unstable.feature.versions.enable": "true"}
        return make_shared_cluster("3.4.0", name="mixed", size=1, extra_config=unstable)

    @staticmethod
    def _roll(cluster: LocalCluster, node: NodeSpec) -> None:
        cluster.runtime.stop(node, deadline_s=30, force=True)
        cluster.runtime.install(node, Release(4, 3, 1))
        cluster.runtime.start(node)
        cluster.wait_until_ready()

    def test_what_an_older_controller_would_apply_in_part_is_refused_before(
        self, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        with opened(cluster, tmp_path) as ports:
            plan = planned(ports, up="group.version:1")
            assert "nodes 1, 101 do not support it" in plan.blockers[0].sentence
            assert ports.admin.update_features({METADATA_VERSION: 7}, validate_only=True)[0].error != "NONE"

    def test_mixed_ranges_stand_out_and_name_the_node_that_is_behind(
        self, cluster: LocalCluster, tmp_path: Path, command: Command
    ) -> None:
        self._roll(cluster, cluster.spec.node(1))
        with opened(cluster, tmp_path) as ports:
            plan = planned(ports, up=f"{METADATA_VERSION}:30")
            assert "node 101 supports 1-8" in plan.blockers[0].sentence
            assert "node 1 " not in plan.blockers[0].sentence
            everything = plan_features(ports, FeatureOrder(action=FeatureAction.UPGRADE_ALL), unsafe=False)
            assert everything.feature_changes == ()
            held_back = {f.subject: f.sentence for f in everything.findings if f.code == "FEATURE-HELD-BACK"}
            assert "node 101 supports 1-8" in held_back[f"feature {METADATA_VERSION}"]
        code, told, _ = command(cluster, "features describe")
        assert code == 0
        assert "! 1-8: node 101" in told or "! 7-31: node 1" in told
        code, text, _ = command(cluster, "features describe --json")
        ranges = {f["feature"]: f for f in json.loads(text)["features"]}
        assert ranges[METADATA_VERSION]["supported"] == {"1": {"min": 7, "max": 31}, "101": {"min": 1, "max": 8}}
        assert ranges[METADATA_VERSION]["differs"]
        assert ranges["group.version"]["supported"]["101"] is None

    def test_ranges_that_the_old_controller_dropped_are_a_blocker_with_a_remedy(
        self, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        self._roll(cluster, cluster.spec.node(101))
        with opened(cluster, tmp_path) as ports:
            plan = planned(ports, up="group.version:1")
            # One finding: it says itself that the nodes support the level.
            (blocker,) = plan.blockers
            assert blocker.code == "REGISTRATION-DROPPED-RANGES"
            assert "CONTROLLER-DISAGREES" not in codes(plan)
            assert blocker.remedy.startswith("Finalize metadata.version first")
            plan = planned(ports, up="eligible.leader.replicas.version:1")
            assert "needs metadata.version 23" in "".join(finding.sentence for finding in plan.blockers)
            plan = planned(ports, up=f"{METADATA_VERSION}:31")
            assert "FEATURE-UNSTABLE" in codes(plan)

    def test_upgrade_all_raises_metadata_version_first_to_the_latest_stable_level_and_then_the_others_are_accepted(
        self, cluster: LocalCluster, command: Command
    ) -> None:
        approval = "--as alice --reason test --yes"
        code, told, _ = command(cluster, f"features set --action upgrade-all {approval}")
        assert code == 0, told
        lines = told.splitlines()
        assert lines[0].split()[:3] == ["[Add]", "Feature:", "eligible.leader.replicas.version"]
        (metadata,) = [line for line in lines if METADATA_VERSION in line and "Result" in line]
        assert metadata.split("Feature:")[0].strip() == "[Upgrade]"
        assert "ExistingFinalizedMaxVersion: 8   NewFinalizedMaxVersion: 30  Result: OK" in metadata
        assert all("Result: OK" in line for line in lines if "Feature:" in line)
        code, told, _ = command(cluster, "features describe --json")
        assert json.loads(told)["finalized"][METADATA_VERSION] == 30
        assert json.loads(told)["finalized"].get("kraft.version", 0) == 0
        code, told, _ = command(cluster, f"features set --action upgrade-all {approval}")
        assert (code, told.splitlines()[0]) == (0, "No change needed.")


class Test431:
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, make_shared_cluster: MakeCluster) -> LocalCluster:
        return make_shared_cluster("4.3.1", name="features", layout="combined", size=3)

    def test_what_no_cluster_could_do_is_bad_input_and_what_this_one_refuses_is_not(
        self, cluster: LocalCluster, command: Command
    ) -> None:
        for words, expected, said in (
            ("--upgrade no.such.version:1", 2, "Feature no.such.version does not exist"),
            (f"--upgrade {METADATA_VERSION}:99", 2, "metadata.version 99 does not exist"),
            (f"--downgrade {METADATA_VERSION}:29", 3, "cannot lower metadata.version from 30 to 29"),
            (f"--downgrade {METADATA_VERSION}:14 --unsafe", 3, "3.7-IV0"),
            (f"--downgrade {METADATA_VERSION}:0", 3, "cannot be deleted"),
            (f"--upgrade {METADATA_VERSION}:29", 3, "An upgrade request cannot"),
            ("--upgrade group.version:0", 3, "An upgrade request cannot"),
            ("--downgrade group.version:1", 3, "does not lower it"),
            ("--downgrade streams.version:0", 0, "OK (dry run)"),
            ("--release-version 4.2.1 --unsafe", 3, "cannot lower metadata.version from 30 to 29"),
            ("--release-version 4.2.1", 3, "An upgrade request cannot"),
        ):
            code, told, error = command(cluster, f"features set --dry-run {words}")
            assert (code, said in told + error) == (expected, True), (words, code, told, error)
        code, told, _ = command(cluster, "features set --action downgrade-all --release-version 4.0.1 --dry-run")
        assert code == 3
        results = {line.split()[2]: line.partition("Result: ")[2] for line in told.splitlines() if "Feature:" in line}
        assert results.keys() == {METADATA_VERSION, "share.version", "streams.version"}
        assert "cannot lower metadata.version from 30 to 25" in results[METADATA_VERSION]
        assert results["share.version"].startswith("NOT SENT: The controller cannot lower metadata.version")

    def test_a_level_below_one_is_sent_as_zero_and_the_feature_can_be_added_again(
        self, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        with opened(cluster, tmp_path) as ports:
            deletion = FeatureRequest(feature="streams.version", level=-1, kind=RequestKind.DELETE)
            order = FeatureOrder(action=FeatureAction.UPDATE, named=(deletion,))
            plan = plan_features(ports, order, unsafe=False)
            assert [str(o.result) for o in apply_features(Run(ports, approved(ports, plan)))] == ["OK"]
            assert [o.result for o in apply_features(Run(ports, plan))] == [FeatureUpdateStatus.ALREADY_THERE]
            assert check_for_narrower_nodes(ports).ok
        with opened(cluster, tmp_path, "again") as ports:
            plan = planned(ports, up="streams.version:1")
            assert [o.action for o in apply_features(Run(ports, approved(ports, plan)))] == ["Add"]

    def test_groups_and_producers_that_a_lower_level_would_end_are_named(
        self, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        servers = {"bootstrap.servers": cluster.spec.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(60)
        consumer = Consumer({**servers, "group.id": "billing", "group.protocol": "consumer"})
        # The transaction shall outlast what is asked while it is open.
        producer = Producer({**servers, "transactional.id": "payments", "transaction.timeout.ms": 900_000})
        producer.init_transactions(180)
        producer.begin_transaction()
        producer.produce("orders", b"1")
        assert producer.flush(180) == 0
        consumer.subscribe(["orders"])
        with opened(cluster, tmp_path) as ports:

            def stands(state: str, members: int) -> bool:
                consumer.poll(0.2)
                return has_groups(ports, billing=(state, members))

            assert eventually(lambda: stands("Stable", 1))
            safe = planned(ports, down="group.version:0,transaction.version:1")
            blocked = {finding.code: finding for finding in safe.blockers}
            assert "billing (1 member)" in blocked["GROUPS-LOSE-THEIR-PROTOCOL"].sentence
            assert "payments" in blocked["PRODUCERS-END-FATALLY"].sentence
            # 4.3.1 does not protect: it would accept what ends them.
            assert "CONTROLLER-WOULD-ACCEPT" in codes(safe)
            unsafe = planned(ports, down="group.version:0", unsafe=True)
            assert unsafe.blockers == ()
            assert "GROUPS-LOSE-THEIR-PROTOCOL" in codes(unsafe)
            producer.abort_transaction(180)
            consumer.close()
            assert eventually(lambda: has_groups(ports, billing=("Empty", 0)))
            emptied = planned(ports, down="group.version:0")
            assert emptied.blockers == ()
            assert "GROUPS-KEEP-THEIR-RECORDS" in codes(emptied)
            assert [o.result for o in apply_features(Run(ports, approved(ports, emptied)))] == [FeatureUpdateStatus.OK]
            assert ports.admin.features(cluster.spec.nodes[0]).finalized.get("group.version", 0) == 0

    def test_a_lost_answer_is_looked_up_and_the_update_is_sent_once(
        self, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        with opened(cluster, tmp_path) as ports, losing_answers(cluster.spec) as (behind, sent):
            plan = approved(ports, planned(ports, up="group.version:1"))
            with KafkaAdmin(behind) as admin:
                outcomes = apply_features(Run(replace(ports, admin=admin), plan))
            assert [o.result for o in outcomes] == [FeatureUpdateStatus.OK]
            assert len(sent) == 1, "sent once, and nobody heard the answer"

    def test_a_server_that_is_not_the_controller_passes_the_question_on_to_the_one_that_is(
        self, cluster: LocalCluster
    ) -> None:
        with KafkaAdmin(cluster.spec) as admin:
            leader = admin.quorum().leader_id
        # Asked directly, only the active controller answers; the others say NOT_CONTROLLER.
        direct = tuple(
            replace(node, broker_address=node.controller_address)
            for node in sorted(cluster.spec.nodes, key=lambda node: node.node_id == leader)
        )
        with KafkaAdmin(replace(cluster.spec, nodes=direct)) as admin:
            (answer,) = admin.update_features({"group.version": 1}, validate_only=False)
            assert answer.accepted
        follower = replace(cluster.spec, nodes=direct[:1])
        with (
            KafkaAdmin(follower, timeout_s=5) as admin,
            pytest.raises(TransientError, match=r"NOT_CONTROLLER.*nothing was changed"),
        ):
            admin.update_features({"group.version": 1}, validate_only=False)

    @pytest.mark.full
    def test_an_update_asked_for_while_the_controller_dies_is_done_by_its_successor(
        self, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        """Last of its class: a node is gone from here on."""
        with opened(cluster, tmp_path) as ports:
            victim = cluster.spec.node(ports.admin.quorum().leader_id)
            plan = approved(ports, planned(ports, down="share.version:0"))
            with KafkaAdmin(cluster.spec, timeout_s=180) as patient:  # an election on a busy machine
                cluster.runtime.stop(victim, deadline_s=0, force=True)
                (answer,) = ensure_levels(replace(ports, admin=patient), plan.feature_changes)
                assert answer.accepted
                assert patient.quorum().leader_id != victim.node_id
            race = check_for_narrower_nodes(ports)
            assert f"Node {victim.node_id} does not respond after finalizing" in race.blockers[0].sentence
            # The race of the KIP, lost by a node that supports less: it comes back as 3.9.1 and meets the level.
            cluster.runtime.install(victim, Release(3, 9, 1))
            cluster.runtime.start(victim)
            assert eventually(lambda: cluster.runtime.process(victim).pid is None)
            (gone,) = check_for_narrower_nodes(ports).blockers
            assert (gone.code, gone.subject) == ("NODE-GONE-AFTER-FINALIZING", f"node {victim.node_id}")
            assert "No MetadataVersion with feature level 30" in gone.sentence, "the last words of its log"


@contextmanager
def losing_answers(spec: ClusterSpec) -> Iterator[tuple[ClusterSpec, list[bytes]]]:
    """The cluster behind proxies that pass everything on, but for answers to updates that are more than a question:
    there the connection ends. Gives the updates that went through."""
    sent: list[bytes] = []
    proxies = [_LosesAnswers(str(node.broker_address), sent) for node in spec.nodes]
    try:
        nodes = tuple(replace(n, broker_address=p.address) for n, p in zip(spec.nodes, proxies, strict=True))
        yield replace(spec, nodes=nodes), sent
    finally:
        for proxy in proxies:
            proxy.close()


class _LosesAnswers(Proxy):
    def __init__(self, upstream: str, sent: list[bytes]) -> None:
        self._sent = sent
        super().__init__(upstream)

    def serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self.upstream) as broker:
            asked, told = client.makefile("rb"), broker.makefile("rb")
            while (request := _frame(asked)) is not None:
                broker.sendall(struct.pack(">i", len(request)) + request)
                answer = _frame(told)
                # The request ends with validateOnly and an empty set of tagged fields.
                if request[:2] == struct.pack(">h", UPDATE_FEATURES) and request[-2:] == b"\x00\x00":
                    self._sent.append(request)
                    return
                if answer is None:
                    return
                client.sendall(struct.pack(">i", len(answer)) + answer)


def _frame(stream: Any) -> bytes | None:
    size = stream.read(4)
    return stream.read(struct.unpack(">i", size)[0]) if len(size) == 4 else None
