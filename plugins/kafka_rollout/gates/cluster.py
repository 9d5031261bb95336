"""Gates of the whole cluster after finalizing: levels, snapshots and the metadata.version of each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.gates.check import Condition, GateCheck
from kafka_rollout.model.state import CheckpointFile, ClusterState, NodeFeatures, NodeState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue

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
    return GateCheck(
        gate="finalized",
        at=state.observed_at,
        conditions=tuple(_levels(cluster, state, node, targets, after_epoch) for node in cluster.nodes),
    )


def _levels(
    cluster: ClusterSpec, state: ClusterState, node: NodeSpec, targets: Mapping[str, int], after_epoch: int | None
) -> Condition:
    name = f"node {node.node_id} reports the levels"
    seen = state.nodes.get(node.node_id)
    if seen is None or seen.features is None:
        return Condition(name=name, is_met=False, evidence=_no_answer(seen))
    features = seen.features
    if not targets:
        return Condition(name=name, is_met=True, evidence="no level was planned to change")
    if features.without_quorum:
        return Condition(name=name, is_met=False, evidence=_WITHOUT_QUORUM)
    if _names_no_levels(node, features):
        return _by_log(name, cluster, state, node, targets)
    wrong = [
        f"{feature} {features.finalized.get(feature, 0)} instead of {level}"
        for feature, level in sorted(targets.items())
        if features.finalized.get(feature, 0) != level
    ]
    if wrong:
        return Condition(name=name, is_met=False, evidence=f"ApiVersions reports {', '.join(wrong)}")
    if features.epoch is None:
        return Condition(name=name, is_met=False, evidence="ApiVersions reports no epoch of the finalized features")
    if after_epoch is not None and features.epoch <= after_epoch:
        return Condition(
            name=name,
            is_met=False,
            evidence=f"epoch {features.epoch} is not newer than {after_epoch}, the epoch before finalizing",
        )
    levels = ", ".join(f"{feature} {level}" for feature, level in sorted(targets.items()))
    return Condition(name=name, is_met=True, evidence=f"ApiVersions reports {levels}, epoch {features.epoch}")


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
        seen = state.nodes.get(node.node_id)
        condition = _by_file(node, checkpoints.get(node.node_id, ()), finalized_at, after_offset)
        if not condition.is_met and not checkpoints.get(node.node_id):
            condition = _by_metric(node, seen, state.observed_at, finalized_at)
        interval = (interval_ms or {}).get(node.node_id)
        if not condition.is_met and interval is not None:
            condition = Condition(
                name=condition.name,
                is_met=False,
                evidence=f"{condition.evidence}; the node writes one at least every {interval / 1000:.0f} s",
            )
        conditions.append(condition)
    return GateCheck(gate="snapshot", at=state.observed_at, conditions=tuple(conditions))


def _by_file(
    node: NodeSpec, files: Sequence[CheckpointFile], finalized_at: float, after_offset: int | None
) -> Condition:
    name = f"node {node.node_id} has a snapshot"
    newest = max(files, key=lambda file: (file.epoch, file.end_offset), default=None)
    if newest is None:
        return Condition(name=name, is_met=False, evidence="no checkpoint file was found")
    file_name = f"{newest.end_offset:020d}-{newest.epoch:010d}.checkpoint"
    age = newest.modified_at - finalized_at
    if age <= 0 or (after_offset is not None and newest.end_offset <= after_offset):
        return Condition(
            name=name, is_met=False, evidence=(f"the newest file, {file_name}, was written before finalizing")
        )
    return Condition(name=name, is_met=True, evidence=f"{file_name}, written {age:.0f} s after finalizing")


def _by_metric(node: NodeSpec, seen: NodeState | None, observed_at: float, finalized_at: float) -> Condition:
    name = f"node {node.node_id} has a snapshot"
    metrics = seen.metrics if seen else None
    if metrics is None or metrics.snapshot_age_ms is None:
        return Condition(
            name=name, is_met=False, evidence=("neither a checkpoint file nor a SnapshotEmitter metric was found")
        )
    if not metrics.snapshot_bytes:
        # Before the first snapshot of a process, the age counts from the start of the process.
        return Condition(
            name=name, is_met=False, evidence=("SnapshotEmitter has written no snapshot since the node started")
        )
    age = observed_at - metrics.snapshot_age_ms / 1000 - finalized_at
    when = f"{abs(age):.0f} s {'after' if age > 0 else 'before'} finalizing"
    return Condition(name=name, is_met=age > 0, evidence=f"SnapshotEmitter wrote its latest snapshot {when}")


def check_metadata_version(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, level: int) -> GateCheck:
    """Check that every node runs at metadata.version `level`, by CurrentMetadataVersion of both agents.

    If the release has no such metric, or the inventory lists no agent, the check uses the finalized level of
    ApiVersions. The evidence names the source.
    """
    conditions = tuple(_current(cluster, catalogue, state, node, level) for node in cluster.nodes)
    return GateCheck(gate="metadata-version", at=state.observed_at, conditions=conditions)


def _current(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, node: NodeSpec, level: int) -> Condition:
    seen = state.nodes.get(node.node_id)
    name = f"node {node.node_id} runs at metadata.version {level}"
    if seen is None or (seen.features is None and seen.metrics is None):
        return Condition(name=name, is_met=False, evidence=_no_answer(seen))
    release = seen.release
    if release is None and cluster.manages_nodes:
        return Condition(name=name, is_met=False, evidence="the running release is unknown (metric app-info)")
    if release is not None and release in catalogue and not catalogue.get(release).has_current_metadata_version_metric:
        if seen.features is not None and _names_no_levels(node, seen.features):
            return _by_log(name, cluster, state, node, {METADATA_VERSION: level})
        return _by_api_versions(name, seen, level, f"release {release} has no CurrentMetadataVersion")
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
        return _by_api_versions(name, seen, level, why)
    levels = ", ".join(
        f"{source} {'did not respond' if value is None else f'reports {value}'}" for source, value in answers
    )
    return Condition(
        name=name, is_met=all(value == level for _, value in answers), evidence=f"CurrentMetadataVersion: {levels}"
    )


def _by_api_versions(name: str, seen: NodeState, level: int, why: str) -> Condition:
    reported = None if seen.features is None else seen.features.finalized.get(METADATA_VERSION)
    if seen.features is not None and seen.features.without_quorum:
        return Condition(name=name, is_met=False, evidence=f"{why}; {_WITHOUT_QUORUM}")
    return Condition(
        name=name,
        is_met=reported == level,
        evidence=f"{why}; ApiVersions reports {'nothing' if reported is None else reported}",
    )


def _names_no_levels(node: NodeSpec, features: NodeFeatures) -> bool:
    return not node.is_broker and not features.finalized and features.epoch is None and not features.without_quorum


def _by_log(
    name: str, cluster: ClusterSpec, state: ClusterState, node: NodeSpec, targets: Mapping[str, int]
) -> Condition:
    """Check a controller that reports no levels by its log end.

    The epoch of a broker is the offset that it has read.
    """
    features = (state.nodes[b.node_id].features for b in cluster.brokers if b.node_id in state.nodes)
    epochs = [
        f.epoch
        for f in features
        if f is not None and f.epoch is not None and all(f.finalized.get(n, 0) == level for n, level in targets.items())
    ]
    voters = state.quorum.voters if state.quorum else ()
    end = next((v.log_end_offset for v in voters if v.replica_id == node.node_id), -1)
    levels = ", ".join(f"{feature} {level}" for feature, level in sorted(targets.items()))
    if not epochs:
        evidence = f"the release of this controller reports no levels, and no broker reports {levels}"
        return Condition(name=name, is_met=False, evidence=evidence)
    evidence = (
        f"the release of this controller reports no levels; its log ends at {end}, a broker reports {levels} "
        f"at {min(epochs)}"
    )
    return Condition(name=name, is_met=end > min(epochs), evidence=evidence)


def _no_answer(seen: NodeState | None) -> str:
    return f"no response ({seen.problem})" if seen and seen.problem else "no response"
