from __future__ import annotations

from dataclasses import fields, replace

from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.features.requests import FeatureAction
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.plan import Direction, Lowering
from kafka_rollout.planning.request import DowngradeType, FinalizePolicy, Request
from kafka_rollout.rehearsal.job import RehearsalJob, order_rehearsal
from kafka_rollout.releases.facts import Release
from tests.unit.builders import R391, R431

ASKED = Request(
    target=R391,
    finalize=FinalizePolicy.AFTER_APPROVAL,
    level=20,
    action=FeatureAction.UPDATE,
    release_version=Release(4, 0, 1),
    upgrade=("group.version:1",),
    downgrade=("share.version:0",),
    pin_min_isr=True,
    downgrade_type=DowngradeType.UNSAFE,
    lowering=Lowering.LIVE,
    scan=False,
    rehearse=True,
    dry_run=True,
    pace=Pace.CAREFUL,
    accept_unavailable=("tmp-*",),
    traffic=True,
    waits=False,
    plans_features=False,
    may_lower=False,
    max_batch_size=3,
    pause_after="rack",
    skip_conditions=("lag",),
)
# What needs clients, approvers or time, and what the copy itself decides.
OF_COPY = {
    "scan": True,
    "rehearse": False,
    "dry_run": False,
    "pace": Pace.FAST,
    "traffic": False,
    "pause_after": "",
    "skip_conditions": (),
    "max_batch_size": 1,
}


def test_the_copy_gets_the_request_without_what_needs_clients_or_approvers() -> None:
    plain = Request()
    same = {one.name for one in fields(Request) if getattr(ASKED, one.name) == getattr(plain, one.name)}
    # `nodes` is of a restart, which is not rehearsed.
    assert same == {"rehearse", "nodes"}, "Give the new field another value than its default in ASKED."
    job = order_rehearsal(ASKED, "orders", Direction.DOWNGRADE, [R431, R391], gate_timeout_s=90.0)
    assert (job.source, job.target, job.releases) == (R431, R391, (R431, R391))
    assert (job.request, job.gate_timeout_s) == (replace(ASKED, **OF_COPY), 90.0)


def test_an_upgrade_of_the_copy_is_not_scanned() -> None:
    job = order_rehearsal(replace(ASKED, target=R431), "orders", Direction.UPGRADE, [R391, R431], gate_timeout_s=90.0)
    assert not job.request.scan


def test_the_process_of_the_sandbox_reads_the_same_order() -> None:
    job = order_rehearsal(ASKED, "orders", Direction.DOWNGRADE, [R431, R391], gate_timeout_s=90.0)
    assert from_json(RehearsalJob, to_json(job)) == job
