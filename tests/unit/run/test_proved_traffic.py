"""A comparison of the test traffic counts only if it is newer than the last change of the cluster."""

from __future__ import annotations

from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import START_TRAFFIC, StepBegan, StepEnded, StepOutcome
from kafka_rollout.run.projections.nodes import cover_node_steps
from kafka_rollout.run.proofs import find_traffic_gap, has_open_traffic
from kafka_rollout.run.step_events import Started, TrafficCompared, TrafficNotFound
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


def test_a_call_that_was_killed_while_it_started_the_traffic_can_have_started_it() -> None:
    begun = StepBegan(at=0.5, step=START_TRAFFIC)
    skipped, failed = (
        StepEnded(at=0.6, step=START_TRAFFIC, outcome=outcome) for outcome in (StepOutcome.SKIPPED, StepOutcome.FAILED)
    )
    assert has_open_traffic([begun])
    assert find_traffic_gap([begun, NODE]) is not None
    for ended in (skipped, failed):
        assert not has_open_traffic([begun, ended, NODE])
        assert find_traffic_gap([begun, ended, NODE]) is None
        assert has_open_traffic([begun, ended, begun])
    assert has_open_traffic([begun, begun, STARTED])
    assert not has_open_traffic([begun, PASSED])
    assert has_open_traffic([begun, begun, skipped]), "the second call requests no traffic"
    assert not has_open_traffic([begun, begun, skipped, TrafficNotFound(at=0.7), skipped])
