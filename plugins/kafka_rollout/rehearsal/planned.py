"""The request of a run as the order for its rehearsal, and back."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.model.plan import Direction
from kafka_rollout.planning.lowering import WhereRefused
from kafka_rollout.planning.request import DowngradeType, FinalizePolicy, Request
from kafka_rollout.rehearsal.job import RehearsalJob
from kafka_rollout.releases.facts import Release

GATE_TIMEOUT_S = 180.0
_INTERVAL_S = 0.5


def order_rehearsal(
    request: Request, cluster: str, direction: Direction, releases: Sequence[Release], *, gate_timeout_s: float
) -> RehearsalJob:
    """Return the order. `releases`: of all release steps, the source first. `gate_timeout_s`: of each gate there."""
    return RehearsalJob(
        cluster=cluster,
        direction=direction,
        source=releases[0],
        target=request.target_release,
        finalize=request.finalize.value,
        plans_features=request.plans_features,
        pin_min_isr=request.pin_min_isr,
        snapshot_interval_ms=request.snapshot_interval_ms,
        level=request.level,
        unsafe=request.unsafe,
        where_refused=request.where_refused.value,
        accept_unavailable=request.accept_unavailable,
        gate_timeout_s=gate_timeout_s,
        releases=tuple(releases),
    )


def request_in_sandbox(job: RehearsalJob) -> Request:
    """Return the request for the copy: no soak, no test traffic, no rehearsal.

    An upgrade loads the coordinator logs without a scan; a downgrade has one without findings.
    """
    return Request(
        target=job.target,
        finalize=FinalizePolicy(job.finalize),
        plans_features=job.plans_features,
        scan=job.direction is Direction.DOWNGRADE,
        rehearse=False,
        pin_min_isr=job.pin_min_isr,
        snapshot_interval_ms=job.snapshot_interval_ms,
        level=job.level,
        downgrade_type=DowngradeType.UNSAFE if job.unsafe else DowngradeType.SAFE,
        where_refused=WhereRefused(job.where_refused),
        accept_unavailable=job.accept_unavailable,
        interval_s=_INTERVAL_S,
        gate_timeout_s=job.gate_timeout_s,
    )
