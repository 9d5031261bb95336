"""Brokers with several log directories from a release before 3.7 on: each start counts an error until level 17."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafka_rollout.gates.log_directories import LOG_DIRECTORY_FAILURES_UNSEEN
from kafka_rollout.model.counters import METADATA_APPLY_ERRORS
from kafka_rollout.nodes.metrics import NodeMetricsReader
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS
from tests.integration.harness.shell import APPROVED, QUICK, Shell
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


def with_two_directories(make_cluster: MakeCluster, release: str) -> LocalCluster:
    """A running cluster whose brokers have two log directories."""
    options = {"layout": "separate", "size": 2, "controllers": 3, "extra_config": QUICK_SNAPSHOTS, "start": False}
    cluster = make_cluster(release, name="shell", **options)
    for node in cluster.spec.brokers:
        first = Path(cluster.runtime.config(node)["log.dirs"])
        second = first.with_name("second")
        second.mkdir()
        shutil.copy(first / "meta.properties", second)
        file = Path(str(node.directory)) / "server.properties"
        file.write_text(file.read_text().replace(f"log.dirs={first}", f"log.dirs={first},{second}"))
        assert cluster.runtime.config(node)["log.dirs"] == f"{first},{second}"
    cluster.start()
    return cluster


def errors(cluster: LocalCluster) -> list[float]:
    """metadata-apply-error-count of each broker."""
    metrics = NodeMetricsReader()
    return [metrics.read(node).counters[METADATA_APPLY_ERRORS] for node in cluster.spec.brokers]


@pytest.mark.full
@pytest.mark.parametrize("policy", ["after-approval", "later"])
def test_brokers_with_several_log_directories_reach_the_level_that_supports_them(
    policy: str, make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Finalized by the run of 3.9.2, or after it and a restart below the level, by a run of features on 4.3.1."""
    cluster = with_two_directories(make_cluster, "3.6.2")
    shell = Shell(tmp_path, cluster)
    target = "3.9.2" if policy == "after-approval" else "4.3.1"

    rolled = shell(
        "upgrade", "--cluster", "shell", "--to", target, *QUICK, "--finalize", policy, "--no-scan", *APPROVED
    )

    assert rolled.returncode == 0, rolled.stderr
    report = json.loads(Path(rolled.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == ("finished" if policy == "after-approval" else "rolled_not_finalized"), report[
        "sentence"
    ]
    (finding,) = [one for one in report["findings"] if one["code"] == LOG_DIRECTORY_FAILURES_UNSEEN.code]
    assert finding["subject"] == "nodes 1, 2"
    assert errors(cluster) == [1, 1]
    one = ("restart", "--cluster", "shell", "--node", "broker-1", *QUICK, *APPROVED)
    if policy == "later":
        restarted = shell(*one)
        assert restarted.returncode == 0, restarted.stderr
        assert errors(cluster) == [1, 1], "each start counts it again"
        raised = shell("features", "set", "--action", "upgrade-all", "--cluster", "shell", *APPROVED, "--json")
        assert raised.returncode == 0, raised.stderr

    restarted = shell(*one)

    assert restarted.returncode == 0, restarted.stderr
    assert errors(cluster) == [0, 1], "no start counts it at the level that supports several directories"
