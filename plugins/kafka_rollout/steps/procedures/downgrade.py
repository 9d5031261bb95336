"""DOWNGRADE: scans and loss report, lower the levels, approve again, roll the nodes down or go offline, compare."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kafka_rollout.gates.check import GateKind
from kafka_rollout.model.plan import ReleaseStepPosition
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.steps.procedures import actions, approval_requests, common, conditions, rolling
from kafka_rollout.steps.step import (
    CHANGES,
    READS_LOGS,
    Jump,
    OnResume,
    Procedure,
    RunsAfter,
    Section,
    Step,
)

LOWERING = Section(
    id="lowering",
    doc="From the approved levels to metadata logs that the older release can read.",
    parts=(
        Step(
            id="lower_features",
            label="Lowered levels",
            doc="Lowers the levels, metadata.version last.",
            progress="lowering the features, metadata.version last",
            act=actions.finalize,
            limits=CHANGES,
            monitored=True,
            changes=True,
            runs_after=RunsAfter.SKIPPED,
            on_resume=OnResume.KEEP,
        ),
        common.GATE_FINALIZED,
        Step(
            id="pass_levels",
            label="Snapshot and log checks",
            doc="Skips the snapshot and metadata-log tasks that this plan does not need.",
            jump=Jump(past="check_metadata_logs", when=conditions.nothing_to_prove, by_plan=True),
        ),
        replace(
            common.GATE_SNAPSHOT,
            doc="Waits until every node has a snapshot at the new level, after every record that the older release "
            "cannot read.",
        ),
        common.PROVE_SNAPSHOT,
        replace(common.GATE_METADATA_VERSION, id="gate_metadata_version"),
        common.gate(
            "check_metadata_logs",
            GateKind.METADATA_LOG,
            "Readable metadata logs",
            "Waits until the older release can read every node's metadata log, after a trim where it needs one.",
            "metadata logs that the older release can read",
            limits=READS_LOGS,
        ),
    ),
)
PROVING = Section(
    id="proving",
    doc="Levels, and everything that the cluster contained before.",
    parts=(
        common.gate(
            "verify_levels",
            GateKind.LEVELS,
            "Levels on every node",
            "Waits until every node, on the older release, reports the planned levels.",
            "the planned levels of every node",
            runs_after=RunsAfter.SKIPPED,
            on_resume=OnResume.REPEAT,
            proves=True,
        ),
        replace(
            common.GATE_METADATA_VERSION,
            progress="CurrentMetadataVersion of every node, on the older release",
            gate=GateKind.FINAL_METADATA_VERSION,
            on_resume=OnResume.REPEAT,
            proves=True,
        ),
        Step(
            id="inventory_after",
            label="Comparison of contents",
            doc="Compares everything in the cluster with the inventory before.",
            progress="comparing the contents of the cluster with the contents before",
            act=actions.compare_inventory,
        ),
    ),
)

DOWNGRADE = Procedure(
    name="downgrade",
    dry_run_body=approval_requests.downgrade_body,
    parts=(
        common.OBSERVE,
        replace(
            common.PLAN,
            doc="Plans the levels and the release steps and freezes the plan. Every later task checks its hash.",
            act=partial(actions.plan_change, run_of=RunOf.DOWNGRADE),
        ),
        replace(common.SCAN, on_resume=OnResume.KEEP_APPROVED),
        Step(
            id="scan_metadata_logs",
            label="Metadata log scan",
            doc="Replays every node's metadata log and snapshot with the older releases' own classes.",
            progress="replaying every node's metadata log with the older release's classes",
            act=actions.scan_metadata_logs,
            limits=READS_LOGS,
            runs_after=RunsAfter.ANYTHING,  # a failed scan is a finding of the plan
            on_resume=OnResume.KEEP_APPROVED,
        ),
        Step(
            id="report_losses",
            label="Loss report",
            doc="Reports what the lower metadata.version loses, before the controller is asked.",
            progress="writing the metadata at the lower level to find the losses",
            act=actions.report_losses,
            limits=READS_LOGS,
            on_resume=OnResume.KEEP_APPROVED,
        ),
        common.REHEARSAL,
        replace(common.end_dry_run(past="stop_traffic"), runs_after=RunsAfter.SKIPPED),  # a rehearsal can be skipped
        Step(
            id="approve_levels",
            label="Approval of the levels",
            doc="An approver approves the lower levels and what is lost.",
            approval=approval_requests.LEVELS,
        ),
        replace(
            common.GATE_GROUPS,
            doc="Waits until groups that lose their type are converted, their tombstones are written, and the older "
            "releases can load the rest.",
        ),
        Step(
            id="inventory_before",
            label="Contents before",
            doc="Records topics, offsets, groups, ACLs, configurations, users and quotas.",
            progress="recording the contents of the cluster",
            act=actions.take_inventory,
            runs_after=RunsAfter.SKIPPED,
        ),
        common.START_TRAFFIC,
        LOWERING,
        Step(
            id="approve_roll",
            label="Approval of the downgrade",
            doc="An approver approves the rolling downgrade with each trim, with the time without controllers of a "
            "live downgrade, or the outage of an offline downgrade.",
            approval=approval_requests.ROLL_DOWN,
            runs_after=RunsAfter.SKIPPED,
        ),
        rolling.LIVE_SECTION,
        rolling.roll(
            rolling.VIA,
            ReleaseStepPosition.VIA,
            "First to a release that ignores newer coordinator records (KIP-915).",
            brokers_first=True,
        ),
        rolling.roll(
            rolling.ROLL,
            ReleaseStepPosition.TARGET,
            "Every node to the target release: brokers, then controllers.",
            brokers_first=True,
        ),
        rolling.OFFLINE_SECTION,
        PROVING,
        rolling.roll_back(brokers_first=True),
        common.STOP_TRAFFIC,
        common.REPORT,
        common.OUTCOME,
    ),
)
