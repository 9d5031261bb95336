"""A command and a run of a DAG that want one real cluster at once: the messages of a real Airflow and of a
shell, and how a holder that was killed is got rid of."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import (
    APPROVER,
    PATIENCE_S,
    PrivateAirflow,
    Run,
    finalized,
    no_lock_left,
    wait_for,
)
from tests.integration.harness.shell import Shell
from tests.records import change_lock, run_history

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

BY_ANNA = ("--as", APPROVER, "--reason", "a test", "--yes")
HANGS = (
    "import time\nfrom kafka_rollout.feature_updates import update\n"
    "update.ensure_levels = lambda *_, **__: time.sleep(1800)"
)


def test_a_run_is_refused_while_a_command_has_the_cluster_and_goes_on_when_its_killed_holder_is_named(
    airflow: PrivateAirflow, make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster("4.3.1", name="wanted", layout="combined", size=1, metadata_version="4.2-IV1")
    dag_id, lock = airflow.add(cluster, "kafka_features"), change_lock(airflow.home)
    shell = Shell(tmp_path, cluster)
    shell.environment |= {"KAFKA_ROLLOUT_HOME": str(airflow.home), "KAFKA_ROLLOUT_CLUSTERS": str(airflow.clusters)}
    change = ("features", "set", "--action", "upgrade-all", "--cluster", "wanted", *BY_ANNA)

    holder = shell.start(*change, beforehand=HANGS)
    try:
        held = wait_for(lambda: lock.holder("wanted"), timeout_s=PATIENCE_S, said="the command's lock")
        client = airflow.client()
        run_id = client.trigger(dag_id, {})
        run = Run(airflow=airflow, cluster=cluster, dag_id=dag_id, run_id=run_id, client=client)
        assert run.wait_done() == "failed"
        number = run_history(airflow.home, "wanted", held.holder).number
        refusal = f"Run {number} holds the lock of cluster wanted (Set metadata.version 30). Its lease expires at "
        assert refusal in run.log("observe")
        assert refusal in run.log("outcome"), "the last task shows the reason"
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(60)

    shown = shell("status", "--cluster", "wanted")
    assert f"Lock: run {number} until " in shown.stdout
    broken = shell("unlock", "--cluster", "wanted", "--as", APPROVER)
    assert f"The lock of run {number} " in broken.stdout
    run.clear("observe")
    run.wait_for_question("approve")
    refused, number = shell(*change), run_history(airflow.home, "wanted", run_id).number
    assert (refused.returncode, refused.stdout) == (4, "")
    assert (
        f"Run {number} holds the lock of cluster wanted (waits for the approval: Change features of wanted"
        in refused.stderr
    )
    print(shown.stdout, broken.stdout, refused.stderr, run.log("outcome")[-600:])
    client.call("PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}", json={"state": "failed"})
    wait_for(lambda: lock.holder("wanted") is None, timeout_s=PATIENCE_S, said="the release of a run marked as failed")
    run.clear("approve")
    run.wait_for_question("approve")
    run.answer("approve", "Approve", "the other one is dead")
    run.wait_success()
    assert finalized(cluster, cluster.spec.nodes[0])["metadata.version"] == 30
    no_lock_left(airflow, cluster)
    done = shell(*change)
    assert done.returncode == 0, done.stderr
