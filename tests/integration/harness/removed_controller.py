"""A controller that is not in a cluster's inventory: it registers, and is stopped."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from kafka_rollout.base.system.free_ports import free_ports
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.model.topology import NodeSpec, Role
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.java import java_binary
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

REGISTERED = "Our registration has been persisted to the metadata log"


class RemovedController:
    """A controller of a cluster with a dynamic quorum, in a home of its own."""

    def __init__(self, cluster: LocalCluster, node_id: int, home: Path, cache: ReleaseCache) -> None:
        port, agent = free_ports(2)
        self.node = NodeSpec(
            node_id=node_id,
            name=home.name,
            roles=frozenset({Role.CONTROLLER}),
            controller_address=f"127.0.0.1:{port}",
            prometheus_url=f"http://127.0.0.1:{agent}/metrics",
            directory=str(home),
        )
        self._cluster, self._cache, self._home = cluster, cache, home
        self._runtime = LocalProcessRuntime(replace(cluster.spec, nodes=(self.node,)), cache)

    def register_and_stop(self, release: Release) -> None:
        """Start it on a release until the cluster has registered it, then stop it."""
        try:
            self.register(release)
        finally:
            self.stop()

    def stop(self) -> None:
        self._runtime.stop(self.node, deadline_s=5.0, force=True)

    def register(self, release: Release) -> None:
        """Start it on a release until the cluster has registered it."""
        if not self._home.exists():
            self._format(release)
        self._runtime.install(self.node, release)
        log = self._home / "logs" / "server.log"
        seen = log.read_text().count(REGISTERED) if log.exists() else 0
        self._runtime.start(self.node)
        wait_until(lambda: log.exists() and log.read_text().count(REGISTERED) > seen, 300)
        with KafkaAdmin(self._cluster.spec) as admin:
            wait_until(lambda: self.node.node_id in (admin.registered().controllers or ()), 300)

    def _format(self, release: Release) -> None:
        self._home.mkdir()
        config = self._home / "server.properties"
        config.write_text(
            f"process.roles=controller\nnode.id={self.node.node_id}\n"
            f"listeners=CONTROLLER://{self.node.controller_address}\ncontroller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
            f"controller.quorum.bootstrap.servers={self._cluster.spec.bootstrap_controllers}\n"
            f"log.dirs={self._home}/data\n"
        )
        subprocess.run(
            [str(java_binary()), "-Xmx128m", "-cp", f"{self._cache.libs(release)}/*", "kafka.tools.StorageTool",
             "format", "-t", self._cluster.cluster_id, "-c", str(config), "--no-initial-controllers"],
            check=True, capture_output=True, timeout=300, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
