"""The rehearsal as a step of a run: skipped with its reason, or with findings in the plan and times in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.answers import TerminalAnswers
from kafka_rollout.cli.run import ShellServices, run_procedure
from kafka_rollout.model.pace import Pace
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.kinds import UPGRADE, build_report_of_run
from kafka_rollout.procedure.progress import Progress
from kafka_rollout.procedure.step_lines import step_lines
from kafka_rollout.rehearsal.result import RehearsalOutcome, RehearsalPhase, RehearsalResult, failed
from kafka_rollout.report.page.pages import render_run
from kafka_rollout.run.events import newest
from kafka_rollout.run.step_events import Rehearsed, Stopping
from kafka_rollout.run.view import RunView, StepState
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports

BROKEN = failed("broker-11 (11) does not start on 4.3.1: Invalid value 14000.", "Raise segment.bytes.")


def result(outcome: RehearsalOutcome = RehearsalOutcome.PASSED, *findings: Any) -> RehearsalResult:
    return RehearsalResult(
        outcome=outcome,
        cluster="fake",
        source="3.9.1",
        target="4.3.1",
        nodes=(1, 2, 3, 11, 12, 13),
        seconds=61.0,
        phases=(RehearsalPhase(name="start on 3.9.1", seconds=9.0, sentence="The copy is in service."),),
        findings=findings,
        node_seconds={"3.9.1-to-4.3.1 node 11": 20.0},
        not_covered=("The copy has no TLS and no authentication: ssl.key.",),
    )


def run(tmp_path: Path, rehearsed: RehearsalResult | None, **options: Any) -> Any:
    """Ports of a finished run from 3.9.1 to 4.3.1; raises what the run raised, with the ports in `run.ports`."""
    world = FakeCluster()
    world.rehearsed = rehearsed
    ports = fake_ports(world, tmp_path)
    request = Request(target=R431, plans_features=False, scan=False, pace=Pace.FAST, **options)
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
    try:
        run_procedure(UPGRADE, ports, request, answers, silent(ports))
    except RefusedError as error:
        return ports, error
    return ports, None


class Silent(ShellServices):
    """Without background processes and a report."""

    def monitor_groups(self) -> None: ...

    def report(self, *, dry_run: bool) -> None: ...


def silent(ports: Any) -> Silent:
    return Silent(ports, Settings.from_environment(), None)


def line_of(ports: Any) -> Any:
    (line,) = [line for line in step_lines(UPGRADE, RunView.of(ports.run.events())) if line.id == "rehearse"]
    return line


def test_a_run_without_files_to_copy_is_not_rehearsed_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports, error = run(tmp_path, None)
    assert error is None, "the run continues"
    assert (line_of(ports).state, line_of(ports).reason) == (StepState.SKIPPED, "The nodes have no files.")
    assert "Rehearsal skipped: The nodes have no files." in capsys.readouterr().err


def test_a_run_that_asks_for_none_is_not_rehearsed(tmp_path: Path) -> None:
    ports, error = run(tmp_path, result(RehearsalOutcome.FAILED, BROKEN), rehearse=False)
    assert error is None
    assert line_of(ports).reason == "The run was started without a rehearsal."


def test_a_failed_rehearsal_blocks_the_plan_before_any_node_stops(tmp_path: Path) -> None:
    ports, error = run(tmp_path, result(RehearsalOutcome.FAILED, BROKEN))
    assert error is not None
    assert "Invalid value 14000" in error.sentence
    assert ports.run.load_plan().blockers == (BROKEN,)
    assert newest(ports.run.events(), Stopping) is None


def test_a_run_that_was_refused_by_its_rehearsal_is_rehearsed_again(tmp_path: Path) -> None:
    world = FakeCluster()
    world.rehearsed = result(RehearsalOutcome.FAILED, BROKEN)
    ports = fake_ports(world, tmp_path)
    request = Request(target=R431, plans_features=False, scan=False, pace=Pace.FAST)
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
    with pytest.raises(RefusedError, match="Invalid value 14000"):
        run_procedure(UPGRADE, ports, request, answers, silent(ports))
    world.rehearsed = result()
    assert run_procedure(UPGRADE, ports, request, answers, silent(ports)) == 0


def test_the_command_shows_the_progress_of_a_rehearsal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, result())
    assert "rehearsing 3.9.1 to 4.3.1" in capsys.readouterr().err


def test_a_passed_rehearsal_is_in_the_plan_in_the_report_and_in_the_estimate(tmp_path: Path) -> None:
    ports, error = run(tmp_path, result())
    assert error is None
    plan = ports.run.load_plan()
    (finding,) = [finding for finding in plan.findings if finding.code == "REHEARSAL-PASSED"]
    assert "A node step took 20 to 20 s." in finding.sentence
    report = build_report_of_run(Run(ports, plan))
    assert report.rehearsal is not None
    assert report.rehearsal["outcome"] == "passed"
    page = render_run(report)
    assert "The copy is in service." in page
    assert "Not covered: The copy has no TLS" in page
    event = newest(ports.run.events(), Rehearsed)
    assert event is not None
    progress = Progress(procedure=UPGRADE)
    assert list(progress.lines(plan, [event])) == ["The rehearsal 3.9.1 → 4.3.1 passed after 61 s."]
    assert progress.estimate(plan) == "about 2 min 00 s for the 6 nodes left"
