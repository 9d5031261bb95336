"""Steps that more than one procedure has."""

from __future__ import annotations

from typing import Any

from kafka_rollout.gates.check import GateKind
from kafka_rollout.steps.planning.coordinator_logs import SCAN_BEFORE_ROLL
from kafka_rollout.steps.planning.rehearsal import REHEARSAL_RESULT
from kafka_rollout.steps.procedures import actions, approval_requests, conditions
from kafka_rollout.steps.step import CHANGES, REHEARSES, SCANS, Jump, OnResume, Reaction, RunsAfter, Service, Step

OBSERVE = Step(
    id="observe",
    label="Cluster state",
    doc="Reads the state of all nodes, the quorum, partitions, groups and clients.",
    progress="observing the cluster",
    act=actions.observe_cluster,
    on_resume=OnResume.KEEP,
)
SCAN = Step(
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
REHEARSAL = Step(
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
START_TRAFFIC = Step(
    id="start_traffic",
    label="Test traffic start",
    doc="Starts test traffic, if the run was started with it.",
    progress="starting the test traffic",
    service=Service.START_TRAFFIC,
    skip=conditions.without_traffic,
    limits=CHANGES,
)
PLAN = Step(id="plan", label="Plan", doc="", progress="planning", on_resume=OnResume.KEEP)


def gate(step_id: str, kind: GateKind, label: str, doc: str, progress: str, **fields: Any) -> Step:
    """Return a gate of the whole cluster. If it fails, an approver decides. A resumed run does not repeat it."""
    fields = {"on_failure": Reaction.ASK, "on_resume": OnResume.KEEP, **fields}
    return Step(id=step_id, gate=kind, label=label, doc=doc, progress=progress, **fields)


GATE_GROUPS = gate(
    "gate_groups",
    GateKind.GROUPS,
    "Converted groups",
    "Waits until groups that lose their type are converted and their tombstones are written.",
    "groups that lose their type to be converted",
    runs_after=RunsAfter.SKIPPED,
)
GATE_FINALIZED = gate(
    "gate_finalized",
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
PIN_MIN_ISR = Step(
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
RECORD_STATE = Step(
    id="state_before",
    label="State before",
    doc="Records the effective configuration of every broker and topic, the contents and the ACLs.",
    progress="recording configuration, contents and ACLs of the cluster",
    act=actions.record_state,
    skip=conditions.changes_nothing,
    limits=CHANGES,
    runs_after=RunsAfter.SKIPPED,
)
COMPARE_AFTER_LEVELS = Step(
    id="compare_after_levels",
    label="Comparison after the levels",
    doc="Compares effective configuration, contents and ACLs with the state before the run, with additions.",
    progress="comparing configuration, contents and ACLs with the state before the run",
    act=actions.compare_after_levels,
    skip=conditions.changes_no_level,
    limits=CHANGES,
    runs_after=RunsAfter.SKIPPED,
)
APPROVE_LEVEL_DIFFERENCES = Step(
    id="approve_level_differences",
    label="Differences after the levels",
    doc="An approver accepts or rejects the differences that the plan does not name. Skipped without such differences.",
    approval=approval_requests.LEVEL_DIFFERENCES,
    runs_after=RunsAfter.SKIPPED,
)
PROVE_SNAPSHOT = Step(
    id="prove_snapshot",
    label="Snapshot check",
    doc="Loads one snapshot with the target release's own classes.",
    progress="loading a snapshot with the target's own classes",
    act=actions.prove_snapshot,
    on_resume=OnResume.KEEP,
)
STOP_TRAFFIC = Step(
    id="stop_traffic",
    label="Traffic check",
    doc="Stops the test traffic and compares acknowledged with consumed records.",
    progress="comparing acknowledged with consumed records",
    service=Service.STOP_TRAFFIC,
    limits=CHANGES,
    runs_after=RunsAfter.ANYTHING,
)
REPORT = Step(
    id="report",
    label="Report",
    doc="Writes one HTML page and one JSON file.",
    progress="writing the report",
    service=Service.REPORT,
    runs_after=RunsAfter.ANYTHING,
    files=("report.html", "report.json"),
)
OUTCOME = Step(
    id="outcome",
    label="Outcome",
    doc="Fails unless the run ended as requested.",
    service=Service.OUTCOME,
    runs_after=RunsAfter.ANYTHING,
)


def end_dry_run(past: str) -> Step:
    """Return the step at which a dry run skips everything up to its report."""
    return Step(
        id="dry_run",
        label="End of a dry run",
        doc="A dry run continues with the report.",
        jump=Jump(past=past, when=conditions.is_dry_run),
    )
