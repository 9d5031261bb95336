"""FEATURES: change feature levels and wait for every node. The command line refuses instead of waiting."""

from __future__ import annotations

from dataclasses import replace

from kafka_rollout.steps.procedures import actions, approval_requests, common, conditions
from kafka_rollout.steps.step import CHANGES, OnResume, Procedure, RunsAfter, Step

FEATURES = Procedure(
    name="features",
    dry_run_body=approval_requests.upgrade_body,
    parts=(
        common.OBSERVE,
        replace(
            common.PLAN,
            doc="Checks every rule of KIP-584 on every node and freezes the plan. Every later task checks its hash.",
            act=actions.plan_features,
        ),
        common.end_dry_run(past="approve_level_differences"),
        Step(
            id="approve",
            label="Approval of the levels",
            doc="An approver approves the changes, with the users of each feature.",
            approval=approval_requests.FEATURES,
        ),
        replace(common.GATE_GROUPS, skip=conditions.does_not_wait, on_resume=OnResume.REPEAT),
        common.RECORD_STATE,
        common.PIN_MIN_ISR,
        Step(
            id="update",
            label="Changed levels",
            doc="Changes the levels: metadata.version first when raised, last when lowered.",
            progress="changing the feature levels",
            act=actions.update_features,
            limits=CHANGES,
            runs_after=RunsAfter.SKIPPED,
        ),
        # A node that does not support the levels is named before a gate waits for it.
        Step(
            id="look_again",
            label="Nodes that joined",
            doc="Checks that no node with a narrower range joined during the change (KIP-584).",
            progress="querying every node again for the features that it supports",
            act=actions.check_narrower_nodes,
        ),
        replace(common.GATE_FINALIZED, skip=conditions.does_not_wait),
        replace(common.GATE_METADATA_VERSION, skip=conditions.does_not_wait, on_resume=OnResume.REPEAT),
        common.COMPARE_AFTER_LEVELS,
        common.APPROVE_LEVEL_DIFFERENCES,
        replace(common.REPORT, skip=conditions.does_not_wait),  # the command prints each feature's result instead
        common.OUTCOME,
    ),
)
