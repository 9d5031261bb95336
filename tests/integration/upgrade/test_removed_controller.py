"""A controller that was removed: its registration blocks levels until it registers again on the target release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import run_jvm
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import QUICK_SNAPSHOTS
from tests.integration.harness.removed_controller import RemovedController
from tests.integration.harness.shell import APPROVED, DRY_RUN, QUICK, Shell, later_starts
from tests.releases import NEWEST
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

OLD, NEW = Release(4, 3, 1), Release.parse(NEWEST)


def unlisted(shell: Shell) -> list[tuple[str, str]]:
    """Severity and sentence of the findings about unlisted controllers in a plan to the newest release."""
    planned = shell(*DRY_RUN, "--cluster", "shell", "--to", str(NEW), "--json")
    findings: list[dict[str, Any]] = json.loads(planned.stdout)["plan"]["findings"]
    return [(one["severity"], one["sentence"]) for one in findings if one["code"] == "UNLISTED-CONTROLLER"]


def test_a_removed_controller_that_registers_again_on_the_target_does_not_block_level_33_and_can_be_unregistered(
    make_cluster: MakeCluster, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    cluster = make_cluster(str(OLD), name="shell", layout="combined", quorum="dynamic", extra_config=QUICK_SNAPSHOTS)
    shell = Shell(tmp_path, cluster)
    removed = RemovedController(cluster, 4, tmp_path / "node-4", release_cache)
    removed.register_and_stop(OLD)
    wait_until(lambda: bool(unlisted(shell)), 300, every_s=1)
    ((severity, sentence),) = unlisted(shell)
    assert severity == "blocker"
    assert "It does not support metadata.version 33" in sentence, sentence

    removed.register_and_stop(NEW)
    wait_until(lambda: [seen for seen, _ in unlisted(shell)] == ["warning"], 300, every_s=1)
    rolled = shell("upgrade", "--cluster", "shell", "--to", str(NEW), *QUICK, "--finalize", "after-approval",
                   "--no-scan", *APPROVED)  # fmt: skip
    assert rolled.returncode == 0, rolled.stderr
    report = json.loads(Path(rolled.stdout.splitlines()[-1]).read_text())
    assert report["outcome"] == "finished", report["sentence"]
    assert report["features"]["after"]["metadata.version"] == 33
    assert set(later_starts(cluster)) == {1, 2, 3}, "the removed controller was not needed for it"

    unregister_controller(release_cache, cluster.spec.bootstrap_servers, 4)
    wait_until(lambda: not unlisted(shell), 300, every_s=1)


def unregister_controller(cache: ReleaseCache, servers: str, node_id: int) -> None:
    """As kafka-cluster.sh unregister-controller: Kafka's own client, asked directly."""
    with run_jvm(cache.libs(NEW)) as jvm:
        properties = jvm.packages.java.util.Properties()
        properties.setProperty("bootstrap.servers", servers)
        admin = jvm.static("org.apache.kafka.clients.admin.Admin").create(properties)
        try:
            admin.unregisterController(node_id).all().get()
        finally:
            admin.close()
