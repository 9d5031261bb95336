"""KIP-915's two steps through Airflow: 3.4.0 to 4.3.1 goes by way of 3.4.1; finalized later, by a second run."""

from __future__ import annotations

import pytest

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Finalizing
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import (
    QUICK_SNAPSHOTS,
    PrivateAirflow,
    all_run,
    each_started_once,
    finalized,
    no_lock_left,
    nothing_lost,
    starts,
)

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

METADATA_VERSION_3_4 = 8
METADATA_VERSION_4_3 = 30


def test_an_intolerant_release_goes_by_way_of_a_tolerant_one_and_a_later_run_finalizes(
    airflow: PrivateAirflow, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("3.4.0", name="two-steps", layout="combined", extra_config=QUICK_SNAPSHOTS)
    airflow.add(cluster)

    first = airflow.trigger(cluster, "4.3.1", finalize="later")
    question = first.wait_for_question("approve_plan")
    assert "3.4.0 → 3.4.1" in question["body"]
    assert "3.4.1 → 4.3.1" in question["body"]
    assert "3.4.0 cannot load coordinator records that 4.3.1 writes" in question["body"]
    first.answer("approve_plan", "Approve", "by way of 3.4.1, as KIP-915 says")
    first.wait_success()

    all_run(cluster, "4.3.1")
    each_started_once(cluster, "3.4.0", "3.4.1", "4.3.1")
    plan = first.store.load_plan()
    assert [release_step.key for release_step in plan.release_steps] == ["3.4.0-to-3.4.1", "3.4.1-to-4.3.1"]
    assert all("KIP-915" in release_step.reason for release_step in plan.release_steps)
    report = first.report()
    assert report["outcome"] == "rolled_not_finalized"
    nothing_lost(report["traffic"], consumers=("classic",))  # 3.4.0 offers no other protocol
    for node in cluster.spec.nodes:
        assert finalized(cluster, node) == {"metadata.version": METADATA_VERSION_3_4}, "later means not now"
    no_lock_left(airflow, cluster)

    before = starts(cluster)
    second = airflow.trigger(cluster, "4.3.1", finalize="after_approval", traffic=False)
    second.approve("approve_finalize")
    second.wait_success()

    assert starts(cluster) == before, "the second run found the binary rolled"
    states = second.states()
    assert states["approve_plan"] == "skipped"
    assert states["check_features"] == "success"
    assert {state for task_id, state in states.items() if task_id.startswith("roll.")} == {"skipped"}
    sent = [dict(event.levels) for event in events_of(second.store.events(), Finalizing)]
    assert sent[0] == {"metadata.version": METADATA_VERSION_4_3}, "the others depend on it"
    assert sent[1]["group.version"] == 1
    for node in cluster.spec.nodes:
        levels = finalized(cluster, node)
        assert levels["metadata.version"] == METADATA_VERSION_4_3
        assert levels["group.version"] == 1
        assert levels["transaction.version"] == 2
    assert second.report()["outcome"] == "finished"
    no_lock_left(airflow, cluster)
