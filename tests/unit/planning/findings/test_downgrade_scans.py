from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.metadata_log.losses import Loss, LossReport
from kafka_rollout.metadata_log.metadata_scan import LogReadiness, MetadataScan, RemedyFacts, ReplayFailure
from kafka_rollout.model.plan import Direction, FeatureChange, Lowering, Plan, Undo
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.findings.downgrade_scans import (
    loss_findings,
    metadata_findings,
    unreadable_log_findings,
)
from kafka_rollout.releases.facts import Release

OLD, NEW = Release(3, 4, 1), Release(4, 3, 1)
WAY = RemedyFacts(
    directory="DIR",
    last_failing=9,
    newest_snapshot=20,
    end_problem=None,
    segment_timestamp=None,
    starts_from_snapshot=False,
)
FALLS = FeatureChange(
    feature="metadata.version", current=30, target=29, undo=Undo.POSSIBLE, undo_source="", loss="something"
)


def scan(way: RemedyFacts | None = None, *where: str) -> MetadataScan:
    return MetadataScan(
        release=OLD,
        directory="DIR",
        start_offset=0,
        end_offset=50,
        starts_at="offset 0",
        failures=tuple(
            ReplayFailure(where=one, file="0.log", offset=9, reason="It cannot be read.", decided_by="d")  # type: ignore[arg-type]
            for one in where
        ),
        records=(),
        remedies=("Wait.",),
        notes=(),
        remedy_facts=way,
    )


def plan(*changes: FeatureChange, **other: Any) -> Plan:
    values: dict[str, Any] = {"unsafe": False, **other}
    return Plan(
        cluster="c",
        cluster_id="id",
        direction=Direction.DOWNGRADE,
        source=NEW,
        target=OLD,
        release_steps=(),
        feature_changes=changes,
        config_changes=(),
        findings=(),
        **values,
    )


@pytest.mark.parametrize(
    ("found", "needs"),
    [
        (scan(), LogReadiness.READY),
        (scan(None, "bootstrap"), LogReadiness.READY),
        (scan(WAY, "log"), LogReadiness.TRIM),
        (scan(replace(WAY, newest_snapshot=None), "log"), LogReadiness.SNAPSHOT),
        (scan(replace(WAY, starts_from_snapshot=True), "log"), LogReadiness.SNAPSHOT),
        (scan(replace(WAY, end_problem="level 30", newest_snapshot=None), "snapshot"), LogReadiness.LEVELS),
        (scan(WAY, "quorum-state", "log"), LogReadiness.NEVER),
    ],
)
def test_what_a_log_needs_follows_from_what_fails_and_what_would_not(found: MetadataScan, needs: LogReadiness) -> None:
    assert found.readiness is needs
    assert found.fails_at_bootstrap == any(one.where == "bootstrap" for one in found.failures)


def test_a_record_that_has_to_be_cut_off_is_named_with_where_and_why_and_nodes_share_a_finding() -> None:
    (found,) = metadata_findings(plan(), [(1, scan(WAY, "log")), (2, scan(WAY, "log")), (3, scan())])
    assert (found.code, found.severity, found.subject) == ("METADATA-LOG-TRIM", "warning", "3.4.1, nodes 1, 2")
    assert "3.4.1 would stop at offset 9 of 0.log: It cannot be read." in found.sentence


def test_metadata_that_the_release_cannot_replay_blocks_unless_the_plan_lowers_it() -> None:
    at_end = scan(replace(WAY, end_problem="level 30", newest_snapshot=None, starts_from_snapshot=True), "snapshot")
    assert [f.severity for f in metadata_findings(plan(), [(1, at_end)])] == ["blocker"]
    assert [f.severity for f in metadata_findings(plan(FALLS), [(1, at_end)])] == ["info"]
    assert metadata_findings(plan(FALLS, lowering=Lowering.OFFLINE), [(1, at_end)]) == ()


def test_a_quorum_that_the_release_does_not_know_blocks_whatever_the_plan_does() -> None:
    (found,) = metadata_findings(plan(FALLS, lowering=Lowering.OFFLINE), [(1, scan(None, "quorum-state"))])
    assert (found.code, found.severity) == ("METADATA-LOG-NOT-REPLAYABLE", "blocker")


def test_a_bootstrap_checkpoint_that_is_too_new_is_reported_and_rewritten() -> None:
    (found,) = metadata_findings(plan(FALLS), [(1, scan(None, "bootstrap"))])
    assert (found.code, found.severity) == ("BOOTSTRAP-CHECKPOINT-TOO-NEW", "warning")


def test_every_loss_blocks_safe_and_warns_unsafe_and_many_are_counted() -> None:
    losses = tuple(Loss(kind="k", subject=f"broker {n}", sentence=f"Broker {n} loses.") for n in range(60))
    report = LossReport(
        from_level=30,
        to_level=29,
        from_name="4.3-IV0",
        to_name="4.2-IV1",
        release="4.3.1",
        below_floor=False,
        losses=losses,
        default_only=(),
        kafka_said=(),
        notes=(),
    )
    found = loss_findings(plan(FALLS), report)
    assert (len(found), {f.severity for f in found}) == (51, {"blocker"})
    assert found[0].subject == "k of broker 0"
    assert found[-1].sentence == "10 more losses: k 10."
    assert {f.severity for f in loss_findings(plan(FALLS, unsafe=True), report)} == {"warning"}
    assert loss_findings(plan(FALLS), replace(report, losses=())) == ()


def test_a_log_that_nobody_sees_is_unknown_and_blocks() -> None:
    hosts = ClusterSpec(name="c", nodes=(), runtime="ssh_service")
    assert unreadable_log_findings((), hosts) == ()
    (found,) = unreadable_log_findings([2, 1], hosts)
    assert (found.subject, found.severity) == ("nodes 1, 2", "blocker")
    (found,) = unreadable_log_findings([2, 1], replace(hosts, runtime="none"))
    assert (found.severity, "not observable" in found.sentence) == ("warning", True)
