"""The sections that stop and start nodes: ROLL, one node after the other, ROLL_BACK, OFFLINE and LIVE."""

from __future__ import annotations

from dataclasses import asdict, replace

from kafka_rollout.gates.check import GateKind
from kafka_rollout.model.plan import ReleaseStepPosition
from kafka_rollout.steps.live.actions import lower_live
from kafka_rollout.steps.offline import actions as offline
from kafka_rollout.steps.offline.undo import undo_offline
from kafka_rollout.steps.procedures import approval_requests, common, conditions
from kafka_rollout.steps.step import (
    CHANGES,
    CHANGES_LOGS,
    Act,
    EachNode,
    Jump,
    Reaction,
    RunsAfter,
    Section,
    Step,
    StepCall,
)

VIA = "via_tolerant_release"
ROLL = "roll"
ROLL_BACK = "roll_back"
OFFLINE = "offline"
LIVE = "live"
_AFTER_START = (
    "Waits for the running release, the registration, every ISR, the quorum and the leadership of {node}: "
    "consecutive passing checks, then the soak."
)

BEGIN = Step(
    id="begin",
    label="Release step",
    doc="Skips the node task groups that the plan does not use.",
    runs_after=RunsAfter.SKIPPED,
)
GATE_BEFORE = Step(
    id="gate_before",
    label="Gate before the stop",
    doc="Waits until {node} can be stopped: every partition keeps its min ISR and a leader, and the quorum is safe.",
    progress="waits for the gate before its stop",
    gate=GateKind.BEFORE_STOP,
    runs_after=RunsAfter.SKIPPED,
    on_failure=Reaction.ASK_ROLL_BACK,
)
REPLACE = Step(
    id="replace",
    label="Replacement",
    doc="Checks all findings again, then stops {node}, replaces its release and starts it.",
    progress="is stopped, replaced and started",
    limits=CHANGES,
    monitored=True,
    on_failure=Reaction.ASK_ROLL_BACK,
)
GATE_AFTER = Step(
    id="gate_after",
    label="Gate after the start",
    doc=_AFTER_START,
    progress="is started and waits for its gate",
    gate=GateKind.AFTER_START,
    on_failure=Reaction.ASK_ROLL_BACK,
)
APPROVE_CANARY = Step(
    id="approve_canary",
    label="Approval of the canary",
    doc="Asks after the first node, if the run was started with it.",
    approval=approval_requests.CANARY,
)
APPROVE_FIRST_BATCH = Step(
    id="approve_first_batch",
    label="Approval of the first batch",
    doc="Asks after the first batch of several brokers, if the run was started with it.",
    approval=approval_requests.FIRST_BATCH,
)
PASSED = Step(
    id="passed",
    label="End of the node step",
    doc="The next node step begins here.",
    runs_after=RunsAfter.SKIPPED,
)
# A skipped node task group must still wait for the groups before it, or two nodes are rolled at once: `passed` runs.
_NODE = (GATE_BEFORE, REPLACE, GATE_AFTER, APPROVE_CANARY, APPROVE_FIRST_BATCH, PASSED)
_BACK = (
    replace(GATE_BEFORE, on_failure=Reaction.ASK),
    replace(REPLACE, on_failure=Reaction.ASK),
    replace(GATE_AFTER, on_failure=Reaction.ASK),
    PASSED,
)


def roll(
    section: str,
    position: ReleaseStepPosition,
    doc: str,
    *,
    brokers_first: bool = False,
    steps: tuple[Step, ...] = _NODE,
) -> Section:
    """Return a release step: all nodes, one after the other. `steps`: of one node."""
    nodes = EachNode(steps=steps, position=position, brokers_first=brokers_first)
    return Section(id=section, doc=doc, parts=(BEGIN, nodes), prefixes=True)


def roll_back(*, brokers_first: bool = False) -> Section:
    """Return the rollback of both release steps: the nodes in reverse order, through the same gates."""
    doc = "Runs only if an approver decided it: every node that left its previous release returns to it."
    begin = Step(id="begin", label="Rollback", doc=doc, runs_after=RunsAfter.ANYTHING)
    back = tuple(
        EachNode(
            steps=_BACK,
            position=position,
            group=f"from_{group}",
            label=label,
            is_rollback=True,
            brokers_first=brokers_first,
        )
        for position, group, label in (
            (ReleaseStepPosition.TARGET, ROLL, "Rollback from the target release."),
            (ReleaseStepPosition.VIA, VIA, "Rollback from the tolerant release."),
        )
    )
    return Section(id=ROLL_BACK, doc=doc, parts=(begin, *back), prefixes=True, on_decision=True)


def restart_steps() -> tuple[Step, ...]:
    """Return the steps of a node that is restarted on its own release: there is no release to return to."""
    doc = "Checks all findings again, then stops {node} and starts it again."
    approvals = [
        replace(step, approval=replace(step.approval, offers_roll_back=False))
        for step in (APPROVE_CANARY, APPROVE_FIRST_BATCH)
        if step.approval is not None
    ]
    before, restarted, after, passed = _BACK
    restarted = replace(restarted, label="Restart", doc=doc, progress="is stopped and started")
    return (before, restarted, after, *approvals, passed)


