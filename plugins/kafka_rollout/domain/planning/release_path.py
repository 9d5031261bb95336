"""The way from the running release to the target, and the order in which nodes take their turn.

KIP-915 knows three classes of coordinators: releases before it stop loading a partition of `__consumer_offsets` or
`__transaction_state` at a record type they do not know; releases with it ignore such records; later releases write
them. During a roll both sides run together and coordinators move between them, so an intolerant release is never
rolled together with an emitting one: a tolerant release goes in between ("upgrade all (a) brokers to (b), then
upgrade them to (c)").
"""

from __future__ import annotations

from kafka_rollout.domain.model.errors import RefusedError, UserError
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.plan import NodeStep
from kafka_rollout.domain.model.releases import Catalogue, CoordinatorClass, Release
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.domain.model.wording import nodes

CONTROLLERS = "controllers"
BROKERS = "brokers"


def plan_release_steps(
    catalogue: Catalogue, source: Release, target: Release
) -> tuple[tuple[Release, Release, str], ...]:
    """The release steps (from, to, reason) from origin to target; none when they are equal.

    Raises UserError for a release that the catalogue does not know, for a target below the origin, and where no
    tolerant release lies between an intolerant origin and an emitting target.
    """
    target_facts = catalogue.get(target)
    origin_facts = catalogue.get(source)
    if target == source:
        return ()
    if target < source:
        raise UserError(
            f"Target {target} is older than the running release {source}.", remedy="Use kafka_downgrade to go back."
        )
    intolerant = origin_facts.coordinator_class is CoordinatorClass.INTOLERANT
    if not (intolerant and target_facts.coordinator_class is CoordinatorClass.EMITTING):
        return ((source, target, f"Releases {source} and {target} may run side by side (KIP-915)."),)
    via = tolerant_between(catalogue, source, target)
    reason = (
        f"KIP-915: {source} cannot load coordinator records that {target} writes, "
        f"so all nodes first go to {via}, which ignores what it does not know."
    )
    return (
        (source, via, reason),
        (via, target, f"KIP-915: every coordinator now tolerates the records that {target} writes."),
    )


def tolerant_between(catalogue: Catalogue, source: Release, target: Release) -> Release:
    """The nearest tolerant release above the origin: its own minor line if that has one (the smallest change)."""
    between = [
        release
        for release in catalogue
        if source < release < target and catalogue.get(release).coordinator_class is CoordinatorClass.TOLERANT
    ]
    if not between:
        raise UserError(
            f"KIP-915 asks for a tolerant release between {source} and {target}, and the catalogue has none.",
            remedy="Derive the facts of one, for example 3.4.1, with tools/derive_catalogue.py.",
        )
    return min(between)


def running_releases(cluster: ClusterSpec, state: ClusterState) -> frozenset[Release]:
    """The releases that nodes run, at least one; raises RefusedError where no node tells."""
    if not state.releases:
        raise RefusedError(
            f"No node of cluster {cluster.name} tells the release it runs (metric app-info).",
            remedy="Check prometheus_url and jolokia_url of its inventory and that the agents answer.",
        )
    return state.releases


def origin_release(cluster: ClusterSpec, state: ClusterState) -> Release:
    """The lowest running release: where a roll was interrupted, the way starts again from what is behind."""
    return min(running_releases(cluster, state))


def target_finding(catalogue: Catalogue, text: str) -> Finding | None:
    """A finding where `text` is no release or one that the catalogue does not know; None where it does."""
    try:
        catalogue.get(Release.parse(text))
    except UserError as error:
        return Finding(
            code="TARGET-UNKNOWN",
            severity=Severity.BLOCKER,
            subject=f"release {text}",
            sentence=error.sentence,
            remedy=error.remedy,
        )
    return None


def find_nodes_ahead(state: ClusterState, first_stop: Release) -> Finding | None:
    """Nodes that run a release above the first hop's: rolling them would take them back unasked."""
    ahead = {i: n.release for i, n in state.nodes.items() if n.release is not None and n.release > first_stop}
    if not ahead:
        return None
    running = ", ".join(sorted({str(release) for release in ahead.values()}))
    return Finding(
        code="NODE-AHEAD",
        severity=Severity.BLOCKER,
        subject=nodes(ahead),
        sentence=f"{nodes(ahead).capitalize()} run {running}, which is above {first_stop}, where the roll goes first.",
        remedy=f"Choose target {max(ahead.values())}, or take these nodes back to the others' release first.",
    )


def node_order(cluster: ClusterSpec, active_controller_id: int | None) -> tuple[NodeStep, ...]:
    """Controllers first (combined nodes are controllers), the active one last among them, then brokers; else by id.

    The active controller goes last so that leadership of the quorum moves once, and to a node on the new release.
    """

    def node_step(node: NodeSpec, section: str) -> NodeStep:
        active = node.is_controller and node.node_id == active_controller_id
        return NodeStep(node_id=node.node_id, name=node.name, section=section, active_controller=active)

    controllers = sorted(cluster.controllers, key=lambda n: (n.node_id == active_controller_id, n.node_id))
    brokers = sorted(cluster.brokers_alone, key=lambda n: n.node_id)
    return tuple([node_step(n, CONTROLLERS) for n in controllers] + [node_step(n, BROKERS) for n in brokers])
