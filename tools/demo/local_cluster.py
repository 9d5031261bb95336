"""A real cluster on loopback: brokers and controllers of a release as processes of this machine.

python -m tools.demo.local_cluster create --folder F --name N --release 3.9.1 [--layout combined]
python -m tools.demo.local_cluster stop --folder F

`create` writes the nodes' homes to F/nodes/<cluster>/<node> and the inventory to F/clusters/<cluster>.yaml (its path
is the last line printed). The cluster keeps running. `stop` stops the nodes below F and no others.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import psutil
from kafka.protocol.admin import DescribeClusterRequest

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.free_ports import reserved_ports
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.requests import ClusterConnections
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.clusters.inventory import dump_cluster, load_cluster
from kafka_rollout.formats.files import server_properties
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.nodes.runtimes.local_process import (
    LocalProcessRuntime,
    ReleaseJars,
    end_processes,
    node_processes,
)
from kafka_rollout.releases.facts import Release
from tools.demo.local_nodes import ClusterDraft, Layout, Quorum

_ATTEMPTS = 3
_READY_S = 240.0  # enough for a busy machine; a node that exits is reported at once
_ANSWER_S = 10.0  # timeout of one request to one node
_FIRST_DYNAMIC_QUORUM = Release(3, 9, 0)  # KIP-853


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    """A cluster that was created in `folder`; `inventory_path` describes it. `security`: of its listeners."""

    spec: ClusterSpec
    folder: Path
    inventory_path: Path
    cluster_id: str
    runtime: LocalProcessRuntime
    security: ClientSecurity | None = None

    @classmethod
    def create(
        cls,
        folder: Path,
        name: str,
        release: Release,
        *,
        cache: ReleaseJars,
        layout: Layout = "separate",
        size: int = 3,
        controllers: int | None = None,
        racks: int = 0,
        metadata_version: str | None = None,
        extra_config: Mapping[str, str] | None = None,
        quorum: Quorum = "static",
        heap: str = "320m",
        release_overrides: Mapping[str, Mapping[str, str]] | None = None,
        security: ClientSecurity | None = None,
        format_options: Sequence[str] = (),
        start: bool = True,
    ) -> LocalCluster:
        """Format and start a cluster and write its inventory; returns when every broker is in service.

        `separate`: `size` brokers (ids 1, 2, …) and the same number of controllers (101, 102, …); `combined`: `size`
        nodes with both roles; `mixed`: one node with both roles, the others separate. `controllers`: another number
        of separate controllers. `racks`: brokers are in the racks a, b, … in turn. `metadata_version`: such as
        `3.4-IV0`; default: the release's own. `security`: of the listeners that `extra_config` secures.
        `format_options`: further options of StorageTool.
        """
        if quorum == "dynamic" and release < _FIRST_DYNAMIC_QUORUM:
            raise UserError(f"Kafka {release} has no dynamic quorum.", remedy=f"Use {_FIRST_DYNAMIC_QUORUM} or later.")
        folder = folder.resolve()
        inventory = folder / "clusters" / f"{name}.yaml"
        homes = folder / "nodes" / name
        if homes.exists():
            raise UserError(f"There is already a cluster in {homes}.", remedy="Choose another folder or name.")
        draft = ClusterDraft(
            name=name,
            homes=homes,
            release=release,
            libs=cache.libs(release),
            layout=layout,
            size=size,
            controllers=size if controllers is None else controllers,
            racks=racks,
            quorum=quorum,
            metadata_version=metadata_version,
            extra_config=dict(extra_config or {}),
            heap=heap,
            release_overrides=release_overrides or {},
            format_options=format_options,
        )
        for attempt in range(1, _ATTEMPTS + 1):
            with reserved_ports(draft.ports_needed) as ports:
                spec = draft.spec(ports)
                draft.write(spec)
            inventory.parent.mkdir(parents=True, exist_ok=True)
            write_whole(inventory, dump_cluster(spec).encode(), mode=0o644)
            cluster = cls(
                spec=load_cluster(inventory),
                folder=folder,
                inventory_path=inventory,
                cluster_id=draft.cluster_id,
                runtime=LocalProcessRuntime(spec, cache),
                security=security,
            )
            try:
                for node in spec.nodes:
                    cluster.runtime.install(node, release)
                if start:
                    cluster.start()
                return cluster
            except BaseException:
                cluster.stop(deadline_s=0.0)
                if attempt < _ATTEMPTS and cluster.lost_a_port():
                    shutil.rmtree(homes)
                    continue
                raise
        raise AssertionError("unreachable")

    def start(self) -> None:
        """Start the controllers, then the brokers; return when every broker is in service."""
        for node in self.spec.controllers_first:
            self.runtime.start(node)
        self.wait_until_ready()

    def wait_until_ready(self, *, within_s: float = _READY_S) -> None:
        """Wait until every node has started, every broker reports all brokers as unfenced, and every controller
        follows the quorum's leader. Raises FatalError if a node exits, TransientError after `within_s`."""
        deadline = time.monotonic() + within_s
        while True:
            dead = [node for node in self.spec.nodes if self.runtime.process(node).pid is None]
            if dead:
                error = self._first_error(dead[0])
                raise FatalError(
                    f"Node {dead[0].name} of cluster {self.spec.name} exited while it started: {error}",
                    remedy=f"Read {dead[0].directory}/logs.",
                )
            if is_in_service(self.spec, self.security):
                return
            if time.monotonic() >= deadline:
                raise TransientError(
                    f"Cluster {self.spec.name} was not in service after {within_s:.0f} s.",
                    remedy=f"Read the nodes' logs below {self.folder}/nodes.",
                )
            time.sleep(0.2)

    def stop(self, *, deadline_s: float = 20.0) -> None:
        """Stop the brokers, then the controllers; after `deadline_s` each of the two groups is killed."""
        stop_nodes(self.folder / "nodes" / self.spec.name, deadline_s=deadline_s)

    def delete(self) -> None:
        """Kill the nodes and remove their homes and the inventory."""
        self.stop(deadline_s=0.0)
        shutil.rmtree(self.folder / "nodes" / self.spec.name, ignore_errors=True)
        self.inventory_path.unlink(missing_ok=True)

    def lost_a_port(self) -> bool:
        """Return whether a node could not start because another process uses its port."""
        return any(
            "Address already in use" in "\n".join(self.runtime.log_tail(node, lines=400))
            or _file_has(Path(str(node.directory)) / "logs" / "stdout.log", "Address already in use")
            for node in self.spec.nodes
        )

    def _first_error(self, node: NodeSpec) -> str:
        lines = self.runtime.log_tail(node, lines=200)
        errors = [line for line in lines if "ERROR" in line or "FATAL" in line or "Exception" in line]
        return (errors or list(lines) or ["it wrote no log"])[0].strip()


