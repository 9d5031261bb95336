"""Before it finalizes, the command line reads the logs and evaluates them with the steps of the DAG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import run as cli_run
from kafka_rollout.cli.answers import TerminalAnswers
from kafka_rollout.cli.run import ShellServices, run_procedure
from kafka_rollout.coordinator_logs.scan import Damage, LogSize, ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.model.pace import Pace
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.planning.request import FinalizePolicy, Request
from kafka_rollout.procedure.kinds import UPGRADE
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.builders import SCAN_VERDICT
from kafka_rollout.run.events import ApprovalOf, Decision
from kafka_rollout.run.ports import Answer, Question
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports

OFFSETS = "__consumer_offsets"
LOG = LogRange(topic=OFFSETS, partition=0, start=0, end=9)
UNKNOWN_TYPE = RecordKind(topic=OFFSETS, partition=0, key_version=99, value_version=0, count=7, first_offset=2)
DAMAGE = Damage(
    topic=OFFSETS, partition=0, file="", position=3, log_bytes=0, sentence="The batch is corrupt.", offsets=2
)


class Rejecting(TerminalAnswers):
    """Approves the roll, keeps the text of the approval to finalize, and rejects it."""

    shown: str = ""

    def ask(self, question: Question) -> Answer | None:
        if question.what is not ApprovalOf.FINALIZE:
            return TerminalAnswers.ask(self, question)
        Rejecting.shown = question.body
        return Answer(by="alice", decision=Decision.REJECTED, reason="first the groups", responder=None)


def scan_of(
    cluster: FakeCluster, *kinds: RecordKind, releases: list[Release], damage: tuple[Damage, ...]
) -> ScanResult:
    verdicts = evaluate_records(cluster.catalogue, kinds, releases, partitions=[(OFFSETS, 0)], damage=damage)
    size = LogSize(
        topic=OFFSETS,
        partition=0,
        records=9,
        batches=9,
        control_batches=0,
        log_bytes=900,
        first_timestamp=-1,
        last_timestamp=-1,
    )
    return ScanResult(
        cluster="fake", scanned_at=0.0, logs=(LOG,), classes=kinds, verdicts=verdicts, damage=damage, sizes=(size,)
    )


def finalize(
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    cluster: FakeCluster,
    before_finalizing: ScanResult | None,
) -> ClusterPorts:
    """Roll all nodes; the second scan of the run returns `before_finalizing`, None: it leaves no result."""
    ports = fake_ports(cluster, home)
    good = scan_of(cluster, releases=list(cluster.catalogue), damage=())

    def scan_logs(of: ClusterPorts, _: Any, __: Any, file: str, *___: Any) -> None:
        scan = before_finalizing if file == SCAN_VERDICT else good
        if scan is not None:
            of.run.attach(file, scan)

    monkeypatch.setattr(cli_run, "scan_logs", scan_logs)
    request = Request(target=R431, finalize=FinalizePolicy.AFTER_APPROVAL, pace=Pace.FAST)
    answers = Rejecting(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
    services = ShellServices(ports, Settings.from_environment(), None)
    with pytest.raises(RefusedError) as refused:
        run_procedure(UPGRADE, ports, request, answers, services)
    assert cluster.stops == [2, 3, 1, 11, 12, 13]
    assert [targets for targets, only in cluster.updates if not only] == []
    Rejecting.shown = Rejecting.shown or str(refused.value)
    return ports


@pytest.mark.parametrize(
    ("kinds", "damage", "shown"),
    [
        ((UNKNOWN_TYPE,), (), "3.9.1 would load __consumer_offsets and ignore 7 records of unknown types."),
        ((), (DAMAGE,), "It is unknown whether 3.9.1 can load 1 of 1 partitions: 2 of 9 offsets could not be read"),
    ],
    ids=["ignored records", "damaged log"],
)
def test_the_approval_to_finalize_shows_what_a_return_would_lose(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kinds: tuple[RecordKind, ...],
    damage: tuple[Damage, ...],
    shown: str,
) -> None:
    monkeypatch.setattr(Rejecting, "shown", "")
    cluster = FakeCluster(R391)
    finalize(monkeypatch, tmp_path, cluster, scan_of(cluster, *kinds, releases=[R391, R431], damage=damage))
    assert shown in Rejecting.shown.replace("\\", "")


def test_the_approval_to_finalize_shows_how_each_level_can_be_undone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Rejecting, "shown", "")
    cluster = FakeCluster(R391)
    finalize(monkeypatch, tmp_path, cluster, scan_of(cluster, releases=[R391, R431], damage=()))
    told = Rejecting.shown.replace("\\", "")
    assert "#### metadata.version 21 → 30\n\n- Undo: **live**. kafka_downgrade to 3.9.1 lowers it while only" in told
    assert "Expected time without an active controller: about" in told
    assert "#### group.version 0 → 1\n\n- Undo: **by the controller**." in told


@pytest.mark.parametrize("releases", [[R431], None], ids=["not evaluated", "no result"])
def test_an_unknown_rollback_verdict_refuses_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, releases: list[Release] | None
) -> None:
    monkeypatch.setattr(Rejecting, "shown", "")
    cluster = FakeCluster(R391)
    scan = None if releases is None else scan_of(cluster, releases=releases, damage=())
    finalize(monkeypatch, tmp_path, cluster, scan)
    assert "ROLLBACK-UNKNOWN" in Rejecting.shown
