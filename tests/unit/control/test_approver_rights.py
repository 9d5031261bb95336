"""Right before the action: may the approver still approve, and was the answer given where the run's answers are?"""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.approval import (
    FOUR_EYES,
    record_approval,
    record_shell_start,
    require_approval,
    take_over_run,
)
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.run.events import (
    CONTROLS,
    Approval,
    ApprovalOf,
    Begun,
    Channel,
    Decision,
    Responder,
    StartedAtShell,
    TakenOver,
    events_of,
)
from kafka_rollout.wiring.runs import control_request
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade

ROLL = ApprovalOf.ROLL
SHELL = Responder(channel=Channel.SHELL, user="svc-kafka", host="jump-1")
AIRFLOW = Responder(channel=Channel.AIRFLOW, user="alice", name="Alice", record_id="019a", answered_at=1.0)


def confirm(approval: Approval) -> None:
    """As a task whose Airflow has every record."""


def ports_of(tmp_path: Path, *, dag: bool = True, triggered_by: str = "ben", four_eyes: bool = False) -> ClusterPorts:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    ports = replace(ports, cluster=replace(ports.cluster, approvers=("alice", "ben"), four_eyes=four_eyes))
    if dag:
        ports = replace(ports, confirm_approval=confirm)
        ports.run.record(Begun(dag_id="kafka_upgrade_fake", triggered_by=triggered_by, run_type="manual"))
    plan_upgrade(ports, R431, finalize=True)
    return ports


def approve(ports: ClusterPorts, by: str = "alice", responder: Responder | None = AIRFLOW) -> None:
    record_approval(
        ports, ROLL, by, Decision.APPROVED, "a quiet evening", responder=responder, text="Roll fake?\n\nPlan."
    )


def test_an_approval_says_who_answered_where_and_what_was_shown(tmp_path: Path) -> None:
    ports = ports_of(tmp_path)
    approve(ports)
    (given,) = events_of(ports.run.events(), Approval)
    assert given == require_approval(Run(ports, ports.run.load_plan()), ROLL)
    assert (given.responder, given.text) == (AIRFLOW, "Roll fake?\n\nPlan.")
    assert given.text_sha256 == hashlib.sha256(given.text.encode()).hexdigest()
    assert str(given.responder) == "Airflow user Alice (alice)"


def test_who_is_no_approver_any_more_has_approved_nothing(tmp_path: Path) -> None:
    ports = ports_of(tmp_path)
    approve(ports)
    edited = replace(ports, cluster=replace(ports.cluster, approvers=("ben",)))
    with pytest.raises(RefusedError, match="alice is not an approver of cluster fake"):
        require_approval(Run(edited, ports.run.load_plan()), ROLL)


def test_a_process_that_cannot_read_airflow_s_record_of_a_dag_s_run_takes_no_approval_of_its_history(
    tmp_path: Path,
) -> None:
    ports = replace(ports_of(tmp_path), confirm_approval=None)
    approve(ports)
    with pytest.raises(RefusedError, match="approved the plan in Airflow, and a shell cannot compare it there"):
        require_approval(Run(ports, ports.run.load_plan()), ROLL)


@pytest.mark.parametrize("responder", [None, SHELL, replace(AIRFLOW, record_id="")])
def test_a_dag_s_run_accepts_no_answer_from_elsewhere(tmp_path: Path, responder: Responder | None) -> None:
    ports = ports_of(tmp_path)
    approve(ports, responder=responder)
    with pytest.raises(RefusedError, match="was not given in Airflow"):
        require_approval(Run(ports, ports.run.load_plan()), ROLL)
    approve(ports)
    require_approval(Run(ports, ports.run.load_plan()), ROLL)


def test_a_run_that_was_taken_over_accepts_the_shell_s_answers(tmp_path: Path) -> None:
    ports = ports_of(tmp_path)
    ports = replace(ports, confirm_approval=None)
    take_over_run(ports, "alice", SHELL, wanted=True)
    approve(ports, responder=SHELL)
    require_approval(Run(ports, ports.run.load_plan()), ROLL)


