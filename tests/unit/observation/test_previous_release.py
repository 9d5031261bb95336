"""The release of a rollback when all nodes run the target: by the order of records, and not by their clocks."""

from __future__ import annotations

from types import SimpleNamespace as Values
from typing import cast

from kafka_rollout.model.host_state import StartRecord
from kafka_rollout.observation.node_steps import previous_release
from kafka_rollout.observation.run import ReadRun
from kafka_rollout.releases.facts import Release

R370, R391, R431 = Release(3, 7, 0), Release(3, 9, 1), Release(4, 3, 1)


def run_of(*starts: list[tuple[Release, float]]) -> ReadRun:
    records = [
        [StartRecord(release=release, started_at=at, pid=number) for number, (release, at) in enumerate(of_node)]
        for of_node in starts
    ]
    ports = Values(runtime=Values(starts=lambda node: records[node]), catalogue={R370, R391, R431})
    plan = Values(changes_release=False, source=R431, target=R431)
    return cast(ReadRun, Values(plan=plan, cluster=Values(nodes=range(len(starts))), ports=ports))


def test_one_start_with_a_wrong_clock_is_not_the_newest_one() -> None:
    wrong = [(R370, 2_145_916_800.0), (R391, 1_790_000_000.0), (R431, 1_795_000_000.0)]
    assert previous_release(run_of(wrong, [(R391, 1_790_000_100.0), (R431, 1_795_000_100.0)])) == R391
    assert previous_release(run_of(wrong)) == R391


def test_a_node_with_an_old_record_does_not_decide_for_the_others() -> None:
    new = [(R391, 10.0), (R431, 20.0)]
    assert previous_release(run_of(new, [(R370, 99.0)], new)) == R391
    assert previous_release(run_of([], [(R431, 1.0)])) == R431
