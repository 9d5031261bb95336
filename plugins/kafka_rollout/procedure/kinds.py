"""The kinds of runs, with their procedures, each defined once: UPGRADE, DOWNGRADE, FEATURES and RESTART.

The DAGs, the pages, the commands and the reports read this list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from kafka_rollout.console.cluster_status import RunState, action_after
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.run_of import ROLLBACK, RUN_COMMANDS, RunOf
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.fields import fields_of
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure import actions, approval_requests, conditions, parts
from kafka_rollout.procedure.step import (
    CHANGES,
    READS,
    READS_LOGS,
    ActStep,
    ApprovalStep,
    Events,
    Jump,
    JumpStep,
    OnResume,
    Procedure,
    RunsAfter,
    Section,
)
from kafka_rollout.procedure.step_lines import step_lines
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.builders import (
    SCAN_VERDICT,
    build_downgrade_report,
    build_feature_report,
    build_report,
    build_restart_report,
    find_logs,
)
from kafka_rollout.report.run_report import UNFINISHED, RunReport, find_failed_gate, list_gaps, list_proofs
from kafka_rollout.run.projections.offline import is_undoing
from kafka_rollout.run.projections.open_batches import is_rollback_decided
from kafka_rollout.run.projections.runs import RunEnd, run_of
from kafka_rollout.run.proofs import find_uncompared
from kafka_rollout.run.view import RunView

FINALIZING = Section(
    id="finalizing",
    doc="From the rolled nodes to proven levels.",
    parts=(
        ActStep(
            id="check_features",
            label="Feature support",
            doc="Checks that every node supports the levels to be finalized (KIP-584).",
            progress="querying every node for the features that it supports",
            act=actions.check_features,
            skip=conditions.no_features,
            runs_after=RunsAfter.SKIPPED,
            on_resume=OnResume.KEEP,
        ),
        replace(
            parts.SCAN,
            id="scan_coordinator_logs",
            doc="A Spark job reads the coordinator logs as they are now.",
            scan=SCAN_VERDICT,
            skip=conditions.no_scan_before_finalizing,
            files=(SCAN_VERDICT,),
        ),
        ActStep(
            id="scan_verdict",
            label="Rollback check",
            doc="Checks that the previous release could still load the coordinator logs.",
            progress="checking whether the previous release could load the coordinator logs",
            act=actions.evaluate_scan,
            skip=conditions.no_scan_before_finalizing,
            on_resume=OnResume.KEEP,
        ),
        JumpStep(
            id="finalize_now",
            label="Finalize policy",
            doc="The finalize policy *later* ends a run that rolled nodes here.",
            act=actions.record_rolled,
            jump=Jump(past="approve_level_differences", when=conditions.finalizes_later),
        ),
        ApprovalStep(
            id="approve_finalize",
            label="Approval to finalize",
            doc="An approver approves the new levels. After this, a rollback is not possible: only a downgrade undoes "
            "them.",
            approval=approval_requests.FINALIZE,
            # Each try takes 20 s while nodes catch up. The gate timeout of the run ends them, if it is not hours.
            limits=replace(READS, retries=120, pause_s=30),
        ),
        parts.PIN_MIN_ISR,
        parts.FINALIZE,
        replace(parts.GATE_FINALIZED, proves=True),
        replace(parts.GATE_SNAPSHOT, proves=True),
        parts.PROVE_SNAPSHOT,
        replace(parts.GATE_METADATA_VERSION, proves=True),
        parts.COMPARE_AFTER_LEVELS,
        parts.APPROVE_LEVEL_DIFFERENCES,
    ),
)

UPGRADE = Procedure(
    name="upgrade",
    dry_run_body=approval_requests.upgrade_body,
    parts=(
        replace(parts.OBSERVE, act=actions.observe_for_upgrade),
        parts.SCAN,
        parts.plan(
            doc="Plans the release steps to the target and freezes the plan. Every later task checks its hash.",
            act=partial(actions.plan_change, run_of=RunOf.UPGRADE),
            runs_after=RunsAfter.ANYTHING,  # a failed scan is a finding of the plan
        ),
        parts.REHEARSAL,
        replace(parts.end_dry_run(past="stop_traffic"), runs_after=RunsAfter.SKIPPED),  # a rehearsal can be skipped
        parts.APPROVE_PLAN,
        replace(
            parts.GATE_GROUPS,
            label="Groups of a preview",
            doc="Waits until no group uses a preview that the next release does not serve.",
            progress="groups that the next release does not serve",
        ),
        parts.RECORD_STATE,
        replace(parts.START_TRAFFIC, runs_after=RunsAfter.SKIPPED),
        *parts.roll(
            "Every node to the target release, one batch after the other. First through a release that tolerates newer "
            "coordinator records, if the plan needs it (KIP-915). Nodes that an old controller registered without "
            "ranges restart once more before levels are raised (KAFKA-17492)."
        ),
        parts.COMPARE_AFTER_ROLL,
        parts.APPROVE_ROLL_DIFFERENCES,
        FINALIZING,
        parts.roll_back(),
        *parts.END,
    ),
)


LOWERING = Section(
    id="lowering",
    doc="From the approved levels to metadata logs that the older release can read.",
    parts=(
        replace(
            parts.FINALIZE,
            id="lower_features",
            label="Lowered levels",
            doc="Lowers the levels, metadata.version last.",
            progress="lowering the features, metadata.version last",
        ),
        parts.GATE_FINALIZED,
        JumpStep(
            id="pass_levels",
            label="Snapshot and log checks",
            doc="Skips the snapshot and metadata-log tasks that this plan does not need.",
            jump=Jump(past="check_metadata_logs", when=conditions.nothing_to_prove, by_plan=True),
        ),
        replace(
            parts.GATE_SNAPSHOT,
            doc="Waits until every node has a snapshot at the new level, after every record that the older release "
            "cannot read.",
        ),
        parts.PROVE_SNAPSHOT,
        replace(parts.GATE_METADATA_VERSION, id="gate_metadata_version"),
        parts.gate(
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
        parts.gate(
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
            parts.GATE_METADATA_VERSION,
            progress="CurrentMetadataVersion of every node, on the older release",
            gate=GateKind.FINAL_METADATA_VERSION,
            on_resume=OnResume.REPEAT,
            proves=True,
        ),
        ActStep(
            id="inventory_after",
            label="Comparison of contents",
            doc="Compares everything in the cluster with the state before. What clients change does not count, except "
            "after an offline downgrade.",
            progress="comparing the contents of the cluster with the contents before",
            act=actions.compare_after_downgrade,
        ),
        replace(
            parts.APPROVE_LEVEL_DIFFERENCES,
            id="approve_differences",
            label="Differences after the downgrade",
            doc="An approver accepts or rejects the differences that the plan does not name. Skipped without them.",
            approval=approval_requests.DOWNGRADE_DIFFERENCES,
        ),
    ),
)

DOWNGRADE = Procedure(
    name="downgrade",
    dry_run_body=approval_requests.downgrade_body,
    parts=(
        parts.OBSERVE,
        parts.plan(
            doc="Plans the levels and the release steps and freezes the plan. Every later task checks its hash.",
            act=partial(actions.plan_change, run_of=RunOf.DOWNGRADE),
        ),
        replace(parts.SCAN, on_resume=OnResume.KEEP_APPROVED),
        ActStep(
            id="scan_metadata_logs",
            label="Metadata log scan",
            doc="Replays every node's metadata log and snapshot with the older releases' own classes.",
            progress="replaying every node's metadata log with the older release's classes",
            act=actions.scan_metadata_logs,
            limits=READS_LOGS,
            runs_after=RunsAfter.ANYTHING,  # a failed scan is a finding of the plan
            on_resume=OnResume.KEEP_APPROVED,
        ),
        ActStep(
            id="report_losses",
            label="Loss report",
            doc="Reports what the lower metadata.version loses, before the controller is asked.",
            progress="writing the metadata at the lower level to find the losses",
            act=actions.report_losses,
            limits=READS_LOGS,
            on_resume=OnResume.KEEP_APPROVED,
        ),
        parts.REHEARSAL,
        replace(parts.end_dry_run(past="stop_traffic"), runs_after=RunsAfter.SKIPPED),  # a rehearsal can be skipped
        ApprovalStep(
            id="approve_levels",
            label="Approval of the levels",
            doc="An approver approves the lower levels and what is lost.",
            approval=approval_requests.LEVELS,
        ),
        replace(
            parts.GATE_GROUPS,
            doc="Waits until groups that lose their type are converted, their tombstones are written, and the older "
            "releases can load the rest.",
        ),
        ActStep(
            id="inventory_before",
            label="Contents before",
            doc="Records topics, offsets, groups, ACLs, configurations, users and quotas.",
            progress="recording the contents of the cluster",
            act=actions.record_all_contents,
            runs_after=RunsAfter.SKIPPED,
        ),
        parts.START_TRAFFIC,
        LOWERING,
        ApprovalStep(
            id="approve_roll",
            label="Approval of the downgrade",
            doc="An approver approves the rolling downgrade with each trim, with the time without controllers of a "
            "live downgrade, or the outage of an offline downgrade.",
            approval=approval_requests.ROLL_DOWN,
            runs_after=RunsAfter.SKIPPED,
        ),
        parts.LIVE_SECTION,
        *parts.roll(
            "Every node to the target release: brokers, then controllers. First through a release that ignores newer "
            "coordinator records, if the plan needs it (KIP-915)."
        ),
        parts.OFFLINE_SECTION,
        PROVING,
        parts.roll_back(),
        *parts.END,
    ),
)


FEATURES = Procedure(
    name="features",
    dry_run_body=approval_requests.upgrade_body,
    parts=(
        parts.OBSERVE,
        parts.plan(
            doc="Checks every rule of KIP-584 on every node and freezes the plan. Every later task checks its hash.",
            act=actions.plan_features,
        ),
        parts.end_dry_run(past="approve_level_differences"),
        ApprovalStep(
            id="approve",
            label="Approval of the levels",
            doc="An approver approves the changes, with the users of each feature.",
            approval=approval_requests.FEATURES,
        ),
        replace(parts.GATE_GROUPS, skip=conditions.does_not_wait, on_resume=OnResume.REPEAT),
        parts.RECORD_STATE,
        parts.PIN_MIN_ISR,
        ActStep(
            id="update",
            label="Changed levels",
            doc="Changes the levels: metadata.version first when raised, last when lowered.",
            progress="changing the feature levels",
            act=actions.update_features,
            limits=CHANGES,
            changes=True,
            runs_after=RunsAfter.SKIPPED,
        ),
        # A node that does not support the levels is named before a gate waits for it.
        ActStep(
            id="look_again",
            label="Nodes that joined",
            doc="Checks that no node with a narrower range joined during the change (KIP-584).",
            progress="querying every node again for the features that it supports",
            act=actions.check_narrower_nodes,
        ),
        replace(parts.GATE_FINALIZED, skip=conditions.does_not_wait, proves=True),
        replace(parts.GATE_METADATA_VERSION, skip=conditions.does_not_wait, on_resume=OnResume.REPEAT, proves=True),
        parts.COMPARE_AFTER_LEVELS,
        parts.APPROVE_LEVEL_DIFFERENCES,
        parts.REPORT,
        parts.OUTCOME,
    ),
)


RESTART = Procedure(
    name="restart",
    dry_run_body=approval_requests.upgrade_body,
    parts=(
        parts.OBSERVE,
        parts.plan(
            doc="Plans the order of the nodes, and freezes the plan.",
            act=partial(actions.plan_change, run_of=RunOf.RESTART),
        ),
        parts.end_dry_run(past="stop_traffic"),
        replace(parts.APPROVE_PLAN, approval=approval_requests.RESTART),
        parts.RECORD_STATE,
        replace(parts.START_TRAFFIC, runs_after=RunsAfter.SKIPPED),
        *parts.restart(),
        replace(parts.COMPARE_AFTER_ROLL, label="Comparison after the restart"),
        replace(
            parts.APPROVE_ROLL_DIFFERENCES,
            label="Differences after the restart",
            doc="An approver accepts or rejects what the restart has changed, for example the configuration that the "
            "nodes read when they started. Skipped without differences.",
            approval=replace(approval_requests.ROLL_DIFFERENCES, offers_roll_back=False),
        ),
        *parts.END,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfRun:
    """A kind of run: the DAG and the command of one procedure, with its report.

    The fields of its form and its options name the kind in `planning/request.py`.
    """

    procedure: Procedure
    dag_prefix: str
    """Its DAG of each cluster has this prefix and the cluster's name as id."""
    command: str
    """Of the command line, which continues a run."""
    description: str
    """Of the DAG, a template with the cluster's `name`."""
    doc: str
    """Of the DAG, Markdown, a template with the cluster's `name`."""
    build_report: Callable[..., RunReport]


