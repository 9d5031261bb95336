"""`kafka-rollout upgrade`: who approves it, and what a continued run keeps of its plan."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import run as cli_run
from kafka_rollout.cli.answers import ScriptAnswers, TerminalAnswers, shell_responder
from kafka_rollout.cli.run import ShellServices, run_procedure
from kafka_rollout.model.acls import AUTHORIZER, STANDARD_AUTHORIZER
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import CheckpointFile
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.procedure import actions
from kafka_rollout.procedure.kinds import UPGRADE
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.run.events import Approval, ApprovalOf, StartedAtShell, events_of
from kafka_rollout.run.ports import Question
from kafka_rollout.run.step_events import ComparedAfter, ContentsCompared
from tests.acls import read_acl
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports

WEAK = Request(target=R431, scan=False, rehearse=False, pace=Pace.FAST)


@pytest.fixture(autouse=True)
def _no_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_run, "scan_logs", lambda *_: None)


def roll(ports: ClusterPorts, request: Request, accepts: tuple[str, ...] = ()) -> int:
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False, accepts=accepts)
    return run_procedure(UPGRADE, ports, request, answers, ShellServices(ports, Settings.from_environment(), None))


def test_with_four_eyes_the_user_who_starts_a_roll_at_a_shell_cannot_approve_it(tmp_path: Path) -> None:
    cluster, starter = FakeCluster(R391), shell_responder()
    known = {starter.user: "alice"}
    cluster.spec = replace(cluster.spec, approvers=("alice", "ben"), four_eyes=True, shell_approvers=known)
    ports = fake_ports(cluster, tmp_path)
    with pytest.raises(RefusedError, match=r"alice started run .* and cannot approve it"):
        roll(ports, WEAK)
    assert cluster.stops == []
    assert [event.starter for event in events_of(ports.run.events(), StartedAtShell)] == [starter]


def test_a_continued_roll_checks_and_waits_as_approved_with_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    actions.plan_change(StepCall(ports=ports, request=replace(WEAK, pace=Pace.NORMAL)), RunOf.UPGRADE)
    assert roll(ports, WEAK) == 0
    assert len(cluster.stops) == len(cluster.spec.nodes)
    assert sum(cluster.clock.slept) > 60 * len(cluster.spec.nodes)
    assert "gate after node 2: check 1 of 3 passed" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["acl-meaning=ACLs", "acl-*"])
def test_yes_accepts_what_can_hide_a_blocker_only_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    cluster = FakeCluster(R391)
    cluster.acls = {read_acl("User:alice", host="10.0.0.0/8")}
    cluster.acls_problem = "Node 1 cannot list the ACLs."
    for node in cluster.nodes.values():
        node.config[AUTHORIZER] = STANDARD_AUTHORIZER
    ports = fake_ports(cluster, tmp_path)
    for accepts in ((), ("acl-meaning=ACL", "another=ACLs")):
        with pytest.raises(RefusedError, match="--yes accepts nothing unread that can hide a blocker: acl-m") as no:
            roll(ports, WEAK, accepts)
        assert no.value.remedy.endswith(" --accept-unknown acl-meaning=ACLs")
    assert cluster.stops == []
    assert not events_of(ports.run.events(), Approval)
    assert roll(ports, WEAK, (named,)) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Accepted as unknown by alice: acl-meaning=ACLs: The decisions" in said
    (given,) = events_of(ports.run.events(), Approval)
    assert given.accepted_unknowns == ("acl-meaning=ACLs",)


@pytest.mark.parametrize("kind", [TerminalAnswers, ScriptAnswers])
def test_what_can_hide_a_blocker_is_listed_line_by_line_and_its_options_can_be_copied(
    kind: type[TerminalAnswers], capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = {f"hosts=node {node_id}": f"The host of node {node_id} says nothing." for node_id in range(1, 11)}
    answers = kind(cluster=FakeCluster(R391).spec, name="alice", reason="CHG-1", confirms=False)
    question = Question(what=ApprovalOf.ROLL, body="the plan", hidden=hidden)
    with pytest.raises(RefusedError) as refused:
        answers.ask(question)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("hosts=")] == [f"{name}: {why}" for name, why in hidden.items()]
    assert refused.value.sentence == (
        "--yes accepts nothing unread that can hide a blocker: hosts=node 1, hosts=node 2, hosts=node 3, hosts=node 4 "
        "and 6 more. See the list above."
    )
    words = shlex.split(refused.value.remedy.partition(" add: ")[2])
    assert words[::2] == ["--accept-unknown"] * 10
    assert replace(answers, accepts=tuple(words[1::2])).ask(question)


def test_yes_accepts_what_only_a_log_leaves_in_doubt_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that finds no node to replace, and only finalizes."""
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    cluster.add_partition(GROUPS_TOPIC, 0, [12, 11])
    ports = fake_ports(cluster, tmp_path)
    finalizes = replace(WEAK, plans_features=True, finalize=FinalizePolicy.AFTER_APPROVAL)
    with pytest.raises(RefusedError, match="accepts nothing unread that can hide a blocker: node-logs"):
        roll(ports, finalizes)
    assert "node-logs: 1 doubt about logs of nodes" in capsys.readouterr().err
    assert cluster.finalized["metadata.version"] == 21
    for node_id, node in cluster.nodes.items():
        after = {"end_offset": 500, "epoch": 3, "size": 1, "modified_at": cluster.clock.now() + 86_400}
        node.checkpoints.append(CheckpointFile(node_id=node_id, path="x", **after))
    again = fake_ports(cluster, tmp_path, run_id="again")
    roll(again, finalizes, ("node-logs",))
    given = [one for one in events_of(again.run.events(), Approval) if one.what is ApprovalOf.FINALIZE]
    assert [len(one.doubts) for one in given] == [1]
    assert given[0].accepted_unknowns == ("node-logs",)
    assert cluster.finalized["metadata.version"] > 21


def test_yes_accepts_what_an_earlier_run_left_open_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = FakeCluster(R431, finalized={"metadata.version": 21})
    lost = "orders-0 ended at offset 14 and now ends at 4: records are lost."
    found = ContentsCompared(counts={}, differences=1, after=ComparedAfter.ROLL, failing=1, first=(lost,), digest="4")
    fake_ports(cluster, tmp_path, run_id="before").run.record(found)
    finalizes = replace(WEAK, plans_features=True, finalize=FinalizePolicy.AFTER_APPROVAL)
    with pytest.raises(RefusedError, match="accepts nothing unread that can hide a blocker: earlier-runs"):
        roll(fake_ports(cluster, tmp_path), finalizes)
    assert "earlier-runs: 1 line that no approver accepted" in capsys.readouterr().err
    assert cluster.finalized["metadata.version"] == 21
