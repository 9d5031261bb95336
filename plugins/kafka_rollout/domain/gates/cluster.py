"""Gates of the whole cluster after finalizing: levels, snapshots, and the metadata.version each node runs at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafka_rollout.domain.gates.check import Condition, GateCheck
from kafka_rollout.domain.model.releases import METADATA_VERSION, Catalogue
from kafka_rollout.domain.model.state import ClusterState, NodeFeatures, NodeState
from kafka_rollout.domain.model.topology import ClusterSpec, NodeSpec


class Checkpoint(Protocol):
    """A snapshot of the metadata log on a node, as a runtime lists it (ports.CheckpointFile)."""

    @property
    def end_offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def modified_at(self) -> float: ...


def finalized(
    cluster: ClusterSpec, state: ClusterState, targets: Mapping[str, int], *, after_epoch: int | None = None
) -> GateCheck:
    """Every node itself reports every level, with an epoch.

    Epochs are not compared with each other: a KRaft broker's is the offset of its newest metadata image, so it
    moves all the time, a controller's is the offset of the last change of features. `after_epoch`, the highest epoch
    seen before finalizing, tells a fresh answer from an old one. Controllers before 3.5 report no finalized levels:
    their logs must hold what the brokers that report the levels have read.
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
        return Condition(name=name, holds=False, evidence=_no_answer(seen))
    features = seen.features
    if not targets:
        return Condition(name=name, holds=True, evidence="no level was to be changed")
    if _names_no_levels(node, features):
        return _by_log(name, cluster, state, node, targets)
    wrong = [
        f"{feature} {features.finalized.get(feature, 0)} instead of {level}"
        for feature, level in sorted(targets.items())
        if features.finalized.get(feature, 0) != level
    ]
    if wrong:
        return Condition(name=name, holds=False, evidence=f"ApiVersions says {', '.join(wrong)}")
    if features.epoch is None:
        return Condition(name=name, holds=False, evidence="ApiVersions names no epoch of the finalized features")
    if after_epoch is not None and features.epoch <= after_epoch:
        return Condition(
            name=name,
            holds=False,
            evidence=f"epoch {features.epoch} is not newer than {after_epoch}, before finalizing",
        )
    levels = ", ".join(f"{feature} {level}" for feature, level in sorted(targets.items()))
    return Condition(name=name, holds=True, evidence=f"ApiVersions says {levels}, epoch {features.epoch}")


def snapshots(
    cluster: ClusterSpec,
    state: ClusterState,
    checkpoints: Mapping[int, Sequence[Checkpoint]],
    *,
    finalized_at: float,
    after_offset: int | None = None,
    interval_ms: Mapping[int, int] | None = None,
) -> GateCheck:
    """Every node has written a metadata snapshot since `finalized_at` (epoch seconds).

    By its files where the runtime sees them (`checkpoints` by node; with `after_offset`, the offset at which the
    levels were finalized, the snapshot must also end behind it), else by the SnapshotEmitter metrics.
    `interval_ms` is each node's metadata.log.max.snapshot.interval.ms, for the sentence that says how long it takes.
    """
    conditions = []
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id)
        condition = _by_file(node, checkpoints.get(node.node_id, ()), finalized_at, after_offset)
        if not condition.holds and not checkpoints.get(node.node_id):
            condition = _by_metric(node, seen, state.observed_at, finalized_at)
        interval = (interval_ms or {}).get(node.node_id)
        if not condition.holds and interval is not None:
            condition = Condition(
                name=condition.name,
                holds=False,
                evidence=f"{condition.evidence}; it writes one at least every {interval / 1000:.0f} s",
            )
        conditions.append(condition)
    return GateCheck(gate="snapshot", at=state.observed_at, conditions=tuple(conditions))


def _by_file(node: NodeSpec, files: Sequence[Checkpoint], finalized_at: float, after_offset: int | None) -> Condition:
    name = f"node {node.node_id} has a snapshot"
    newest = max(files, key=lambda file: (file.epoch, file.end_offset), default=None)
    if newest is None:
        return Condition(name=name, holds=False, evidence="no checkpoint file is seen")
    file_name = f"{newest.end_offset:020d}-{newest.epoch:010d}.checkpoint"
    age = newest.modified_at - finalized_at
    if age <= 0 or (after_offset is not None and newest.end_offset <= after_offset):
        return Condition(name=name, holds=False, evidence=f"the newest file, {file_name}, is from before finalizing")
    return Condition(name=name, holds=True, evidence=f"{file_name}, written {age:.0f} s after finalizing")


