"""Kafka's own classes on a FakeCluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.acls import Acl, AclDifferences
from kafka_rollout.model.configs import ConfigProblem, DynamicConfigs
from kafka_rollout.model.probes import Probe
from kafka_rollout.model.starts import NodeStart, StartProblems
from kafka_rollout.model.state import CheckpointSummary
from kafka_rollout.observation.cluster_ports import ReadPorts
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import FakeCluster


class FakeClasses:
    """KafkaClasses: problems are those of `FakeCluster.config_problems` and `plugins`; a snapshot shows `finalized`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._blocks = 0
        self.asked: list[tuple[str, bool]] = []
        """Questions, and whether each was within `keep_processes`."""

    @contextmanager
    def keep_processes(self) -> Iterator[None]:
        self._blocks += 1
        try:
            yield
        finally:
            self._blocks -= 1

    def _note(self, question: str) -> None:
        self.asked.append((question, self._blocks > 0))

    def start_problems(self, release: Release, nodes: Mapping[int, NodeStart]) -> Mapping[int, StartProblems]:
        self._note("start_problems")
        world = self._cluster
        world.checked_starts += nodes.values()
        return {
            node_id: StartProblems(
                rejected=world.config_problems.get(release, ()), plugins=world.plugins.get(node_id, ())
            )
            for node_id in nodes
        }

    def dynamic_config_problems(
        self, release: Release, brokers: Mapping[int, Mapping[str, str]], dynamic: DynamicConfigs
    ) -> tuple[ConfigProblem, ...]:
        self._note("dynamic_config_problems")
        self._cluster.validated.append((release, dynamic))
        return self._cluster.dynamic_config_problems.get(release, ())

    def acl_differences(
        self, source: Release, others: Sequence[Release], acls: Sequence[Acl], settings: Mapping[str, str]
    ) -> Mapping[Release, AclDifferences]:
        self._note("acl_differences")
        return {release: self._cluster.acl_differences.get(release, AclDifferences()) for release in others}

    def authentication_probes(
        self, release: Release, nodes: Mapping[int, Mapping[str, str]]
    ) -> Mapping[int, tuple[Probe, ...]]:
        self._note("authentication_probes")
        return {node_id: self._cluster.probes.get(release, ()) for node_id in nodes}

    def setting_documentation(self, release: Release, names: Collection[str]) -> Mapping[str, str]:
        self._note("setting_documentation")
        return {name: f"What {name} does." for name in names}

    def load_checkpoint(self, release: Release, path: Path) -> CheckpointSummary:
        if not path.exists():
            raise RefusedError(f"There is no snapshot {path}.", remedy="Copy it first.")
        world = self._cluster
        return CheckpointSummary(
            release=str(release),
            features=dict(world.finalized),
            brokers=tuple(node.node_id for node in world.spec.brokers),
            controllers=tuple(node.node_id for node in world.spec.controllers),
            topics=len({partition.topic for partition in world.topics.values()}),
            partitions=len(world.topics),
            records=100,
            sha256="0" * 64,
        )


def asked_alone(ports: ReadPorts) -> list[str]:
    """Return the questions that a FakeClasses got outside of `keep_processes`. Fails if it got none within."""
    assert isinstance(ports.classes, FakeClasses)
    assert ports.classes.asked, "nothing was asked"
    return [question for question, is_kept in ports.classes.asked if not is_kept]
