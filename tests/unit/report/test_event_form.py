"""Events in the report."""

from __future__ import annotations

from kafka_rollout.features.requests import FeatureOutcome, FeatureUpdateStatus
from kafka_rollout.metadata_log.log_choice import ChosenLog
from kafka_rollout.metadata_log.metadata_scan import LogReadiness, ReplayFailure
from kafka_rollout.model.state import CheckpointSummary
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.run_report import event_form
from kafka_rollout.run.step_events import (
    FeatureResults,
    IncrementalScan,
    MetadataLogFound,
    MetadataScanned,
    OfflineLogChosen,
    OfflineSnapshotWritten,
    ScanStage,
    SnapshotLoaded,
)

R401 = Release.parse("4.0.1")


def test_an_event_has_its_kind() -> None:
    scan = IncrementalScan(at=1.0, release_step="a-to-b", offsets=4, since=0.5, seconds=0.1, findings=("X",))

    form = {"at": 1.0, "release_step": "a-to-b", "offsets": 4, "since": 0.5, "seconds": 0.1, "findings": ["X"]}
    assert event_form(scan) == {**form, "kind": "scan-tail"}


def test_releases_at_any_depth_are_text() -> None:
    failure = ReplayFailure(where="log", file="f", offset=7, reason="why", decided_by="4.0.1")
    log = MetadataLogFound(
        node_id=1,
        release=R401,
        verdict="fails",
        readiness=LogReadiness.TRIM,
        bootstrap_too_new=False,
        starts_at="offset 0",
        start_offset=0,
        end_offset=9,
        first_failure=failure,
        last_failing=7,
        remedies=("Trim.",),
    )
    (found,) = event_form(MetadataScanned(at=1.0, stage=ScanStage.READY, nodes=(log,)))["nodes"]

    assert (found["release"], found["readiness"], found["first_failure"]["offset"]) == ("4.0.1", "trim", 7)
    written = OfflineSnapshotWritten(
        at=1.0, file="f", from_level=25, to_level=23, records=3, proved_by=(R401,), lost=()
    )
    assert event_form(written)["proved_by"] == ["4.0.1"]


def test_what_is_nested_in_an_event_is_flat_in_the_report() -> None:
    log = ChosenLog(node_id=1, end_offset=9, epoch=2, snapshot_epoch=102, voters=(1, 2), read=(1,), not_read=())
    summary = CheckpointSummary(
        release="4.0.1", features={}, brokers=(1,), controllers=(), topics=1, partitions=2, records=3, sha256="a"
    )
    loaded = SnapshotLoaded(
        at=1.0, summary=summary, node_id=1, end_offset=9, epoch=2, finalized_by_offset=None, proved=True
    )
    outcome = FeatureOutcome(
        feature="group.version", existing=0, new=1, result=FeatureUpdateStatus.FAILED, sentence="Why."
    )

    assert event_form(OfflineLogChosen(at=1.0, log=log))["voters"] == [1, 2]
    assert {"log", "summary"}.isdisjoint(event_form(loaded))
    assert event_form(loaded)["topics"] == 1
    assert event_form(FeatureResults(outcomes=(outcome,)))["results"] == {"group.version": "FAILED Why."}
