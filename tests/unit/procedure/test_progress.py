"""Progress of a run, in lines for a terminal."""

from __future__ import annotations

from kafka_rollout.features.requests import FeatureOutcome, FeatureUpdateStatus
from kafka_rollout.gates.gate import GateCheck, GateCondition, GateKind, GateRef
from kafka_rollout.procedure.progress import Progress, place
from kafka_rollout.run.events import StepBegan
from kafka_rollout.run.step_events import FeatureResults, Finalized, GateChecked, GatePassed, Started, Stopping
from tests.records import failed_step
from tests.unit.tools.demo.examples import MIDDLE, plan

FIRST, SECOND = ("3.4.0-to-3.4.1", 101), ("3.4.0-to-3.4.1", 1)


def gate(node_step: tuple[str, int]) -> GateRef:
    return GateRef(kind=GateKind.AFTER_START, release_step=node_step[0], node_id=node_step[1])


def stopping(at: float, node_step: tuple[str, int]) -> Stopping:
    return Stopping(at=at, release_step=node_step[0], node_id=node_step[1])


def started(at: float, node_step: tuple[str, int]) -> Started:
    return Started(at=at, release_step=node_step[0], node_id=node_step[1], release=MIDDLE, pid=7, seconds=2.0)


def waits(at: float, *evidence: str) -> GateChecked:
    conditions = tuple(
        GateCondition(name=name, is_met=False, evidence=found)
        for name, _, found in (one.partition(": ") for one in evidence)
    )
    return GateChecked(at=at, ref=gate(FIRST), check=GateCheck(gate="after node 101", at=at, conditions=conditions))


def held(at: float, node_step: tuple[str, int]) -> GatePassed:
    return GatePassed(at=at, ref=gate(node_step), gate="after", message="passed")


def test_nodes_are_counted_over_all_release_steps_and_the_way_back_is_told_apart() -> None:
    assert place(plan(), *FIRST) == "node 1 of 4 (controller-101 to 3.4.1)"
    assert place(plan(), "3.4.1-to-4.3.1", 1) == "node 4 of 4 (broker-1 to 4.3.1)"
    assert place(plan(), "4.3.1-to-3.4.1", 1) == "back: node 1 of 4 (broker-1 to 3.4.1)"


def test_a_waiting_gate_says_why_and_a_passed_one_what_is_left() -> None:
    progress = Progress()
    waiting = waits(15, "in ISRs: 2 of 3", "quorum: 5 behind")
    events = [stopping(10, FIRST), started(12, FIRST), waiting, waiting, held(30, FIRST)]
    assert list(progress.lines(plan(), events)) == [
        "node 1 of 4 (controller-101 to 3.4.1): stopping",
        "node 1 of 4 (controller-101 to 3.4.1): started",
        "node 1 of 4 (controller-101 to 3.4.1) is started and waits for its gate: in ISRs: 2 of 3; quorum: 5 behind",
        "node 1 of 4 (controller-101 to 3.4.1): done in 20 s, about 1 min 00 s for the 3 nodes left",
    ]
    assert list(progress.lines(plan(), events)) == [], "nothing is reported twice"


def test_a_count_that_changes_is_no_news() -> None:
    behind = [waits(1, f"quorum: {records} records behind") for records in (70, 77, 83)]
    assert len(list(Progress().lines(plan(), behind))) == 1


def test_nobody_guesses_before_the_first_node_is_done() -> None:
    assert Progress().estimate(plan()) == ""


def test_the_estimate_counts_no_time_between_the_nodes_which_can_be_an_approval() -> None:
    progress = Progress()
    events = [stopping(0, FIRST), held(20, FIRST), stopping(30, SECOND), held(50, SECOND)]
    list(progress.lines(plan(), events))
    assert progress.estimate(plan()) == "about 40 s for the 2 nodes left"


def test_steps_and_failures_are_told_once() -> None:
    progress = Progress()
    events = [StepBegan(step="scan_before_roll"), StepBegan(step="gate_finalized"), failed_step("roll", "No route.")]
    assert list(progress.lines(None, events)) == ["scanning the coordinator logs with Spark", "Nodes failed: No route."]
    assert list(progress.lines(None, events)) == []


def test_levels_that_were_finalized_are_told_and_what_became_of_the_others() -> None:
    well = tuple(
        FeatureOutcome(feature=feature, existing=0, new=1, result=result)
        for feature, result in (
            ("metadata.version", FeatureUpdateStatus.OK),
            ("group.version", FeatureUpdateStatus.ALREADY_THERE),
        )
    )
    events = [Finalized(at=1, levels={"metadata.version": 30}, epoch_after=None), FeatureResults(at=2, outcomes=well)]
    assert list(Progress().lines(None, events)) == ["finalized: metadata.version 30"]
    failed = FeatureOutcome(
        feature="group.version",
        existing=0,
        new=1,
        result=FeatureUpdateStatus.FAILED,
        sentence="node 3 does not support it.",
    )
    refused = FeatureResults(at=2, outcomes=(failed,))
    assert list(Progress().lines(None, [refused])) == ["group.version: FAILED node 3 does not support it."]