@pytest.mark.parametrize(
    ("triggered_by", "dag", "responder", "why"),
    [
        ("alice", True, AIRFLOW, "alice started run .* and cannot approve it"),
        ("Alice", True, AIRFLOW, "alice started run"),  # an id beside the name that Airflow tells
        ("", True, AIRFLOW, "has no record of who started it"),
        ("ben", True, AIRFLOW, ""),
        ("", False, replace(SHELL, user="alice"), "alice is a name that the user alice claims"),
        ("", False, SHELL, "alice is a name that the user svc-kafka claims"),
        ("", False, None, "claims"),
    ],
)
def test_with_four_eyes_the_starter_approves_nothing(
    tmp_path: Path, triggered_by: str, dag: bool, responder: Responder | None, why: str
) -> None:
    ports = ports_of(tmp_path, dag=dag, triggered_by=triggered_by, four_eyes=True)
    if not why:
        approve(ports, responder=responder)
        require_approval(Run(ports, ports.run.load_plan()), ROLL)
        return
    with pytest.raises(RefusedError, match=why):
        approve(ports, responder=responder)
    assert events_of(ports.run.events(), Approval) == ()
    without = replace(ports, cluster=replace(ports.cluster, four_eyes=False))
    approve(without, responder=responder)
    with pytest.raises(RefusedError):  # asked for since
        require_approval(Run(ports, ports.run.load_plan()), ROLL)


def test_with_four_eyes_the_starter_ends_no_pause(tmp_path: Path) -> None:
    ports = ports_of(tmp_path, triggered_by="alice", four_eyes=True)
    for by, responder, why in (("alice", AIRFLOW, "alice started run"), ("ben", SHELL, "ben is a name that the user")):
        with pytest.raises(RefusedError, match=why):
            record_approval(ports, ApprovalOf.PAUSE, by, Decision.APPROVED, "looks good", responder=responder)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "errors of clients", responder=AIRFLOW)
    assert [given.what for given in events_of(ports.run.events(), Approval)] == [ApprovalOf.ROLL_BACK]


@pytest.mark.parametrize(
    ("begun", "why"),
    [
        ([{"clears": 0}, {"clears": 0}], ""),  # Airflow repeated the first task after a transient error
        ([{}, {"clears": 1}], "was cleared and planned again, so ben did not start it"),
        ([{"clears": 2}], "was cleared and planned again"),
        ([{"run_type": "operator_triggered"}], "is of the type operator_triggered, so ben did not start it"),
        ([{"run_type": "scheduled"}], "is of the type scheduled"),
        ([{"run_type": "asset_triggered"}], "is of the type asset_triggered"),
        ([{"run_type": "backfill"}], "is of the type backfill"),
        ([{"run_type": ""}], "is of an unknown type"),
    ],
)
@pytest.mark.parametrize("four_eyes", [True, False])
def test_with_four_eyes_a_user_triggered_the_run_by_hand_and_nobody_cleared_its_plan(
    tmp_path: Path, begun: list[dict[str, Any]], why: str, four_eyes: bool
) -> None:
    ports = ports_of(tmp_path, dag=False, four_eyes=four_eyes)
    for fields in begun:
        ports.run.record(Begun(dag_id="kafka_upgrade_fake", triggered_by="ben", **{"run_type": "manual", **fields}))
    if not (why and four_eyes):
        approve(ports, "alice")
        return
    with pytest.raises(RefusedError, match=why) as refused:
        approve(ports, "alice")
    assert refused.value.remedy == "Trigger a new run by hand."
    without = replace(ports, cluster=replace(ports.cluster, four_eyes=False))
    approve(without, "alice")  # added to the history
    with pytest.raises(RefusedError, match=why):
        require_approval(Run(ports, ports.run.load_plan()), ROLL)


@pytest.mark.parametrize("four_eyes", [True, False])
def test_with_four_eyes_an_approver_cannot_bring_a_rejected_plan_back(tmp_path: Path, four_eyes: bool) -> None:
    ports = ports_of(tmp_path, triggered_by="ben", four_eyes=four_eyes)
    record_approval(ports, ROLL, "alice", Decision.REJECTED, "not tonight", responder=AIRFLOW)
    expected = pytest.raises(RefusedError, match="alice rejected the plan of run") if four_eyes else nullcontext()
    with expected:
        approve(ports, "alice")
    approve(replace(ports, cluster=replace(ports.cluster, four_eyes=False)), "alice")
    with pytest.raises(RefusedError, match="alice rejected") if four_eyes else nullcontext():
        require_approval(Run(ports, ports.run.load_plan()), ROLL)


@pytest.mark.parametrize("four_eyes", [True, False])
def test_with_four_eyes_a_rejection_refuses_every_plan_of_its_run(tmp_path: Path, four_eyes: bool) -> None:
    ports = ports_of(tmp_path, dag=False, four_eyes=four_eyes)
    ports.run.record(StartedAtShell(starter=replace(SHELL, user="ben")))
    record_approval(ports, ROLL, "alice", Decision.REJECTED, "not tonight", responder=AIRFLOW)
    rejected = ports.run.load_plan().hash
    plan_upgrade(ports, R431, finalize=False)
    assert ports.run.load_plan().hash != rejected
    for what in (ROLL, ApprovalOf.FINALIZE):
        with pytest.raises(RefusedError, match="alice rejected the plan of run") if four_eyes else nullcontext():
            record_approval(ports, what, "alice", Decision.APPROVED, "after all", responder=AIRFLOW)


