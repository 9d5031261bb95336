"""A run compares configuration, contents and ACLs with the state before, and asks for what the plan does not name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, SkippedStepError
from kafka_rollout.cli.answers import TerminalAnswers
from kafka_rollout.features.min_isr import MIN_ISR
from kafka_rollout.features.requests import FeatureAction
from kafka_rollout.model.contents import ClusterInventory
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.state import CheckpointFile
from kafka_rollout.model.topology import HostCommand, ServiceSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.preparation.state_comparison import (
    BEFORE,
    COMPARED,
    compare_with_state,
    needs_no_acceptance,
    record_state,
    refuse_unaccepted_differences,
)
from kafka_rollout.procedure.actions import (
    compare_after_downgrade,
    compare_after_levels,
    compare_after_roll,
    compare_after_rollback,
)
from kafka_rollout.procedure.kinds import FEATURES, UPGRADE
from kafka_rollout.procedure.step import Procedure, StepCall
from kafka_rollout.report.builders import build_report
from kafka_rollout.report.run_report import Outcome, list_gaps
from kafka_rollout.run.events import Approval, ApprovalOf, Decision, Words, events_of
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.run.step_events import (
    ComparedAfter,
    ContentsCompared,
    DefaultSet,
    Started,
    StartFinished,
    StartingWithCommands,
)
from tests.acls import read_acl
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import FakeAdmin, fake_ports
from tests.plans import plan_upgrade
from tests.running import carry_out

LOST_LINE = "log.retention.ms of broker 12 was 1000 (STATIC_BROKER_CONFIG) and is now missing."


@dataclass
class Approver:
    """Approves everything; `of_differences` is the answer to differences, None: no approver is named."""

    of_differences: str | None = Decision.REJECTED
    bodies: list[str] = field(default_factory=list)

    @property
    def terminal(self) -> None:
        return None

    @property
    def present(self) -> bool:
        return False

    def ask(self, question: Question) -> Answer | None:
        if question.what is not ApprovalOf.DIFFERENCES:
            return Answer(by="alice", decision=Decision.APPROVED, reason="CHG-1")
        self.bodies.append(question.body.replace("\\", ""))
        if self.of_differences is None:
            return None
        return Answer(by="alice", decision=self.of_differences, reason="seen")

    def show(self, body: str) -> None: ...


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(R391)
    cluster.inherit_min_isr = {"orders"}
    for node in cluster.spec.brokers:
        cluster.nodes[node.node_id].config[MIN_ISR] = "2"
    for fake in cluster.nodes.values():  # written after the run finalizes
        fake.checkpoints.append(CheckpointFile(node_id=0, path="x", end_offset=500, epoch=3, size=1, modified_at=4e9))
    return cluster


@pytest.fixture
def ports(cluster: FakeCluster, tmp_path: Path) -> ClusterPorts:
    return fake_ports(cluster, tmp_path, run_id=tmp_path.name)


def run(ports: ClusterPorts, approver: Approver | TerminalAnswers, procedure: Procedure = UPGRADE) -> None:
    of_features = Request(action=FeatureAction.UPGRADE_ALL, pin_min_isr=True)
    of_upgrade = Request(
        target=R431,
        finalize=FinalizePolicy.AFTER_APPROVAL,
        pin_min_isr=True,
        scan=False,
        rehearse=False,
        pace=Pace.FAST,
    )
    carry_out(ports, procedure, of_upgrade if procedure is UPGRADE else of_features, approver)


def lose_a_line(cluster: FakeCluster) -> None:
    """The file of broker 12 lost a line after its process began: its next start changes a value that no plan names."""
    cluster.nodes[12].config["log.retention.ms"] = "1000"
    cluster.files_at_start[12] = {MIN_ISR: "2"}


def comparisons(ports: ClusterPorts) -> list[tuple[ComparedAfter, int]]:
    return [(one.after, one.failing) for one in events_of(ports.run.events(), ContentsCompared)]


def test_a_run_compares_after_the_roll_and_after_the_levels_and_asks_nothing(ports: ClusterPorts) -> None:
    approver = Approver()
    run(ports, approver)

    assert approver.bodies == []
    assert comparisons(ports) == [(ComparedAfter.ROLL, 0), (ComparedAfter.APPROVAL, 0), (ComparedAfter.LEVELS, 0)]
    compared = ports.run.attachment(COMPARED[ComparedAfter.LEVELS])
    assert compared["digest"] == ""
    assert "group.streams.max.size = 2147483647" in compared["new_settings"]
    assert {one["subject"] for one in compared["differences"] if one["kind"] == "dynamic setting"} == {
        "min.insync.replicas of all brokers"
    }
    report = build_report(Run(ports, ports.run.load_plan()))
    assert report.outcome == Outcome.FINISHED
    assert [one["after"] for one in report.state_comparisons] == ["roll", "approval", "levels"]


def test_lost_records_do_not_hide_behind_many_other_differences(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Automation adds ACLs during the roll, and a partition loses records."""
    read = FakeAdmin.inventory

    def inventory(self: FakeAdmin, **more: Any) -> ClusterInventory:
        found = read(self, **more)
        if len(events_of(ports.run.events(), Started)) < 6:
            return found
        acls = tuple(read_acl(f"User:service-{number}") for number in range(120))
        return replace(found, acls=(*found.acls, *acls), ends={**found.ends, "orders-0": 4})

    monkeypatch.setattr(FakeAdmin, "inventory", inventory)
    approver = Approver()
    with pytest.raises(RefusedError, match="did not approve the differences"):
        run(ports, approver)
    lines = [line for line in approver.bodies[0].splitlines() if line.startswith("- ")]
    assert "orders-0 ended at offset" in lines[0]
    assert "records are lost" in lines[0]
    assert lines[-1] == "- … and 80 more (ACL). `state/after-roll.json` of the run history has all."
    assert "records are lost" in events_of(ports.run.events(), ContentsCompared)[-1].first[0]


