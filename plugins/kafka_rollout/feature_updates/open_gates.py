"""Processes that a run started and whose gate has not passed since, before levels are changed without a roll.

A run that rolls nodes checks all of them (`preparation/proved_roll.py`). A change of levels alone restarts nothing and
asks for no log, so it takes what the runs of the cluster have recorded of the processes that run now.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import BLOCKER, Check, Checked, CheckOf, Finding, FindingCode, UnknownValue, unknown_by
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.plan import FeatureChange
from kafka_rollout.observation.cluster_ports import ReadPorts
from kafka_rollout.run.step_events import GatePassed, Started

GATE_NOT_PASSED = FindingCode(
    "GATE-NOT-PASSED",
    BLOCKER,
    "A run started a node, and the gate of this process has not passed.",
    "Continue that run, or its rollback, until the gate passes. Or restart the node with `kafka-rollout restart`, "
    "which has a gate too.",
)
OPEN_GATES_CHECK = Check(
    "open-gates",
    "Gates of the running processes",
    "features.md#what-is-checked-before-the-request",
    (GATE_NOT_PASSED,),
    of=(CheckOf.FEATURES,),
    needs=(),
)


def check_open_gates(ports: ReadPorts, changes: Iterable[FeatureChange]) -> Checked:
    """Check the nodes whose newest start by a run was not followed by a passed gate. A later process is another one."""
    if all(change.target <= change.current for change in changes):
        return OPEN_GATES_CHECK.ran((), unless="No level is raised.")
    passed = [one for one in ports.run.events_of_other_runs(GatePassed) if one.ref.kind is GateKind.AFTER_START]
    passed_at = {one.ref.node_id: one.at for one in passed}
    started = {one.node_id: one for one in ports.run.events_of_other_runs(Started)}
    found, unread = list[Finding](), list[UnknownValue]()
    for node in ports.cluster.nodes:
        start = started.get(node.node_id)
        if start is None or passed_at.get(node.node_id, 0.0) >= start.at:
            continue
        try:
            pid = ports.runtime.process(node).pid
        except (TransientError, RefusedError) as error:
            unread += unknown_by(error, f"process of node {node.node_id}")
            continue
        if pid is not None and pid == start.pid:
            sentence = (
                f"A run started node {node.node_id} (process {pid}), and the gate after this start has not passed."
            )
            found.append(GATE_NOT_PASSED.found(f"node {node.node_id}", sentence))
    return OPEN_GATES_CHECK.ran(found, unknown=tuple(unread))