@pytest.mark.parametrize("four_eyes", [True, False])
def test_with_four_eyes_a_dag_s_run_that_froze_two_plans_was_planned_again(tmp_path: Path, four_eyes: bool) -> None:
    ports = ports_of(tmp_path, triggered_by="ben", four_eyes=four_eyes)
    plan_upgrade(ports, R431, finalize=True)  # the task `plan` alone was cleared, or Airflow does not count the clear
    with pytest.raises(RefusedError, match="was planned again, so ben did not start") if four_eyes else nullcontext():
        approve(ports, "alice")
    approve(replace(ports, cluster=replace(ports.cluster, four_eyes=False)), "alice")
    with pytest.raises(RefusedError, match="was planned again") if four_eyes else nullcontext():
        require_approval(Run(ports, ports.run.load_plan()), ROLL)


def test_with_four_eyes_a_run_of_the_shell_may_plan_again(tmp_path: Path) -> None:
    ports = four_eyes_at_a_shell(tmp_path, BEN_S)
    plan_upgrade(ports, R431, finalize=True)
    approve(ports, "alice", ALICE_S)
    require_approval(Run(ports, ports.run.load_plan()), ROLL)


@pytest.mark.parametrize(
    ("starter", "ben_s_id", "why"),
    [
        ("ben", "2", "is known by name only"),  # Airflow's ids are not its names
        ("mallory", "ben", "is known by name only"),
        ("ben", "ben", "ben started run"),
        ("alice", "ben", ""),  # an approver's id, so names are ids
    ],
)
def test_with_four_eyes_a_shell_answers_in_a_dag_s_run_only_where_its_starter_can_be_compared(
    tmp_path: Path, starter: str, ben_s_id: str, why: str
) -> None:
    ports = replace(ports_of(tmp_path, triggered_by=starter), confirm_approval=None)
    other = "3" if ben_s_id == "2" else "alice"
    cluster = replace(ports.cluster, approvers=(ben_s_id, other), four_eyes=True, shell_approvers={"ben-os": ben_s_id})
    ports = replace(ports, cluster=cluster)
    take_over_run(ports, ben_s_id, BEN_S, wanted=True)
    for what in sorted(FOUR_EYES):
        with pytest.raises(RefusedError, match=why) if why else nullcontext():
            record_approval(ports, what, ben_s_id, Decision.APPROVED, "mine", responder=BEN_S)
    if why:
        without = replace(ports, cluster=replace(cluster, four_eyes=False))
        approve(without, ben_s_id, BEN_S)  # added to the history
        with pytest.raises(RefusedError, match=why):
            require_approval(Run(ports, ports.run.load_plan()), ROLL)
    record_approval(ports, ApprovalOf.ROLL_BACK, ben_s_id, Decision.APPROVED, "node 3 is down", responder=BEN_S)
    require_approval(Run(ports, ports.run.load_plan()), ApprovalOf.ROLL_BACK)


SHELL_APPROVERS = {"alice-os": "alice", "ben-os": "ben"}
ALICE_S, BEN_S = (replace(SHELL, user=user) for user in SHELL_APPROVERS)
MALLORY_S = replace(SHELL, user="mallory")


def four_eyes_at_a_shell(tmp_path: Path, starter: Responder | None) -> ClusterPorts:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    cluster = replace(ports.cluster, approvers=("alice", "ben"), four_eyes=True, shell_approvers=SHELL_APPROVERS)
    ports = replace(ports, cluster=cluster)
    if starter is not None:
        record_shell_start(ports, starter)
    plan_upgrade(ports, R431, finalize=True)
    return ports


@pytest.mark.parametrize(
    ("starter", "by", "responder", "why"),
    [
        (BEN_S, "alice", ALICE_S, ""),
        (MALLORY_S, "alice", ALICE_S, ""),
        (MALLORY_S, "alice", MALLORY_S, "alice is a name that the user mallory claims"),
        (BEN_S, "alice", BEN_S, "alice is a name that the user ben-os claims"),
        (ALICE_S, "alice", ALICE_S, "alice started run"),
        (None, "alice", ALICE_S, "has no record of who started it"),
    ],
)
def test_with_four_eyes_a_shell_s_user_approves_only_as_the_approver_that_the_inventory_names(
    tmp_path: Path, starter: Responder | None, by: str, responder: Responder, why: str
) -> None:
    ports = four_eyes_at_a_shell(tmp_path, starter)
    if not why:
        approve(ports, by, responder)
        require_approval(Run(ports, ports.run.load_plan()), ROLL)
        return
    with pytest.raises(RefusedError, match=why):
        approve(ports, by, responder)


