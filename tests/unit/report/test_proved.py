"""What a run proves of the cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.model.plan import Plan
from kafka_rollout.report.run_report import Outcome, Proved, proved_by
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_upgrade(fake_ports(FakeCluster(R391), tmp_path), R431, finalize=True)


def test_a_finished_run_proves_the_release_and_every_planned_level(plan: Plan) -> None:
    proved = proved_by(plan, Outcome.FINISHED)
    assert proved.release == R431
    assert proved.levels["metadata.version"] == 30
    assert set(proved.levels) == {change.feature for change in plan.feature_changes}


def test_a_rolled_run_proves_no_level(plan: Plan) -> None:
    assert proved_by(plan, Outcome.ROLLED_NOT_FINALIZED) == Proved(release=R431)


@pytest.mark.parametrize("outcome", [Outcome.ROLLED_BACK, Outcome.STOPPED, Outcome.REFUSED, Outcome.DRY_RUN])
def test_any_other_outcome_proves_nothing(plan: Plan, outcome: Outcome) -> None:
    assert proved_by(plan, outcome) == Proved()


def test_a_restart_moves_no_node_to_another_release(plan: Plan) -> None:
    restarts = tuple(replace(step, from_release=step.to_release) for step in plan.release_steps)
    restart = replace(plan, release_steps=restarts, feature_changes=())
    assert proved_by(restart, Outcome.FINISHED) == Proved()


def test_a_run_that_only_finalizes_proves_no_release(plan: Plan) -> None:
    proved = proved_by(replace(plan, release_steps=()), Outcome.FINISHED)
    assert proved.release is None
    assert proved.levels
