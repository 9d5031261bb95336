"""A standby controller restarts as an observer; one that was formatted again is named by its directories."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.java import java_binary
from tests.integration.conftest import MakeCluster
from tests.integration.harness.removed_controller import RemovedController
from tests.integration.harness.shell import APPROVED, QUICK, Shell
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1200)]

RELEASE = Release(3, 9, 1)


def findings(shell: Shell) -> dict[tuple[str, str], dict[str, Any]]:
    planned = shell("restart", "--cluster", "shell", *QUICK, "--dry-run", "--json")
    found = json.loads(planned.stdout)["plan"]["findings"]
    return {(one["code"], one["subject"]): one for one in found}


def format_again(cluster: LocalCluster, cache: ReleaseCache, node_id: int) -> None:
    """As after the loss of a disk: the directory gets another id, and the quorum still has the old one."""
    node = cluster.spec.node(node_id)
    cluster.runtime.stop(node, deadline_s=30.0, force=True)
    home = Path(str(node.directory))
    shutil.rmtree(Path(str(cluster.runtime.metadata_log_dir(node))))
    subprocess.run(
        [str(java_binary()), "-Xmx128m", "-cp", f"{cache.libs(RELEASE)}/*", "kafka.tools.StorageTool",
         "format", "-t", cluster.cluster_id, "-c", str(home / "server.properties"), "--no-initial-controllers",
         "--ignore-formatted"],
        check=True, capture_output=True, timeout=300, cwd=home, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    cluster.runtime.start(node)


def directory_of(cluster: LocalCluster, node_id: int) -> str:
    node = cluster.spec.node(node_id)
    formats = cluster.runtime.directory_formats(node, cluster.runtime.config(node)) or {}
    (found,) = [one.identity for one in formats.values() if one.identity and one.identity.is_of_metadata]
    return found.directory_id


def test_members_of_the_quorum_are_known_by_role_and_directory(
    make_cluster: MakeCluster, tmp_path: Path, release_cache: ReleaseCache
) -> None:
    cluster = make_cluster(str(RELEASE), name="shell", layout="separate", size=1, controllers=3, quorum="dynamic")
    standby = RemovedController(cluster, 9, tmp_path / "node-9", release_cache)
    spec = replace(cluster.spec, nodes=(*cluster.spec.nodes, standby.node))
    shell = Shell(tmp_path, cluster)
    try:
        standby.register(RELEASE)
        cluster.inventory_path.write_bytes(dump_cluster(spec).encode())
        with KafkaAdmin(spec) as admin:
            wait_until(lambda: admin.quorum().observer(9) is not None, 300)
            quorum = admin.quorum()
            assert quorum.voter_ids == {101, 102, 103}
            voters = {voter.replica_id: voter.directory_id for voter in quorum.voters}
            assert voters == {node_id: directory_of(cluster, node_id) for node_id in quorum.voter_ids}
        before = findings(shell)
        assert ("CONTROLLER-NOT-VOTER", "controller 9") in before
        assert [key for key, one in before.items() if one["severity"] == "blocker"] == []

        rolled = shell("restart", "--cluster", "shell", "--node", "9", *QUICK, *APPROVED)
        assert rolled.returncode == 0, rolled.stdout + rolled.stderr

        old = directory_of(cluster, 103)
        format_again(cluster, release_cache, 103)
        with KafkaAdmin(spec) as admin:
            wait_until(lambda: admin.quorum().replaced_voters == {103}, 300, every_s=1)
        wait_until(lambda: ("QUORUM-VOTER-REPLACED", "controller 103") in findings(shell), 300, every_s=1)
        found = findings(shell)
        replaced = found["QUORUM-VOTER-REPLACED", "controller 103"]
        new = directory_of(cluster, 103)
        assert new != old
        assert f"Node 103 runs with directory {new}, and the voter is directory {old}." in replaced["sentence"]
        assert f"--controller-id 103 --controller-directory-id {old}" in replaced["remedy"]
        assert ("QUORUM-VOTER-LAGS", "controller 103") not in found
    finally:
        standby.stop()
