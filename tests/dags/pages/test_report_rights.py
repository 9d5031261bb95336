"""The report's endpoint: a user who can read one DAG can read the reports of that DAG only."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.run.events import Begun
from tests.records import run_history

pytestmark = pytest.mark.airflow


def test_a_dag_that_has_a_cluster_s_name_shows_nothing_of_the_cluster(
    inventory: Path, database: None, tmp_path: Path
) -> None:
    from fastapi import HTTPException

    from kafka_rollout.airflow.views.app import report

    history = run_history(tmp_path / "home", "fake", "run-1")
    history.record(Begun(dag_id="kafka_upgrade_fake"))
    history.write_report("<p>levels</p>", {})
    assert report("kafka_upgrade_fake", "run-1").body == b"<p>levels</p>"
    with pytest.raises(HTTPException, match="DAG fake has no report"):
        report("fake", "run-1")


@pytest.mark.parametrize("run_id", ["../../private/fake/run-1", "..", "x" * 300])
def test_a_run_s_name_leads_nowhere_else(inventory: Path, database: None, run_id: str) -> None:
    from fastapi import HTTPException

    from kafka_rollout.airflow.views.app import report

    with pytest.raises(HTTPException) as refused:
        report("kafka_upgrade_fake", run_id)
    assert refused.value.status_code == 404
