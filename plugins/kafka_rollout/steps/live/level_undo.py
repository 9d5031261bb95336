"""How each level of an approval can be undone, with the expected time of the method."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from kafka_rollout.model.plan import FeatureChange, Plan
from kafka_rollout.planning.lowering import LevelUndo, UndoMethod, level_undo
from kafka_rollout.steps.common.approval import shown_once
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe
from kafka_rollout.steps.live.facts import estimate_absence
from kafka_rollout.steps.offline.outage import estimate_outage, log_sizes

UNDOS = "live/level_undos.json"


def shown_level_undos(ports: ClusterPorts, plan: Plan, changes: Iterable[FeatureChange]) -> tuple[LevelUndo, ...]:
    """Return the methods as the approval shows them. `changes`: of the plan, with the controller's own answers."""

    def compute() -> dict[str, Any]:
        state = observe(ports)
        undos = (level_undo(ports.cluster, ports.catalogue, state, plan, change) for change in changes)
        return {"undos": [asdict(_with_time(ports, plan, undo)) for undo in undos]}

    kept = shown_once(ports, plan, UNDOS, compute)["undos"]
    return tuple(
        LevelUndo(feature=one["feature"], method=UndoMethod(one["method"]), reason=one["reason"]) for one in kept
    )


def _with_time(ports: ClusterPorts, plan: Plan, undo: LevelUndo) -> LevelUndo:
    if undo.method not in {UndoMethod.LIVE, UndoMethod.OFFLINE}:
        return undo
    if not log_sizes(ports, ports.cluster.controllers):
        why = "The run can read no controller's metadata log, so it cannot write a snapshot at the lower level."
        return replace(undo, method=UndoMethod.UNKNOWN, reason=why)
    live = undo.method is UndoMethod.LIVE
    estimate = estimate_absence(ports, plan) if live else estimate_outage(ports, plan)
    return replace(undo, reason=f"{undo.reason} {estimate.sentence}")
