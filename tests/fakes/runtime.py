"""The runtime of a FakeCluster. tests/contract holds it to the real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.host_state import DirectoryFormat, HostState, Installation, StartFile, StartRecord
from kafka_rollout.model.log_directories import LogDirectory, log_directories
from kafka_rollout.model.node_log import LogPart
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.starts import ClassPlaces, NamedFile, PluginClass
from kafka_rollout.model.state import CheckpointFile, ProcessState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import FakeCluster

STARTED_LINE = (
    "[2026-11-23 02:00:00,000] INFO Registered signal handlers for TERM, INT, HUP "
    "(org.apache.kafka.common.utils.LoggingSignalHandler)"
)


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
            claims=self._claims(node),
        )

    def _claims(self, node: NodeSpec) -> Claims:
        return self._cluster.claims.get(node.node_id, Claims())

    def claim(self, node: NodeSpec, claim: Claim) -> Claims:
        self._refuse_unreachable(node)
        now = self._claims(node)
        self._cluster.claims[node.node_id] = replace(now, open=(*now.open, claim))
        return self._claims(node)

    def end_claims(self, node: NodeSpec, claims: Sequence[Claim], *, changed: bool) -> None:
        self._refuse_unreachable(node)
        now = self._claims(node)
        closed = max(claims, key=lambda one: one.at) if changed else now.closed
        left = tuple(one for one in now.open if one not in claims)
        self._cluster.claims[node.node_id] = replace(now, open=left, closed=closed)

    def host(
        self,
        node: NodeSpec,
        releases: Sequence[Release],
        *,
        changes: Sequence[ConfigChange] = (),
        restarts: bool = False,
        returns: bool = False,
    ) -> HostState | None:
        return self._cluster.hosts.get(node.node_id)

    def installation(self, node: NodeSpec) -> Installation:
        self._refuse_unreachable(node)
        return self._cluster.nodes[node.node_id].installation

    def prepare_stop(self, node: NodeSpec) -> None:
        if self._cluster.runs(node.node_id):
            self._cluster.on_prepare(node.node_id)

    def stop(self, node: NodeSpec, *, deadline_s: float, force: bool = False) -> None:
        self._refuse_unreachable(node)
        if node.node_id in self._cluster.hangs_in_shutdown and not force:
            raise FatalError(f"Node {node.name} is still shutting down.")
        if self._cluster.runs(node.node_id):
            self._cluster.stop(node.node_id)

    def bring(self, node: NodeSpec, release: Release, *, back: Release | None = None) -> bool:
        """Every release is there."""
        return False

    def install(
        self,
        node: NodeSpec,
        release: Release,
        changes: Sequence[ConfigChange] = (),
        *,
        held: Sequence[str] = (),
    ) -> str:
        self._refuse_unreachable(node)
        fake = self._cluster.nodes[node.node_id]
        if fake.running:
            raise FatalError(f"Node {node.name} still runs as process {fake.pid}.", remedy="Stop the node first.")
        fake.installed = release
        link = node.service.folder(release) if node.service else ""
        fake.installation = Installation(link=link, held=tuple(held))  # a package manager keeps no hold
        for change in changes:
            if change.node_id != node.node_id or change.release != release:
                continue
            if change.value is None:
                fake.config.pop(change.key, None)
            else:
                fake.config[change.key] = change.value
        return self._cluster.installation_warning

    def start(self, node: NodeSpec) -> None:
        self._refuse_unreachable(node)
        if not self._cluster.runs(node.node_id):
            self._cluster.start(node.node_id)

    def finish_start(self, node: NodeSpec) -> None:
        self._refuse_unreachable(node)
        if self._cluster.runs(node.node_id):
            self._cluster.on_started(node.node_id)

    def short_timeouts(self) -> AbstractContextManager[None]:
        return nullcontext()

    def starts(self, node: NodeSpec) -> tuple[StartRecord, ...]:
        self._refuse_unreachable(node)
        return tuple(self._cluster.nodes[node.node_id].starts)

    def log_tail(self, node: NodeSpec, lines: int = 40, *, own: bool = False) -> tuple[str, ...]:
        fake = self._cluster.nodes[node.node_id]
        return tuple(fake.log[fake.log_begin if own else 0 :][-lines:])

    def process_log(self, node: NodeSpec, after: str = "") -> LogPart | None:
        """In the layout of Kafka, from the line that each start writes first. Positions are numbers of lines."""
        self._refuse_unreachable(node)
        fake = self._cluster.nodes[node.node_id]
        begin = int(after) if after else fake.log_begin
        return LogPart(
            pid=fake.pid,
            started_at=fake.starts[-1].started_at if fake.starts else 1.0,
            lines=(*(() if after else (STARTED_LINE,)), *fake.log[begin:]),
            position=str(len(fake.log)),
            is_first=not after,
        )

    def java_version(self, node: NodeSpec, releases: Sequence[Release]) -> int:
        return self._cluster.java

    def jvm_arguments(self, node: NodeSpec, release: Release) -> tuple[str, ...]:
        arguments = self._cluster.nodes[node.node_id].jvm_arguments
        if arguments is None:
            raise TransientError(f"The arguments of node {node.node_id} are unknown.")
        return arguments

    def jvm_problems(self, node: NodeSpec, releases: Sequence[Release]) -> tuple[str, ...]:
        self._refuse_unreachable(node)
        return self._cluster.jvm_problems.get(node.node_id, ())

    def unresolved_names(self, node: NodeSpec, names: Sequence[str]) -> tuple[str, ...]:
        self._refuse_unreachable(node)
        unresolved = self._cluster.unresolved.get(node.node_id, ())
        return tuple(name for name in names if name in unresolved or name.endswith(".invalid"))

    def named_files(self, node: NodeSpec, files: Mapping[str, str]) -> tuple[NamedFile, ...] | None:
        present = self._cluster.present_files
        return tuple(
            NamedFile(setting=setting, path=path, is_absent=path not in present, changed_at=present.get(path))
            for setting, path in files.items()
        )

    def find_classes(self, node: NodeSpec, release: Release, classes: Sequence[PluginClass]) -> ClassPlaces | None:
        nowhere = ClassPlaces(folder="", unknown="a cluster in memory has no jars")
        return self._cluster.class_places.get(node.node_id, nowhere)

    def config(self, node: NodeSpec) -> Mapping[str, str]:
        return dict(self._cluster.nodes[node.node_id].config)

    def start_files(self, node: NodeSpec, config: Mapping[str, str]) -> tuple[StartFile, ...]:
        return self._cluster.nodes[node.node_id].start_files

    def checkpoints(self, node: NodeSpec) -> tuple[CheckpointFile, ...]:
        return tuple(self._cluster.nodes[node.node_id].checkpoints)

    def copy_checkpoint(self, checkpoint: CheckpointFile, to: Path) -> None:
        to.write_bytes(b"a checkpoint")

    def log_directories(self, node: NodeSpec) -> Mapping[str, str]:
        return self._cluster.log_directories if node.node_id not in self._cluster.unseen else {}

    def directory_formats(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, DirectoryFormat] | None:
        return self._cluster.formats

    def log_folders(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, LogDirectory]:
        self._refuse_unreachable(node)
        return {
            path: self._cluster.log_folders.get((node.node_id, path), LogDirectory(folders=frozenset({f"o-{number}"})))
            for number, path in enumerate(log_directories(config))
        }

    def metadata_log_dir(self, node: NodeSpec) -> Path | None:
        return None if node.node_id in self._cluster.unseen else Path(f"/nowhere/metadata/{node.node_id}")
