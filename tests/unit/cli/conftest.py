"""Commands over a fake cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.clusters.inventory import dump_cluster
from tests.fakes.cluster import make_spec


@pytest.fixture(autouse=True)
def _no_group_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake cluster has no groups for the monitor process, and its start takes a second."""
    for name in ("start_group_monitor", "stop_group_monitor"):
        monkeypatch.setattr(f"kafka_rollout.traffic.processes.of_run.{name}", lambda *_, **__: None)


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pictures of reports are drawn in tests/unit/report: each takes as long as planning."""
    monkeypatch.setattr("kafka_rollout.report.page.pages.traffic_plot", lambda *_, **__: "")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a project with one cluster, `fake`, that nobody runs."""
    spec = make_spec(name="fake")
    spec = replace(spec, nodes=tuple(replace(node, directory=f"/nowhere/{node.name}") for node in spec.nodes))
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "fake.yaml").write_text(dump_cluster(spec))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
