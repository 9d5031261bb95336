"""A step that is added in one place appears in the DAG, the command line, progress, the page and the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.answers import TerminalAnswers
from kafka_rollout.cli.run import ShellServices, run_procedure
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.kinds import KINDS, UPGRADE, KindOfRun, build_report_of_run
from kafka_rollout.procedure.progress import Progress
from kafka_rollout.procedure.step import ActStep, AnyStep, GateStep, JoinStep, Procedure, Step, StepCall
from kafka_rollout.procedure.step_lines import step_lines
from kafka_rollout.roll.gate_checks import follows_changes
from kafka_rollout.run.events import StepBegan
from kafka_rollout.run.view import RunView, StepState
from tests.fakes.cluster import R431, FakeCluster
from tests.fakes.ports import fake_ports

LABEL = "Greeting of the nodes"


def greet(call: StepCall) -> list[str]:
    return [node.name for node in call.ports.cluster.nodes]


GREET = ActStep(
    id="greet_nodes",
    label=LABEL,
    doc="Greets every node.",
    progress="greeting the nodes",
    act=greet,
    skip=lambda plan, request, events: "No node is greeted at night." if request.traffic else None,
)


def with_greeting() -> Procedure:
    """UPGRADE with one more step before the approval."""
    at = next(index for index, part in enumerate(UPGRADE.parts) if isinstance(part, Step) and part.id == "approve_plan")
    return replace(UPGRADE, parts=(*UPGRADE.parts[:at], GREET, *UPGRADE.parts[at:]))


def rolled(home: Path) -> Any:
    ports = fake_ports(FakeCluster(), home)
    request = Request(target=R431, plans_features=False, scan=False, pace=Pace.FAST)
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
    services = ShellServices(ports, Settings.from_environment(), None)
    assert run_procedure(with_greeting(), ports, request, answers, services) == 0
    return ports


def test_a_step_of_the_definition_is_run_told_shown_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    procedure, ports = with_greeting(), rolled(tmp_path)
    assert "greeting the nodes" in capsys.readouterr().err, "the command line runs it and says so"
    events = ports.run.events()
    report = build_report_of_run(Run(ports, ports.run.load_plan()), procedure=procedure)
    (listed,) = [line for line in report.steps if line.id == "greet_nodes"]
    assert (listed.label, listed.state, listed.reason) == (LABEL, "done", "")
    assert listed.at in {event.at for event in events}
    told = Progress(procedure=procedure).lines(None, [StepBegan(step="greet_nodes")])
    assert list(told) == ["greeting the nodes"]
    (shown,) = [line for line in step_lines(procedure, RunView.of(events)) if line.label == LABEL]
    assert shown.state == StepState.DONE, "the page shows these lines"
    assert LABEL not in {line.label for line in step_lines(UPGRADE, RunView.of(events))}


@pytest.mark.airflow
def test_a_step_of_the_definition_is_a_task_between_its_neighbours() -> None:
    from airflow.sdk import DAG

    from kafka_rollout.airflow.graphs.procedure import draw
    from tests.fakes.cluster import make_spec

    with DAG("greeting", schedule=None) as dag:
        draw(with_greeting(), make_spec())
    task = dag.get_task("greet_nodes")
    assert (task.upstream_task_ids, task.downstream_task_ids) == ({"dry_run"}, {"approve_plan"})
    assert "greet_nodes" in dag.get_task("dry_run").skipped


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.procedure.name)
def test_every_step_has_one_of_the_kinds_that_both_drivers_match(kind: KindOfRun) -> None:
    assert {type(step) for _, step in kind.procedure} <= set(get_args(AnyStep))


@pytest.mark.parametrize("of", RunOf)
def test_the_gates_without_a_lock_are_those_after_the_last_change(of: RunOf) -> None:
    procedure = KINDS[of].procedure
    gates = [(task_id, step.gate) for task_id, step in procedure if isinstance(step, GateStep)]
    found = {task_id for task_id, gate in gates if follows_changes(gate, of)}
    assert found == {task_id for task_id, _ in gates if procedure.follows_changes(task_id)}
    if of is not RunOf.RESTART:
        assert found


@pytest.mark.parametrize(
    ("of", "first"),
    [
        (RunOf.UPGRADE, "gate_finalized"),
        (RunOf.DOWNGRADE, "verify_levels"),
        (RunOf.FEATURES, "look_again"),
        (RunOf.RESTART, "compare_after_roll"),
    ],
)
def test_a_run_holds_its_lock_until_its_last_change(of: RunOf, first: str) -> None:
    procedure = KINDS[of].procedure
    after = [
        task_id for task_id, step in procedure if procedure.follows_changes(task_id) and not isinstance(step, JoinStep)
    ]
    assert after[0] == first
    assert not any(procedure.follows_changes(task_id) for task_id, _ in procedure if task_id.startswith("roll"))
