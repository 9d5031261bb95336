"""A cluster that was formatted above what the older release can read goes down online: each node's bootstrap.checkpoint
is rewritten in its turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import MakeCluster
from tests.integration.downgrade.test_dag_downgrade_trim import DOWNGRADE
from tests.integration.harness.airflow.dag_in_process import ProcessRuns
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS, all_run, finalized
from tests.integration.harness.cluster_contents import contents_kept
from tests.integration.harness.logs.old_records import read_all, write_records

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(1800), pytest.mark.full]


def test_a_bootstrap_file_that_the_older_release_cannot_read_is_found_before_and_rewritten_in_each_nodes_turn(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ProcessRuns.open(tmp_path, monkeypatch)
    cluster = make_cluster(
        "4.3.1", name="bootstrap", layout="combined", metadata_version="4.0-IV0", extra_config=QUICK_SNAPSHOTS
    )
    write_records(cluster.spec)
    read_all(cluster.spec, "billing", "classic")

    state, states, record = runs.run(cluster, DOWNGRADE, target_release="3.7.2")
    assert state == "success", states
    plan = record.load_plan()
    assert str(plan.release_steps[-1].to_release) == "3.7.2"
    assert plan.levels["metadata.version"] == 19
    (found,) = [finding for finding in plan.findings if finding.code == "BOOTSTRAP-CHECKPOINT-TOO-NEW"]
    assert found.subject == "3.7.2, nodes 1, 2, 3"
    assert "3.7.2 cannot: No MetadataVersion with metadata version 22" in found.sentence
    assert runs.asked == ["approve_levels", "approve_roll"]
    all_run(cluster, "3.7.2")
    report = record.attachment("report.json")
    assert report["outcome"] == "finished"
    assert {(one["node_id"], one["level"]) for one in report["bootstraps"]} == {(1, 19), (2, 19), (3, 19)}
    assert all(Path(one["backup"]).is_file() for one in report["bootstraps"]), "undo stays possible"
    contents_kept(report)
    for node in cluster.spec.nodes:
        assert finalized(cluster, node)["metadata.version"] == 19