def test_with_four_eyes_an_approval_that_was_added_to_the_history_of_a_shell_s_run_does_not_count(
    tmp_path: Path,
) -> None:
    ports = four_eyes_at_a_shell(tmp_path, MALLORY_S)
    without = replace(ports, cluster=replace(ports.cluster, four_eyes=False, shell_approvers={}))
    approve(without, "alice", MALLORY_S)
    with pytest.raises(RefusedError, match="alice is a name that the user mallory claims"):
        require_approval(Run(ports, ports.run.load_plan()), ROLL)


def test_with_four_eyes_a_dag_s_run_is_taken_over_under_no_other_name(tmp_path: Path) -> None:
    ports = replace(ports_of(tmp_path, triggered_by="mallory", four_eyes=True), confirm_approval=None)
    with pytest.raises(RefusedError, match="At a shell, alice is a name that the user mallory claims"):
        take_over_run(ports, "alice", MALLORY_S, wanted=True)
    assert not events_of(ports.run.events(), TakenOver)
    named = replace(ports, cluster=replace(ports.cluster, shell_approvers=SHELL_APPROVERS))
    take_over_run(named, "alice", ALICE_S, wanted=True)
    with pytest.raises(RefusedError, match="is known by name only"):
        approve(named, "alice", ALICE_S)
    named = ports_of(tmp_path / "ben", triggered_by="ben", four_eyes=True)
    named = replace(named, cluster=replace(named.cluster, shell_approvers=SHELL_APPROVERS), confirm_approval=None)
    take_over_run(named, "alice", ALICE_S, wanted=True)
    approve(named, "alice", ALICE_S)
    require_approval(Run(named, named.run.load_plan()), ROLL)


@pytest.mark.parametrize("what", list(ApprovalOf))
@pytest.mark.parametrize("decision", list(Decision))
def test_no_answer_of_any_kind_is_recorded_in_a_name_that_a_shell_s_user_only_claims(
    tmp_path: Path, what: ApprovalOf, decision: Decision
) -> None:
    ports = four_eyes_at_a_shell(tmp_path, BEN_S)
    with pytest.raises(RefusedError, match="alice is a name that the user mallory claims"):
        record_approval(ports, what, "alice", decision, "because", responder=MALLORY_S)
    record_approval(ports, what, "alice", decision, "because", responder=ALICE_S)


@pytest.mark.parametrize("what", list(ApprovalOf))
def test_no_answer_that_was_written_into_the_history_is_used_in_a_claimed_name(
    tmp_path: Path, what: ApprovalOf
) -> None:
    ports = four_eyes_at_a_shell(tmp_path, BEN_S)
    without = replace(ports, cluster=replace(ports.cluster, four_eyes=False, shell_approvers={}))
    record_approval(without, what, "alice", Decision.APPROVED, "because", responder=MALLORY_S)
    with pytest.raises(RefusedError, match="alice is a name that the user mallory claims"):
        require_approval(Run(ports, ports.run.load_plan()), what)


@pytest.mark.parametrize("action", CONTROLS)
def test_no_request_to_a_run_is_made_in_a_name_that_a_shell_s_user_only_claims(tmp_path: Path, action: str) -> None:
    cluster = four_eyes_at_a_shell(tmp_path, BEN_S).cluster
    with pytest.raises(RefusedError, match="alice is a name that the user mallory claims"):
        control_request(cluster, action, "because", MALLORY_S, by="alice")
    assert control_request(cluster, action, "because", ALICE_S, by="alice").by == "alice (user alice-os)"
    assert control_request(cluster, action, "because", MALLORY_S).by == "mallory"
    assert control_request(cluster, action, "because", AIRFLOW, by="ben").by.startswith("ben (user")


def test_a_run_is_started_at_a_shell_once(tmp_path: Path) -> None:
    ports = four_eyes_at_a_shell(tmp_path, MALLORY_S)
    record_shell_start(ports, ALICE_S)
    assert [started.starter for started in events_of(ports.run.events(), StartedAtShell)] == [MALLORY_S]


def test_the_starter_may_roll_back_alone(tmp_path: Path) -> None:
    ports = ports_of(tmp_path, triggered_by="alice", four_eyes=True)
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "node 3 does not start", responder=AIRFLOW)
    require_approval(Run(ports, ports.run.load_plan()), ApprovalOf.ROLL_BACK)
