"""A live downgrade by the DAG on a real cluster: its tasks are killed at several points, and the next try continues."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.run.events import events_of, has
from kafka_rollout.run.step_events import LiveFailed, LiveLowered, OfflineUndoing
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import (
    PrivateAirflow,
    all_run,
    finalized,
    no_lock_left,
    nothing_lost,
    starts,
)
from tests.integration.harness.cluster_contents import WITH_ACLS, assert_clients_data_is_kept, contents, fill
from tests.integration.harness.faults.kill_points import KillPoints

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(2700)]

IN_THE_SWITCH = ("after OfflineStopping", "before OfflineInstalled 102", "after LiveLowered")
IN_THE_ROLL = "before Stopped 1"


def test_a_task_that_is_killed_at_several_points_ends_right(
    make_cluster: MakeCluster, release_cache: ReleaseCache, tmp_path: Path
) -> None:
    release_cache.agents()  # downloaded before a process waits for them
    cluster = make_cluster("4.3.1", name="live-killed", layout="separate", extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)
    points = KillPoints(tmp_path / "points", (*IN_THE_SWITCH, IN_THE_ROLL))
    with PrivateAirflow.open(tmp_path / "airflow", at_the_start_of_python(points.code, tmp_path / "hook")) as airflow:
        airflow.add(cluster, "kafka_downgrade")
        run = airflow.trigger(cluster, "4.2.1", dag="kafka_downgrade", lowering="live")
        run.approve("approve_roll")
        run.wait_success(timeout_s=2000)
        tries = run.client.tasks(run.dag_id, run.run_id)["live.lower_level"]["try_number"]
        no_lock_left(airflow, cluster)
    assert (points.left, tries) == ([], 1 + len(IN_THE_SWITCH))
    events = run.store.events()
    assert len(events_of(events, LiveLowered)) == 1
    assert not has(events, LiveFailed, OfflineUndoing)
    all_run(cluster, "4.2.1")
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {29}
    assert {starts(cluster)[node.name]["4.2.1"] for node in cluster.spec.nodes} == {1}, "each node is rolled once"
    report = run.report()
    assert report["outcome"] == "finished", report["sentence"]
    nothing_lost(report["traffic"])
    assert_clients_data_is_kept(cluster.spec, before)


def at_the_start_of_python(code: str, folder: Path) -> dict[str, str]:
    """The environment in which each Python process runs the code first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}
