"""The whole roll over a fake cluster: order, resume, stop, roll back, and what the report says of each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.control.approval import record_approval
from kafka_rollout.feature_updates.levels import finalize, prove_snapshot
from kafka_rollout.gates.gate import Gate, GateKind, GatePolicy
from kafka_rollout.groups.monitor import MonitoredGroups
from kafka_rollout.model.groups import DescribedGroup, GroupMember
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.approval_requests import approval_body
from kafka_rollout.procedure.kinds import build_report_of_run
from kafka_rollout.report.builders import GROUPS_WATCHED
from kafka_rollout.report.page.pages import render_run
from kafka_rollout.roll.gate_checks import wait_for_gate
from kafka_rollout.roll.walk import RollProgress, roll_back, roll_release_steps
from kafka_rollout.run.events import ApprovalOf, Decision, events_of
from kafka_rollout.run.step_events import GatePassed
from kafka_rollout.wiring.runs import write_run_report
from tests.fakes.cluster import R340, R341, R391, R431, FakeCluster
from tests.fakes.dying_files import KilledError
from tests.fakes.ports import fake_ports
from tests.plans import compare, plan_upgrade

QUICK = GatePolicy(checks=2, interval_s=1, timeout_s=60)


def kill(*_: object, **__: object) -> None:
    raise KilledError


def outcome(ports: ClusterPorts, plan: Plan) -> tuple[str, str]:
    report = build_report_of_run(Run(ports, plan))
    json.dumps(to_json(report))
    return report.outcome, report.sentence


def test_every_node_is_started_once_controllers_first_the_active_one_last_among_them(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    heard: list[RollProgress] = []
    assert roll_release_steps(Run(ports, plan), QUICK, on_progress=heard.append)
    assert cluster.stops == [2, 3, 1, 11, 12, 13]
    assert all([s.release for s in node.starts] == [R431] for node in cluster.nodes.values())
    assert heard[-1].k == heard[-1].n == 6
    assert heard[-1].remaining_s == 0
    assert outcome(ports, plan)[0] == "stopped"  # not compared yet
    compare(ports)
    assert outcome(ports, plan)[0] == "rolled_not_finalized"


def test_a_roll_that_is_stopped_goes_on_where_it_was(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: len(cluster.stops) == 2)
    assert cluster.stops == [2, 3]
    state, sentence = outcome(ports, plan)
    assert state == "stopped"
    assert "nodes 2, 3: 4.3.1" in sentence
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.stops == [2, 3, 1, 11, 12, 13]


def test_a_failed_gate_stops_the_roll_and_roll_back_undoes_it(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.cannot_start.add((3, R431))
    with pytest.raises(RefusedError, match="after node 3 failed"):
        roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.stops == [2, 3]
    assert outcome(ports, plan)[0] == "stopped"
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "node 3 does not start")
    assert roll_back(Run(ports, plan), QUICK)
    assert {node.running for node in cluster.nodes.values()} == {R391}
    assert [s.release for s in cluster.nodes[2].starts] == [R431, R391]
    assert cluster.nodes[1].starts == []
    assert outcome(ports, plan)[0] == "stopped"  # not compared since
    compare(ports)
    assert outcome(ports, plan) == ("rolled_back", "Every node runs 3.9.1 again.")


def test_an_intolerant_release_goes_by_way_of_the_tolerant_one(tmp_path: Path) -> None:
    cluster = FakeCluster(R340)
    ports = fake_ports(cluster, tmp_path, run_id=tmp_path.name)
    plan = plan_upgrade(ports, R431, finalize=False)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "upgrade")
    assert roll_release_steps(Run(ports, plan), QUICK)
    assert all([s.release for s in node.starts] == [R341, R431] for node in cluster.nodes.values())


def test_finalized_and_proved_is_finished_and_the_page_holds_every_gate(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    roll_release_steps(Run(ports, plan), QUICK)
    record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "soaked <b>well</b>")
    compare(ports)
    finalize(Run(ports, plan))
    assert outcome(ports, plan)[0] == "stopped"  # not proved yet
    cluster_snapshots(cluster)
    for kind in (GateKind.FINALIZED, GateKind.SNAPSHOT, GateKind.METADATA_VERSION):
        wait_for_gate(Run(ports, plan), Gate(kind=kind), QUICK)
    prove_snapshot(Run(ports, plan))
    assert outcome(ports, plan)[0] == "stopped"  # not compared since
    compare(ports)
    assert ports.run.private_path("metadata.checkpoint").stat().st_mode & 0o777 == 0o600
    _, page, data = write_run_report(Run(ports, plan))
    report = json.loads(Path(data).read_text())
    assert report["outcome"] == "finished"
    assert report["features"]["before"] == {"metadata.version": 21}
    assert report["features"]["after"]["metadata.version"] == 30
    assert [node["starts_per_release"] for node in report["nodes"]] == [{"4.3.1": 1}] * 6
    assert len([gate for gate in report["gates"] if gate["state"] == "passed"]) == 16
    html = Path(page).read_text()
    assert "soaked &lt;b&gt;well&lt;/b&gt;" in html
    assert html.count("<details") >= 15
    html = re.sub(r'xmlns(:xlink)?="http://www\.w3\.org/[^"]*"', "", html)  # names, not addresses
    assert not any(word in html for word in ("http://", "https://", "<script", "<link"))
    assert html.count("url(") == html.count("url(#"), "only parts of the page itself"


def test_the_page_shows_what_was_seen_of_groups_that_have_partitions(ports: ClusterPorts, plan: Plan) -> None:
    watch = MonitoredGroups()
    for at, assigned in ((0.0, (("orders", 0),)), (2.0, ()), (4.5, ())):
        member = GroupMember(client_id="app", host="/h", member_id="m", assigned=assigned)
        watch.add(
            [
                DescribedGroup(group_id="<b>", type="classic", state="Stable", assignor="range", members=(member,)),
                DescribedGroup(group_id="idle-one", type="classic", state="Empty"),
            ],
            at,
        )
    ports.run.attach(GROUPS_WATCHED, watch.to_dict())  # type: ignore[attr-defined]
    html = render_run(build_report_of_run(Run(ports, plan)))
    assert "1 of 1 rebalanced" in html
    assert "<td>&lt;b&gt;</td><td>classic, range</td>" in html
    assert '<td class="n">1</td><td class="n">4.5 s</td>' in html
    assert ", orders-0</td>" in html
    assert "idle-one" not in html


def cluster_snapshots(cluster: FakeCluster) -> None:
    """The fake's SnapshotEmitter says one second ago; real nodes say so by their files."""

    from kafka_rollout.model.state import CheckpointFile

    for node_id, node in cluster.nodes.items():
        node.checkpoints.append(
            CheckpointFile(
                node_id=node_id, path="x", end_offset=500, epoch=3, size=1, modified_at=cluster.clock.now() + 1
            )
        )


