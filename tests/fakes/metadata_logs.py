"""The metadata logs of a fake cluster's nodes, through their port."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.metadata_log.log_choice import EPOCHS_ABOVE, NodeLog, UnreadableLogError, WrittenSnapshot
from kafka_rollout.metadata_log.losses import LossReport
from kafka_rollout.metadata_log.metadata_scan import MetadataScan, RemedyFacts, ReplayFailure
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.metadata_log.start_order import LoggedPartition, LoggedPartitions
from kafka_rollout.metadata_log.trim import TrimResult
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from tests.fakes.cluster import FakeCluster

SNAPSHOT = "00000000000000001050-{epoch:010}.checkpoint"


@dataclass(frozen=True)
class FakePrepared:
    """A snapshot of a FakeCluster that was prepared before the stop."""

    write_snapshot: Callable[..., WrittenSnapshot]

    def write(self, node: NodeSpec, out: Path, *, epoch: int, end_offset: int) -> WrittenSnapshot:
        written = self.write_snapshot(node, out, epoch=epoch, cluster_id="")
        path = written.path.rename(out / f"{end_offset:020}-{epoch:010}.checkpoint")
        return replace(written, path=path)


class FakeMetadataLogs:
    """MetadataLogs of a FakeCluster: losses are its `losses`, and what it names in `unreadable` fails at a
    FeatureLevelRecord that a trim cuts off."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def losses(
        self,
        node: NodeSpec,
        to_level: int | None,
        *,
        source: Release,
        targets: Sequence[Release],
        features: Mapping[str, int],
        settings: Mapping[str, str],
        cluster_id: str,
    ) -> LossReport:
        level = self._cluster.finalized[METADATA_VERSION]
        to_level = level if to_level is None else to_level
        return LossReport(
            from_level=level,
            to_level=to_level,
            from_name=str(level),
            to_name=str(to_level),
            release="4.3.1",
            readers=tuple(map(str, targets)),
            below_floor=False,
            losses=tuple(self._cluster.losses),
            default_only=(),
            kafka_said=(),
            notes=(),
        )

    def registrations(self, node: NodeSpec, *, cluster_id: str) -> MetadataRegistrations:
        if self._cluster.registrations is None:
            raise RefusedError(f"The metadata log of node {node.node_id} cannot be read.", remedy="Grant the right.")
        return replace(self._cluster.registrations, brokers=self._cluster.registered)

    def partitions(self, node: NodeSpec, *, cluster_id: str) -> LoggedPartitions:
        """A round passes before. A node that runs has fetched the log."""
        world = self._cluster
        if node.node_id in world.unreachable:
            raise TransientError(f"The host of node {node.node_id} cannot be reached.")
        world.advance()
        return LoggedPartitions(
            partitions=tuple(
                LoggedPartition(topic=one.topic, partition=one.partition, replicas=one.replicas, isr=one.isr)
                for one in world.topics.values()
            ),
            unfenced=frozenset(
                one.node_id
                for one in world.spec.brokers
                if world.runs(one.node_id) and not world.nodes[one.node_id].behind
            ),
            dynamic=world.dynamic_configs,
        )

    def scan(
        self, node: NodeSpec, release: Release, *, cluster_id: str, settings: Mapping[str, str] | None = None
    ) -> MetadataScan:
        failures: tuple[ReplayFailure, ...] = ()
        way = None
        if (node.node_id, release) in self._cluster.unreadable:
            reason = f"A FeatureLevelRecord sets group.version to 1, and controllers of {release} support none."
            failures = (ReplayFailure(where="log", file="0.log", offset=7, reason=reason, decided_by="the fake"),)
            way = RemedyFacts(
                directory=f"/nowhere/metadata/{node.node_id}",
                last_failing=7,
                newest_snapshot=40,
                end_problem=None,
                segment_timestamp=None,
                starts_from_snapshot=False,
            )
        return MetadataScan(
            release=release,
            directory=f"/nowhere/metadata/{node.node_id}",
            start_offset=0,
            end_offset=50,
            starts_at="offset 0",
            failures=failures,
            records=(),
            remedies=(),
            notes=(),
            remedy_facts=way,
        )

    def trim(self, node: NodeSpec, *, release: Release, cluster_id: str) -> TrimResult:
        node_id = node.node_id
        assert not self._cluster.runs(node_id), "a running node's log is not trimmed"
        self._cluster.trims.append(node_id)
        self._cluster.unreadable = {one for one in self._cluster.unreadable if one[0] != node_id}
        return TrimResult(plan=None, backup=Path("/backup"), sentence="The log begins at offset 40 now, not at 0.")

    def replace_bootstrap(self, node: NodeSpec, *, level: int, release: Release, cluster_id: str) -> Path | None:
        return None

    def node_log(self, node: NodeSpec, *, cluster_id: str) -> NodeLog:
        self._refuse_unreadable(node)
        node_id, world = node.node_id, self._cluster
        epoch = world.log_epochs.get(node_id, world.snapshot_epoch if node_id in world.with_snapshot else 3)
        return NodeLog(
            node_id=node_id,
            epoch=epoch,
            end_offset=50,
            known_epoch=world.known_epochs.get(node_id, 4),
            voters=frozenset(world.voters),
            newest_epoch=epoch,
            leader_id=world.stored_leaders.get(node_id, -1),
            snapshots=frozenset(
                {SNAPSHOT.format(epoch=world.snapshot_epoch)} if node_id in world.with_snapshot else ()
            ),
        )

    def log_bytes(self, node: NodeSpec) -> int:
        return 1 << 20

    def free_bytes(self, node: NodeSpec) -> int:
        return self._cluster.free_bytes.get(node.node_id, 1 << 30)

    def write_snapshot(
        self,
        node: NodeSpec,
        out: Path,
        *,
        level: int,
        features: Mapping[str, int],
        epoch: int,
        source: Release,
        target: Release,
        settings: Mapping[str, str],
        cluster_id: str,
    ) -> WrittenSnapshot:
        self._refuse_running(node)
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{50:020}-{epoch:010}.checkpoint"
        path.write_text(str(level))
        world = self._cluster
        world.snapshot_level, world.snapshot_epoch, world.written_to_old_logs = level, epoch, False
        if world.level_before is None:
            world.level_before = world.finalized[METADATA_VERSION]
        return WrittenSnapshot(
            path=path,
            from_level=self._cluster.finalized[METADATA_VERSION],
            to_level=level,
            features=features,
            kraft_version=0,
            records=20,
            proved_by=(source, target),
            losses=(*self._cluster.losses, *self._cluster.late_losses),
        )

    @contextmanager
    def prepared_snapshot(
        self,
        node: NodeSpec,
        *,
        level: int,
        features: Mapping[str, int],
        source: Release,
        target: Release,
        settings: Mapping[str, str],
        cluster_id: str,
    ) -> Iterator[FakePrepared]:
        releases = {"source": source, "target": target}
        yield FakePrepared(partial(self.write_snapshot, level=level, features=features, settings=settings, **releases))

    def prepare_install(self, node: NodeSpec, out: Path, *, level: int, target: Release, cluster_id: str) -> None:
        self._refuse_unreadable(node)

    def install(
        self,
        node: NodeSpec,
        snapshot: Path,
        *,
        level: int,
        target: Release,
        cluster_id: str,
        candidate: bool = False,
    ) -> str:
        """The level is that of the snapshot once a controller with it is elected."""
        self._refuse_unreadable(node)
        node_id, world = self._refuse_running(node), self._cluster
        if world.known_epochs.get(node_id, 4) + EPOCHS_ABOVE > world.snapshot_epoch and node_id not in world.replaced:
            raise RefusedError(f"Node {node_id} was started after the log was chosen.")
        world.replaced[node_id] = len(world.nodes[node_id].starts)
        world.backups[node_id] = snapshot.name
        world.with_snapshot.add(node_id)
        world.log_epochs[node_id] = world.snapshot_epoch
        return f"{snapshot.name} is the whole metadata log now."

    def refuse_used(self, node: NodeSpec, snapshot: str, *, cluster_id: str) -> None:
        self._refuse_unreadable(node)
        world = self._cluster
        if world.backups.get(node.node_id) != snapshot:
            return
        started = [node_id for node_id, before in world.replaced.items() if len(world.nodes[node_id].starts) > before]
        if any(world.spec.node(node_id).is_broker for node_id in started):
            raise RefusedError("It cannot be taken back any more: a broker registered at offset 60.")

    def undo_install(self, node: NodeSpec, snapshot: str, *, cluster_id: str, keep_epoch: bool = False) -> str | None:
        self._refuse_unreadable(node)
        node_id, world = self._refuse_running(node), self._cluster
        if world.backups.get(node_id) != snapshot:
            return None
        if keep_epoch and world.log_epochs[node_id] > world.snapshot_epoch and node_id in world.with_snapshot:
            raise RefusedError("It can no longer be undone: a leader was elected on it.")
        del world.replaced[node_id], world.backups[node_id]
        world.with_snapshot.discard(node_id)
        world.log_epochs[node_id] = 3
        if not keep_epoch:
            world.known_epochs.pop(node_id, None)
            world.stored_leaders.pop(node_id, None)
        return "It is as it was before."

    def raise_epoch(self, node: NodeSpec, *, epoch: int, cluster_id: str) -> None:
        self._refuse_unreadable(node)
        node_id, world = self._refuse_running(node), self._cluster
        if world.known_epochs.get(node_id, 4) < epoch:
            world.known_epochs[node_id] = epoch
            world.stored_leaders[node_id] = -1

    def _refuse_unreadable(self, node: NodeSpec) -> None:
        if node.node_id in self._cluster.unreachable:
            raise TransientError(f"The host of node {node.node_id} cannot be reached.")
        if node.node_id in self._cluster.no_log:
            raise UnreadableLogError(f"Node {node.node_id} holds no metadata log.")

    def _refuse_running(self, node: NodeSpec) -> int:
        node_id = node.node_id
        assert not self._cluster.runs(node_id), "a running node's log is not touched"
        return node_id
