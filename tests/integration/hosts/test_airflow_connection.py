"""Hosts through an Airflow Connection of type SSH, with the host keys in the worker's known_hosts."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.clusters.inventory import dump_cluster
from tests.testbeds import MakeBed
from tools.testbed.image import LOGIN

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.full, pytest.mark.timeout(600)]


def test_the_runtime_uses_the_connection_and_checks_host_keys(
    make_bed: MakeBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess
    from kafka_rollout.base.errors import RefusedError

    bed = make_bed("4.2.1", size=3)
    inventories, home = tmp_path / "clusters", tmp_path / "home"
    inventories.mkdir()
    (home / ".ssh").mkdir(parents=True)
    (inventories / "far.yaml").write_text(dump_cluster(replace(bed.spec, name="far", ssh_connection_id="of_hosts")))
    extra = {"key_file": str(bed.folder / "ssh" / "id_ed25519")}
    for name, value in {
        "AIRFLOW_CONN_OF_HOSTS": json.dumps({"conn_type": "ssh", "login": LOGIN, "extra": extra}),
        "HOME": str(home),
        "KAFKA_ROLLOUT_CLUSTERS": str(inventories),
        "KAFKA_ROLLOUT_HOME": str(tmp_path / "rollout"),
        "KAFKA_ROLLOUT_SSH_CONFIG": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)

    hook, node = ClusterAccess("far"), bed.spec.nodes[0]
    refused = r"host key of .* is not in known_hosts"
    with hook.open("run-1", clears=0) as ports, pytest.raises(RefusedError, match=refused):
        ports.runtime.process(node)
    shutil.copy(bed.folder / "ssh" / "known_hosts", home / ".ssh" / "known_hosts")
    with hook.open("run-2", clears=0) as ports:
        assert str(ports.runtime.process(node).running) == "4.2.1"
        assert str(ports.runtime.process(node).installed) == "4.2.1"
