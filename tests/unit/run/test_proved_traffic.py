"""A comparison of the test traffic counts only if it is newer than the last change of the cluster."""

from __future__ import annotations

from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import START_TRAFFIC, StepEnded, StepOutcome
from kafka_rollout.run.projections.nodes import cover_node_steps
from kafka_rollout.run.proofs import find_traffic_gap
from kafka_rollout.run.step_events import Started, TrafficCompared
from tests.traffic import LOST, traffic_of_run

STARTED = StepEnded(at=1.0, step=START_TRAFFIC, outcome=StepOutcome.DONE)
NODE = Started(at=2.0, release_step="3.9.1-to-4.3.1", node_id=1, release=Release(4, 3, 1), pid=7, seconds=1.0)
PASSED = TrafficCompared(at=3.0, verdict=cover_node_steps(traffic_of_run([NODE]), [NODE], (), planned=True))
FAILED = TrafficCompared(at=3.0, verdict=cover_node_steps(traffic_of_run([NODE], LOST), [NODE], (), planned=True))


def test_the_traffic_is_compared_after_the_last_change_of_a_continued_run() -> None:
    assert find_traffic_gap([STARTED, NODE, PASSED]) is None
    assert find_traffic_gap([NODE]) is None, "the run has no test traffic"
    gap = find_traffic_gap([STARTED, NODE, PASSED, NODE])
    assert gap is not None
    assert "its records were not compared since the last change" in gap.sentence
    assert find_traffic_gap([STARTED, NODE, PASSED, NODE, PASSED]) is None
    failed = find_traffic_gap([STARTED, NODE, FAILED])
    assert failed is not None
    assert "clear approve_finalize with all downstream tasks" in failed.remedy, "its approver can accept this"
