"""Runs on a cluster without a runtime, from a shell: a dry run has a plan and a report, any other run is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import run as cli_run
from kafka_rollout.cli.answers import TerminalAnswers
from kafka_rollout.cli.run import ShellServices, run_procedure
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.frozen_plan import SCAN_BEFORE_ROLL
from kafka_rollout.procedure.kinds import DOWNGRADE, UPGRADE
from kafka_rollout.procedure.step import Procedure
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import R391, FakeCluster
from tests.fakes.ports import hidden_bench

NOTHING = {"cluster": "fake", "scanned_at": 0.0, "logs": (), "classes": (), "verdicts": ()}


@pytest.mark.parametrize(
    ("procedure", "target"), [pytest.param(UPGRADE, "4.3.1", id="up"), pytest.param(DOWNGRADE, "3.8.1", id="down")]
)
def test_only_a_dry_run_begins(
    procedure: Procedure, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_run, "scan_logs", lambda ports, *_: ports.run.attach(SCAN_BEFORE_ROLL, NOTHING))
    cluster = FakeCluster(R391)
    cluster.unseen = {node.node_id for node in cluster.spec.nodes}

    def run(run_id: str, *, dry_run: bool) -> dict[str, object]:
        ports = hidden_bench(cluster, tmp_path, run_id=run_id)
        answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
        services = ShellServices(ports, Settings.from_environment(), None)
        run_procedure(procedure, ports, Request(target=Release.parse(target), dry_run=dry_run), answers, services)
        return dict(ports.run.attachment("report.json") or {})

    planned = run("planned", dry_run=True)
    assert planned["outcome"] == "dry_run"
    assert str(planned["sentence"]).startswith(
        "Dry run: nothing was changed. A blocker cannot be excluded, because of "
    )
    with pytest.raises(RefusedError, match="Cluster fake has runtime none, so its nodes cannot be stopped"):
        run("changed", dry_run=False)
    assert cluster.stops == []
