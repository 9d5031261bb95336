"""Gates of the whole cluster: health, after finalizing, and before all controllers stop while the brokers serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.base.wording import count
from kafka_rollout.gates.gate import GateCheck, GateCondition, none_left
from kafka_rollout.gates.node import answered
from kafka_rollout.model.state import CheckpointFile, ClusterState, Movements, NodeFeatures, NodeState, check_current
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Catalogue

_WITHOUT_QUORUM = "ApiVersions reports levels without an epoch: the node has not read the quorum's metadata yet"


def check_finalized(
    cluster: ClusterSpec, state: ClusterState, targets: Mapping[str, int], *, after_epoch: int | None = None
) -> GateCheck:
    """Check that every node reports every level itself, with an epoch.

    Epochs of different nodes are not compared. The epoch of a KRaft broker is the offset of its newest metadata image,
    so it always grows. The epoch of a controller is the offset of the last feature change. `after_epoch`: the highest
    epoch before finalizing; it separates a new response from an old one. Controllers before 3.5 report no finalized
    levels: their logs must reach the offset that the brokers with these levels have read.
    """
    conditions = []
    for node in cluster.nodes:
        is_met, evidence = _reports_levels(cluster, state, node, targets, after_epoch)
        name = f"node {node.node_id} reports the levels"
        conditions.append(GateCondition(name=name, is_met=is_met, evidence=evidence))
    return GateCheck(gate="finalized", at=state.observed_at, conditions=tuple(conditions))


def _reports_levels(
    cluster: ClusterSpec, state: ClusterState, node: NodeSpec, targets: Mapping[str, int], after_epoch: int | None
) -> tuple[bool, str]:
    seen = state.nodes.get(node.node_id)
    if seen is None or seen.features is None:
        return False, _no_answer(seen)
    features = seen.features
    if not targets:
        return True, "no level was planned to change"
    if features.without_quorum:
        return False, _WITHOUT_QUORUM
    if _names_no_levels(node, features):
        return _by_log(cluster, state, node, targets)
    wrong = [
        f"{feature} {features.finalized.get(feature, 0)} instead of {level}"
        for feature, level in sorted(targets.items())
        if features.finalized.get(feature, 0) != level
    ]
    if wrong:
        return False, f"ApiVersions reports {', '.join(wrong)}"
    if features.epoch is None:
        return False, "ApiVersions reports no epoch of the finalized features"
    # The level of kraft.version is in the state of Raft, so raising it alone makes no new epoch (FeaturesPublisher).
    makes_epoch = bool(targets.keys() - {KRAFT_VERSION})
    if makes_epoch and after_epoch is not None and features.epoch <= after_epoch:
        return False, f"epoch {features.epoch} is not newer than {after_epoch}, the epoch before finalizing"
    levels = ", ".join(f"{feature} {level}" for feature, level in sorted(targets.items()))
    return True, f"ApiVersions reports {levels}, epoch {features.epoch}"


def snapshot_condition(node_id: int) -> str:
    """Return the name of the condition that a node has a snapshot."""
    return f"node {node_id} has a snapshot"


def check_snapshots(
    cluster: ClusterSpec,
    state: ClusterState,
    checkpoints: Mapping[int, Sequence[CheckpointFile]],
    *,
    finalized_at: float,
    after_offset: int | None = None,
    interval_ms: Mapping[int, int] | None = None,
) -> GateCheck:
    """Check that every node has written a metadata snapshot since `finalized_at` (epoch seconds).

    Source: the files, if the runtime can list them (`checkpoints` by node), else the SnapshotEmitter metrics.
    `after_offset`: the offset of the finalized levels; the snapshot must end after it. `interval_ms`:
    metadata.log.max.snapshot.interval.ms by node, for the sentence with the expected time.
    """
    conditions = []
    for node in cluster.nodes:
        if files := checkpoints.get(node.node_id, ()):
            is_met, evidence = _by_file(files, finalized_at, after_offset)
        else:
            is_met, evidence = _by_metric(state.nodes.get(node.node_id), state.observed_at, finalized_at)
        interval = (interval_ms or {}).get(node.node_id)
        if not is_met and interval is not None:
            evidence += f"; the node writes one at least every {interval / 1000:.0f} s"
        name = snapshot_condition(node.node_id)
        conditions.append(GateCondition(name=name, is_met=is_met, evidence=evidence))
    return GateCheck(gate="snapshot", at=state.observed_at, conditions=tuple(conditions))


def _by_file(files: Sequence[CheckpointFile], finalized_at: float, after_offset: int | None) -> tuple[bool, str]:
    newest = max(files, key=lambda file: (file.epoch, file.end_offset))
    file_name = f"{newest.end_offset:020d}-{newest.epoch:010d}.checkpoint"
    age = newest.modified_at - finalized_at
    if age <= 0 or (after_offset is not None and newest.end_offset <= after_offset):
        return False, f"the newest file, {file_name}, was written before finalizing"
    return True, f"{file_name}, written {age:.0f} s after finalizing"


def _by_metric(seen: NodeState | None, observed_at: float, finalized_at: float) -> tuple[bool, str]:
    metrics = seen.metrics if seen else None
    if metrics is None or metrics.snapshot_age_ms is None:
        return False, "neither a checkpoint file nor a SnapshotEmitter metric was found"
    if not metrics.snapshot_bytes:
        # Before the first snapshot of a process, the age counts from the start of the process.
        return False, "SnapshotEmitter has written no snapshot since the node started"
    age = observed_at - metrics.snapshot_age_ms / 1000 - finalized_at
    when = f"{abs(age):.0f} s {'after' if age > 0 else 'before'} finalizing"
    return age > 0, f"SnapshotEmitter wrote its latest snapshot {when}"


def check_metadata_version(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, level: int) -> GateCheck:
    """Check that every node runs at metadata.version `level`, by CurrentMetadataVersion of both agents.

    If the release has no such metric, or the inventory lists no agent, the check uses the finalized level of
    ApiVersions. The evidence names the source.
    """
    conditions = []
    for node in cluster.nodes:
        is_met, evidence = _current(cluster, catalogue, state, node, level)
        name = f"node {node.node_id} runs at metadata.version {level}"
        conditions.append(GateCondition(name=name, is_met=is_met, evidence=evidence))
    return GateCheck(gate="metadata-version", at=state.observed_at, conditions=tuple(conditions))


def _current(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, node: NodeSpec, level: int
) -> tuple[bool, str]:
    seen = state.nodes.get(node.node_id)
    if seen is None or (seen.features is None and seen.metrics is None):
        return False, _no_answer(seen)
    release = seen.release
    if release is None and cluster.manages_nodes:
        return False, "the running release is unknown (metric app-info)"
    if release is not None and release in catalogue and not catalogue.get(release).has_current_metadata_version_metric:
        if seen.features is not None and _names_no_levels(node, seen.features):
            return _by_log(cluster, state, node, {METADATA_VERSION: level})
        return _by_api_versions(seen, level, f"release {release} has no CurrentMetadataVersion")
    metrics = seen.metrics
    answers = [
        (source, value)
        for source, url, value in (
            ("Prometheus", node.prometheus_url, metrics.current_metadata_version_prometheus if metrics else None),
            ("Jolokia", node.jolokia_url, metrics.current_metadata_version_jolokia if metrics else None),
        )
        if value is not None or (url is not None and (metrics is None or source.lower() in metrics.unanswered))
    ]
    if not answers:
        listed = node.prometheus_url or node.jolokia_url
        why = (
            "the metrics agents export no CurrentMetadataVersion" if listed else "the inventory lists no metrics agent"
        )
        return _by_api_versions(seen, level, why)
    levels = ", ".join(
        f"{source} {'did not respond' if value is None else f'reports {value}'}" for source, value in answers
    )
    return all(value == level for _, value in answers), f"CurrentMetadataVersion: {levels}"


def _by_api_versions(seen: NodeState, level: int, why: str) -> tuple[bool, str]:
    reported = None if seen.features is None else seen.features.finalized.get(METADATA_VERSION)
    if seen.features is not None and seen.features.without_quorum:
        return False, f"{why}; {_WITHOUT_QUORUM}"
    return reported == level, f"{why}; ApiVersions reports {'nothing' if reported is None else reported}"


def _names_no_levels(node: NodeSpec, features: NodeFeatures) -> bool:
    return not node.is_broker and not features.finalized and features.epoch is None and not features.without_quorum


def _by_log(cluster: ClusterSpec, state: ClusterState, node: NodeSpec, targets: Mapping[str, int]) -> tuple[bool, str]:
    """Check a controller that reports no levels by its log end.

    The epoch of a broker is the offset that it has read.
    """
    features = (state.nodes[b.node_id].features for b in cluster.brokers if b.node_id in state.nodes)
    epochs = [
        f.epoch
        for f in features
        if f is not None and f.epoch is not None and all(f.finalized.get(n, 0) == level for n, level in targets.items())
    ]
    replica = state.quorum.replica(node.node_id) if state.quorum else None
    end = -1 if replica is None else replica.log_end_offset
    levels = ", ".join(f"{feature} {level}" for feature, level in sorted(targets.items()))
    if not epochs:
        return False, f"the release of this controller reports no levels, and no broker reports {levels}"
    reads = f"its log ends at {end}, a broker reports {levels} at {min(epochs)}"
    return end > min(epochs), f"the release of this controller reports no levels; {reads}"


def _no_answer(seen: NodeState | None) -> str:
    return f"no response ({seen.problem})" if seen and seen.problem else "no response"


SETTLED_S = 30.0
"""A node that was started more recently can still fail. Its partitions would stay without a leader."""


def check_before_controllers_stop(cluster: ClusterSpec, state: ClusterState, movements: Movements) -> GateCheck:
    """Check that no broker needs a controller soon.

    While no controller is active, no leader is elected and no ISR changes.
    """
    conditions = [
        answered(state.unanswered),
        _all_serve(cluster, state, lists_fenced=True),
        _settled(cluster, state),
        _caught_up(cluster, state),
        _in_sync(state),
        none_left("no reassignment", sorted(movements.reassigned), met="no partition is being reassigned"),
        none_left("no directory move", sorted(movements.directories), met="no replica moves to another directory"),
    ]
    return GateCheck(gate="controllers-stop", at=state.observed_at, conditions=tuple(conditions))


def check_healthy(cluster: ClusterSpec, state: ClusterState) -> GateCheck:
    """Check that every node serves, has the newest metadata, and every replica is in sync with its leader.

    What the user cannot read, or did not answer, is not healthy.
    """
    conditions = (
        answered((*state.unanswered, *state.not_observable)),
        _all_serve(cluster, state),
        _caught_up(cluster, state),
        _in_sync(state),
    )
    return GateCheck(gate="healthy", at=state.observed_at, conditions=conditions)


def _in_sync(state: ClusterState) -> GateCondition:
    return none_left(
        "all replicas are in sync",
        sorted(p.name for p in state.partitions if set(p.isr) != set(p.replicas) or p.leader not in p.isr),
        met=f"{count(len(state.partitions), 'partition')} have a leader and all replicas in sync",
    )


def _all_serve(cluster: ClusterSpec, state: ClusterState, *, lists_fenced: bool = False) -> GateCondition:
    """Check that every known node serves.

    `lists_fenced`: brokers before 4.0 list no fenced ones (KIP-1073); one that is not known and has no replica counts
    then too.
    """
    registered = state.registered
    fenced = registered.fenced
    wrong = ["the fenced brokers cannot be listed"] if fenced is None and lists_fenced else []
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id)
        if seen is None or seen.features is None or (cluster.manages_nodes and seen.process.pid is None):
            wrong.append(f"node {node.node_id} is down")
        elif node.is_broker and node.node_id not in registered.unfenced:
            wrong.append(f"broker {node.node_id} is fenced or not registered")
    unlisted = (registered.brokers | (fenced or frozenset())) - {node.node_id for node in cluster.brokers}
    wrong += [f"broker {node_id} is registered and not in the inventory" for node_id in sorted(unlisted)]
    met = f"{count(len(cluster.nodes), 'node')} respond; none of their brokers is fenced"
    return none_left("every node serves", wrong, met=met)


def _settled(cluster: ClusterSpec, state: ClusterState) -> GateCondition:
    young = []
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id)
        started_at = None if seen is None else seen.process.started_at
        if started_at is None:
            young.append(f"the start of node {node.node_id} is unknown")
        elif state.observed_at - started_at < SETTLED_S:
            young.append(f"node {node.node_id} was started {state.observed_at - started_at:.0f} s ago")
    return none_left("no recent restart", young, met=f"every node has run for {SETTLED_S:.0f} s or longer")


def _caught_up(cluster: ClusterSpec, state: ClusterState) -> GateCondition:
    if state.quorum is None:
        return GateCondition(name="every node is caught up", is_met=False, evidence="the quorum did not respond")
    behind = []
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id) if node.is_broker else None
        caught_up, evidence = check_current(state.quorum, node.node_id, seen)
        if not caught_up:
            behind.append(f"node {node.node_id}: {evidence}")
    met = f"controller {state.quorum.leader_id} is active, no node is behind"
    return none_left("every node is caught up", behind, met=met)
