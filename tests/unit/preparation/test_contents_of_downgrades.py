"""What clients delete while a cluster in service goes down stops no run. With all nodes stopped, no client acts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.plan import Lowering
from kafka_rollout.model.state import CheckpointFile, GroupState
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.kinds import DOWNGRADE, build_report_of_run
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.run_report import Outcome
from kafka_rollout.run.events import Decision, Event
from kafka_rollout.run.step_events import Started
from tests.acls import read_acl
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.integration.harness.faults.without_live import stage_no_live
from tests.running import carry_out
from tests.unit.preparation.test_state_comparison import Approver

QUICK: dict[str, Any] = {"rehearse": False, "pace": Pace.FAST}
ONLINE = Request(target=Release(4, 0, 1), level=23, **QUICK)
LIVE = Request(target=Release(4, 2, 1), lowering=Lowering.LIVE, **QUICK)
OFFLINE = replace(LIVE, lowering=Lowering.OFFLINE)
LEVELS = {
    Lowering.ONLINE: {"metadata.version": 29, "share.version": 1},
    Lowering.LIVE: {"metadata.version": 30},
    Lowering.OFFLINE: {"metadata.version": 30},
}
CONSOLE = GroupState(group_id="console-consumer-4711", type="classic", state="Stable")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    world = FakeCluster(R431)
    world.java = 17
    world.groups.append(CONSOLE)
    for node in world.nodes.values():
        node.checkpoints.append(CheckpointFile(node_id=0, path="x", end_offset=500, epoch=3, size=1, modified_at=4e9))
    return world


def change_while_nodes_start(world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user deletes a topic, and a console consumer ends, while the run replaces nodes."""
    kind = type(ports.run)
    real = kind.record

    def record(self: Any, event: Event) -> None:
        real(self, event)
        if isinstance(event, Started):
            world.lost_in_the_roll = {"orders"}
            world.groups[:] = [one for one in world.groups if one != CONSOLE]

    monkeypatch.setattr(kind, "record", record)


def report_of(ports: ClusterPorts) -> Any:
    return build_report_of_run(Run(ports, ports.run.load_plan()), procedure=DOWNGRADE)


@pytest.mark.parametrize("request_", [ONLINE, LIVE], ids=["online", "live"])
def test_what_clients_delete_while_a_cluster_in_service_goes_down_is_no_loss(
    world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: Request
) -> None:
    world.finalized = LEVELS[request_.lowering]
    ports = fake_ports(world, tmp_path)
    change_while_nodes_start(world, ports, monkeypatch)
    approver = Approver()
    carry_out(ports, DOWNGRADE, request_, approver)

    assert approver.bodies == []
    report = report_of(ports)
    assert report.outcome is Outcome.FINISHED
    assert {one["sentence"] for one in report.state_comparisons[0]["differences"] if one["by_clients"]} == {
        "Topic orders was deleted.",
        "Groups were deleted or have expired: console-consumer-4711.",
    }
    assert any("are as before the run" in one for one in report.proved)


def test_what_is_gone_after_all_nodes_were_stopped_needs_an_approver(
    world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_no_live(monkeypatch)
    world.finalized = LEVELS[Lowering.OFFLINE]
    ports = fake_ports(world, tmp_path)
    change_while_nodes_start(world, ports, monkeypatch)
    approver = Approver()
    with pytest.raises(RefusedError, match="alice did not approve the differences"):
        carry_out(ports, DOWNGRADE, OFFLINE, approver)

    (body,) = approver.bodies
    assert "- Topic orders is missing." in body
    assert "- The classic group console-consumer-4711 is missing." in body
    report = report_of(ports)
    assert (report.outcome, "Topic orders is missing." in report.sentence) == (Outcome.STOPPED, True)


def test_what_no_client_does_needs_an_approver_in_a_cluster_in_service(
    world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.finalized = LEVELS[Lowering.ONLINE]
    world.acls = {read_acl("User:bob")}
    ports = fake_ports(world, tmp_path)
    kind = type(ports.run)
    real = kind.record

    def record(self: Any, event: Event) -> None:
        real(self, event)
        if isinstance(event, Started):
            world.acls = set()

    monkeypatch.setattr(kind, "record", record)
    approver = Approver()
    with pytest.raises(RefusedError, match="alice did not approve the differences"):
        carry_out(ports, DOWNGRADE, ONLINE, approver)
    assert report_of(ports).outcome is Outcome.STOPPED
    approver.of_differences = Decision.APPROVED
    carry_out(ports, DOWNGRADE, ONLINE, approver)
    assert "ACL allow User:bob READ from * on topic orders is missing." in approver.bodies[-1]
    report = report_of(ports)
    assert report.outcome is Outcome.FINISHED
    assert "An approver accepted how the cluster differs" in report.sentence
