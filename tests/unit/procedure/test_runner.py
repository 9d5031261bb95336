"""A call of a procedure: that cannot record its start, and that ends at a planned pause or by a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError, UserError
from kafka_rollout.control.approval import record_approval
from kafka_rollout.gates.gate import HELD_INTERVAL_S, GateCheck, GatePolicy
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.topology import HostCommand, ServiceSpec
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.preparation.proved_roll import refuse_unproved_nodes
from kafka_rollout.procedure import approval_requests
from kafka_rollout.procedure.kinds import UPGRADE, build_report_of_run
from kafka_rollout.procedure.rehearsal import RehearsalServices, SaysLines
from kafka_rollout.procedure.runner import Runner
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.run_report import Outcome
from kafka_rollout.roll.walk import roll_release_steps
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Channel,
    ControlAsked,
    Decision,
    PauseAsked,
    Responder,
    ResumeAsked,
    StepBegan,
    StopAsked,
    events_of,
    has,
)
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.run.step_events import Finalizing, GateChecked
from kafka_rollout.run.view import RunView
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade
from tests.unit.preparation.test_state_comparison import Approver


@pytest.mark.parametrize("call", [Runner.run, lambda runner: runner.roll_back("why")], ids=["a run", "a rollback"])
def test_the_lock_is_released(tmp_path: Path, call: Callable[[Runner], object]) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    plan_upgrade(ports, R431, finalize=False)

    def refuse() -> None:
        raise TransientError("The database does not answer.")

    runner = Runner(
        ports=ports,
        procedure=UPGRADE,
        request=Request(target=R431),
        answers=Approver(),
        services=RehearsalServices(ports),
        progress=SaysLines(lambda line: None),
        started=refuse,
    )
    with pytest.raises(TransientError, match="The database does not answer"):
        call(runner)
    assert ports.lock.holder("fake") is None


def test_a_rollback_goes_on_if_a_command_after_a_start_fails_and_tells_it_at_its_end(tmp_path: Path) -> None:
    cluster, ran = FakeCluster(R391), list[int]()
    commands = (HostCommand(command="undrain", timeout_s=60.0),)
    nodes = (replace(one, service=ServiceSpec(host=one.name, after_start=commands)) for one in cluster.spec.nodes)
    cluster.spec = replace(cluster.spec, nodes=tuple(nodes))
    ports = fake_ports(cluster, tmp_path)
    run = Run(ports, plan_upgrade(ports, R431, finalize=False))
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "planned maintenance")
    assert roll_release_steps(run, GatePolicy(checks=1, interval_s=1, timeout_s=120), continues=lambda *_: True)

    def fail(node_id: int) -> None:
        raise FatalError(f"Command 1 of after_start of node {node_id} failed.", remedy="Fix it.")

    def roll_back() -> bool:
        return Runner(
            ports=ports,
            procedure=UPGRADE,
            request=Request(target=R431, pace=Pace.FAST),
            answers=Approver(),
            services=RehearsalServices(ports),
            progress=SaysLines(lambda line: None),
        ).roll_back("why")

    cluster.on_started = fail
    with pytest.raises(FatalError, match="commands after the start of nodes 1, 2, 3, 11, 12, 13 have not"):
        roll_back()
    assert {node.running for node in cluster.nodes.values()} == {R391}
    report = build_report_of_run(run)
    assert report.outcome is Outcome.ROLLED_BACK
    assert "The commands after the start of nodes 1, 2, 3, 11, 12, 13 have not ended" in report.sentence
    stops = list(cluster.stops)
    cluster.on_started = ran.append
    assert roll_back()
    assert sorted(ran) == sorted(cluster.nodes)
    assert cluster.stops == stops


def test_a_run_without_a_terminal_ends_at_a_planned_pause_and_the_next_call_continues_it(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    request = Request(target=R431, scan=False, rehearse=False, pace=Pace.FAST, pause_after="4")
    lines: list[str] = []

    def call() -> bool:
        answers, services = Approver(), RehearsalServices(ports)
        progress = SaysLines(lines.append)
        return Runner(
            ports=ports, procedure=UPGRADE, request=request, answers=answers, services=services, progress=progress
        ).run()

    assert not call()
    assert cluster.stops == [2, 3, 1, 11]
    assert ports.lock.holder("fake") is None
    assert any("planned pause: Since the last pause, nodes" in line for line in lines)
    assert call()
    assert cluster.stops == [2, 3, 1, 11, 12, 13]
    given = [event for event in events_of(ports.run.events(), Approval) if event.what is ApprovalOf.PAUSE]
    assert [event.decision for event in given] == ["approved"]


@pytest.mark.parametrize(("kind", "ends"), [(StopAsked, "stopped"), (PauseAsked, "waits"), (PauseAsked, "by signal")])
def test_a_request_after_the_last_node_ends_or_holds_the_run_before_the_levels(
    tmp_path: Path, kind: type[ControlAsked], ends: str
) -> None:
    cluster = FakeCluster(R391)
    ports = fake_ports(cluster, tmp_path)
    request = Request(target=R431, scan=False, rehearse=False, pace=Pace.FAST, finalize=FinalizePolicy.AFTER_APPROVAL)
    lines: list[str] = []
    shell = Responder(channel=Channel.SHELL, user="bob")

    @dataclass
    class AsksAtFinalize(Approver):
        """Another shell sends the request while the approver decides about the levels."""

        def ask(self, question: Question) -> Answer | None:
            if question.what is ApprovalOf.FINALIZE and not has(ports.run.events(), kind):
                ports.run.record(kind(by="bob", reason="errors of clients", responder=shell))
            return super().ask(question)

    held: list[str] = []

    sleep = cluster.clock.on_sleep

    def wait(seconds: float) -> None:
        sleep(seconds)
        if seconds != HELD_INTERVAL_S:
            return
        held.append(holder())
        assert not has(ports.run.events(), Finalizing)
        if len(held) == 200 and ends == "waits":  # longer than a gate timeout
            ports.run.record(ResumeAsked(by="bob", reason="fixed", responder=shell))

    def holder() -> str:
        lock = ports.lock.holder("fake")
        return "" if lock is None else lock.holder

    cluster.clock.on_sleep = wait

    def call() -> str:
        runner = Runner(
            ports=ports,
            procedure=UPGRADE,
            request=request,
            answers=AsksAtFinalize(Decision.APPROVED),
            services=RehearsalServices(ports),
            progress=SaysLines(lines.append),
            stop_asked=lambda: ends == "by signal" and len(held) >= 200,
        )
        try:
            return "done" if runner.run() else "stopped"
        except RefusedError as error:
            return str(error)

    end = call()
    if kind is PauseAsked:
        assert set(held) == {ports.run_id}
        assert any(event.check.is_held for event in events_of(ports.run.events(), GateChecked))
    if ends != "waits":
        assert end == "stopped"
        assert not has(ports.run.events(), Finalizing)
        assert ports.lock.holder("fake") is None
        ports.run.record(ResumeAsked(by="bob", reason="fixed", responder=shell))
        held.clear()
        end = call()
    assert "no metadata snapshot" in end  # to prove the levels with, in the fake cluster
    view = RunView.of(ports.run.events())
    assert view.has(Finalizing)
    states = {step: seen.state.value for step, seen in view.steps.items()}
    assert {step for step, state in states.items() if state in {"begun", "waiting"}} == set(), "each step has ended"
    assert (states["observe"], states["rehearse"], states["finalize"]) == ("done", "skipped", "done")
    assert (states["prove_snapshot"], view.steps["prove_snapshot"].reason) == ("failed", end)
    assert (states["stop_traffic"], view.failed is not None) == ("skipped", True)


def test_a_broken_lock_ends_a_run_that_goes_on_and_only_a_new_call_continues_it(tmp_path: Path) -> None:
    cluster = FakeCluster(R391)
    request = Request(target=R431, scan=False, rehearse=False, pace=Pace.FAST)

    def call() -> bool:
        ports, progress = fake_ports(cluster, tmp_path), SaysLines(lambda line: None)
        services = RehearsalServices(ports)
        with ports.lock.calling("fake", "run-1"):
            return Runner(
                ports=ports,
                procedure=UPGRADE,
                request=request,
                answers=Approver(),
                services=services,
                progress=progress,
            ).run()

    seen = fake_ports(cluster, tmp_path)
    advance = cluster.advance

    def break_in_a_gate() -> None:
        advance()
        if len(cluster.stops) == 2 and seen.lock.holder("fake") is not None:
            with suppress(RefusedError):  # the run acts
                seen.lock.break_("fake", "alice")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "advance", break_in_a_gate)
        assert not call()
    assert len(cluster.stops) == 2
    view = RunView.of(seen.run.events())
    assert (view.lock_is_broken, view.failed, seen.lock.holder("fake")) == (True, None, None)
    assert call()
    assert len(cluster.stops) == 6
    assert not RunView.of(seen.run.events()).lock_is_broken


def test_a_run_that_only_observes_lets_another_run_take_the_lock(tmp_path: Path) -> None:
    cluster, seen = FakeCluster(R391), dict[str, bool]()
    ports, other = fake_ports(cluster, tmp_path), fake_ports(cluster, tmp_path, run_id="run-2")
    request = Request(target=R431, scan=False, rehearse=False, pace=Pace.FAST, finalize=FinalizePolicy.AFTER_APPROVAL)

    class Progress(SaysLines):
        def on_check(self, check: GateCheck, message: str, /) -> None:
            lock = ports.lock.holder("fake")
            seen[check.gate] = lock is not None and lock.holder == ports.run_id
            if not seen[check.gate]:
                other.lock.acquire("fake", "run-2", "upgrade", for_s=60)

    runner = Runner(
        ports=ports,
        procedure=UPGRADE,
        request=request,
        answers=Approver(Decision.APPROVED),
        services=RehearsalServices(ports),
        progress=Progress(lambda line: None),
    )
    with pytest.raises(RefusedError, match="no metadata snapshot"):  # to prove the levels with, in the fake cluster
        runner.run()
    assert not all(seen.values())
    lock = ports.lock.holder("fake")
    assert lock is not None
    assert lock.holder == "run-2", "the end of the first run leaves the lock to the second one"


def test_a_roll_that_fails_fails_the_part_of_its_batch_and_the_step_that_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    request = Request(target=R431, scan=False, rehearse=False, pace=Pace.FAST)

    def fail(*given: object, **named: object) -> bool:
        raise RefusedError("Node 3 has no process, and this run did not stop it.", remedy="Start it.")

    monkeypatch.setattr("kafka_rollout.roll.node.stop_node", fail)
    services, progress = RehearsalServices(ports), SaysLines(lambda line: None)
    runner = Runner(
        ports=ports, procedure=UPGRADE, request=request, answers=Approver(), services=services, progress=progress
    )
    with pytest.raises(RefusedError, match="Node 3 has no process"):
        runner.run()
    view = RunView.of(ports.run.events())
    for seen in (view.steps["roll"], view.parts["roll.replace", 0]):
        assert (seen.state.value, seen.reason.split(",")[0]) == ("failed", "Node 3 has no process")
    assert view.parts["roll.gate_before", 0].state.value == "done"


def test_a_killed_step_has_begun_and_a_resumed_run_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class KilledError(BaseException):
        """The process ends in the middle of the step."""

    def kill(*given: object, **named: object) -> None:
        raise KilledError

    ports = fake_ports(FakeCluster(R391), tmp_path)
    request = Request(target=R431, scan=False, rehearse=False, pace=Pace.FAST)

    def call() -> bool:
        services, progress = RehearsalServices(ports), SaysLines(lambda line: None)
        return Runner(
            ports=ports, procedure=UPGRADE, request=request, answers=Approver(), services=services, progress=progress
        ).run()

    with monkeypatch.context() as patched:
        patched.setattr("kafka_rollout.procedure.actions.state_comparison.record_state", kill)
        with pytest.raises(KilledError):
            call()
    killed = RunView.of(ports.run.events())
    assert (killed.running, killed.steps["state_before"].state.value) == ("state_before", "begun")
    began = [event.at for event in killed.all(StepBegan) if event.step == "state_before"]
    assert killed.steps["state_before"].at == began[0]
    assert call()
    after = RunView.of(ports.run.events())
    assert after.steps["state_before"].state.value == "done"
    assert len([event for event in after.all(StepBegan) if event.step == "state_before"]) == 2


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_upgrade_to_an_older_release_is_refused_before_a_scan(tmp_path: Path, dry_run: bool) -> None:
    ports = fake_ports(FakeCluster(R431), tmp_path)

    class Scans(RehearsalServices):
        def scan(self, name: str, releases: Sequence[Release]) -> None:
            raise AssertionError(f"{name} has begun")

    runner = Runner(
        ports=ports,
        procedure=UPGRADE,
        request=Request(target=R391, dry_run=dry_run),
        answers=Approver(),
        services=Scans(ports),
        progress=SaysLines(lambda line: None),
    )
    with pytest.raises(UserError, match="is older than the running release") as refused:
        runner.run()
    assert "kafka-rollout downgrade" in refused.value.remedy
    assert ports.lock.holder("fake") is None


def test_a_scan_is_told_the_releases_on_which_nodes_start(tmp_path: Path) -> None:
    """The scan of an upgrade comes before its plan."""
    ports = fake_ports(FakeCluster(R391), tmp_path)
    scanned: list[tuple[Release, ...]] = []

    class Scans(RehearsalServices):
        def scan(self, name: str, releases: Sequence[Release]) -> None:
            scanned.append(tuple(releases))
            super().scan(name, releases)

    Runner(
        ports=ports,
        procedure=UPGRADE,
        request=Request(target=R431, dry_run=True, rehearse=False),
        answers=Approver(),
        services=Scans(ports),
        progress=SaysLines(lambda line: None),
    ).run()
    assert scanned == [(R431,)]


def test_a_command_that_does_not_wait_is_refused_while_the_run_is_paused(tmp_path: Path) -> None:
    ports = fake_ports(FakeCluster(R431), tmp_path)
    request = Request(target=R431, scan=False, rehearse=False, finalize=FinalizePolicy.AFTER_APPROVAL, waits=False)
    shell = Responder(channel=Channel.SHELL, user="bob")
    ports.run.record(PauseAsked(by="bob", reason="errors of clients", responder=shell))
    runner = Runner(
        ports=ports,
        procedure=UPGRADE,
        request=request,
        answers=Approver(Decision.APPROVED),
        services=RehearsalServices(ports),
        progress=SaysLines(lambda line: None),
    )
    with pytest.raises(TransientError, match="The next change cannot begin yet: no pause: paused by bob"):
        runner.run()
    assert not has(ports.run.events(), Finalizing)


def test_the_check_before_the_approval_to_finalize_is_repeated_while_nodes_catch_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large cluster some replica is out of sync for some seconds at many checks."""
    ports, tried = fake_ports(FakeCluster(R391), tmp_path), list[float]()

    def out_of_sync(run: Run, *, asks: bool) -> None:
        tried.append(ports.clock.now())
        if len(tried) <= 30:
            raise TransientError("not in sync: orders-0")
        refuse_unproved_nodes(run, asks=asks)

    monkeypatch.setattr(approval_requests, "refuse_unproved_nodes", out_of_sync)
    runner = Runner(
        ports=ports,
        procedure=UPGRADE,
        request=Request(
            target=R431, scan=False, rehearse=False, pace=Pace.FAST, finalize=FinalizePolicy.AFTER_APPROVAL
        ),
        answers=Approver(Decision.APPROVED),
        services=RehearsalServices(ports),
        progress=SaysLines(lambda line: None),
    )
    with pytest.raises(RefusedError, match="finds no metadata snapshot"):  # after the levels were raised
        runner.run()
    assert len(tried) == 31
    assert tried[-1] - tried[0] >= 900
    assert has(ports.run.events(), Finalizing)
