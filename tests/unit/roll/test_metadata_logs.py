"""Findings of the metadata logs before a downgrade."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.model.plan import Lowering
from kafka_rollout.observation.run import Run
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.roll.metadata_logs import scan_metadata_logs
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports
from tests.integration.harness.faults.without_live import stage_no_live
from tests.plans import plan_downgrade

R431, R421 = Release(4, 3, 1), Release(4, 2, 1)


@pytest.mark.parametrize(
    ("lowering", "short"),
    [(Lowering.LIVE, ["node 2"]), (Lowering.OFFLINE, ["node 2", "node 12"])],
)
def test_only_nodes_whose_log_is_replaced_need_space_for_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowering: Lowering, short: list[str]
) -> None:
    if lowering is Lowering.OFFLINE:
        stage_no_live(monkeypatch)
    cluster = FakeCluster(R431, finalized={METADATA_VERSION: 30})
    cluster.free_bytes = {2: 1_000_000, 12: 1_000_000}
    ports = fake_ports(cluster, tmp_path)
    plan = scan_metadata_logs(Run(ports, plan_downgrade(ports, R421, lowering=lowering)))
    assert [found.subject for found in plan.blockers if found.code == "BACKUP-SPACE-SHORT"] == short
