from __future__ import annotations

from dataclasses import fields, replace

from kafka_rollout.model.plan import Direction
from kafka_rollout.planning.lowering import WhereRefused
from kafka_rollout.planning.request import DowngradeType, FinalizePolicy, Request
from kafka_rollout.rehearsal.planned import order_rehearsal, request_in_sandbox
from tests.unit.builders import R391, R431

ASKED = Request(
    target=R391,
    finalize=FinalizePolicy.AFTER_APPROVAL,
    pin_min_isr=True,
    level=20,
    downgrade_type=DowngradeType.UNSAFE,
    where_refused=WhereRefused.LIVE,
    accept_unavailable=("tmp-*",),
    traffic=True,
    canary=True,
    soak_s=30.0,
    checks=3,
    plans_features=False,
    snapshot_interval_ms=60_000,
)
# A rehearsal is no dry run and waits for its gates; a feature change has none.
NOT_REHEARSED = {"dry_run", "waits", "scan", "rehearse", "features", "approval", "interval_s", "gate_timeout_s"}


def test_each_field_of_a_request_reaches_the_copy_or_is_named_here() -> None:
    """A new field that `order_rehearsal` forgets would keep its default in the copy without a message."""
    plain = Request()
    differs = {field.name for field in fields(Request) if getattr(ASKED, field.name) != getattr(plain, field.name)}
    assert {field.name for field in fields(Request)} - NOT_REHEARSED == differs


def test_the_copy_gets_the_request_without_what_needs_clients_or_approvers() -> None:
    job = order_rehearsal(ASKED, "orders", Direction.DOWNGRADE, [R431, R391], gate_timeout_s=90.0)
    assert (job.source, job.releases) == (R431, (R431, R391))
    assert request_in_sandbox(job) == replace(
        ASKED,
        traffic=False,
        canary=False,
        rehearse=False,
        soak_s=0.0,
        checks=1,
        interval_s=0.5,
        gate_timeout_s=90.0,
    )


def test_an_upgrade_of_the_copy_is_not_scanned() -> None:
    job = order_rehearsal(replace(ASKED, target=R431), "orders", Direction.UPGRADE, [R391, R431], gate_timeout_s=90.0)
    assert not request_in_sandbox(job).scan
