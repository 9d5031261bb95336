"""DAGs and commands keep each other out of one cluster: who is refused where, in which words, and when it goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.lease import NEWEST_CALL
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.time_limits import LEASE_S
from kafka_rollout.cli import app as cli
from kafka_rollout.cli import run as cli_run
from kafka_rollout.cli.commands import changes as cli_changes
from kafka_rollout.cli.commands import features as cli_features
from kafka_rollout.run.events import Begun, LockedOut, Planned, StepEnded, StepOutcome, events_of
from kafka_rollout.run.view import RunView
from tests.dags.conftest import DAG_ID, FakeRuns, spec_with_homes
from tests.dags.runs import dag_run as dag_runs
from tests.dags.runs.dag_run import clear_and_continue, run_dag
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.records import change_lock, database_of, failed_steps, run_history, run_ids

pytestmark = pytest.mark.airflow

LEVELS = {"metadata.version": 29, "group.version": 1, "transaction.version": 2}
DAGS: dict[str, dict[str, Any]] = {
    "kafka_upgrade_fake": {},
    "kafka_downgrade_fake": {"target_release": "4.0.1", "target_level": 23},
    "kafka_features_fake": {},
}
BY_ALICE = "--as alice --reason test --yes"
COMMANDS = (
    f"upgrade --to 4.3.1 {BY_ALICE}",
    f"downgrade --to 4.0.1 {BY_ALICE}",
    f"features set --action upgrade-all {BY_ALICE}",
)
SHELL = "20261122T080000-shell-abc123"
Command = Callable[[str], tuple[int, str]]


@pytest.fixture(params=DAGS)
def dag_id(request: pytest.FixtureRequest, runs: FakeRuns) -> str:
    """Each DAG, over a cluster that it has something to change in."""
    if request.param != "kafka_upgrade_fake":
        runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized=LEVELS)
    return str(request.param)


@pytest.fixture
def command(runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command on the fake cluster: (exit code, standard error). It scans nothing."""
    scanned: list[str] = []

    @contextmanager
    def open_fake(*_: object, **_options: object) -> Any:
        yield fake_ports(runs.world, runs.home, run_id=SHELL), Settings.from_environment(), None

    def scan(*_: object) -> None:
        scanned.append("scanned")

    for module in (cli_changes, cli_features):
        monkeypatch.setattr(module, "open_ports", open_fake)
    monkeypatch.setattr(cli_run, "scan_logs", scan)

    def run(words: str) -> tuple[int, str]:
        code = cli.run_main([*words.split(), "-c", "fake"])
        assert not (code == 4 and scanned), "a refused command has scanned"
        return code, capsys.readouterr().err

    return run


def untouched(runs: FakeRuns) -> bool:
    sent = [targets for targets, validate_only in runs.world.updates if not validate_only]
    return not (runs.asked or runs.world.stops or sent)


def test_a_run_that_starts_while_a_command_has_the_cluster_fails_at_its_first_task_and_says_who_has_it(
    runs: FakeRuns, dag_id: str
) -> None:
    lock = change_lock(runs.home)
    lock.acquire("fake", SHELL, "Stop node 2.", for_s=LEASE_S)
    state, states, record = runs.run(dag_id, **DAGS[dag_id])
    assert (state, states["observe"], untouched(runs)) == ("failed", "failed", True)
    failed = failed_steps(record.events())[0]
    assert failed.step == "observe"
    assert not events_of(record.events(), Planned), "it would report the blockers of a plan"
    assert f"Run {SHELL} holds the lock of cluster fake (Stop node 2). Its lease expires at 20" in failed.reason
    assert "clear this task and all downstream tasks" in failed.reason
    assert "kafka-rollout unlock --cluster fake --as NAME" in failed.reason
    held = lock.holder("fake")
    assert held is not None, "the end of a run that was refused takes nobody's lock"
    assert held.holder == SHELL


def test_a_dry_run_takes_no_lock_and_is_kept_out_by_none_and_a_run_goes_on_once_the_holder_is_done(
    runs: FakeRuns,
) -> None:
    lock = change_lock(runs.home)
    lock.acquire("fake", SHELL, "Stop node 2.", for_s=LEASE_S)
    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized=LEVELS)
    state, states, _ = runs.run("kafka_features_fake", dry_run=True)
    assert (state, untouched(runs)) == ("success", True), states
    lock.release("fake", SHELL)
    state, states, _ = runs.run("kafka_features_fake")
    assert state == "success", states
    assert lock.holder("fake") is None