_UPGRADE_DOC = """\
### Upgrade of the Kafka cluster {name}

1. Reads the state of the cluster, and plans the release steps to the target release.
2. Asks for an approval of the plan.
3. Replaces one node at a time. The next node is stopped after the gate of the previous node has passed. If a gate
   fails, an approver chooses: keep checking, retry, or roll back.
4. Finalizes the features after a separate approval. After this, only a downgrade undoes the upgrade.

A **dry run** ends with the plan and its findings. With the finalize policy *later*, the run ends when every node runs
the target release. Start the DAG again after the soak: that run replaces no node and finalizes the features.
"""

_DOWNGRADE_DOC = """\
### Downgrade of the Kafka cluster {name}

1. Checks whether the older release can read the coordinator logs and the metadata log.
2. Reports the losses of a lower metadata.version, and asks for an approval.
3. Lowers the feature levels, metadata.version last. Waits until every node reports the levels and has a snapshot.
4. Asks for an approval of the rolling downgrade.
5. Replaces one node at a time: brokers first, then controllers, the active controller last.

A **dry run** ends with the plan, the scans and the loss report. **SAFE** refuses to continue if data would be lost.
**UNSAFE** lists the losses and continues. If Kafka refuses a lower metadata.version, the run **stops**, or continues
**live**: it stops only the controllers for some seconds. **Offline** allows it to stop all nodes where live is not
possible. The approval shows what is unavailable, and for how long.
"""

