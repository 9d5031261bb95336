"""FEATURES: change feature levels and wait for every node. The command line refuses instead of waiting."""

from __future__ import annotations

from dataclasses import replace

from kafka_rollout.domain.gates.ref import GateKind
from kafka_rollout.steps.procedures import actions, asking, common, conditions
from kafka_rollout.steps.step import CHANGES, OnResume, Procedure, Reaction, RunsAfter, Step

FEATURES = Procedure(
    name="features",
    dry_run_body=asking.upgrade_body,
    parts=(
        common.OBSERVE,
        Step(
            id="plan",
            label="Plan",
            doc="Checks every rule of KIP-584 on every node and freezes the plan. Every later task checks its hash.",
            progress="planning",
            act=actions.plan_features,
            on_resume=OnResume.KEEP,
        ),
        common.end_dry_run(past="verify_metadata_version"),
        Step(
            id="approve",
            label="Approval of the levels",
            doc="An approver approves the changes, with the users of each feature.",
            approval=asking.FEATURES,
        ),
        Step(
            id="gate_groups",
            label="Converted groups",
            doc="Waits until groups that lose their type are converted and their tombstones are written.",
            progress="groups that lose their type to be converted",
            gate=GateKind.GROUPS,
            skip=conditions.does_not_wait,
            runs_after=RunsAfter.SKIPPED,
            on_failure=Reaction.ASK,
        ),
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
            progress="asking every node again for the features it supports",
            act=actions.check_narrower_nodes,
        ),
        replace(common.GATE_FINALIZED, skip=conditions.does_not_wait, proves=False),
        Step(
            id="verify_metadata_version",
            label="metadata.version metric",
            doc="Waits until CurrentMetadataVersion of every node shows the level, by Prometheus and Jolokia.",
            progress="CurrentMetadataVersion of every node",
            gate=GateKind.METADATA_VERSION,
            skip=conditions.does_not_wait,
            on_failure=Reaction.ASK,
        ),
        replace(common.REPORT, skip=conditions.does_not_wait),  # the command prints each feature's result instead
        common.OUTCOME,
    ),
)
