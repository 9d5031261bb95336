"""What a run in the sandbox gets instead of approvers, predictions and services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.groups.records import GroupRecords
from kafka_rollout.model.configs import ConfigProblem, DynamicConfigs
from kafka_rollout.model.host_state import DirectoryFormat
from kafka_rollout.model.state import CheckpointSummary
from kafka_rollout.ports.cluster import KafkaClasses
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import ApprovalOf, Channel, Decision, Responder
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

_APPROVER = "rehearsal"


class RehearsalAnswers:
    """Approves every request, because the cluster of the sandbox is a copy, but no difference from its state before."""

    @property
    def terminal(self) -> None:
        return None

    @property
    def present(self) -> bool:
        return False

    def ask(self, question: Question) -> Answer | None:
        if question.what is ApprovalOf.DIFFERENCES:
            return None  # the runner refuses, and the rehearsal reports the differences
        responder = Responder(channel=Channel.SHELL, user=_APPROVER, host="sandbox")
        return Answer(by=_APPROVER, decision=Decision.APPROVED, reason="Rehearsal on a copy.", responder=responder)

    def show(self, body: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RehearsalServices:
    """No test traffic, no monitor, no report. A scan has no finding: the started nodes load the logs themselves."""

    ports: ClusterPorts

    def scan(self, file: str) -> None:
        self.ports.run.attach(file, unpredicted_scan(self.ports))

    def monitor_groups(self) -> None: ...

    def start_traffic(self) -> None: ...

    def stop(self) -> None: ...

    def report(self, *, dry_run: bool) -> None: ...


def unpredicted_scan(ports: ClusterPorts) -> ScanResult:
    """Return a scan in which every release loads everything."""
    verdicts = (
        ReleaseVerdict(release=release, topic=GROUPS_TOPIC, partition=0, verdict=LoadVerdict.LOADS)
        for release in ports.catalogue
    )
    return ScanResult(
        cluster=ports.cluster.name, scanned_at=ports.clock.now(), logs=(), classes=(), verdicts=tuple(verdicts)
    )


@dataclass(frozen=True, slots=True)
class UnpredictedLogs:
    """CoordinatorLogs without findings."""

    read_at: float

    def scan_small(self) -> ScanResult:
        raise RefusedError("A rehearsal scans no coordinator logs.", remedy="Scan those of the cluster.")

    def scan_new_records(self, before: ScanResult, *, complete: bool = False) -> ScanResult:
        return before

    def group_records(self, *, by_spark: bool = False) -> GroupRecords:
        return GroupRecords(read_at=self.read_at, offsets=0)


@dataclass(frozen=True, slots=True)
class UnpredictedConfigs:
    """KafkaClasses that accept every configuration: the started nodes show whether they do. Snapshots are loaded."""

    classes: KafkaClasses

    def config_problems(
        self, release: Release, properties: Mapping[str, str], formats: Mapping[str, DirectoryFormat] | None = None
    ) -> tuple[str, ...]:
        return ()

    def config_problems_of(
        self,
        release: Release,
        nodes: Mapping[int, tuple[Mapping[str, str], Mapping[str, DirectoryFormat] | None]],
    ) -> Mapping[int, tuple[str, ...]]:
        return dict.fromkeys(nodes, ())

    def dynamic_config_problems(
        self, release: Release, brokers: Mapping[int, Mapping[str, str]], dynamic: DynamicConfigs
    ) -> tuple[ConfigProblem, ...]:
        return ()

    def load_checkpoint(self, release: Release, path: Path) -> CheckpointSummary:
        return self.classes.load_checkpoint(release, path)