_FEATURES_DOC = """\
### Feature levels of the Kafka cluster {name} (KIP-584)

1. Reads from every node which levels it supports, and checks the request against all rules of KIP-584.
2. Sends the request to the controller for validation only.
3. Asks for an approval, changes the levels, and waits until every node reports them. No node restarts.

A **dry run** ends with the plan. A change always needs an approval if it lowers or deletes a level, or if Kafka cannot
undo it. The approval lists the users of the feature. A level that is already finalized is not sent again.
"""

_RESTART_DOC = """\
### Restart of the nodes of the Kafka cluster {name}

Use it for what a node reads only when it starts: its configuration file, its Java version, its host's patches.

1. Reads the state of the cluster, and checks the configuration of every node with the classes of its own release.
2. Asks for an approval of the plan.
3. Restarts one node at a time, on the release that it runs. The next node is stopped after the gate of the previous
   node has passed: a new process, in every ISR again, and caught up with the quorum.
4. Compares configuration, contents and ACLs with the state before the run. An approver accepts what has changed.

A **dry run** ends with the plan and its findings. A restart has no rollback: if a node does not start, correct its
configuration, and answer **Retry**.
"""

KINDS: Mapping[RunOf, KindOfRun] = {
    RunOf.UPGRADE: KindOfRun(
        procedure=UPGRADE,
        dag_prefix="kafka_upgrade_",
        command=RUN_COMMANDS[RunOf.UPGRADE].name,
        description="Upgrades the Kafka cluster {name}, one node at a time. Each step waits for its gate.",
        doc=_UPGRADE_DOC,
        build_report=build_report,
    ),
    RunOf.DOWNGRADE: KindOfRun(
        procedure=DOWNGRADE,
        dag_prefix="kafka_downgrade_",
        command=RUN_COMMANDS[RunOf.DOWNGRADE].name,
        description="Downgrades the Kafka cluster {name} to an older release. Each step waits for its gate.",
        doc=_DOWNGRADE_DOC,
        build_report=build_downgrade_report,
    ),
    RunOf.FEATURES: KindOfRun(
        procedure=FEATURES,
        dag_prefix="kafka_features_",
        command="features set",
        description="Changes the feature levels of the Kafka cluster {name}, and waits until every node reports them.",
        doc=_FEATURES_DOC,
        build_report=build_feature_report,
    ),
    RunOf.RESTART: KindOfRun(
        procedure=RESTART,
        dag_prefix="kafka_restart_",
        command=RUN_COMMANDS[RunOf.RESTART].name,
        description="Restarts the nodes of the Kafka cluster {name}, one at a time, on the release that they run.",
        doc=_RESTART_DOC,
        build_report=build_restart_report,
    ),
}