def _offline(name: str, doc: str, act: Act) -> Step:
    words = "stop all nodes" if name == "stop_all" else name.replace("_", " ")
    return Step(
        id=name,
        label=words.capitalize(),
        doc=doc,
        progress=f"offline: {words}",
        act=act,
        limits=CHANGES_LOGS,
        on_failure=Reaction.ASK_UNDO,
        changes=True,
    )


def _offline_gate(name: str, label: str) -> EachNode:
    gate = Step(
        id=name,
        label=label,
        doc=_AFTER_START,
        progress="is started and waits for its gate",
        gate=GateKind.AFTER_START,
        on_failure=Reaction.ASK,
    )
    return EachNode(steps=(gate,))


def _install_snapshot(call: StepCall) -> dict[str, str]:
    installed = offline.install_snapshot(call.ports, call.plan)
    return {str(node_id): sentence for node_id, sentence in installed.items()}


def _restore_nodes(call: StepCall) -> list[int]:
    restored = undo_offline(call.ports, call.plan)
    call.log.info("Restored on nodes %s.", ", ".join(map(str, restored)) or "none: nothing was replaced yet")
    return list(restored)


_UNDO_DOC = "Runs only if an approver decided it: restores every node's metadata log from its backup."
UNDO = Section(
    id="undo",
    doc=_UNDO_DOC,
    parts=(
        Step(
            id="restore",
            label="Restore from backup",
            doc="Restores every node's metadata log from its backup and starts all nodes on the previous release.",
            progress="offline: restoring every node's metadata log",
            act=_restore_nodes,
            limits=CHANGES_LOGS,
            runs_after=RunsAfter.ANYTHING,
        ),
        _offline_gate("gate_restored", "Gate after the restore"),
        Step(id="done", label="End of the undo", doc="Nothing is left to undo.", runs_after=RunsAfter.SKIPPED),
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
        Step(
            id="begin",
            label="Offline downgrade",
            doc=_OFFLINE_DOC,
            jump=Jump(past="offline.gate_after_*", when=conditions.rolls_nodes, by_plan=True),
            runs_after=RunsAfter.SKIPPED,
        ),
        _offline(
            "stop_all",
            "Checks everything once more, then stops brokers, then controllers.",
            lambda call: list(offline.stop_all(call.ports, call.plan)),
        ),
        _offline(
            "choose_log",
            "Chooses the longest log of a majority of voters: it has every committed record.",
            lambda call: asdict(offline.choose(call.ports, call.plan)),
        ),
        _offline(
            "write_snapshot",
            "Writes the end of the chosen log at the planned level, and loads it with the target's own classes.",
            lambda call: offline.write_snapshot(call.ports, call.plan).name,
        ),
        _offline(
            "install_snapshot",
            "Backs up every node's metadata log and replaces it with the snapshot.",
            _install_snapshot,
        ),
        _offline(
            "install_binaries",
            "Every node's next start is on the target release.",
            lambda call: offline.install_binaries(call.ports, call.plan),
        ),
        _offline(
            "start_controllers",
            "Starts the controllers. They form a quorum at the planned level before any other node starts.",
            lambda call: list(offline.start_controllers(call.ports, call.plan)),
        ),
        _offline(
            "start_brokers",
            "Starts the brokers. After this step the downgrade cannot be undone.",
            lambda call: list(offline.start_brokers(call.ports, call.plan)),
        ),
        _offline_gate("gate_after", "Gate after the start"),
        Step(id="passed", label="All nodes started", doc="All nodes are back.", runs_after=RunsAfter.SKIPPED),
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
        Step(
            id="begin",
            label="Live downgrade",
            doc=_LIVE_DOC,
            jump=Jump(past="live.gate_level", when=conditions.keeps_controllers, by_plan=True),
            runs_after=RunsAfter.SKIPPED,
        ),
        common.gate(
            "gate_controllers",
            GateKind.CONTROLLERS_STOP,
            "Gate before the controllers",
            "Waits until no broker needs a controller soon: every broker unfenced and caught up, all replicas in sync, "
            "no reassignment, no directory move, no recent restart.",
            "a state in which the controllers can be stopped",
        ),
        Step(
            id="lower_level",
            label="Lowered metadata.version",
            doc="Prepares the snapshot, stops the controllers, replays the end of the log, installs the snapshot and "
            "starts the controllers. After a failure they start on their old logs.",
            progress="lowering metadata.version with the controllers stopped",
            act=lambda call: lower_live(call.ports, call.plan),
            limits=CHANGES_LOGS,
            monitored=True,
            changes=True,
        ),
        replace(
            common.GATE_METADATA_VERSION,
            id="gate_level",
            doc="Waits until every broker has fetched the snapshot: CurrentMetadataVersion of every node shows the "
            "level.",
        ),
    ),
    prefixes=True,
)
