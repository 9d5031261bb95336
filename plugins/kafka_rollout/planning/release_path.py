"""The release steps from the running release to the target, up or down, and the node order.

KIP-915 defines three classes of coordinators. Releases before KIP-915 stop loading a partition of `__consumer_offsets`
or `__transaction_state` at a record of an unknown type. Releases with KIP-915 ignore such records. Later releases write
them. During a rolling change both releases run, and coordinators move between nodes. So an intolerant release never
runs together with an emitting one; a tolerant release comes in between ("upgrade all (a) brokers to (b), then upgrade
them to (c)"). A downgrade goes through a tolerant release, too. The scan of the coordinator logs then decides whether
its last release step is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.findings import BLOCKER, Check, Finding, FindingCode, Need
from kafka_rollout.base.wording import nodes
from kafka_rollout.model.configs import NodeConfigs
from kafka_rollout.model.plan import NodeStep, ReleaseStep
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.releases.facts import REBALANCE_PROTOCOLS, Catalogue, CoordinatorClass, Release, newest_patches

CONTROLLERS = "controllers"
BROKERS = "brokers"


NODE_AHEAD = FindingCode("NODE-AHEAD", BLOCKER, "A node runs a release above the target of the first release step.")
NODE_BEHIND = FindingCode("NODE-BEHIND", BLOCKER, "A node runs a release below the target of the first release step.")
PAST_CHECK = Check(
    "nodes-ahead",
    "Nodes that are past the first release step",
    "upgrade.md#findings",
    (NODE_AHEAD, NODE_BEHIND),
    needs=(Need.NODES,),
)


def plan_release_steps(
    catalogue: Catalogue, source: Release, target: Release, *, down: bool = False, together: bool = True
) -> tuple[tuple[Release, Release, str], ...]:
    """Return the release steps (from, to, reason) from source to target; empty if they are equal. `down`: to an older.

    `together` False: the two releases never run at the same time (offline), so no release step is needed in between.
    Raises UserError for a release that is not in the catalogue, for a target in the other direction, and if there is no
    tolerant release between an intolerant and an emitting one.
    """
    older, newer = (target, source) if down else (source, target)
    known = catalogue.get(older), catalogue.get(newer)
    refuse_direction(source, target, down=down)
    if target == source:
        return ()
    if not together:
        return ((source, target, f"All nodes are stopped, so {source} and {target} never run at the same time."),)
    if [facts.coordinator_class for facts in known] != [CoordinatorClass.INTOLERANT, CoordinatorClass.EMITTING]:
        return ((source, target, f"Releases {source} and {target} can run at the same time (KIP-915)."),)
    via = tolerant_between(catalogue, older, newer)
    last = (
        f"no node still writes records that {target} does not support"
        if down
        else f"every coordinator now tolerates the records that {target} writes"
    )
    reason = f"KIP-915: {older} cannot load coordinator records that {newer} writes, so all nodes first move to {via}"
    return ((source, via, f"{reason}, which ignores records of unknown types."), (via, target, f"KIP-915: {last}."))


def refuse_direction(source: Release, target: Release, *, down: bool = False) -> None:
    """Raise UserError for the target of an upgrade below the running release, of a downgrade (`down`) above it."""
    if (target > source) if down else (target < source):
        other = "an upgrade" if down else "a downgrade"
        name = other.partition(" ")[2]
        raise UserError(
            f"Target {target} is {'newer' if down else 'older'} than the running release {source}.",
            remedy=f"Start {other}: `kafka-rollout {name}`, or the DAG kafka_{name}.",
        )


def with_configured_classes(catalogue: Catalogue, cluster: ClusterSpec, configs: NodeConfigs) -> Catalogue:
    """Return the catalogue with the class EMITTING for tolerant releases that write records of new group protocols.

    3.7 to 3.9 write them if group.coordinator.rebalance.protocols has more than `classic`, in the file of a broker or
    in release_overrides. A value of a config provider counts as if it had.
    """
    files = {configs.get(node.node_id, {}).get(REBALANCE_PROTOCOLS, "") for node in cluster.brokers}

    def emits(release: Release) -> bool:
        facts = catalogue.get(release)
        if facts.coordinator_class is not CoordinatorClass.TOLERANT or REBALANCE_PROTOCOLS not in facts.config_names:
            return False
        overridden = cluster.release_overrides.get(str(release), {}).get(REBALANCE_PROTOCOLS)
        values = files if overridden is None else {overridden}
        return any(one.strip().lower() not in ("", "classic") for value in values for one in value.split(","))

    changed = {
        release: replace(catalogue.get(release), coordinator_class=CoordinatorClass.EMITTING)
        for release in catalogue
        if emits(release)
    }
    return replace(catalogue, releases={**catalogue.releases, **changed}) if changed else catalogue


def tolerant_between(catalogue: Catalogue, source: Release, target: Release) -> Release:
    """Return the nearest tolerant release above the source, preferably of the same minor line (the smallest change)."""
    between = [
        release
        for release in catalogue
        if source < release < target and catalogue.get(release).coordinator_class is CoordinatorClass.TOLERANT
    ]
    if not between:
        raise UserError(
            f"KIP-915 requires a tolerant release between {source} and {target}, and the catalogue has none.",
            remedy="Add one, for example with `kafka-rollout-derive add 3.4.1`.",
        )
    return min(between)


def source_release(cluster: ClusterSpec, state: ClusterState, *, down: bool = False) -> Release:
    """Return the lowest running release, in a downgrade (`down`) the highest: an interrupted run continues with the
    nodes that still run it.

    Raises RefusedError if no node reports its release.
    """
    if not state.releases:
        raise RefusedError(
            f"No node of cluster {cluster.name} reports its running release (metric app-info).",
            remedy="Check prometheus_url and jolokia_url in its inventory and make sure that the agents respond.",
        )
    return max(state.releases) if down else min(state.releases)


def find_nodes_ahead(state: ClusterState, first_stop: Release, *, down: bool = False) -> Finding | None:
    """Return a finding for nodes past the target of the first release step: the run would move them back unasked.

    `down`: the run is a downgrade, so such nodes run an older release.
    """
    running = {i: n.release for i, n in state.nodes.items() if n.release is not None}
    ahead = {i: release for i, release in running.items() if (release < first_stop if down else release > first_stop)}
    if not ahead:
        return None
    releases = ", ".join(sorted({str(release) for release in ahead.values()}))
    farthest, way = (min(ahead.values()), "upgrade") if down else (max(ahead.values()), "downgrade")
    return (NODE_BEHIND if down else NODE_AHEAD).found(
        nodes(ahead),
        f"{nodes(ahead).capitalize()} run {releases}, {'below' if down else 'above'} {first_stop}, "
        "the target of the first release step.",
        f"Choose target {farthest}, or {way} these nodes to the release of the others first.",
    )


def node_order(cluster: ClusterSpec, active_controller_id: int | None, *, down: bool = False) -> tuple[NodeStep, ...]:
    """Return the node order: controllers (combined nodes included), then brokers; in a downgrade brokers first.

    Else by id, but the active controller is the last of the controllers, so the leadership of the quorum moves only
    once, to a node on the new release. In a downgrade the controllers keep the newer release while a broker runs it. A
    controller serves older brokers; it need not serve newer ones.
    """

    def node_step(node: NodeSpec, section: str) -> NodeStep:
        active = node.is_controller and node.node_id == active_controller_id
        return NodeStep(node_id=node.node_id, name=node.name, section=section, active_controller=active)

    controllers = sorted(cluster.controllers, key=lambda n: (n.node_id == active_controller_id, n.node_id))
    first = [node_step(n, CONTROLLERS) for n in controllers]
    then = [node_step(n, BROKERS) for n in sorted(cluster.brokers_alone, key=lambda n: n.node_id)]
    return tuple(then + first if down else first + then)


def relevant_releases(
    catalogue: Catalogue, running: Iterable[Release], listed: Iterable[Release]
) -> tuple[Release, ...]:
    """Return the releases that matter for a cluster, oldest first; all of the catalogue if `running` is empty.

    They are the running releases, those on the way up to the newest release of the catalogue, those on the way down to
    the newest patch release of the previous minor line, and the `listed` ones.
    """
    known = sorted(release for release in running if release in catalogue)
    if not known:
        return tuple(catalogue)
    found = {*known, *(release for release in listed if release in catalogue)}
    found |= {to for _, to, _ in plan_release_steps(catalogue, known[0], max(catalogue))}
    lines = newest_patches(catalogue)
    if older := [release for release in lines if (release.major, release.minor) < (known[0].major, known[0].minor)]:
        found |= {to for _, to, _ in plan_release_steps(catalogue, known[-1], older[-1], down=True)}
    return tuple(sorted(found))


def find_restart_steps(cluster: ClusterSpec, state: ClusterState, names: Sequence[str]) -> tuple[ReleaseStep, ...]:
    """Return the step that restarts nodes on their release. `names`: names or ids of the nodes; empty: all nodes.

    Raises UserError for an unknown node, and RefusedError if the nodes run different releases.
    """
    release = source_release(cluster, state)
    if len(set(state.releases)) > 1:
        running = ", ".join(sorted({str(one) for one in state.releases}))
        raise RefusedError(
            f"The nodes of cluster {cluster.name} run different releases: {running}.",
            remedy="Bring all nodes to one release first, with an upgrade or a downgrade.",
        )
    known = {one: node.node_id for node in cluster.nodes for one in (node.name, str(node.node_id))}
    if unknown := [name for name in names if name not in known]:
        listed = ", ".join(f"{node.name} ({node.node_id})" for node in cluster.nodes)
        raise UserError(f"Cluster {cluster.name} has no node {', '.join(unknown)}.", remedy=f"Its nodes: {listed}.")
    chosen = {known[name] for name in names} or set(known.values())
    order = node_order(cluster, state.quorum.leader_id if state.quorum else None)
    step = ReleaseStep(
        from_release=release,
        to_release=release,
        reason=f"Each node is stopped and started again on {release}.",
        order=tuple(node_step for node_step in order if node_step.node_id in chosen),
    )
    return (step,)


def find_release_steps(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    target: Release,
    *,
    down: bool = False,
    together: bool = True,
) -> tuple[ReleaseStep, ...]:
    """Return the release steps from the running release with their node order. `down`: of a downgrade.

    `together`: as in `plan_release_steps`, whose errors and those of `source_release` it raises.
    """
    source = source_release(cluster, state, down=down)
    active = state.quorum.leader_id if state.quorum else None
    order = node_order(cluster, active, down=down)
    ways = plan_release_steps(catalogue, source, target, down=down, together=together)
    return tuple(ReleaseStep(from_release=a, to_release=b, reason=reason, order=order) for a, b, reason in ways)