def kind_of(events: Events) -> KindOfRun:
    """Return the kind of the run's plan; an upgrade before there is a plan."""
    return KINDS[run_of(events)]


def continue_words(view: RunView, plan: Plan) -> str:
    """Return the name of the command that continues a run, with the options that only some kinds have: `rollback` after
    the decision to roll back, because the command of the kind asks for an approval of the opposite then."""
    if plan.lowering is Lowering.OFFLINE:
        goes_back = is_undoing(view.events)
    else:
        goes_back = is_rollback_decided(view.events) and not view.is_rollback_refused
    return ROLLBACK if goes_back else begin_words(view.run_of, plan.target)


def begin_words(kind: RunOf, target: Release) -> str:
    """Return the name of the command that begins runs of a kind, with the options that only some kinds have."""
    has_target = any(field.name == "target" for field in fields_of(frozenset({kind}), Request))
    return f"{KINDS[kind].command} --to {target}" if has_target else KINDS[kind].command


def run_of_dag(dag_id: str) -> RunOf:
    """Return what the runs of a DAG change: an upgrade for the DAG of a user, which embeds one."""
    return next((of for of, kind in KINDS.items() if dag_id.startswith(kind.dag_prefix)), RunOf.UPGRADE)


def procedure_of(events: Events) -> Procedure:
    """Return the procedure of the run's plan; UPGRADE before there is a plan."""
    return kind_of(events).procedure


def build_report_of_run(run: Run, *, dry_run: bool = False, procedure: Procedure | None = None) -> RunReport:
    """Build the report of a run, with the steps of its procedure and the conclusion."""
    view = RunView.of(event for event in run.history.events() if event.at)
    procedure = procedure or KINDS[view.run_of].procedure
    kind = RunOf(procedure.name)
    report = KINDS[kind].build_report(run, dry_run=dry_run, proofs=procedure.proofs)
    failed = find_failed_gate(report)
    is_compared = find_uncompared(view.events) is None
    steps = step_lines(procedure, view, run.plan)
    state = RunState(
        run_id=run.ports.run_id,
        number=run.history.number,
        view=view,
        plan=run.plan,
        end=RunEnd(outcome=report.outcome, sentence=report.sentence, ended_at=report.ended_at),
        steps=steps,
        command=continue_words(view, run.plan),
    )
    return replace(
        report,
        steps=steps,
        next_action=action_after(run.plan.cluster, state),
        failed_gate=failed,
        logs=find_logs(run.ports, failed, view) if failed or report.outcome in UNFINISHED else (),
        proved=tuple(list_proofs(report, is_compared=is_compared)),
        not_proved=tuple(list_gaps(report, is_compared=is_compared)),
    )
