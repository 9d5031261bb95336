"""Pause, resume and stop from a second shell: what is recorded, what `status` shows, and what is refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kafka_rollout.base.errors import LockBrokenError
from kafka_rollout.cli.app import run_main
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.control.approval import record_approval
from kafka_rollout.control.lock import acquire_lock, release_lock
from kafka_rollout.gates.gate import GatePolicy
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure import actions
from kafka_rollout.procedure.step import StepCall
from kafka_rollout.roll.walk import roll_release_steps
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    Begun,
    Channel,
    ClearedInAirflow,
    Decision,
    EndedInAirflow,
    PauseAsked,
    Responder,
    ResumeAsked,
    StartedAtShell,
    StopAsked,
)
from kafka_rollout.run.step_events import Stopping
from kafka_rollout.run.view import RunView
from kafka_rollout.wiring.runs import write_run_report
from tests.dags.conftest import spec_with_homes
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import compare


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    """An approved run that holds the lock."""
    (tmp_path / "clusters").mkdir()
    spec = spec_with_homes()
    (tmp_path / "clusters" / "fake.yaml").write_text(dump_cluster(spec))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    ports = fake_ports(FakeCluster(R391, spec=spec), tmp_path / "home")
    acquire_lock(ports, "Upgrade to 4.3.1.")
    actions.plan_change(StepCall(ports=ports, request=Request(target=R431, scan=False)), RunOf.UPGRADE)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    return ports


def call(*words: str) -> int:
    return run_main([*words, "--cluster", "fake"])


def test_a_pause_is_recorded_with_person_and_reason_and_shown(
    ports: ClusterPorts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("pause", "--run", "run-1", "--as", "bob", "--reason", "errors of clients") == 0
    asked = ports.run.events()[-1]
    assert isinstance(asked, PauseAsked)
    by = f"bob (user {asked.responder.user})"  # the name is only claimed
    assert (asked.by, asked.reason, asked.responder.channel) == (by, "errors of clients", "shell")
    assert asked.responder.user
    assert run_main(["status", "--cluster", "fake"]) in {0, 1}
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Run 1 was paused by {by}: errors of clients. It pauses before its next node" in shown
    assert f"The run is paused by {by}: errors of clients, since " in shown
    assert "kafka-rollout resume --cluster fake --run 1 --reason TEXT" in shown
    assert call("pause", "--run", "run-1", "--reason", "again") == 3
    assert call("resume", "--reason", "fixed") == 0  # the run that `status` shows
    assert isinstance(ports.run.events()[-1], ResumeAsked)
    assert call("stop", "--reason", "another day") == 0
    assert isinstance(ports.run.events()[-1], StopAsked)


def test_what_changes_nothing_is_refused(ports: ClusterPorts, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("resume", "--run", "run-1", "--reason", "why not") == 3
    assert "is not paused" in capsys.readouterr().err
    assert call("pause", "--run", "run-1", "--reason", " ") == 2
    assert call("pause", "--run", "run-9", "--reason", "unknown") == 2
    plan = ports.run.load_plan()
    assert roll_release_steps(Run(ports, plan), GatePolicy(checks=1))
    compare(ports)
    write_run_report(Run(ports, plan))
    release_lock(ports)
    before = ports.run.events()
    code = call("pause", "--run", "run-1", "--reason", "too late")
    assert code == 3, capsys.readouterr().err
    assert ports.run.events() == before


def test_a_request_is_shown_until_its_effect(ports: ClusterPorts, capsys: pytest.CaptureFixture[str]) -> None:
    for action, does in (("pause", "The run pauses before its next node or change."), ("stop", "The run ends at the ")):
        assert call(action, "--run", "run-1", "--reason", "errors") == 0
        capsys.readouterr()
        assert run_main(["status", "--cluster", "fake"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert f"! {action.capitalize()} was requested by " in shown
        assert does in shown
    run = Run(ports, ports.run.load_plan())
    assert not roll_release_steps(run, GatePolicy(checks=1))
    release_lock(ports)
    assert run_main(["status", "--cluster", "fake", "--run", "run-1"]) == 0
    shown = capsys.readouterr().out
    assert "was requested by" not in shown
    assert "continues by itself" not in shown
    assert "The run was stopped by" in shown


@pytest.mark.parametrize("in_airflow", [True, False])
def test_a_stop_ends_the_wait_for_an_answer_at_once(
    ports: ClusterPorts, capsys: pytest.CaptureFixture[str], *, in_airflow: bool
) -> None:
    """No process of a run that waits for an answer in Airflow reads the request, and none at a terminal."""
    if in_airflow:
        ports.run.record(Begun(dag_id="kafka_upgrade_fake"))
    shell = Responder(channel=Channel.SHELL, user="alice")
    asked = Asked(
        what=ApprovalOf.FINALIZE,
        task_id="approve_finalize",
        record_id="1" if in_airflow else "",
        text="Approve?",
        options=("Approve", "Reject"),
        terminal=None if in_airflow else shell,
    )
    ports.run.record(asked)
    assert call("stop", "--run", "run-1", "--reason", "another day") == 0
    assert "It has ended, and holds no lock." in capsys.readouterr().out
    assert ports.lock.holder("fake") is None
    assert run_main(["status", "--cluster", "fake", "--run", "run-1"]) == 0
    shown = capsys.readouterr().out
    assert "The run was stopped by" in shown
    assert "continues by itself" not in shown
    with pytest.raises(LockBrokenError, match="stopped run 1"):
        acquire_lock(ports, "the answer came later")
    with pytest.raises(LockBrokenError, match="stopped run 1"):  # also after the last change, without the lock
        record_approval(ports, ApprovalOf.FINALIZE, "alice", Decision.APPROVED, "an answer")
    assert not any(isinstance(one, Approval) and one.what is ApprovalOf.FINALIZE for one in ports.run.events())
    if in_airflow:
        assert "kafka-rollout resume --cluster fake --run 1 --reason TEXT`, then answer its request" in shown
        assert call("resume", "--run", "run-1", "--reason", "go on") == 0
        acquire_lock(ports, "the answer")


def test_a_stop_that_was_killed_before_it_is_in_the_history_can_be_resumed(ports: ClusterPorts) -> None:
    shell = Responder(channel=Channel.SHELL, user="bob")
    ports.run.record(StopAsked(by="bob", reason="errors", responder=shell))
    ports.lock.stop("fake", "run-1", "bob")  # the command was killed before its event
    assert ports.lock.is_fenced("fake", "run-1")
    assert call("resume", "--run", "run-1", "--reason", "go on") == 0
    assert acquire_lock(ports, "the next node").holder == "run-1"


def test_a_stop_leaves_the_start_of_a_stopped_node_to_the_next_call(
    ports: ClusterPorts, capsys: pytest.CaptureFixture[str]
) -> None:
    step = ports.run.load_plan().release_steps[0].key
    ports.run.record(Begun(dag_id="kafka_upgrade_fake"))
    ports.run.record(EndedInAirflow(state="failed"))
    ports.run.record(ClearedInAirflow())
    ports.run.record(Stopping(release_step=step, node_id=2))
    assert call("stop", "--run", "run-1", "--reason", "another day") == 0
    assert "It has ended" not in capsys.readouterr().out
    ports.run.record(EndedInAirflow(state="failed"))
    assert call("stop", "--run", "run-1", "--reason", "another day") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "It has stopped node 2. Its next call starts it, then ends it." in said
    assert acquire_lock(ports, "the start").holder == "run-1"


def test_a_run_whose_lock_was_broken_needs_a_person_and_resume_lets_it_continue(
    ports: ClusterPorts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("unlock", "--as", "alice") == 0
    assert run_main(["status", "--cluster", "fake", "--run", "run-1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "! alice (shell user" in shown
    assert "broke the lock of run 1 of cluster fake." in shown
    assert "continues by itself" not in shown
    with pytest.raises(LockBrokenError):
        acquire_lock(ports, "a gate")
    assert call("resume", "--run", "run-1", "--reason", "it was not killed") == 0
    assert "It can acquire the lock again." in capsys.readouterr().out
    assert acquire_lock(ports, "a gate").holder == "run-1"


def test_a_run_whose_process_was_killed_says_so_at_once(
    ports: ClusterPorts, capsys: pytest.CaptureFixture[str]
) -> None:
    ports.run.record(StartedAtShell(starter=Responder(channel=Channel.SHELL, user="bob")))
    if (pid := os.fork()) == 0:
        with ports.lock.calling("fake", "run-1"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    for words in (["status"], ["runs", "report"], ["fleet"]):
        run_main([*words, *([] if words == ["fleet"] else ["--cluster", "fake", "--run", "run-1"])])
        shown = " ".join(capsys.readouterr().out.split())
        assert "continues by itself" not in shown
        if words == ["status"]:
            assert "FAILED fake: upgrade 3.9.1 → 4.3.1 ! The process of the run was killed." in shown
            assert "Continue with `kafka-rollout upgrade --to 4.3.1 --cluster fake --run 1`" in shown
    assert ports.lock.holder("fake") is not None
    assert call("stop", "--run", "run-1", "--reason", "another day") == 0
    assert ports.lock.holder("fake") is None
    assert RunView.of(ports.run.events()).requested is None