def test_a_plan_with_blockers_cannot_be_approved_away_and_reads_refused(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.add_partition("lonely", 0, [11])
    ports = fake_ports(cluster, tmp_path, run_id=tmp_path.name)
    plan = plan_upgrade(ports, R431, finalize=False)
    assert "RF-ONE-TOPIC" in approval_body(plan)
    with pytest.raises(RefusedError, match="which cannot be approved"):
        record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "go on")
    state, sentence = outcome(ports, plan)
    assert state == "refused"
    assert "RF-ONE-TOPIC" in sentence


def test_a_topic_with_one_replica_rolls_if_the_approver_accepts_it(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    cluster.add_partition("tmp-1", 0, [11])
    ports = fake_ports(cluster, tmp_path, run_id=tmp_path.name)
    plan = plan_upgrade(ports, R431, finalize=False, accept_unavailable=["tmp-*", " tmp-* "])
    assert (plan.blockers, plan.accept_unavailable) == ((), ("tmp-*",))
    assert plan.hash != plan_upgrade(ports, R431, finalize=False).hash
    plan_upgrade(ports, R431, finalize=False, accept_unavailable=["tmp-*"])
    body = approval_body(plan)
    assert "### Unavailable topics that you accept" in body
    assert "acks=all fails, and from 3.7.0 on consumers get no new records" in body
    assert "RF-ONE-TOPIC" in body
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "nobody reads it tonight", text=body)
    assert roll_release_steps(Run(ports, plan), GatePolicy(checks=1))
    assert cluster.stops == [2, 3, 1, 11, 12, 13]
    report = build_report_of_run(Run(ports, plan))
    assert report.accept_unavailable == ("tmp-*",)
    assert "accepted: <code>tmp-*</code>" in render_run(report)


def test_a_rejected_approval_and_a_dry_run_read_as_such(ports: ClusterPorts, cluster: FakeCluster) -> None:
    plan = plan_upgrade(ports, R431, finalize=False)
    assert build_report_of_run(Run(ports, plan), dry_run=True).outcome == "dry_run"
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.REJECTED, "month's end")
    assert outcome(ports, plan) == ("refused", "Nothing was changed: alice answered 'rejected' (month's end).")
    assert render_run(build_report_of_run(Run(ports, plan)))


def test_a_node_that_was_stopped_before_a_kill_is_started_without_another_gate_before_its_stop(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports.runtime, "install", kill)
        with pytest.raises(KilledError):
            roll_release_steps(Run(ports, plan), QUICK)
    assert cluster.nodes[2].running is None
    before = len(ports.run.events())
    assert roll_release_steps(Run(ports, plan), QUICK)
    gates = [event.ref for event in events_of(ports.run.events()[before:], GatePassed) if event.ref.node_id == 2]
    assert [ref.kind for ref in gates] == [GateKind.AFTER_START]
    assert cluster.stops == [2, 3, 1, 11, 12, 13]


def test_a_node_that_died_after_its_start_fails_its_gate_and_is_not_said_to_be_stopped(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    assert not roll_release_steps(Run(ports, plan), QUICK, stop_asked=lambda: len(cluster.stops) == 2)
    before = len(ports.run.events())
    cluster.nodes[3].running = None
    heard: list[RollProgress] = []
    with pytest.raises(RefusedError, match="after node 3 failed"):
        roll_release_steps(Run(ports, plan), QUICK, on_progress=heard.append)
    kinds = {event.ref for event in events_of(ports.run.events()[before:], GatePassed) if event.ref.node_id == 3}
    assert not kinds
    assert not [line.message for line in heard if line.node.endswith("(3)") and "is stopped" in line.message]
