"""Whether all controllers can start together is in the plan, and is checked again before a run stops all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import Severity
from kafka_rollout.control.approval import record_approval
from kafka_rollout.lowering import live, offline
from kafka_rollout.model.acls import STANDARD_AUTHORIZER, Acl
from kafka_rollout.model.configs import DynamicConfigs
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation import frozen_plan
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.integration.harness.faults.without_live import stage_no_live
from tests.plans import plan_downgrade
from tests.unit.builders import host_state
from tests.unit.fake_run import no_waiting

__all__ = ["no_waiting"]  # fixtures

R421 = Release(4, 2, 1)
CONTROLLERS = (1, 2, 3)
LINES = {
    "listeners": "CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
}
SCRAM = {"sasl.mechanism.controller.protocol": "SCRAM-SHA-512"}
RIGHTS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
STOPS: dict[Lowering, Callable[[Run], Any]] = {Lowering.LIVE: live.lower_live, Lowering.OFFLINE: offline.stop_all}
each_lowering = pytest.mark.parametrize("lowering", list(STOPS))


@pytest.fixture
def world() -> FakeCluster:
    world = FakeCluster(R431)
    write(world, **LINES)
    world.clock.sleep(1000)
    return world


@pytest.fixture
def ports(world: FakeCluster, tmp_path: Path) -> ClusterPorts:
    return fake_ports(world, tmp_path)


def write(world: FakeCluster, *, in_use: bool = True, **lines: str) -> None:
    """Write lines into the files of the controllers. `in_use`: their processes have read them."""
    for node_id in CONTROLLERS:
        node = world.nodes[node_id]
        if not in_use and node.in_use is None:
            node.in_use = dict(node.config)
        node.config = {**node.config, **lines}


def planned(ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, lowering: Lowering) -> Plan:
    if lowering is Lowering.OFFLINE:
        stage_no_live(monkeypatch)
    plan = plan_downgrade(ports, R421, lowering=lowering)
    assert plan.lowering is lowering
    if not plan.blockers:
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a test")
    return plan


def acl(operation: int) -> Acl:
    """An ACL that lets bob do this on the cluster."""
    return Acl(
        resource_type=4,
        resource_name="kafka-cluster",
        pattern_type=3,
        principal="User:bob",
        host="*",
        operation=operation,
        permission=3,
    )


def codes(plan: Plan, severity: Severity) -> set[str]:
    return {one.code for one in plan.findings if one.severity is severity and one.code.startswith("QUORUM-")}


@each_lowering
def test_controllers_that_need_a_leader_to_log_in_block_the_plan(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, lowering: Lowering
) -> None:
    assert not codes(planned(ports, monkeypatch, lowering), Severity.BLOCKER)
    write(world, **SCRAM)
    assert codes(planned(ports, monkeypatch, lowering), Severity.BLOCKER) == {"QUORUM-CANNOT-START"}


def test_a_line_that_the_run_itself_writes_for_the_target_counts_where_all_start_on_it(
    world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spec = replace(world.spec, release_overrides={str(R421): SCRAM})
    ports = fake_ports(world, tmp_path)
    assert not codes(planned(ports, monkeypatch, Lowering.LIVE), Severity.BLOCKER)
    assert codes(planned(ports, monkeypatch, Lowering.OFFLINE), Severity.BLOCKER) == {"QUORUM-CANNOT-START"}


def test_another_run_warns_because_all_controllers_can_stop_by_accident(
    world: FakeCluster, ports: ClusterPorts
) -> None:
    write(world, **SCRAM)
    plan = plan_change(ports, Request(), RunOf.RESTART)
    assert codes(plan, Severity.WARNING) == {"QUORUM-CANNOT-START"}
    assert not codes(plan, Severity.BLOCKER)


@each_lowering
def test_a_file_that_was_changed_after_the_approval_stops_it_before_the_first_stop(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, lowering: Lowering
) -> None:
    plan = planned(ports, monkeypatch, lowering)
    write(world, **SCRAM)
    with pytest.raises(RefusedError, match=r"QUORUM-CANNOT-START .* uses SCRAM-SHA-512"):
        STOPS[lowering](Run(ports, plan))
    assert world.stops == []


@each_lowering
def test_a_host_that_changed_after_the_approval_stops_it_before_the_first_stop(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, lowering: Lowering
) -> None:
    plan = planned(ports, monkeypatch, lowering)
    world.hosts[CONTROLLERS[0]] = host_state(stop_timeout_s=1.0)
    with pytest.raises(RefusedError, match="STOP-TIMEOUT-SHORT"):
        STOPS[lowering](Run(ports, plan))
    assert world.stops == []


@each_lowering
def test_before_a_stop_of_all_each_node_is_asked_once_and_at_the_same_time(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, lowering: Lowering
) -> None:
    run = Run(ports, planned(ports, monkeypatch, lowering))
    asked: defaultdict[str, list[int]] = defaultdict(list)
    together = Barrier(2, timeout=10)

    def watch(of: Any, name: str, *, waits: bool = False) -> None:
        read = getattr(of, name)

        def reads(self: Any, node: NodeSpec, *others: Any) -> Any:
            if not others or name == "start_files":
                asked[name].append(node.node_id)
                if waits and len(asked[name]) <= 2:
                    together.wait()
            return read(self, node, *others)

        monkeypatch.setattr(of, name, reads)

    watch(FakeRuntime, "config")
    watch(FakeAdmin, "settings_in_use", waits=True)
    watch(FakeRuntime, "start_files", waits=True)
    frozen_plan.recheck(run)
    everybody = [node.node_id for node in ports.cluster.nodes]
    stopped = everybody if lowering is Lowering.OFFLINE else sorted(CONTROLLERS)
    assert {name: sorted(found) for name, found in asked.items()} == {
        "config": sorted(everybody),
        "settings_in_use": sorted(stopped),
        "start_files": sorted(stopped),
    }


@each_lowering
def test_a_doubt_that_no_approver_has_read_stops_it_too_and_one_that_was_read_does_not(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, lowering: Lowering
) -> None:
    world.acls = {acl(operation=8)}
    write(world, **RIGHTS)
    plan = planned(ports, monkeypatch, lowering)
    assert not codes(plan, Severity.WARNING), "no ACL lets a client act as a node, so the controllers are super users"
    world.acls |= {acl(operation=9)}
    with pytest.raises(RefusedError, match="ACLs give User:bob the right of a node"):
        STOPS[lowering](Run(ports, plan))
    assert world.stops == []
    plan = planned(ports, monkeypatch, lowering)
    assert codes(plan, Severity.WARNING) == {"QUORUM-START-UNKNOWN"}
    STOPS[lowering](Run(ports, plan))
    assert set(CONTROLLERS) <= set(world.stops)


@each_lowering
def test_a_changed_line_that_decides_access_is_approved_before_all_controllers_start_with_it(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, lowering: Lowering
) -> None:
    plan = planned(ports, monkeypatch, lowering)
    write(world, in_use=False, **{"ssl.client.auth": "required"})
    with pytest.raises(RefusedError, match=r"FILE-CHANGES-ACCESS ssl\.client\.auth=required of node 1"):
        STOPS[lowering](Run(ports, plan))
    assert world.stops == []


def test_a_value_in_the_metadata_that_the_file_lacks_is_a_doubt(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "listener.name.controller.ssl.keystore.location"
    world.dynamic_configs = DynamicConfigs(brokers={1: {name: "/b.jks"}, 2: {name: "/b.jks", "num.io.threads": "9"}})
    world.nodes[1].config = {**world.nodes[1].config, name: "/b.jks"}
    plan = planned(ports, monkeypatch, Lowering.LIVE)
    (doubt,) = (one for one in plan.findings if one.code == "QUORUM-START-UNKNOWN")
    assert doubt.sentence.startswith(f"The metadata overrides {name} in the file of node 2. ")


def test_acls_that_cannot_be_read_prove_nothing(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(admin: FakeAdmin) -> None:
        raise RefusedError("No right to list ACLs.")

    write(world, **RIGHTS)
    monkeypatch.setattr(FakeAdmin, "acls", hidden)
    (doubt,) = (
        one for one in planned(ports, monkeypatch, Lowering.LIVE).findings if one.code == "QUORUM-START-UNKNOWN"
    )
    assert "No right to list ACLs" in doubt.sentence


def test_values_in_use_that_cannot_be_read_again_stop_nothing(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(ports, monkeypatch, Lowering.LIVE)

    def hidden(*given: object) -> None:
        raise RefusedError("No right to describe the configuration.")

    monkeypatch.setattr(FakeAdmin, "settings_in_use", hidden)
    with pytest.raises(TransientError, match="No right to describe"):
        live.lower_live(Run(ports, plan))
    assert world.stops == []
