"""Findings about registered nodes that the inventory lacks."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Finding, FindingCode
from kafka_rollout.features.support import (
    CONTROLLER_UNREGISTRATION_LEVEL,
    removed_controller_remedy,
    unlisted_controller_lacks,
)
from kafka_rollout.model.state import ClusterState, find_unlisted_brokers, find_unlisted_controllers
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Catalogue, Release

UNLISTED_BROKER = FindingCode(
    "UNLISTED-BROKER", BLOCKER, "A registered broker is missing in the inventory. It blocks finalizing."
)
UNLISTED_CONTROLLER = FindingCode(
    "UNLISTED-CONTROLLER",
    (BLOCKER, WARNING),
    "A registered controller is missing in the inventory. A warning if its registration supports the target's levels.",
)
UNLISTED_CHECK = Check(
    "unlisted-nodes",
    "Registered nodes that the inventory lacks",
    "upgrade.md#unlisted-controllers",
    (UNLISTED_BROKER, UNLISTED_CONTROLLER),
)


def unlisted_node_findings(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, target: Release | None
) -> Iterable[Finding]:
    """Yield a finding for each registered node that the inventory lacks. `target`: the target of the run, if any."""
    for node_id in sorted(find_unlisted_controllers(cluster, state)) if cluster.manages_nodes else ():
        yield _unlisted_controller(cluster, catalogue, state, node_id, target)
    for node_id in sorted(find_unlisted_brokers(cluster, state)):
        yield UNLISTED_BROKER.found(
            f"broker {node_id}",
            f"Broker {node_id} is registered in the cluster but not listed in the inventory. It blocks finalizing.",
            f"If it runs, add it to the inventory. If not, unregister it (kafka-cluster.sh unregister --id {node_id}).",
        )


def _unlisted_controller(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, node_id: int, target: Release | None
) -> Finding:
    """Return the finding: a blocker unless the controller's registration supports the levels to be finalized."""
    subject = f"controller {node_id}"
    found = f"Controller {node_id} is registered in the cluster but not listed in the inventory."
    voters = {voter.replica_id for voter in state.quorum.voters} if state.quorum else set()
    if node_id in voters:
        is_dynamic = any(n.features and n.features.finalized.get(KRAFT_VERSION, 0) for n in state.nodes.values())
        command = (
            f"remove the voter (kafka-metadata-quorum.sh --bootstrap-server {cluster.bootstrap_servers} "
            f"remove-controller --controller-id {node_id} --controller-directory-id ID)"
            if is_dynamic
            else "remove it from controller.quorum.voters of every node"
        )
        return UNLISTED_CONTROLLER.found(
            subject,
            f"{found} It is a voter of the quorum, and blocks finalizing.",
            f"If it runs, add it to the inventory. If not, {command}, then plan again.",
            severity=BLOCKER,
        )
    known = [release for release in (target, max(state.releases, default=None)) if release and release in catalogue]
    levels = {name: facts.default_level for name, facts in catalogue.get(known[0]).features.items()} if known else {}
    lacking = unlisted_controller_lacks(state, node_id, levels) if known else None
    removable = state.finalized.get(METADATA_VERSION, 0) >= CONTROLLER_UNREGISTRATION_LEVEL
    remedy = removed_controller_remedy(cluster, state, node_id, f"Kafka {known[0]}" if known else "")
    if lacking == ():
        return UNLISTED_CONTROLLER.found(
            subject,
            f"{found} Its registration supports the levels of Kafka {known[0]}, so it does not block finalizing.",
            remedy
            if removable
            else "If it runs, add it to the inventory. If not, no action is needed: its registration can be removed "
            f"from metadata.version {CONTROLLER_UNREGISTRATION_LEVEL} on.",
            severity=WARNING,
        )
    what = "Its supported levels are unknown." if lacking is None else f"It does not support {', '.join(lacking)}."
    return UNLISTED_CONTROLLER.found(subject, f"{found} {what} It blocks finalizing.", remedy, severity=BLOCKER)
