"""The nodes that restart once more, so that they register again before levels are raised (KAFKA-17492)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kafka_rollout.base.findings import INFO, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import count, nodes
from kafka_rollout.features.registrations import (
    drops_zero_ranges,
    keeps_registrations,
    registered_levels,
    renews_registrations,
)
from kafka_rollout.model.plan import FeatureChange, Plan, ReleaseStep
from kafka_rollout.planning.observation import PlanObservation
from kafka_rollout.planning.release_path import node_order
from kafka_rollout.releases.facts import METADATA_VERSION, Release

SECOND_RESTART_LATER = FindingCode(
    "SECOND-RESTART-LATER",
    INFO,
    "Nodes restart a second time before levels are raised.",
    "No action needed now. The run that finalizes plans these restarts.",
)
REGISTRATIONS_CHECK = Check(
    "registrations",
    "Registrations that lack feature levels",
    "upgrade.md#findings",
    (SECOND_RESTART_LATER,),
    of=(CheckOf.UPGRADE,),
    needs=(Need.NODES,),
    examines=Examined.LEVELS,
)


def plan_registration_step(
    observed: PlanObservation, target: Release, steps: Sequence[ReleaseStep], changes: Iterable[FeatureChange]
) -> ReleaseStep | None:
    """Return the restart of the nodes whose registration can lack a level of `changes`; None if there is no such node.

    The order of the rolling upgrade cannot avoid it: the first combined node registers while only controllers of the
    old release run.
    """
    changes = tuple(changes)
    levels = registered_levels(changes)
    level = observed.state.finalized.reported.get(METADATA_VERSION, 0)
    wanted = next((change.target for change in changes if change.feature == METADATA_VERSION), level)
    if not levels or renews_registrations(level, wanted):
        return None
    during = _registered_in_roll(observed, steps[-1]) if steps else frozenset()
    # A node that already runs the target is not restarted by the roll.
    seen = observed.registered
    before = frozenset() if seen is None else seen.incomplete
    order = node_order(observed.cluster, None)
    again = tuple(one for one in order if one.node_id in during | before)
    if not again:
        return None
    ids = [one.node_id for one in again]
    why = f"raising metadata.version from {level} renews no registration"
    if not keeps_registrations(level):
        why = f"metadata.version {wanted} renews no registration"
    return ReleaseStep(
        from_release=target,
        to_release=target,
        reason=(
            f"{nodes(ids).capitalize()} must register again before levels are raised: controllers before 3.9 drop "
            f"ranges with minimum 0 from registrations (KAFKA-17492), here {', '.join(sorted(levels))}, and {why}. "
            f"At most {count(len(ids), 'more restart')}: a node whose registration is complete is not restarted."
        ),
        order=again,
    )


def _registered_in_roll(observed: PlanObservation, step: ReleaseStep) -> frozenset[int]:
    """Return the brokers that register in the release step while a controller that drops ranges can be active."""
    found = set[int]()
    cluster, catalogue = observed.cluster, observed.catalogue
    running = {node_id: seen.release for node_id, seen in observed.state.nodes.items()}

    def drops(node_id: int) -> bool:
        release = max(step.from_release, running.get(node_id) or step.from_release)
        return release != step.to_release and drops_zero_ranges(catalogue.get(release))

    drops_later = False
    for node in (cluster.node(one.node_id) for one in reversed(step.order)):
        if drops_later and node.is_broker and running.get(node.node_id) != step.to_release:
            found.add(node.node_id)
        drops_later = drops_later or (node.is_controller and drops(node.node_id))
    return frozenset(found)


def registration_findings(observed: PlanObservation, plan: Plan, changes: Iterable[FeatureChange]) -> Iterator[Finding]:
    """Yield what a later run must do before it raises the levels `changes`, which this run does not raise."""
    again = plan_registration_step(observed, plan.target, plan.release_steps, changes)
    if plan.registration_step is None and again is not None:
        yield SECOND_RESTART_LATER.found("registrations", again.reason)
