"""`kafka-rollout check --history` lists the scheduled checks of a cluster, with what was new in each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.cli.app import run_main
from kafka_rollout.run.store.opening import open_check_history
from tests.fakes.cluster import make_spec


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from dataclasses import replace

    from kafka_rollout.clusters.inventory import dump_cluster
    from kafka_rollout.model.topology import NO_RUNTIME

    folder = tmp_path / "clusters"
    folder.mkdir()
    (folder / "orders.yaml").write_text(dump_cluster(replace(make_spec(name="orders"), runtime=NO_RUNTIME)))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(folder))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    return "orders"


def _document(at: float, *subjects: str) -> Mapping[str, Any]:
    objects = [{"subject": one, "sentence": f"{one} is offline.", "remedy": ""} for one in subjects]
    findings = [{"code": "OFFLINE", "severity": "blocker", "objects": objects}] if subjects else []
    return {
        "target": "4.4.0",
        "change": "upgrade",
        "checked_at": at,
        "totals": {"blocker": len(findings), "warning": 1, "unknown": 0},
        "checks": [{"id": "a", "result": "blocker" if subjects else "ok", "reasons": [], "findings": findings}],
    }


def test_each_check_is_listed_with_what_was_new(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    history = open_check_history(cluster)
    history.keep("scheduled__1", _document(1_763_697_600.0), "")
    history.keep("scheduled__2", _document(1_763_784_000.0, "orders-0"), "")
    history.keep("scheduled__3", _document(1_763_870_400.0, "orders-0"), "")
    assert run_main(["check", "--cluster", cluster, "--history"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2025-11-23T04:00:00Z upgrade to 4.4.0: 1 blocker, 1 warning, 0 unknown",
        "2025-11-22T04:00:00Z upgrade to 4.4.0: 1 blocker, 1 warning, 0 unknown",
        "    new: blocker OFFLINE for orders-0: orders-0 is offline.",
        "2025-11-21T04:00:00Z upgrade to 4.4.0: 0 blocker, 1 warning, 0 unknown",
    ]
    assert run_main(["check", "--cluster", cluster, "--history", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(one["new"]) for one in found] == [0, 1, 0]
    assert found[0]["check"]["target"] == "4.4.0"


def test_without_a_check_or_a_cluster_the_command_says_so(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["check", "--cluster", cluster, "--history"]) == 0
    assert "has no scheduled check yet" in capsys.readouterr().out
    assert run_main(["check", "--history"]) == 2
    assert "--history needs a cluster of the inventory. Add --cluster NAME." in capsys.readouterr().err
