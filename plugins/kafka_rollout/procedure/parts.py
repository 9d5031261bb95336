"""Steps that more than one procedure has, and the sections that stop nodes: ROLL, ROLL_BACK, OFFLINE and LIVE."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from kafka_rollout.gates.gate import GateKind
from kafka_rollout.lowering import offline
from kafka_rollout.lowering.live import lower_live
from kafka_rollout.lowering.offline import undo_offline
from kafka_rollout.observation.outage import stop_of_all_is_under_way
from kafka_rollout.preparation.frozen_plan import SCAN_BEFORE_ROLL
from kafka_rollout.preparation.plan_making import REHEARSAL_RESULT
from kafka_rollout.preparation.proved_traffic import refuse_unproved_traffic
from kafka_rollout.procedure import actions, approval_requests, conditions
from kafka_rollout.procedure.step import (
    CHANGES,
    CHANGES_LOGS,
    REHEARSES,
    SCANS,
    Act,
    ActStep,
    ApprovalStep,
    EachBatch,
    EachNode,
    GateStep,
    JoinStep,
    Jump,
    JumpStep,
    OnResume,
    Reaction,
    ReplaceStep,
    RunsAfter,
    ScanStep,
    Section,
    Service,
    ServiceStep,
    StepCall,
)
from kafka_rollout.run import events
from kafka_rollout.run.projections.open_batches import BatchPart, RollOf, batches_of

OBSERVE = ActStep(
    id="observe",
    label="Cluster state",
    doc="Reads the state of all nodes, the quorum, partitions, groups and clients.",
    progress="observing the cluster",
    act=actions.observe_cluster,
    on_resume=OnResume.KEEP,
)
SCAN = ScanStep(
    id="scan_before_roll",
    label="Coordinator log scan",
    doc="A Spark job reads the coordinator logs. The releases of this run must be able to load them.",
    progress="scanning the coordinator logs with Spark",
    scan=SCAN_BEFORE_ROLL,
    skip=conditions.nothing_to_scan,
    limits=SCANS,
    on_resume=OnResume.KEEP,
    files=(SCAN_BEFORE_ROLL,),
)
REHEARSAL = ActStep(
    id="rehearse",
    label="Rehearsal",
    doc="Tries the change on a copy of the cluster, if this machine can read the nodes' files and has enough memory. "
    "A failure blocks the plan.",
    progress="rehearsing the change on a copy of the cluster",
    act=actions.rehearse,
    skip=conditions.nothing_to_rehearse,
    limits=REHEARSES,
    on_resume=OnResume.KEEP_APPROVED,
    files=(REHEARSAL_RESULT,),
)
START_TRAFFIC = ServiceStep(
    id=events.START_TRAFFIC,
    label="Test traffic start",
    doc="Starts test traffic, if the run was started with it.",
    progress="starting the test traffic",
    service=Service.START_TRAFFIC,
    skip=conditions.without_traffic,
    limits=CHANGES,
)


def plan(doc: str, act: Act, **fields: Any) -> ActStep:
    """Return the step that makes the plan and freezes it."""
    return ActStep(id="plan", label="Plan", doc=doc, progress="planning", act=act, on_resume=OnResume.KEEP, **fields)


def gate(step_id: str, kind: GateKind, label: str, doc: str, progress: str, **fields: Any) -> GateStep:
    """Return a gate of the whole cluster. If it fails, an approver decides. A resumed run does not repeat it."""
    fields = {"on_failure": Reaction.ASK, "on_resume": OnResume.KEEP, **fields}
    return GateStep(id=step_id, gate=kind, label=label, doc=doc, progress=progress, **fields)


GATE_GROUPS = gate(
    "gate_groups",
    GateKind.GROUPS,
    "Converted groups",
    "Waits until groups that lose their type are converted and their tombstones are written.",
    "groups that lose their type to be converted",
    runs_after=RunsAfter.SKIPPED,
)
GATE_FINALIZED = gate(
    events.GATE_FINALIZED,
    GateKind.FINALIZED,
    "Levels on every node",
    "Waits until every node reports the new levels.",
    "every node to report the new levels",
)
GATE_SNAPSHOT = gate(
    "gate_snapshot",
    GateKind.SNAPSHOT,
    "Snapshot of every node",
    "Waits until every node has a snapshot with the new metadata.version.",
    "a snapshot of every node with the new metadata.version",
)
GATE_METADATA_VERSION = gate(
    "verify_metadata_version",
    GateKind.METADATA_VERSION,
    "metadata.version metric",
    "Waits until every node shows the level: by CurrentMetadataVersion of its metrics agents, or without them by "
    "ApiVersions.",
    "CurrentMetadataVersion of every node",
)
PIN_MIN_ISR = ActStep(
    id="pin_min_insync_replicas",
    label="Pinned min.insync.replicas",
    doc="Sets the cluster-wide default of min.insync.replicas to the value that all brokers have, if the run was "
    "started with it. The level of eligible.leader.replicas.version then changes no topic.",
    progress="setting the cluster-wide default of min.insync.replicas",
    act=actions.pin_min_isr,
    skip=conditions.pins_no_default,
    limits=CHANGES,
    changes=True,
    runs_after=RunsAfter.SKIPPED,
)
RECORD_STATE = ActStep(
    id="state_before",
    label="State before",
    doc="Records the effective configuration of every broker and topic, the contents and the ACLs.",
    progress="recording configuration, contents and ACLs of the cluster",
    act=actions.record_state,
    skip=conditions.changes_nothing,
    limits=CHANGES,
    runs_after=RunsAfter.SKIPPED,
)
COMPARE_AFTER_LEVELS = ActStep(
    id="compare_after_levels",
    label="Comparison after the levels",
    doc="Compares effective configuration, contents and ACLs with the state before the run, with additions, and the "
    "records of the test traffic so far.",
    progress="comparing configuration, contents and ACLs with the state before the run",
    act=actions.compare_after_levels,
    skip=conditions.changes_no_level,
    limits=CHANGES,
    runs_after=RunsAfter.SKIPPED,
)
APPROVE_LEVEL_DIFFERENCES = ApprovalStep(
    id="approve_level_differences",
    label="Differences after the levels",
    doc="An approver accepts or rejects the differences that the plan does not name. Skipped without such differences.",
    approval=approval_requests.LEVEL_DIFFERENCES,
    runs_after=RunsAfter.SKIPPED,
)
PROVE_SNAPSHOT = ActStep(
    id="prove_snapshot",
    label="Snapshot check",
    doc="Loads one snapshot with the target release's own classes.",
    progress="loading a snapshot with the target's own classes",
    act=actions.prove_snapshot,
    on_resume=OnResume.KEEP,
)
STOP_TRAFFIC = ServiceStep(
    id=events.STOP_TRAFFIC,
    label="Traffic check",
    doc="Stops the test traffic and compares acknowledged with consumed records.",
    progress="comparing acknowledged with consumed records",
    service=Service.STOP_TRAFFIC,
    limits=CHANGES,
    runs_after=RunsAfter.ANYTHING,
)
REPORT = ServiceStep(
    id="report",
    label="Report",
    doc="Writes one HTML page and one JSON file.",
    progress="writing the report",
    service=Service.REPORT,
    runs_after=RunsAfter.ANYTHING,
    files=("report.html", "report.json"),
)
OUTCOME = ServiceStep(
    id="outcome",
    label="Outcome",
    doc="Fails unless the run ended as requested.",
    service=Service.OUTCOME,
    runs_after=RunsAfter.ANYTHING,
)


APPROVE_PLAN = ApprovalStep(
    id="approve_plan",
    label="Approval of the plan",
    doc="An approver approves the plan and its findings. Blockers cannot be approved.",
    approval=approval_requests.PLAN,
)
COMPARE_AFTER_ROLL = replace(
    COMPARE_AFTER_LEVELS,
    id="compare_after_roll",
    label="Comparison after the roll",
    act=actions.compare_after_roll,
    skip=conditions.replaces_no_node,
)
COMPARE_AFTER_ROLLBACK = ActStep(
    id="compare_after_rollback",
    label="Comparison after the rollback",
    doc="Compares effective configuration, contents and ACLs with the state before the run. The report lists what "
    "differs, and an approver of the next run accepts it.",
    progress=COMPARE_AFTER_LEVELS.progress,
    act=actions.compare_after_rollback,
    limits=CHANGES,
)
APPROVE_ROLL_DIFFERENCES = ApprovalStep(
    id="approve_roll_differences",
    label="Differences after the roll",
    doc="An approver accepts the differences that the plan does not name, rejects them, or rolls back. Skipped without "
    "such differences.",
    approval=approval_requests.ROLL_DIFFERENCES,
    runs_after=RunsAfter.SKIPPED,
)
FINALIZE = ActStep(
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
)
END = (STOP_TRAFFIC, REPORT, OUTCOME)


def end_dry_run(past: str) -> JumpStep:
    """Return the step at which a dry run skips everything up to its report."""
    return JumpStep(
        id="dry_run",
        label="End of a dry run",
        doc="A dry run continues with the report.",
        jump=Jump(past=past, when=conditions.is_dry_run),
    )


ROLL = "roll"
ROLL_BACK = "roll_back"
OFFLINE = "offline"
LIVE = "live"
_AFTER_START = (
    "Waits for the running release, the registration, every ISR, the quorum and the leadership of each node: "
    "consecutive passing checks, then the soak."
)

GATE_BEFORE = GateStep(
    id=BatchPart.GATE_BEFORE.value,
    label="Gate before the stop",
    doc="Waits for all batches before this one, for the approvals, pauses and windows of the run, and until the nodes "
    "can be stopped: every partition keeps its min ISR and a leader, and the quorum is safe.",
    progress="waits for the gate before its stop",
    gate=GateKind.BEFORE_STOP,
    on_failure=Reaction.ASK_ROLL_BACK,
)
REPLACE = ReplaceStep(
    id=BatchPart.REPLACE.value,
    label="Replacement",
    doc="Waits for the gate before it. Compares the approvals, checks all findings and gates again, then stops the "
    "nodes, replaces their release and starts them.",
    progress="is stopped, replaced and started",
    limits=CHANGES,
    on_failure=Reaction.ASK_ROLL_BACK,
    runs_after=RunsAfter.ANY_SUCCESS,
)
GATE_AFTER = GateStep(
    id=BatchPart.GATE_AFTER.value,
    label="Gate after the start",
    doc=f"Waits until the nodes are replaced. {_AFTER_START}",
    progress="is started and waits for its gate",
    gate=GateKind.AFTER_START,
    on_failure=Reaction.ASK_ROLL_BACK,
    runs_after=RunsAfter.ANY_SUCCESS,
)
BATCHES = ActStep(
    id="batches",
    label="Batches",
    doc="Lists the batches of the plan, in their order. The group of the nodes has an instance for each.",
    act=actions.list_batches,
    lists=True,
    runs_after=RunsAfter.SKIPPED,
)
BEGIN_ROLL_BACK = ActStep(
    id="begin_roll_back",
    label="Begin of the rollback",
    doc="Runs only if an approver decided it: lists the batches that left their previous release, in reverse.",
    act=actions.begin_rollback,
    lists=True,
    runs_after=RunsAfter.ANYTHING,
)


def _each(on_failure: Reaction, **fields: Any) -> tuple[GateStep | ReplaceStep, ...]:
    acts = replace(REPLACE, on_failure=on_failure, **fields)
    return (replace(GATE_BEFORE, on_failure=on_failure), acts, replace(GATE_AFTER, on_failure=on_failure))


def roll(doc: str) -> tuple[ActStep, Section]:
    """Return the roll of a plan: every batch of every release step, one after the other."""
    batches = EachBatch(steps=_each(Reaction.ASK_ROLL_BACK))
    return BATCHES, Section(id=ROLL, doc=doc, parts=(batches,), prefixes=True)


def restart() -> tuple[ActStep, Section]:
    """Return the restart of nodes on their own release: there is no release to return to."""
    acts = "Checks all findings again, then stops the nodes and starts them again."
    steps = _each(Reaction.ASK, label="Restart", doc=acts, progress="is stopped and started")
    batches = EachBatch(steps=steps)
    doc = "Every planned node on the release that it runs, one batch after the other."
    return BATCHES, Section(id=ROLL, doc=doc, parts=(batches,), prefixes=True)


def roll_back() -> Section:
    """Return the rollback: the batches that left their release, in reverse order, through the same gates."""
    doc = "Runs only if an approver decided it: every node that left its previous release returns to it."
    batches = EachBatch(steps=_each(Reaction.ASK), is_rollback=True)
    group = Section(id=ROLL_BACK, doc=doc, parts=(batches,), prefixes=True)
    return Section(id="rollback", doc=doc, parts=(BEGIN_ROLL_BACK, group, COMPARE_AFTER_ROLLBACK), on_decision=True)


def _offline(name: str, doc: str, act: Act) -> ActStep:
    words = "stop all nodes" if name == "stop_all" else name.replace("_", " ")
    return ActStep(
        id=name,
        label=words.capitalize(),
        doc=doc,
        progress=f"offline: {words}",
        act=act,
        limits=CHANGES_LOGS,
        on_failure=Reaction.ASK_UNDO,
        changes=True,
    )


def _offline_gate(label: str, *, is_rollback: bool = False) -> EachNode:
    gate = GateStep(
        id=BatchPart.GATE_AFTER.value,
        label=label,
        doc=_AFTER_START,
        progress="is started and waits for its gate",
        gate=GateKind.AFTER_START,
        on_failure=Reaction.ASK,
    )
    return EachNode(step=gate, is_rollback=is_rollback)


def _refuse_before_stop(call: StepCall) -> None:
    """The last time at which the brokers deliver the records so far on the levels to which nothing returns."""
    if not stop_of_all_is_under_way(call.run):
        refuse_unproved_traffic(call.run)


def _stop_all(call: StepCall) -> list[int]:
    _refuse_before_stop(call)
    return list(offline.stop_all(call.run))


def _lower_live(call: StepCall) -> str:
    _refuse_before_stop(call)
    return lower_live(call.run)


def _install_snapshot(call: StepCall) -> dict[str, str]:
    installed = offline.install_snapshot(call.run)
    return {str(node_id): sentence for node_id, sentence in installed.items()}


def _restore_nodes(call: StepCall) -> list[int]:
    restored = undo_offline(call.run)
    call.log.info("Restored on nodes %s.", ", ".join(map(str, restored)) or "none: nothing was replaced yet")
    return _nodes_in_order(call, RollOf.OFFLINE_UNDO)


def _start_brokers(call: StepCall) -> list[int]:
    started = offline.start_brokers(call.run)
    call.log.info("Started brokers %s.", ", ".join(map(str, started)) or "none: all were started before")
    return _nodes_in_order(call, RollOf.OFFLINE)


def _nodes_in_order(call: StepCall, of: RollOf) -> list[int]:
    """Return the nodes whose gates follow, in their order: controllers first."""
    return [batch.node_ids[0] for batch in batches_of(of, call.ports.run.events(), call.plan)]


_UNDO_DOC = "Runs only if an approver decided it: restores every node's metadata log from its backup."
UNDO = Section(
    id="undo",
    doc=_UNDO_DOC,
    parts=(
        ActStep(
            id="restore",
            label="Restore from backup",
            doc="Restores every node's metadata log from its backup and starts all nodes on the previous release.",
            progress="offline: restoring every node's metadata log",
            act=_restore_nodes,
            limits=CHANGES_LOGS,
            runs_after=RunsAfter.ANYTHING,
        ),
        _offline_gate("Gate after the restore", is_rollback=True),
        COMPARE_AFTER_ROLLBACK,
        JoinStep(id="done", label="End of the undo", doc="Nothing is left to undo.", runs_after=RunsAfter.SKIPPED),
    ),
    prefixes=True,
    on_decision=True,
)
_OFFLINE_DOC = (
    "Used only where released Kafka refuses to lower metadata.version: all nodes are stopped, and get a snapshot at "
    "the lower level."
)
OFFLINE_SECTION = Section(
    id=OFFLINE,
    doc=_OFFLINE_DOC,
    parts=(
        JumpStep(
            id="begin",
            label="Offline downgrade",
            doc=_OFFLINE_DOC,
            jump=Jump(past="offline.nodes.gate_after", when=conditions.rolls_nodes, by_plan=True),
            runs_after=RunsAfter.SKIPPED,
        ),
        _offline(
            "stop_all",
            "Checks everything once more, then stops brokers, then controllers.",
            _stop_all,
        ),
        _offline(
            "choose_log",
            "Chooses the longest log of a majority of voters: it has every committed record.",
            lambda call: asdict(offline.choose(call.run)),
        ),
        _offline(
            "write_snapshot",
            "Writes the end of the chosen log at the planned level, and loads it with the target's own classes.",
            lambda call: offline.write_snapshot(call.run).name,
        ),
        _offline(
            "install_snapshot",
            "Backs up every node's metadata log and replaces it with the snapshot.",
            _install_snapshot,
        ),
        _offline(
            "install_binaries",
            "Every node's next start is on the target release.",
            lambda call: offline.install_binaries(call.run),
        ),
        _offline(
            "start_controllers",
            "Starts the controllers. They form a quorum at the planned level before any other node starts.",
            lambda call: list(offline.start_controllers(call.run)),
        ),
        _offline(
            "start_brokers",
            "Starts the brokers. After this step the downgrade cannot be undone.",
            _start_brokers,
        ),
        _offline_gate("Gate after the start"),
        JoinStep(id="passed", label="All nodes started", doc="All nodes are back.", runs_after=RunsAfter.SKIPPED),
        UNDO,
    ),
    prefixes=True,
)
_LIVE_DOC = (
    "Used only where released Kafka refuses to lower metadata.version: the controllers stop and get a snapshot at the "
    "lower level, while the brokers serve clients."
)
LIVE_SECTION = Section(
    id=LIVE,
    doc=_LIVE_DOC,
    parts=(
        JumpStep(
            id="begin",
            label="Live downgrade",
            doc=_LIVE_DOC,
            jump=Jump(past="live.gate_level", when=conditions.keeps_controllers, by_plan=True),
            runs_after=RunsAfter.SKIPPED,
        ),
        gate(
            "gate_controllers",
            GateKind.CONTROLLERS_STOP,
            "Gate before the controllers",
            "Waits until no broker needs a controller soon: every broker unfenced and caught up, all replicas in sync, "
            "no reassignment, no directory move, no recent restart.",
            "a state in which the controllers can be stopped",
        ),
        ActStep(
            id="lower_level",
            label="Lowered metadata.version",
            doc="Prepares the snapshot, stops the controllers, replays the end of the log, installs the snapshot and "
            "starts the controllers. After a failure they start on their old logs.",
            progress="lowering metadata.version with the controllers stopped",
            act=_lower_live,
            limits=CHANGES_LOGS,
            monitored=True,
            changes=True,
        ),
        replace(
            GATE_METADATA_VERSION,
            id="gate_level",
            doc="Waits until every broker has fetched the snapshot: CurrentMetadataVersion of every node shows the "
            "level.",
        ),
    ),
    prefixes=True,
)
