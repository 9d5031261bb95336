"""The console of a run: what needs a human, with the trend of what blocks it, from history and plan alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kafka_rollout.cli.status_screen import status_lines
from kafka_rollout.console.cluster_status import Phase, RunState, answer_command, build_status
from kafka_rollout.console.run_console import Console, Way, build_console, group_by_rack, trend_of
from kafka_rollout.gates.gate import OBJECTS, GateCondition
from kafka_rollout.model.run_of import SIGNED
from kafka_rollout.procedure.kinds import UPGRADE
from kafka_rollout.procedure.step_lines import step_lines
from kafka_rollout.run.events import Approval, ApprovalOf, Decision, StepBegan, StepEnded, StepOutcome
from kafka_rollout.run.projections.runs import RunEnd
from kafka_rollout.run.step_events import Stopping
from kafka_rollout.run.view import NodeStage, RunView, StepState
from tests.console_scenes import RUN, Scene, cluster_of, failing_upgrade

NOW = 1_763_697_600.0


def state_of(scene: Scene, *, has_lock: bool = True, end: RunEnd | None = None) -> RunState:
    view = RunView.of(scene.events)
    steps = step_lines(UPGRADE, view, scene.plan)
    return RunState(
        run_id=RUN,
        number=12,
        view=view,
        plan=scene.plan,
        steps=steps,
        has_lock=has_lock,
        end=end,
        command="upgrade --to 4.3.1",
    )


def console_of(scene: Scene, **state: object) -> Console:
    run = state_of(scene, **state)  # type: ignore[arg-type]
    return build_console(run, build_status("orders", (run,), None, NOW))


def failing(brokers: int = 3, *, done: int = 4) -> Scene:
    return failing_upgrade(cluster_of(brokers), now=NOW, done=done)


def test_a_run_that_asks_shows_why_since_when_what_blocks_and_the_consequence_of_each_answer() -> None:
    console = console_of(failing())
    assert (console.phase, console.needs_human) == (Phase.WAITING_FOR_DECISION, True)
    assert console.title == "Upgrade 3.9.1 → 4.3.1"
    assert console.why.startswith(
        "Gate after node 102 failed after 360 s: in every ISR it was in: not yet in 212 ISRs of "
    )
    assert console.why.endswith(" and 208 more. orders: gate after node 102 failed. How to continue?")
    assert console.stopped == "The run stopped node 102, whose gate has not passed since."
    assert (console.way_back, console.stop) == ("A rollback is possible.", None)
    assert console.request is not None
    assert console.request.asked_at == NOW - 300
    texts = {choice.option: (choice.consequence, choice.undoes) for choice in console.request.choices}
    assert texts["Wait on"] == ("Keep checking the gate for another gate timeout.", False)
    assert texts["Roll back"][1]
    assert texts["Roll back"][0].startswith("Roll back every node that left its previous release")
    end = "--cluster orders --run 12 --take-over --as NAME --reason TEXT"
    assert {choice.option: choice.command for choice in console.request.choices} == {
        "Wait on": f"kafka-rollout upgrade --to 4.3.1 {end}",
        "Retry": f"kafka-rollout retry {end}",
        "Roll back": f"kafka-rollout rollback {end}",
    }


def test_the_command_of_an_answer_names_the_file_of_credentials_where_brokers_ask_for_them() -> None:
    run = RunState(run_id=RUN, number=12, view=RunView.of(failing().events))
    command = partial(answer_command, "orders", run, has_credentials=True)
    where = "--cluster orders --run 12"
    assert command(Decision.RETRY) == f"kafka-rollout retry {where} --command-config FILE --take-over {SIGNED}"
    assert command(Decision.REJECTED) == f"kafka-rollout stop {where} --reason TEXT"
    assert command(Decision.SPLIT) == ""


def test_the_unmet_condition_comes_first_with_its_objects_and_its_trend() -> None:
    (gate,) = console_of(failing()).gates
    first = gate.conditions[0]
    assert (first.name, first.is_met, first.left) == ("in every ISR it was in", False, 212)
    assert (first.objects[0], len(first.objects)) == ("pay-0", 212)
    assert first.trend is not None
    assert (first.trend.way, first.trend.before, first.trend.over_s) == (Way.FALLS, 1310, 300.0)
    assert all(one.is_met for one in gate.conditions[1:])


def test_a_trend_compares_only_the_last_ten_minutes_and_needs_two_numbers() -> None:
    scene = Scene(cluster=cluster_of(1), began_at=0.0, done=0)
    scene.restart(1)
    scene.fail_gate(1, (900, *[50] * 11, 60))
    (gate,) = RunView.of(scene.events).open_gates
    newest = next(one for one in gate.checks[-1].conditions if one.left)
    found = trend_of(gate.checks, newest)
    assert found is not None
    assert (found.way, found.before) == (Way.RISES, 50)
    assert trend_of(gate.checks[-1:], newest) is None
    assert trend_of(gate.checks, replace(newest, left=0)) is None


def test_a_long_list_is_cut_and_its_number_is_not() -> None:
    names = [f"t-{number}" for number in range(5000)]
    found = GateCondition(name="x", is_met=False, evidence="").listing(names)
    assert (found.left, len(found.objects)) == (5000, OBJECTS)


def test_the_step_that_failed_is_the_current_one_and_the_node_steps_are_listed() -> None:
    console = console_of(failing())
    states = {step.id: step for step in console.steps}
    assert console.current_step == "roll"
    assert (states["roll"].state, states["roll"].reason) == (StepState.WAITING, "")
    assert states["roll"].label == "Nodes 3.9.1 → 4.3.1"
    assert "roll_back" not in states
    ids = [step.id for step in console.steps]
    assert ids.index("approve_plan") < ids.index("roll") < ids.index("compare_after_roll")


def test_a_step_that_began_has_begun_and_the_next_one_is_open() -> None:
    scene = failing(done=6 - 1)
    scene.events = scene.events[:-2]
    scene.pass_gate(scene.step.order[-1].node_id, 10.0)
    console = console_of(scene)
    states = {step.id: step.state for step in console.steps}
    assert console.phase is Phase.ROLLING
    assert (states["roll"], states["compare_after_roll"]) == (StepState.DONE, StepState.OPEN)
    assert console.current_step == "compare_after_roll"
    scene.add(StepBegan(at=scene.tick(1), step="compare_after_roll"))
    begun = next(step for step in console_of(scene).steps if step.id == "compare_after_roll")
    assert (begun.state, begun.at) == (StepState.BEGUN, scene.at)
    scene.add(StepEnded(at=scene.tick(1), step="compare_after_roll", outcome=StepOutcome.DONE))
    assert {step.id: step.state for step in console_of(scene).steps}["compare_after_roll"] is StepState.DONE


def test_the_open_batch_and_its_part_are_shown() -> None:
    scene = failing()
    (shown, *more), batches = console_of(scene).batches.open, console_of(scene).batches
    assert (batches.done, batches.total, more) == (4, 6, [])
    assert (shown.name, shown.part, shown.task) == (
        "batch 5 of 6 (node 102)",
        "gate after the start",
        "roll.gate_after[4]",
    )
    assert (shown.state, shown.reason) == (StepState.WAITING, "")
    status = build_status("orders", (state_of(scene),), None, NOW)
    assert status.batches is not None
    assert (status.batches.done, status.batches.sentence) == (batches.done, batches.sentence)
    shown_by_status = [str(line) for line in status_lines(status)]
    assert any(
        line.strip() == "Batches: 4 of 6 done; batch 5 of 6 (node 102): gate after the start"
        for line in shown_by_status
    )
    scene.events = scene.events[:-2]  # neither failed nor asked
    lines = {step.id: step for step in console_of(scene).steps}
    assert lines["roll"].reason == "4 of 6 nodes; batch 5 of 6 (node 102): gate after the start"
    began = Scene(cluster=cluster_of(1), began_at=0.0, done=0)
    began.begin()
    assert console_of(began).batches is None


def test_without_test_traffic_its_check_is_skipped_from_the_begin() -> None:
    scene = Scene(cluster=cluster_of(1), began_at=0.0, done=0)
    scene.begin()
    why = "The run was started without test traffic."
    scene.do("start_traffic", 1, StepOutcome.SKIPPED, why)
    states = {step.id: (step.state, step.reason) for step in console_of(scene).steps}
    assert states["stop_traffic"] == states["start_traffic"] == (StepState.SKIPPED, why)


def test_a_rollback_is_a_step_as_soon_as_it_was_decided() -> None:
    scene = failing()
    node_id = scene.step.order[4].node_id
    decided = Decision.ROLL_BACK
    digest = scene.plan.hash
    scene.add(
        Approval(at=scene.tick(1), what=ApprovalOf.FAILED_GATE, by="a", decision=decided, reason="x", plan_hash=digest)
    )
    assert console_of(scene).gates == ()
    scene.add(Stopping(at=scene.tick(1), node_id=node_id, release_step="4.3.1-to-3.9.1"))
    states = {step.id: step for step in console_of(scene).steps}
    assert states["roll_back"].label == "Rollback of the nodes 4.3.1 → 3.9.1"
    assert states["roll_back"].state is StepState.BEGUN
    assert states["roll_back"].reason == "0 of 5 nodes"


def test_the_log_line_of_a_failing_node_and_grouped_findings_are_shown() -> None:
    console = console_of(failing())
    (line,) = console.log
    assert (line.node_id, line.text) == (102, "[03:02:10] ERROR Error while creating ephemeral <b>node</b>")
    (found,) = console.findings
    assert (found.severity, found.code, len(found.items)) == ("warning", "TOPIC-ONE-REPLICA", 40)


def test_the_time_for_the_nodes_that_are_left_is_a_range_and_ends_with_the_run() -> None:
    scene = failing(7, done=5)
    scene.events = scene.events[:-8]
    estimate = console_of(scene).estimate
    assert estimate is not None
    assert estimate.left == 5
    assert 0 < estimate.at_least_s < estimate.at_most_s
    over = RunEnd(outcome="rolled_back", sentence="Rolled back.", ended_at=scene.at + 1)
    ended = console_of(scene, end=over, has_lock=False)
    assert (ended.estimate, ended.gates, ended.why) == (None, (), "Rolled back.")
    assert ended.nodes


def test_nodes_are_grouped_by_rack_with_the_controllers_first_and_counted_by_phase() -> None:
    scene = failing(200, done=100)
    racks = group_by_rack(scene.cluster.nodes, console_of(scene).nodes)
    assert [rack.name for rack in racks] == ["controllers", "rack a", "rack b", "rack c"]
    assert racks[0].counts == {NodeStage.DONE: 3}
    assert sum(sum(rack.counts.values()) for rack in racks) == 203
    plain = group_by_rack(cluster_of(3, racks="").nodes, console_of(failing()).nodes)
    assert [rack.name for rack in plain] == ["controllers", "brokers"]
