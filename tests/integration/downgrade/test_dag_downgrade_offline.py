"""4.3.1 at 4.3-IV0 to 4.2.1: a level that released Kafka does not lower. The DAG goes down with all nodes stopped."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kafka_rollout.base.outside_text import escape_markdown
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.run.events import events_of, has
from kafka_rollout.run.step_events import Finalizing, Started, Stopped, Stopping, Validated
from kafka_rollout.run.store.history import SqlRunStore
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.dag_in_process import ProcessRuns
from tests.integration.harness.airflow.server import all_run, finalized, starts
from tests.integration.harness.cluster_contents import WITH_ACLS, contents, contents_kept, fill
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.full, pytest.mark.timeout(1800)]

DOWNGRADE = "kafka_downgrade"
REFUSED, OFFLINE = 30, 29


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessRuns:
    return ProcessRuns.open(tmp_path, monkeypatch)


def cordon_a_second_directory(cluster: LocalCluster, node: NodeSpec | None = None) -> tuple[int, Path]:
    """Of a broker, by default the first node, before it starts; its id, and the directory."""
    node = node or cluster.spec.nodes[0]
    config = Path(str(node.directory)) / "server.properties"
    second = Path(str(node.directory)) / "data" / "second"
    second.mkdir()
    text = config.read_text()
    (directories,) = [line for line in text.splitlines() if line.startswith("log.dirs=")]
    formatted = (Path(directories.removeprefix("log.dirs=")) / "meta.properties").read_text()
    own = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    (second / "meta.properties").write_text(re.sub(r"(?m)^directory\.id=.*$", f"directory.id={own}", formatted))
    text = text.replace(directories, f"{directories},{second}\ncordoned.log.dirs={second}")
    write_whole(config, text.encode(), mode=0o644)
    return node.node_id, second


def at_level(cluster: LocalCluster, level: int) -> None:
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {level}


def all_is_there(record: SqlRunStore) -> None:
    """By what the run compared: its test traffic, and all that was in the cluster before it; and how long it took."""
    report = record.attachment("report.json")
    assert report["outcome"] == "finished", report["sentence"]
    traffic, outage, counts = report["traffic"], report["outage"], contents_kept(report)["before"]
    assert min(counts[part] for part in ("topics", "groups", "configurations", "ACLs", "SCRAM users", "quotas")) >= 1
    assert traffic["ok"], traffic["discrepancies"]
    assert traffic["acknowledged"] > 0
    (measured,) = outage["measured"]
    assert 0 < measured["writable_s"] <= measured["seconds"] < report["duration_s"]
    # While no node ran nobody was served, whatever else a busy machine makes longer: by both who watched.
    events = record.events()
    nobody_ran = min(one.at for one in events_of(events, Started)) - max(one.at for one in events_of(events, Stopped))
    assert 0 < nobody_ran <= min(measured["seconds_at_least"], max(traffic["unavailable_s"].values())) + 0.1
    assert outage["expected"] in report["sentence"]
    print(measured["sentence"], outage["expected_s"], traffic["unavailable_s"])


def of_before(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Without what the test traffic brought in: its topics."""
    return {
        part: {name: found[name] for name in before[part] if name in found} if isinstance(found, dict) else found
        for part, found in now.items()
    }


def test_what_only_the_higher_level_says_is_lost_by_name_or_not_at_all(
    runs: ProcessRuns, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster("4.3.1", name="cordoned", layout="combined", extra_config=WITH_ACLS, start=False)
    cordoned, second = cordon_a_second_directory(cluster)
    cluster.start()
    fill(cluster)
    conf = {"target_release": "4.2.1", "lowering": "offline"}

    state, states, record = runs.run(cluster, DOWNGRADE, **conf)
    assert (state, states["approve_levels"], runs.asked) == ("failed", "failed", [])
    report = record.attachment("report.json")
    assert report["outcome"] == "refused"
    (loss,) = report["losses"]["losses"]
    assert (loss["kind"], loss["subject"]) == ("cordoned log directories", f"broker {cordoned}")
    assert f" {second} (" in loss["sentence"]
    assert not has(record.events(), Validated, Finalizing, Stopping)
    at_level(cluster, REFUSED)

    state, states, record = runs.run(cluster, DOWNGRADE, **conf, downgrade_type="UNSAFE", traffic=True)
    assert state == "success", states
    assert runs.asked == ["approve_roll"]
    assert escape_markdown(loss["sentence"]) in runs.bodies["approve_roll"]
    assert "Expected outage" in runs.bodies["approve_roll"]
    all_run(cluster, "4.2.1")
    at_level(cluster, OFFLINE)
    all_is_there(record)
    assert set(starts(cluster)["node-1"]) == {"4.3.1", "4.2.1"}


def test_where_nothing_real_is_lost_offline_is_safe(runs: ProcessRuns, make_cluster: MakeCluster) -> None:
    cluster = make_cluster("4.3.1", name="quiet", layout="combined", extra_config=WITH_ACLS)
    fill(cluster)
    before = contents(cluster.spec)

    state, _, record = runs.run(cluster, DOWNGRADE, target_release="4.2.1")
    assert state == "failed"
    assert "FEATURE-DOWNGRADE-REFUSED" in {finding.code for finding in record.load_plan().blockers}
    assert record.attachment("report.json")["losses"]["losses"] == []

    state, states, record = runs.run(cluster, DOWNGRADE, target_release="4.2.1", lowering="offline", traffic=True)
    assert state == "success", states
    assert runs.asked == ["approve_roll"]
    assert "Metadata lost: none" in runs.bodies["approve_roll"]
    all_run(cluster, "4.2.1")
    at_level(cluster, OFFLINE)
    all_is_there(record)
    assert of_before(contents(cluster.spec), before) == before