def _by_metric(node: NodeSpec, seen: NodeState | None, observed_at: float, finalized_at: float) -> Condition:
    name = f"node {node.node_id} has a snapshot"
    metrics = seen.metrics if seen else None
    if metrics is None or metrics.snapshot_age_ms is None:
        return Condition(name=name, holds=False, evidence="neither a file nor a SnapshotEmitter metric is seen")
    if not metrics.snapshot_bytes:
        # Until a process has written its first snapshot, the age counts from the process's start.
        return Condition(name=name, holds=False, evidence="SnapshotEmitter has written none since the node's start")
    age = observed_at - metrics.snapshot_age_ms / 1000 - finalized_at
    when = f"{abs(age):.0f} s {'after' if age > 0 else 'before'} finalizing"
    return Condition(name=name, holds=age > 0, evidence=f"SnapshotEmitter wrote its latest {when}")


def metadata_version(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, level: int) -> GateCheck:
    """Every node runs at metadata.version `level`: CurrentMetadataVersion by both agents.

    Falls back on the finalized level of ApiVersions where the node's release has no such metric or the inventory
    names no agent, and the evidence says which source was asked.
    """
    conditions = tuple(_current(cluster, catalogue, state, node, level) for node in cluster.nodes)
    return GateCheck(gate="metadata-version", at=state.observed_at, conditions=conditions)


def _current(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, node: NodeSpec, level: int) -> Condition:
    seen = state.nodes.get(node.node_id)
    name = f"node {node.node_id} runs at metadata.version {level}"
    if seen is None or (seen.features is None and seen.metrics is None):
        return Condition(name=name, holds=False, evidence=_no_answer(seen))
    release = seen.release
    if release is None:
        return Condition(name=name, holds=False, evidence="the running release is unknown (app-info)")
    if release in catalogue and not catalogue.get(release).has_current_metadata_version_metric:
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
        if url is not None or value is not None
    ]
    if not answers:
        return _by_api_versions(name, seen, level, "the inventory names no metrics agent")
    told = ", ".join(f"{source} {'does not answer' if value is None else f'says {value}'}" for source, value in answers)
    return Condition(
        name=name, holds=all(value == level for _, value in answers), evidence=f"CurrentMetadataVersion: {told}"
    )


def _by_api_versions(name: str, seen: NodeState, level: int, why: str) -> Condition:
    told = None if seen.features is None else seen.features.finalized.get(METADATA_VERSION)
    return Condition(
        name=name, holds=told == level, evidence=f"{why}; ApiVersions says {'nothing' if told is None else told}"
    )


def _names_no_levels(node: NodeSpec, features: NodeFeatures) -> bool:
    return not node.is_broker and not features.finalized and features.epoch is None


def _by_log(
    name: str, cluster: ClusterSpec, state: ClusterState, node: NodeSpec, targets: Mapping[str, int]
) -> Condition:
    """A controller that names no levels, judged by its log: a broker's epoch is the offset that it has read."""
    told = (state.nodes[b.node_id].features for b in cluster.brokers if b.node_id in state.nodes)
    epochs = [
        f.epoch
        for f in told
        if f is not None and f.epoch is not None and all(f.finalized.get(n, 0) == level for n, level in targets.items())
    ]
    voters = state.quorum.voters if state.quorum else ()
    end = next((v.log_end_offset for v in voters if v.replica_id == node.node_id), -1)
    levels = ", ".join(f"{feature} {level}" for feature, level in sorted(targets.items()))
    if not epochs:
        evidence = f"this controller's release names no levels, and no broker reports {levels}"
        return Condition(name=name, holds=False, evidence=evidence)
    evidence = (
        f"this controller's release names no levels; its log ends at {end}, a broker reports {levels} at {min(epochs)}"
    )
    return Condition(name=name, holds=end > min(epochs), evidence=evidence)


def _no_answer(seen: NodeState | None) -> str:
    return f"no answer ({seen.problem})" if seen and seen.problem else "no answer"
