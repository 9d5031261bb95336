"""The DAGs of a cluster without a runtime: plans, feature changes and scans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.clusters.inventory import dump_cluster
from tests.dags.conftest import FakeRuns
from tests.fakes.cluster import make_spec

pytestmark = pytest.mark.airflow
_OF_NODE_STEPS = {
    "max_batch_size",
    "pause_after",
    "skip_conditions",
}
FIELDS = {  # those that a plan uses
    "upgrade": {
        "target_release",
        "finalize",
        "pin_min_insync_replicas",
        "accept_unavailable",
        "dry_run",
    },
    "downgrade": {
        "target_release",
        "target_level",
        "downgrade_type",
        "lowering",
        "accept_unavailable",
        "dry_run",
    },
}


@pytest.fixture
def inventory(inventory: Path) -> Path:
    spec = make_spec()
    (inventory / "fake.yaml").write_text(dump_cluster(replace(spec, runtime="none", nodes=spec.brokers)))
    return inventory


def test_its_upgrade_and_its_downgrade_are_plans(load_dags: Callable[[], dict[str, Any]]) -> None:
    dags = load_dags()
    assert list(dags["kafka_upgrade_fake"].task_dict) == [
        "observe",
        "scan_before_roll",
        "plan",
        "rehearse",
        "report",
        "outcome",
    ]
    assert "approve_levels" not in dags["kafka_downgrade_fake"].task_dict
    assert "update" in dags["kafka_features_fake"].task_dict
    for kind, fields in FIELDS.items():
        form = dags[f"kafka_{kind}_fake"].params
        assert set(form) == fields | _OF_NODE_STEPS
        with pytest.raises(ValueError, match="True was expected"):
            form.get_param("dry_run").resolve(False)


def test_a_run_ends_with_the_plan_and_its_report(runs: FakeRuns) -> None:
    state, states, record = runs.run()
    assert state == "success", states
    assert (record.attachment("report.json") or {})["outcome"] == "dry_run"
    assert runs.world.stops == []
