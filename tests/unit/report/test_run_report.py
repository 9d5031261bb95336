"""The report of a whole run, machine form and page, stays as recorded in `golden`."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.answers import TerminalAnswers
from kafka_rollout.cli.run import run_procedure
from kafka_rollout.cli.services import shell_services
from kafka_rollout.planning.request import Request
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.procedures.lookup import write_run_report
from kafka_rollout.steps.procedures.upgrade import UPGRADE
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_bench
from tests.golden import assert_same_as_recorded

GOLDEN = Path(__file__).with_name("golden")
BEGAN_AT = 1_763_697_600.0  # 2025-11-21 04:00:00 UTC
# The shell that answered, and digests of sentences that can change.
REPLACED = {"user": "root", "host": "host-1", "text": "…", "text_sha256": "…", "plan_hash": "…"}


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    """The ports of a run that upgraded all nodes and left the features for later."""
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    cluster = FakeCluster(R391)
    cluster.clock.set(BEGAN_AT, reading_s=1e-7)  # a golden file must not depend on the number of readings
    ports = fake_bench(cluster, tmp_path)
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1 <b>", confirms=False)
    services = shell_services(ports, Settings.from_environment(), None)
    assert run_procedure(UPGRADE, ports, Request(target=R431, scan=False), answers, services) == 0
    return ports


def test_the_report_of_a_whole_upgrade_stays_as_recorded(ports: ClusterPorts) -> None:
    page, data = (Path(file).read_text() for file in write_run_report(ports, ports.run.load_plan()))
    machine_form = json.dumps(stable(json.loads(data)), indent=1, ensure_ascii=False)
    assert_same_as_recorded(GOLDEN / "upgrade.json", machine_form.splitlines())
    assert_same_as_recorded(GOLDEN / "upgrade.txt", lines_of(page))


def lines_of(page: str) -> list[str]:
    """Return the text of a page: one line for each row, heading and paragraph, cells separated by a bar."""
    text = re.sub(r"<style>.*?</style>|<head>|\n", " ", page, flags=re.DOTALL)
    text = re.sub(r"</t[dh]>\s*<t[dh][^>]*>", " | ", text)
    text = re.sub(r"</?(?:tr|p|h\d|title|div|details|summary|section|br|text)\b[^>]*>", "\n", text)
    lines = (" ".join(html.unescape(re.sub(r"<[^>]*>", " ", line)).split()) for line in text.split("\n"))
    return [re.sub(r"\b[0-9a-f]{12,}\b|(?<=shell user ).* on [^ ]+", "…", line) for line in lines if line]


def stable(value: Any) -> Any:
    """Return the same data with times to a tenth of a second, without what differs between machines and texts."""
    if isinstance(value, dict):
        return {key: REPLACED.get(key, stable(item)) for key, item in value.items()}
    if isinstance(value, list):
        return [stable(item) for item in value]
    return round(value, 1) if isinstance(value, float) else value
