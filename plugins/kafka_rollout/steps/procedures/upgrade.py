"""UPGRADE: scan and plan, approve, roll node by node, then finalize the feature levels and prove them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kafka_rollout.model.plan import ReleaseStepPosition
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.steps.procedures import actions, approval_requests, common, conditions, rolling
from kafka_rollout.steps.report.run import SCAN_VERDICT
from kafka_rollout.steps.step import (
    CHANGES,
    SCANS,
    Jump,
    OnResume,
    Procedure,
    RunsAfter,
    Section,
    Step,
)

FINALIZING = Section(
    id="finalizing",
    doc="From the rolled nodes to proven levels.",
    parts=(
        Step(
            id="check_features",
            label="Feature support",
            doc="Checks that every node supports the levels to be finalized (KIP-584).",
            progress="querying every node for the features that it supports",
            act=actions.check_features,
            skip=conditions.no_features,
            runs_after=RunsAfter.SKIPPED,
            on_resume=OnResume.KEEP,
        ),
        Step(
            id="scan_coordinator_logs",
            label="Coordinator log scan",
            doc="A Spark job reads the coordinator logs as they are now.",
            progress="scanning the coordinator logs with Spark",
            scan=SCAN_VERDICT,
            skip=conditions.no_scan_before_finalizing,
            limits=SCANS,
            on_resume=OnResume.KEEP,
            files=(SCAN_VERDICT,),
        ),
        Step(
            id="scan_verdict",
            label="Rollback check",
            doc="Checks that the previous release could still load the coordinator logs.",
            progress="checking whether the previous release could load the coordinator logs",
            act=actions.evaluate_scan,
            skip=conditions.no_scan_before_finalizing,
            on_resume=OnResume.KEEP,
        ),
        Step(
            id="finalize_now",
            label="Finalize policy",
            doc="The finalize policy *later* ends a run that rolled nodes here.",
            act=actions.record_rolled,
            jump=Jump(past="approve_level_differences", when=conditions.finalizes_later),
        ),
        Step(
            id="approve_finalize",
            label="Approval to finalize",
            doc="An approver approves the new levels. After this, a rollback is not possible: only a downgrade undoes "
            "them.",
            approval=approval_requests.FINALIZE,
        ),
        common.PIN_MIN_ISR,
        Step(
            id="finalize",
            label="Finalized levels",
            doc="Finalizes the levels, metadata.version first.",
            progress="finalizing the features",
            act=actions.finalize,
            limits=CHANGES,
            monitored=True,
            changes=True,
            runs_after=RunsAfter.SKIPPED,
            on_resume=OnResume.KEEP,
        ),
        replace(common.GATE_FINALIZED, proves=True),
        replace(common.GATE_SNAPSHOT, proves=True),
        common.PROVE_SNAPSHOT,
        replace(common.GATE_METADATA_VERSION, proves=True),
        common.COMPARE_AFTER_LEVELS,
        common.APPROVE_LEVEL_DIFFERENCES,
    ),
)

UPGRADE = Procedure(
    name="upgrade",
    dry_run_body=approval_requests.upgrade_body,
    parts=(
        replace(common.OBSERVE, act=actions.observe_for_upgrade),
        common.SCAN,
        replace(
            common.PLAN,
            doc="Plans the release steps to the target and freezes the plan. Every later task checks its hash.",
            act=partial(actions.plan_change, run_of=RunOf.UPGRADE),
            runs_after=RunsAfter.ANYTHING,  # a failed scan is a finding of the plan
        ),
        common.REHEARSAL,
        replace(common.end_dry_run(past="stop_traffic"), runs_after=RunsAfter.SKIPPED),  # a rehearsal can be skipped
        Step(
            id="approve_plan",
            label="Approval of the plan",
            doc="An approver approves the plan and its findings. Blockers cannot be approved.",
            approval=approval_requests.PLAN,
        ),
        replace(
            common.GATE_GROUPS,
            label="Groups of a preview",
            doc="Waits until no group uses a preview that the next release does not serve.",
            progress="groups that the next release does not serve",
        ),
        common.RECORD_STATE,
        replace(common.START_TRAFFIC, runs_after=RunsAfter.SKIPPED),
        rolling.roll(
            rolling.VIA,
            ReleaseStepPosition.VIA,
            "First to a release that tolerates newer coordinator records (KIP-915).",
        ),
        rolling.roll(rolling.ROLL, ReleaseStepPosition.TARGET, "Every node to the target release, one at a time."),
        replace(
            common.COMPARE_AFTER_LEVELS,
            id="compare_after_roll",
            label="Comparison after the roll",
            act=actions.compare_after_roll,
            skip=conditions.replaces_no_node,
        ),
        Step(
            id="approve_roll_differences",
            label="Differences after the roll",
            doc="An approver accepts the differences that the plan does not name, rejects them, or rolls back. Skipped "
            "without such differences.",
            approval=approval_requests.ROLL_DIFFERENCES,
            runs_after=RunsAfter.SKIPPED,
        ),
        FINALIZING,
        rolling.roll_back(),
        common.STOP_TRAFFIC,
        common.REPORT,
        common.OUTCOME,
    ),
)