@pytest.mark.parametrize(
    "dag_id",
    ["kafka_upgrade_fake", "kafka_features_fake", pytest.param("kafka_downgrade_fake", marks=pytest.mark.full)],
    indirect=True,
)
def test_a_command_that_starts_while_a_run_waits_for_a_person_is_refused_before_it_scans_or_asks(
    runs: FakeRuns, dag_id: str, command: Command
) -> None:
    told: dict[str, tuple[int, str]] = {}

    def while_alice_thinks(task: str) -> None:
        told.update({words: command(words) for words in COMMANDS if task.startswith("approve")})

    runs.while_asked = while_alice_thinks
    runs.answers = {task: ["Reject"] for task in ("approve", "approve_plan", "approve_levels")}
    _, states, record = runs.run(dag_id, **DAGS[dag_id])
    assert len(told) == len(COMMANDS), states
    for code, sentence in told.values():
        assert code == 4, sentence
        assert f"Run {record.number} holds the lock of cluster fake (waits for the approval: " in sentence
        assert "Try again when that run has ended" in sentence
    assert SHELL not in run_ids(runs.home, "fake"), "a command that was refused leaves no run behind"
    code, said = command(COMMANDS[2])
    assert code == 0, "the run is over: " + said


@pytest.mark.parametrize("words", [f"upgrade --to 4.3.1 --no-scan {BY_ALICE}", f"downgrade --to 4.0.1 {BY_ALICE}"])
def test_a_command_that_plans_nothing_lets_go_of_the_cluster(runs: FakeRuns, command: Command, words: str) -> None:
    for node in runs.world.nodes.values():
        node.running = None
    code, said = command(words)
    assert code not in {0, 4}, said
    assert change_lock(runs.home).holder("fake") is None