def test_what_could_not_be_compared_is_named_where_the_comparison_is_summarized(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    cluster.unread_contents = {
        "share_offsets": "Broker 11 does not offer them.",
        "acls": "The cluster has no authorizer.",
    }
    run(ports, Approver())

    compared = events_of(ports.run.events(), ContentsCompared)
    assert [one.uncompared for one in compared] == [("start offsets of share groups",)] * 3
    line = compared[-1].line(cast(Words, None))
    assert line.endswith(", not compared: start offsets of share groups")
    report = build_report(Run(ports, ports.run.load_plan()))
    (gap,) = [one for one in list_gaps(report, is_compared=True) if "Not compared" in one]
    assert gap.endswith(": start offsets of share groups. Broker 11 does not offer them.")


def test_a_value_that_changes_with_a_restart_stops_the_run_before_it_finalizes(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    lose_a_line(cluster)
    approver = Approver()
    with pytest.raises(RefusedError, match="alice did not approve the differences"):
        run(ports, approver)

    assert len(approver.bodies) == 1
    assert f"- {LOST_LINE}" in approver.bodies[0]
    assert [targets for targets, only in cluster.updates if not only] == []
    report = build_report(Run(ports, ports.run.load_plan()))
    assert report.outcome == Outcome.STOPPED
    assert LOST_LINE in report.sentence

    cluster.nodes[12].config["log.retention.ms"] = "1000"  # the operator corrects it: the repeated comparison passes
    run(ports, approver)
    assert len(approver.bodies) == 1
    assert build_report(Run(ports, ports.run.load_plan())).outcome == Outcome.FINISHED


def test_an_accepted_difference_is_not_asked_again_and_another_one_is(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_elr() -> None:
        cluster.set_default("log.cleaner.threads", "7")

    monkeypatch.setattr(cluster, "raise_elr", raise_elr)
    lose_a_line(cluster)
    approver = Approver(of_differences=Decision.APPROVED)
    run(ports, approver)

    after_roll, after_levels = approver.bodies
    assert LOST_LINE in after_roll
    assert LOST_LINE not in after_levels
    assert "Dynamic setting log.cleaner.threads of all brokers was not set and is 7." in after_levels
    assert build_report(Run(ports, ports.run.load_plan())).outcome == Outcome.FINISHED


def test_what_the_controller_writes_with_a_level_without_the_plan_stops_the_run(
    ports: ClusterPorts, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_elr() -> None:
        cluster.set_default(MIN_ISR, "1")  # although the plan pins 2

    monkeypatch.setattr(cluster, "raise_elr", raise_elr)
    approver = Approver()
    with pytest.raises(RefusedError, match="differences"):
        run(ports, approver)
    (body,) = approver.bodies
    assert (
        "min.insync.replicas of brokers 11, 12, 13 was 2 (STATIC_BROKER_CONFIG) and is 1 "
        "(DYNAMIC_DEFAULT_BROKER_CONFIG)." in body
    )
    assert "min.insync.replicas of topic orders was 2" in body
    report = build_report(Run(ports, ports.run.load_plan()))
    assert (report.outcome, "min.insync.replicas" in report.sentence) == (Outcome.STOPPED, True)


def test_an_approval_counts_for_its_differences_only(ports: ClusterPorts, cluster: FakeCluster) -> None:
    lose_a_line(cluster)
    with pytest.raises(RefusedError):
        run(ports, Approver())
    cluster.acls = {read_acl("User:mallory")}
    with pytest.raises(RefusedError, match=r"ACL allow User:mallory READ from \* on topic orders was added"):
        run(ports, Approver(of_differences=None))

    run(ports, Approver(of_differences=Decision.APPROVED))
    given = [one for one in events_of(ports.run.events(), Approval) if one.what is ApprovalOf.DIFFERENCES]
    assert [one.decision for one in given] == [Decision.REJECTED, Decision.APPROVED]
    assert "mallory" in given[-1].text


def test_yes_accepts_no_difference(
    ports: ClusterPorts, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_a_line(cluster)
    with pytest.raises(RefusedError, match="--yes accepts no difference") as refused:
        run(ports, TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False))
    assert "without --yes" in refused.value.remedy
    assert "log.retention.ms of broker 12" in capsys.readouterr().out


def test_a_change_of_features_is_compared_too(tmp_path: Path) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    ports = fake_ports(cluster, tmp_path)
    run(ports, Approver(), FEATURES)
    assert comparisons(ports) == [(ComparedAfter.LEVELS, 0)]


def test_the_first_state_stays_the_base_and_a_lost_one_is_not_replaced(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    record_state(ports)
    cluster.acls = {read_acl("User:bob")}
    assert record_state(ports).acls == (read_acl("User:bob"),), (
        "nothing was changed yet, so a repeated call reads again"
    )
    ports.run.record(DefaultSet(key=MIN_ISR, value="2", before=None))
    cluster.acls = set()
    assert record_state(ports).acls == (read_acl("User:bob"),)
    ports.run.detach(BEFORE)
    with pytest.raises(SkippedStepError, match="before the first change of the run is lost"):
        record_state(ports)


def test_after_a_rollback_nothing_of_the_target_is_expected(ports: ClusterPorts) -> None:
    """Brokers that show its defaults have not returned to the state before."""
    plan = plan_upgrade(ports, R431, finalize=False)
    record_state(ports)
    rolled = Run(ports, plan)
    assert not [one for one in compare_with_state(rolled, ComparedAfter.ROLLBACK) if one.fails]
    request = Request(target=R431, finalize=FinalizePolicy.LATER, scan=False, rehearse=False, pace=Pace.FAST)
    carry_out(ports, UPGRADE, request, Approver())
    assert not [one for one in compare_with_state(rolled, ComparedAfter.ROLL) if one.fails]
    assert [one for one in compare_with_state(rolled, ComparedAfter.ROLLBACK) if one.fails]
    with pytest.raises(SkippedStepError, match="has not passed for nodes"):
        compare_after_rollback(StepCall(ports=ports, request=request, plan_or_none=plan))


@pytest.mark.parametrize(
    "compare", [compare_after_roll, compare_after_levels, compare_after_downgrade, compare_after_rollback]
)
def test_no_run_succeeds_with_a_command_after_a_start_that_did_not_end(
    tmp_path: Path, compare: Callable[[StepCall], object]
) -> None:
    """Each procedure that starts nodes ends with one of these steps, in a shell and in a DAG."""
    cluster = FakeCluster(R391)
    service = ServiceSpec(host="host", after_start=(HostCommand(command="undrain", timeout_s=60.0),))
    nodes = tuple(replace(node, service=service) for node in cluster.spec.nodes)
    cluster.spec = replace(cluster.spec, nodes=nodes)
    ports = fake_ports(cluster, tmp_path)
    call = StepCall(ports=ports, request=Request(target=R431), plan_or_none=plan_upgrade(ports, R431, finalize=False))
    record_state(ports)
    ports.run.record(StartingWithCommands(node_id=12, commands=1, at_most_s=60.0))
    with pytest.raises(FatalError, match="The commands after the start of node 12 have not ended without an error"):
        compare(call)
    assert len(comparisons(ports)) == 1, "the outcome tells what differs all the same"
    ports.run.record(StartFinished(node_id=12, seconds=1.0))
    compare(call)


@pytest.mark.parametrize("after", [one for one in ComparedAfter if one is not ComparedAfter.APPROVAL])
def test_a_lost_state_is_a_difference_that_an_approver_decides(ports: ClusterPorts, after: ComparedAfter) -> None:
    """Killed or erased in between: an absent record does not mean that nothing changed."""
    plan = plan_upgrade(ports, R431, finalize=False)
    record_state(ports)
    ports.run.detach(BEFORE)
    (lost,) = [one for one in compare_with_state(Run(ports, plan), after) if one.fails]
    assert "it is unknown what the run changed" in lost.sentence
    assert needs_no_acceptance(Run(ports, plan), after) is None
    with pytest.raises(RefusedError, match="it is unknown what the run changed"):
        refuse_unaccepted_differences(Run(ports, plan))


def test_what_one_broker_has_not_is_a_difference_that_an_approver_decides(
    ports: ClusterPorts, cluster: FakeCluster
) -> None:
    plan = plan_upgrade(ports, R431, finalize=False)
    record_state(ports)
    kind = "client-metrics subscription"
    brokers = [broker.node_id for broker in ports.cluster.brokers]
    cluster.views = {one: {kind: {"telemetry": "{'interval.ms': '5000'}"}} for one in brokers}
    assert not [one for one in compare_with_state(Run(ports, plan), ComparedAfter.ROLL) if one.fails]
    cluster.views[brokers[-1]] = {kind: {}}
    (found,) = [one for one in compare_with_state(Run(ports, plan), ComparedAfter.ROLL) if one.fails]
    assert found.sentence == (
        f"The client-metrics subscription telemetry is missing on broker {brokers[-1]}, and brokers "
        f"{', '.join(map(str, brokers[:-1]))} have it. Set it again: the new record reaches every broker."
    )
    assert found in compare_with_state(Run(ports, plan), ComparedAfter.DOWNGRADE)
