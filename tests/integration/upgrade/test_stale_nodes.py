"""Nodes that the network separates from the active controller, and that answer the tool: no gate believes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.gates.gate import GateCheck, GateKind
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.gate_checks import check_gate
from tests.fakes.ports import gate_of
from tests.integration.conftest import MakeCluster
from tests.integration.harness.faults.cable import Cable
from tests.integration.harness.feature_harness import opened
from tests.plans import plan_upgrade
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Wired:
    """A cluster with cables from broker 1 and from each controller to the controllers."""

    cluster: LocalCluster
    cables: Mapping[int, tuple[Cable, ...]]

    def cut(self, node_id: int) -> None:
        for cable in self.cables[node_id]:
            cable.cut()

    def mend(self, node_id: int) -> None:
        for cable in self.cables[node_id]:
            cable.mend()


@pytest.fixture(scope="module")
def wired(make_shared_cluster: MakeCluster) -> Iterator[Wired]:
    """3.8.1: from 3.9 on (KIP-853) a broker learns the leader's own address. An idle controller writes no records."""
    idle = {"metadata.max.idle.interval.ms": "0"}
    cluster = make_shared_cluster("3.8.1", name="wired", layout="separate", extra_config=idle, start=False)
    cables = {node.node_id: _wire(cluster, node) for node in (cluster.spec.node(1), *cluster.spec.controllers)}
    cluster.start()
    topic = NewTopic("orders", 6, 3, config={"min.insync.replicas": "2"})
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    admin.create_topics([topic])["orders"].result(60)
    yield Wired(cluster, cables)
    for each in (cable for of_node in cables.values() for cable in of_node):
        each.close()


def _wire(cluster: LocalCluster, node: NodeSpec) -> tuple[Cable, ...]:
    cables, voters = [], []
    for voter in cluster.spec.controllers:
        address = str(voter.controller_address)
        if voter.node_id != node.node_id:
            cables.append(Cable(address))
            address = cables[-1].address
        voters.append(f"{voter.node_id}@{address}")
    path = Path(str(node.directory)) / "server.properties"
    path.write_text(f"{path.read_text()}\ncontroller.quorum.voters={','.join(voters)}\n")
    return tuple(cables)


def test_a_broker_that_is_cut_off_from_the_controllers_answers_that_all_is_in_sync_and_no_gate_passes(
    wired: Wired, tmp_path: Path
) -> None:
    with opened(wired.cluster, tmp_path / "home") as ports:
        plan = plan_upgrade(ports, Release(3, 9, 1), finalize=False)
        wait_until(lambda: before_stop(ports, plan, 2).passes, 120)

        wired.cut(1)
        wait_until(lambda: not any(1 in p.isr for p in ports.admin.partitions(through=[2])), 120)

        # Its own answers at this time.
        assert all(1 in p.isr for p in ports.admin.partitions(through=[1]))
        assert 1 in ports.admin.registered(through=[1]).brokers
        stops = before_stop(ports, plan, 2)
        failing = {condition.name: condition.evidence for condition in stops.conditions if not condition.is_met}
        assert "broker 1: " in failing["every broker is caught up"]
        assert any("orders-" in evidence for evidence in failing.values()), "the ISRs are those of a current broker"

        wired.mend(1)
        wait_until(lambda: before_stop(ports, plan, 2).passes, 240)


def test_a_voter_that_does_not_fetch_is_no_spare_one_although_no_record_is_missing(
    wired: Wired, tmp_path: Path
) -> None:
    with opened(wired.cluster, tmp_path / "home") as ports:
        plan = plan_upgrade(ports, Release(3, 9, 1), finalize=False)
        quorum = ports.admin.quorum()
        silent, other = (node.node_id for node in wired.cluster.spec.controllers if node.node_id != quorum.leader_id)
        wait_until(lambda: before_stop(ports, plan, other).passes, 120)

        wired.cut(silent)
        wait_until(lambda: not before_stop(ports, plan, other).passes, 60)

        (unmet,) = (one for one in before_stop(ports, plan, other).conditions if not one.is_met)
        assert unmet.name == "quorum without it"
        assert ports.admin.quorum().lag(silent) == 0
        assert before_stop(ports, plan, silent).passes, "the silent one can be stopped"

        wired.mend(silent)
        wait_until(lambda: before_stop(ports, plan, other).passes, 240)


def before_stop(ports: ClusterPorts, plan: Plan, node_id: int) -> GateCheck:
    (release_step,) = plan.release_steps
    return check_gate(
        Run(ports, plan),
        gate_of(ports, plan, GateKind.BEFORE_STOP, release_step.key, node_id),
    )