@pytest.mark.usefixtures("each_database")
def test_a_holder_that_was_killed_keeps_a_run_out_until_its_lease_ends_and_no_longer(
    runs: FakeRuns,
) -> None:
    """The kernel's lock of an acting process ends with the process; its lease does not."""
    runs.world = FakeCluster(R431, spec=spec_with_homes(), finalized=LEVELS)
    script = (
        "import sys, time; from kafka_rollout.run.store.database import Database\n"
        "from kafka_rollout.run.store.leases import SqlChangeLock\n"
        f"lock = SqlChangeLock(Database({database_of(runs.home)._url.render_as_string()!r}))\n"
        f"lock.acquire('fake', {SHELL!r}, 'Stop node 2.', for_s={LEASE_S})\n"
        f"with lock.acting('fake', {SHELL!r}, 'Replacing node 2'):\n    print('acts', flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "acts\n"
        holder.kill()
    state, states, _ = runs.run("kafka_features_fake")
    assert (state, states["observe"], untouched(runs)) == ("failed", "failed", True)
    runs.world.clock.sleep(LEASE_S + 60.0)  # the holder took its lease by the time of its own process
    state, states, _ = runs.run("kafka_features_fake")
    assert state == "success", states
    assert "taken over" in [entry["what"] for entry in change_lock(runs.home).history("fake")]


@pytest.mark.usefixtures("each_database")
def test_a_run_whose_cluster_was_taken_over_stops_before_its_next_node_and_its_report_says_by_whom(
    runs: FakeRuns,
) -> None:
    """Airflow was down for longer than the lease, and another user began a change in this time."""
    advance, lock, lost = runs.world.advance, change_lock(runs.home, clock=runs.world.clock.now), []

    def advance_and_lose_the_cluster() -> None:
        advance()
        if len(runs.world.stops) == 1 and not lost:
            try:
                lock.break_("fake", "bob")
            except RolloutError:  # the run acts: its lease is not broken before its next gate
                return
            lost.append(lock.acquire("fake", SHELL, "Change features.", for_s=LEASE_S))

    runs.world.advance = advance_and_lose_the_cluster  # type: ignore[method-assign]
    state, states, record = runs.run()
    assert (state, len(runs.world.stops)) == ("running", 1)
    assert "failed" in {states["roll.gate_after[0]"], states["roll.gate_before[1]"]}
    failed = [one.reason for one in events_of(record.events(), StepEnded) if one.outcome is StepOutcome.FAILED]
    assert f"bob broke the lock of run {record.number} of cluster fake" in failed[-1]
    assert {node.running for node in runs.world.nodes.values()} == {R391, R431}


@pytest.mark.usefixtures("combined")
def test_a_run_whose_lock_was_broken_takes_it_again_only_when_its_failed_task_is_cleared(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, lock, lost = runs.world.advance, change_lock(runs.home, clock=runs.world.clock.now), []

    def advance_and_break() -> None:
        advance()
        if len(runs.world.stops) == 1 and not lost:
            with suppress(RolloutError):  # the run acts
                lost.append(lock.break_("fake", "bob"))

    runs.world.advance = advance_and_break  # type: ignore[method-assign]
    dag = runs.load()[DAG_ID]
    run = run_dag(dag, {"target_release": "4.3.1", "pace": "fast"})
    record = run_history(runs.home, "fake", run.run_id)
    failed = [ti for ti in run.get_task_instances() if ti.state == "failed" and ti.task_id.startswith("roll.")]
    assert [one.try_number for one in failed] == [1], "no retry"
    assert (len(runs.world.stops), lock.holder("fake")) == (1, None)
    assert runs.asked == ["approve_plan"]
    assert RunView.of(record.events()).lock_is_broken
    trigger = change_lock(runs.home, call=NEWEST_CALL)  # one that begins in the triggerer does not see the clear
    assert trigger.is_fenced("fake", run.run_id)
    with monkeypatch.context() as patch:
        patch.setattr(dag_runs, "_work_off", lambda dag, run, session: run)
        clear_and_continue(dag, run, failed[0].task_id)
    assert not trigger.is_fenced("fake", run.run_id)
    run = clear_and_continue(dag, run, failed[0].task_id)
    assert run.state == "success"
    assert len(runs.world.stops) == 3


@pytest.mark.usefixtures("combined")
def test_a_run_that_only_observes_after_its_last_change_leaves_the_lock_to_another_run(
    runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.feature_updates import levels

    prove, lock, held = levels.prove_snapshot, change_lock(runs.home, clock=runs.world.clock.now), list[Any]()

    def another_run_begins(run: Any) -> Any:
        held.append(lock.holder("fake"))
        lock.acquire("fake", SHELL, "Change features.", for_s=LEASE_S)
        return prove(run)

    monkeypatch.setattr(levels, "prove_snapshot", another_run_begins)
    state, states, _ = runs.run(finalize="after_approval")
    assert (state, held) == ("success", [None]), states
    left = lock.holder("fake")
    assert left is not None
    assert left.holder == SHELL


def test_a_run_id_of_another_dag_or_of_the_command_line_is_no_key_to_its_lock_and_its_record(
    runs: FakeRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change's number makes a good run id, and one person's change is sometimes two runs."""
    from airflow.sdk import timezone

    from kafka_rollout.airflow.common.outbox import OUTBOX
    from kafka_rollout.airflow.run_listener import on_dag_run_failed

    at, lock = timezone.utcnow(), change_lock(runs.home)
    for begun, told in (("kafka_upgrade_fake", "the DAG kafka_upgrade_fake"), ("", "the command line")):
        dag = runs.load()["kafka_features_fake"]
        run_id = f"manual__{at.isoformat()}"
        other = run_history(runs.home, "fake", run_id)
        other.record(Begun(dag_id=begun) if begun else LockedOut(sentence="No."))
        lock.acquire("fake", run_id, "Stop node 2.", for_s=LEASE_S)
        before = other.events()
        run = run_dag(dag, at=at)
        assert (run.run_id, str(run.state), untouched(runs)) == (run_id, "failed", True)
        on_dag_run_failed(run, "")
        assert OUTBOX.wait_until_empty(60)
        held = lock.holder("fake")
        assert held is not None, "the other run goes on"
        assert (held.purpose, other.events()) == ("Stop node 2.", before)
        said = capsys.readouterr()
        assert f"Run id {run_id} of cluster fake is already used by {told}" in said.out + said.err
        lock.release("fake", run_id)
        at = timezone.utcnow()


def test_every_task_renews_the_lock_of_its_run_while_it_works(runs: FakeRuns) -> None:
    """Also the plan, which downloads releases."""
    from kafka_rollout.airflow.common.base import cluster_ports

    def renewals() -> int:
        return [thread.name for thread in threading.enumerate()].count("lease")

    context: Any = {"run_id": "run-1", "ti": SimpleNamespace(dag_id="kafka_upgrade_fake")}
    before = renewals()
    with cluster_ports("fake", context):
        assert renewals() == before + 1
    assert renewals() == before