def stop_nodes(below: Path, *, deadline_s: float = 20.0) -> int:
    """Stop the nodes whose server.properties is below a folder, brokers before controllers; return their number."""
    found = node_processes(below)
    controllers: list[psutil.Process] = []
    others: list[psutil.Process] = []
    for path, process in found.items():
        try:
            roles = server_properties.parse(path.read_bytes()).get("process.roles", "")
        except FileNotFoundError:
            roles = ""  # its home was removed; the order no longer matters
        (controllers if "controller" in roles else others).append(process)
    end_processes(others, deadline_s=deadline_s)
    end_processes(controllers, deadline_s=deadline_s)
    return len(found)


def is_in_service(spec: ClusterSpec, security: ClientSecurity | None = None) -> bool:
    """Return whether every node has started, every broker reports all brokers, and every controller follows the leader.

    Every broker is queried, because one broker can learn later than another that a third one stopped or returned.
    """
    wanted = {node.node_id for node in spec.brokers}
    nodes = ClusterConnections(spec, security or ClientSecurity(), timeout_s=_ANSWER_S)
    try:
        if not all(map(_has_started, spec.nodes)):
            return False
        answers = (nodes.ask(target, DescribeClusterRequest()) for target in nodes.brokers)
        if any({broker.broker_id for broker in answer.brokers} != wanted for answer in answers):
            return False
        with KafkaAdmin(spec, security, timeout_s=_ANSWER_S) as admin:
            quorum = admin.quorum()
    except (TransientError, RefusedError):
        return False
    finally:
        nodes.close()
    return all(quorum.lag(node.node_id) is not None for node in spec.controllers)


def _has_started(node: NodeSpec) -> bool:
    """Return whether the node has registered app-info, which is the last part of its start."""
    alone = replace(node, prometheus_url=None)  # one agent is enough
    return node.jolokia_url is None or NodeMetricsReader(timeout_s=_ANSWER_S).read(alone).release is not None


def _file_has(path: Path, text: str) -> bool:
    try:
        return text in path.read_text(errors="replace")
    except FileNotFoundError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    from kafka_rollout.base.system.settings import Settings
    from kafka_rollout.releases.jars.cache import ReleaseCache

    parser = argparse.ArgumentParser(prog="python -m tools.demo.local_cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="format and start a cluster")
    create.add_argument("--folder", type=Path, required=True)
    create.add_argument("--name", required=True)
    create.add_argument("--release", required=True)
    create.add_argument("--layout", choices=get_args(Layout), default="separate")
    create.add_argument("--size", type=int, default=3)
    create.add_argument("--quorum", choices=get_args(Quorum), default="static")
    create.add_argument("--metadata-version")
    stop = commands.add_parser("stop", help="stop the nodes below a folder")
    stop.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        if given.command == "stop":
            print(f"stopped {stop_nodes(given.folder)} nodes below {given.folder}")
            return 0
        settings = Settings.from_environment()
        cluster = LocalCluster.create(
            given.folder,
            given.name,
            Release.parse(given.release),
            cache=ReleaseCache.from_settings(settings),
            layout=given.layout,
            size=given.size,
            metadata_version=given.metadata_version,
            quorum=given.quorum,
        )
    except RolloutError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"bootstrap servers: {cluster.spec.bootstrap_servers}")
    print(cluster.inventory_path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
