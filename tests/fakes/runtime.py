"""The runtime of a FakeCluster. tests/contract holds it to the real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.model.host_state import DirectoryFormat, HostState, StartRecord
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.state import CheckpointFile, ProcessState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import FakeCluster


class FakeRuntime:
    """NodeRuntime of a FakeCluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def _refuse_unreachable(self, node: NodeSpec) -> None:
        if node.node_id in self._cluster.unreachable:
            raise TransientError(f"The host of node {node.node_id} cannot be reached.")

    def process(self, node: NodeSpec) -> ProcessState:
        self._refuse_unreachable(node)
        fake = self._cluster.nodes[node.node_id]
        started = fake.starts[-1].started_at if fake.starts else 1.0
        return ProcessState(
            pid=fake.pid if fake.running else None,
            started_at=started if fake.running else None,
            installed=fake.installed,
        )

    def host(self, node: NodeSpec, releases: Sequence[Release]) -> HostState | None:
        return self._cluster.hosts.get(node.node_id)

    def prepare_stop(self, node: NodeSpec) -> None:
        if self._cluster.runs(node.node_id):
            self._cluster.on_prepare(node.node_id)

    def stop(self, node: NodeSpec, *, deadline_s: float, force: bool = False) -> None:
        self._refuse_unreachable(node)
        if node.node_id in self._cluster.hangs_in_shutdown and not force:
            raise FatalError(f"Node {node.name} is still shutting down.")
        if self._cluster.runs(node.node_id):
            self._cluster.stop(node.node_id)

    def bring(self, node: NodeSpec, release: Release) -> None:
        """Every release is there."""

    def install(self, node: NodeSpec, release: Release, changes: Sequence[ConfigChange] = ()) -> None:
        self._refuse_unreachable(node)
        fake = self._cluster.nodes[node.node_id]
        if fake.running:
            raise FatalError(f"Node {node.name} still runs as process {fake.pid}.", remedy="Stop the node first.")
        fake.installed = release
        for change in changes:
            if change.node_id != node.node_id or change.release != release:
                continue
            if change.value is None:
                fake.config.pop(change.key, None)
            else:
                fake.config[change.key] = change.value

    def start(self, node: NodeSpec) -> None:
        self._refuse_unreachable(node)
        if not self._cluster.runs(node.node_id):
            self._cluster.start(node.node_id)

    def short_timeouts(self) -> AbstractContextManager[None]:
        return nullcontext()

    def starts(self, node: NodeSpec) -> tuple[StartRecord, ...]:
        self._refuse_unreachable(node)
        return tuple(self._cluster.nodes[node.node_id].starts)

    def log_tail(self, node: NodeSpec, lines: int = 40) -> tuple[str, ...]:
        return tuple(self._cluster.nodes[node.node_id].log[-lines:])

    def java_version(self, node: NodeSpec) -> int:
        return self._cluster.java

    def jvm_arguments(self, node: NodeSpec) -> tuple[str, ...]:
        arguments = self._cluster.nodes[node.node_id].jvm_arguments
        if arguments is None:
            raise TransientError(f"The arguments of node {node.node_id} are unknown.")
        return arguments

    def config(self, node: NodeSpec) -> Mapping[str, str]:
        return dict(self._cluster.nodes[node.node_id].config)

    def checkpoints(self, node: NodeSpec) -> tuple[CheckpointFile, ...]:
        return tuple(self._cluster.nodes[node.node_id].checkpoints)

    def copy_checkpoint(self, checkpoint: CheckpointFile, to: Path) -> None:
        to.write_bytes(b"a checkpoint")

    def log_directories(self, node: NodeSpec) -> Mapping[str, str]:
        return self._cluster.log_directories if node.node_id not in self._cluster.unseen else {}

    def directory_formats(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, DirectoryFormat] | None:
        return self._cluster.formats

    def metadata_log_dir(self, node: NodeSpec) -> Path | None:
        return None if node.node_id in self._cluster.unseen else Path(f"/nowhere/metadata/{node.node_id}")
