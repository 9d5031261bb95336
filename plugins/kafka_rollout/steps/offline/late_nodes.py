"""Nodes whose hosts did not respond while the snapshot was installed, when their hosts respond again.

In between, systemd can have started such a node on its old release: it follows the leader that was elected on the
snapshot, and fetches the snapshot. Until then it has its old log, which the target release may not be able to read.
"""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.gates.node import check_before_stop
from kafka_rollout.metadata_log.log_choice import UnreadableLogError, follows_snapshot
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.run.step_events import OfflineInstalled
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe_some
from kafka_rollout.steps.common.node_steps import offline_release_step
from kafka_rollout.steps.offline.snapshot import install_on, quorum_lacks


def stop_late(ports: ClusterPorts, plan: Plan, node: NodeSpec, *, deadline_s: float) -> None:
    """Stop a node that runs its old release while the others serve. Raises RefusedError if they cannot spare it."""
    if node.commands_before_stop:  # before the gate: they can take an hour
        ports.runtime.prepare_stop(node)
    state = observe_some(ports, ports.cluster.nodes, metrics=False)
    seen = check_before_stop(
        ports.cluster, state, node, accept_unavailable=plan.accept_unavailable, unchecked=plan.unchecked
    )
    if not seen.passes:
        raise RefusedError(
            f"Node {node.node_id} runs its old release and cannot be stopped safely yet: {seen.waits_for}",
            remedy="Wait until the conditions are met, then repeat the step.",
        )
    ports.runtime.stop(node, deadline_s=deadline_s)


def install_late(ports: ClusterPorts, plan: Plan, node: NodeSpec, snapshot: Path) -> OfflineInstalled:
    """Give a stopped node the snapshot, or keep the one that it has fetched from the leader.

    A controller that voted since the choice of the log, but has not fetched the snapshot, is started again on its old
    release to fetch it. Raises TransientError then.
    """
    level = plan.levels[METADATA_VERSION]
    serves = projections.has_passed_no_return(ports.run.events()) and not quorum_lacks(ports, level)
    if serves and has_fetched_snapshot(ports, plan, node):
        ports.metadata_logs.replace_bootstrap(node, level=level, release=plan.target, cluster_id=plan.cluster_id)
        sentence = "The node was started on its old release and has fetched the snapshot from the leader."
        return OfflineInstalled(node_id=node.node_id, sentence=sentence, had_log=True)
    try:
        return install_on(ports, plan, node, snapshot)
    except RefusedError as error:
        if not serves:
            raise
        ports.runtime.install(node, offline_release_step(plan).from_release)
        ports.runtime.start(node)
        raise TransientError(f"{error.sentence} It was started on its old release to fetch the snapshot.") from error


def has_fetched_snapshot(ports: ClusterPorts, plan: Plan, node: NodeSpec) -> bool:
    """Return whether a stopped node's log continues the snapshot of this try."""
    chosen = projections.chosen_log(ports.run.events())
    try:
        log = ports.metadata_logs.node_log(node, cluster_id=plan.cluster_id)
    except UnreadableLogError:
        return False
    return chosen is not None and follows_snapshot(log, chosen)
