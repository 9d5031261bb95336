"""The nodes of a plan as a reader sees them: each in the release step that the run works on, in both directions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_rollout.model.plan import Lowering, Plan, ReleaseStep
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.view import NodeStage, NodeView, RunView

_SWITCHED = "stopped with all controllers, to lower metadata.version"
_SETTLED = {NodeStage.WAITING, NodeStage.DONE, NodeStage.ROLLED_BACK}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node of the plan. Times: epoch seconds; None: not yet."""

    node_id: int
    name: str
    phase: NodeStage
    release: Release
    """The release that it runs, or last ran."""
    target: Release | None = None
    """Of its release step; None if nothing is left for it."""
    release_step: str = ""
    since: float | None = None
    """When the phase began."""
    began_at: float | None = None
    """Its stop."""
    ended_at: float | None = None
    """The passed gate after its start."""
    note: str = ""
    """The unmet conditions, or the failure."""
    is_down: bool = False
    """It was stopped, and its gate has not passed since."""


def node_statuses(view: RunView, plan: Plan | None, *, has_ended: bool = False) -> tuple[NodeStatus, ...]:
    """Return the nodes of the plan in the order of its first release step. `has_ended`: the run is over."""
    if plan is None or not plan.release_steps:
        return ()
    steps = {one.key: one for step in plan.release_steps for one in (step, step.reversed())}
    forth = {step.key for step in plan.release_steps}  # a restart is its own reverse
    acted = [node for node in view.nodes.values() if node.release_step in steps]
    newest = {node.node_id: node for node in acted}  # the last one of each
    current = steps[acted[-1].release_step] if acted else plan.release_steps[0]
    waiting = NodeStatus(
        node_id=0,
        name="",
        phase=NodeStage.WAITING,
        release=plan.release_steps[0].from_release,
        target=plan.release_steps[0].to_release,
    )
    found = []
    for node_id, name in {one.node_id: one.name for step in plan.release_steps for one in step.order}.items():
        status = replace(waiting, node_id=node_id, name=name)
        if (node := newest.get(node_id)) is not None:
            status = _of(status, node, steps[node.release_step], node.release_step in forth)
        status = _switched(status, view, plan)
        found.append(_seen_from(status, current, is_back=current.key not in forth, has_ended=has_ended))
    return tuple(found)


def _switched(status: NodeStatus, view: RunView, plan: Plan) -> NodeStatus:
    """Return the status of a node while a live downgrade has stopped all controllers."""
    if plan.lowering is not Lowering.LIVE or view.switch is None or status.node_id not in view.switch.voters:
        return status
    return replace(status, phase=NodeStage.STOPPED, since=view.switch.at, note=_SWITCHED, is_down=True)


def _of(waiting: NodeStatus, node: NodeView, step: ReleaseStep, goes_forth: bool) -> NodeStatus:
    is_done = node.stage is NodeStage.DONE
    is_started = is_done or node.release is not None
    return replace(
        waiting,
        phase=NodeStage.ROLLED_BACK if is_done and not goes_forth else node.stage,
        release=step.to_release if is_started else step.from_release,
        target=None if is_done else step.to_release,
        release_step=step.key,
        since=node.since,
        began_at=node.began_at,
        ended_at=node.passed_at if is_done else None,
        note=node.note,
        is_down=node.is_down,
    )


def _seen_from(status: NodeStatus, current: ReleaseStep, *, is_back: bool, has_ended: bool) -> NodeStatus:
    """Return the status in the release step that the run works on now. `is_back`: it is a rollback."""
    if status.phase not in _SETTLED or status.release_step == current.key:
        return status
    was_touched = bool(status.release_step)
    if has_ended or (is_back and not was_touched):
        return status if was_touched else replace(status, phase=NodeStage.UNCHANGED, target=None)
    if is_back and status.release != current.from_release:
        return status
    return replace(status, phase=NodeStage.WAITING, target=current.to_release, began_at=None, ended_at=None)
