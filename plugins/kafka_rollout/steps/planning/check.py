"""Checks of a frozen plan before each action: is it still the approved plan, is there a new blocker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from kafka_rollout.domain.features.checks import range_findings
from kafka_rollout.domain.groups.findings import group_findings, waited_for
from kafka_rollout.domain.model.errors import RefusedError
from kafka_rollout.domain.model.findings import Finding, Verdict
from kafka_rollout.domain.model.plan import Plan, ReleaseStep
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.topology import NodeSpec
from kafka_rollout.domain.planning.cluster_findings import cluster_findings
from kafka_rollout.domain.planning.downgrade import OF_ROLLS
from kafka_rollout.domain.run.events import Voided
from kafka_rollout.domain.run.projections.runs import made_plan
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.observe import observe
from kafka_rollout.steps.planning.coordinator_logs import new_in_logs
from kafka_rollout.steps.planning.hosts import (
    host_findings,
)

_LOOK_AGAIN_AFTER_S = (1.0, 3.0, 6.0, 10.0)


def check_plan(ports: ClusterPorts, plan_hash: str) -> Plan:
    """The run's recorded plan; raises RefusedError when its hash is another or the inventory changed since."""
    plan = ports.run.load_plan()
    again = "Start a new run: it plans anew from what the cluster is now."
    if plan.hash != plan_hash:
        raise RefusedError(
            f"The plan of run {ports.run_id} is not the one that was approved (hash {plan.hash[:12]}, not "
            f"{plan_hash[:12]}).",
            remedy=again,
        )
    if plan.cluster != ports.cluster.name:
        raise RefusedError(f"The plan is for cluster {plan.cluster}, not for {ports.cluster.name}.", remedy=again)
    inventory = {node.node_id for node in ports.cluster.nodes}
    for release_step in plan.release_steps:
        planned = {node_step.node_id for node_step in release_step.order}
        if planned != inventory:
            changed = ", ".join(str(node_id) for node_id in sorted(planned ^ inventory))
            raise RefusedError(
                f"The inventory of cluster {plan.cluster} changed since the plan was made (nodes {changed}).",
                remedy=again,
            )
    made = made_plan(ports.run.events(), plan.hash)
    if made is not None and made.release_overrides not in (None, planned_overrides(ports, plan)):
        # The runtime brings them in from the inventory: nobody approved what is in there now.
        raise RefusedError(
            f"The release_overrides of cluster {plan.cluster} changed since the plan was made.",
            remedy=f"Put them back as they were. {again}",
        )
    return plan


def planned_overrides(ports: ClusterPorts, plan: Plan) -> dict[Release, dict[str, str]]:
    """The configuration that the roll brings in with each release, by the inventory."""
    releases = [release_step.to_release for release_step in plan.release_steps]
    return {release: dict(ports.cluster.release_overrides.get(str(release), {})) for release in releases}


def recheck(
    ports: ClusterPorts, plan: Plan, stop: tuple[ReleaseStep, NodeSpec] | None = None, *, waits: bool = False
) -> Verdict:
    """Look at the findings again: its blockers are those that were not there when the plan was approved.

    Ask while every node is up. With `stop`, the node that is about to go down, also what its host would say to the
    hop's release. `waits`: the gate of the groups is still ahead. A verdict that is not ok voids the approval.
    """
    state = observe(ports)
    if state.cluster_id != plan.cluster_id:
        raise RefusedError(
            f"The cluster that answers has id {state.cluster_id}, the plan was made for {plan.cluster_id}.",
            remedy="Correct the inventory's addresses, or plan anew.",
        )
    now = cluster_findings(ports.cluster, ports.catalogue, state, target=plan.target)
    # What falls on the way has fallen before a node starts on the target.
    falls = {c.feature: c.target for c in plan.feature_changes if c.target < c.current}
    ranges = range_findings(ports.catalogue, state, plan.target, planned=falls)
    unserved = () if plan.unsafe else group_findings(ports.catalogue, state, plan.target)
    if waits:
        unserved = waited_for(unserved)
    host = () if stop is None else host_findings(ports, plan, *stop)
    found = (*now.findings, *ranges.findings, *unserved, *host)
    verdict = Verdict(
        question=now.question, findings=tuple(f for f in found if not (plan.offline and f.code in OF_ROLLS))
    )
    new = verdict.new_blockers_since(plan.blockers)
    return Verdict(
        question=f"Is there a blocker on cluster {plan.cluster} that was not there when the plan was approved?",
        findings=(*new, *verdict.warnings),
    )


def refuse_new_blockers(
    ports: ClusterPorts, plan: Plan, stop: tuple[ReleaseStep, NodeSpec] | None = None, *, waits: bool = False
) -> None:
    """Raise RefusedError "approval is void" when `recheck` finds a new blocker that stays.

    A leader on the move or one lost answer is gone at the next look; what is still there after some looks is real.
    """
    for pause_s in (*_LOOK_AGAIN_AFTER_S, None):
        blockers = recheck(ports, plan, stop, waits=waits).blockers
        if not blockers:
            return
        if pause_s is not None:
            ports.clock.sleep(pause_s)
    refuse_as_void(ports, plan, blockers)


def refuse_as_void(ports: ClusterPorts, plan: Plan, found: Sequence[Finding]) -> NoReturn:
    """Record that what was found voids the approval, and raise RefusedError saying so."""
    ports.run.record(Voided(plan_hash=plan.hash, blockers=tuple(str(finding) for finding in found)))
    raise RefusedError(
        f"The approval is void, because of what was not there when it was given: "
        f"{'; '.join(f'{finding.code} {finding.subject}: {finding.sentence}' for finding in found)}",
        remedy=" ".join(dict.fromkeys(finding.remedy for finding in found)),
    )


def refuse_new_in_logs(ports: ClusterPorts, plan: Plan, release_step: ReleaseStep) -> None:
    """Raise RefusedError when what was written to the coordinator logs since the run's scan of them makes a verdict
    worse than the approved plan says: records keep coming while a person thinks."""
    if new := new_in_logs(ports, plan, release_step):
        refuse_as_void(ports, plan, new)


def check_way_back(ports: ClusterPorts, plan: Plan, release: Release | None = None) -> Verdict:
    """Can the release (by default the plan's origin) still run this cluster: is every finalized level in its ranges?"""
    return range_findings(ports.catalogue, observe(ports), release or plan.source)
