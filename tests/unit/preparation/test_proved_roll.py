"""Levels are raised after what the history has seen of the roll, whatever a task was marked as."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.proved_roll import refuse_unproved_roll
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.step_events import Started
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import compare, pass_gates, plan_downgrade, plan_upgrade


def test_each_gate_must_have_passed_and_the_cluster_be_compared_since_the_last_start(tmp_path: Path) -> None:
    ports = fake_ports(FakeCluster(R391), tmp_path)
    plan = plan_upgrade(ports, R431, finalize=True)
    run, last = Run(ports, plan), plan.batch_steps[-1]
    with pytest.raises(RefusedError, match=r"gate after the start has not passed for batch 1 of 6") as refused:
        refuse_unproved_roll(run)
    assert "roll.gate_after" in refused.value.remedy
    pass_gates(ports, plan)
    refuse_unproved_roll(run)  # each node ran the target before
    started = Started(release_step=last.release_step.key, node_id=last.node_ids[0], release=R431, pid=1, seconds=1.0)
    ports.run.record(started)
    with pytest.raises(RefusedError, match="has not passed for batch 6 of 6"):
        refuse_unproved_roll(run)
    pass_gates(ports, plan)
    with pytest.raises(RefusedError, match="was not compared with its state before the run") as refused:
        refuse_unproved_roll(run)
    assert "compare_after_roll" in refused.value.remedy
    compare(ports)
    refuse_unproved_roll(run)


def test_a_downgrade_lowers_levels_before_its_roll(tmp_path: Path) -> None:
    ports = fake_ports(FakeCluster(R431), tmp_path)
    refuse_unproved_roll(Run(ports, plan_downgrade(ports, Release(4, 2, 1))))
