"""RESTART: every node, or some, one after the other on the release that it runs, through the gates of an upgrade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kafka_rollout.base.wording import count, few
from kafka_rollout.gates.check import GateKind
from kafka_rollout.model.plan import Plan, ReleaseStepPosition
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.report.run_report import Outcome, RunReport
from kafka_rollout.run.events import newest
from kafka_rollout.run.projections.approvals import find_unaccepted
from kafka_rollout.run.projections.nodes import gate_histories
from kafka_rollout.run.step_events import Started
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.procedures import actions, approval_requests, common, conditions, rolling
from kafka_rollout.steps.report.outcome import refusal_of
from kafka_rollout.steps.report.run import build_report
from kafka_rollout.steps.step import ApprovalRequest, Procedure, RunsAfter, Step

DOC = """\
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


def build_restart_report(ports: ClusterPorts, plan: Plan, *, dry_run: bool, proofs: Sequence[GateKind]) -> RunReport:
    """As the report of an upgrade, with an outcome by the gates: the release does not show that a node restarted."""
    report = build_report(ports, plan, dry_run=dry_run, proofs=proofs)
    if dry_run:
        return report
    outcome, sentence = _outcome(ports, plan)
    return replace(report, outcome=outcome, sentence=sentence)


def _outcome(ports: ClusterPorts, plan: Plan) -> tuple[Outcome, str]:
    events = ports.run.events()
    if newest(events, Started) is None:
        return Outcome.REFUSED, f"Nothing was changed: {refusal_of(plan, events)}"
    histories = gate_histories(events)
    passed = {one.ref.node_id for one in histories if one.ref.kind is GateKind.AFTER_START and one.is_passed}
    order = [node_step for release_step in plan.release_steps for node_step in release_step.order]
    if left := [f"{one.name} ({one.node_id})" for one in order if one.node_id not in passed]:
        return Outcome.STOPPED, f"The restart stopped. The gate after the start has not passed of: {', '.join(left)}."
    if found := find_unaccepted(events, plan.hash):
        sentence = "All planned nodes were restarted, but the cluster differs from its state before the run"
        return Outcome.STOPPED, f"{sentence}: {few(found.first)}"
    return Outcome.FINISHED, f"{count(len(order), 'node')} restarted on {plan.target}."


PLAN = ApprovalRequest(
    of=approval_requests.PLAN.of,
    subject=lambda plan: f"Restart the nodes of {plan.cluster} on {plan.target}?",
    body=approval_requests.upgrade_body,
    check=approval_requests.PLAN.check,
)
RESTART = Procedure(
    name="restart",
    dry_run_body=approval_requests.upgrade_body,
    parts=(
        common.OBSERVE,
        replace(
            common.PLAN,
            doc="Plans the order of the nodes, and freezes the plan.",
            act=partial(actions.plan_change, run_of=RunOf.RESTART),
        ),
        common.end_dry_run(past="stop_traffic"),
        Step(
            id="approve_plan",
            label="Approval of the plan",
            doc="An approver approves the plan and its findings. Blockers cannot be approved.",
            approval=PLAN,
        ),
        common.RECORD_STATE,
        replace(common.START_TRAFFIC, runs_after=RunsAfter.SKIPPED),
        rolling.roll(
            rolling.ROLL,
            ReleaseStepPosition.TARGET,
            "Every planned node on the release that it runs, one at a time.",
            steps=rolling.restart_steps(),
        ),
        replace(
            common.COMPARE_AFTER_LEVELS,
            id="compare_after_roll",
            label="Comparison after the restart",
            act=actions.compare_after_roll,
            skip=conditions.replaces_no_node,
        ),
        Step(
            id="approve_roll_differences",
            label="Differences after the restart",
            doc="An approver accepts or rejects what the restart has changed, for example the configuration that the "
            "nodes read when they started. Skipped without differences.",
            approval=replace(approval_requests.ROLL_DIFFERENCES, offers_roll_back=False),
            runs_after=RunsAfter.SKIPPED,
        ),
        common.STOP_TRAFFIC,
        common.REPORT,
        common.OUTCOME,
    ),
)
