"""What runs have observed of a cluster and changed since, their feature levels and metadata logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_rollout.gates.gate import GateKind
from kafka_rollout.metadata_log.metadata_scan import LogReadiness
from kafka_rollout.model.state import ClusterState
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.run.events import Event, Observed, events_of
from kafka_rollout.run.step_events import (
    Finalized,
    Finalizing,
    GateChecked,
    MetadataLogFound,
    MetadataScanned,
    ScanStage,
    Started,
)

_ONE_WAIT_S = 300.0  # between two checks of one wait: a check of a large cluster takes minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A cluster as it was observed, with the releases and levels that runs have set since."""

    observed: Observed
    changed_at: float = 0.0
    """Time of the newest known change of releases or levels (epoch seconds), also before the observation; 0 without
    one."""
    is_outdated: bool = False
    """A run that cannot be read can have changed them since."""
    known_releases: Mapping[int, Release] = field(default_factory=dict)
    """The last known ones."""
    known_levels: Mapping[str, int] = field(default_factory=dict)
    """The last known ones, without levels of 0."""


def observed_of(state: ClusterState) -> Observed:
    """Return the event about a state. Its `at` is 0."""
    are_read = bool(state.partitions)  # a cluster without any partition has nothing that can fail
    with_min_isr = are_read and all(one.has_known_min_isr for one in state.partitions)
    return Observed(
        cluster_id=state.cluster_id,
        releases={node_id: node.release for node_id, node in state.nodes.items()},
        finalized=dict(state.finalized.reported),
        quorum_leader=state.quorum.leader_id if state.quorum else None,
        partitions=len(state.partitions),
        groups=len(state.groups),
        unanswered=tuple(state.unanswered),
        builds={
            node_id: node.version
            for node_id, node in state.nodes.items()
            if node.version and node.version != str(node.release)
        },
        down=tuple(sorted(node_id for node_id, node in state.nodes.items() if node.features is None)),
        offline_partitions=sum(one.leader < 0 for one in state.partitions) if are_read else None,
        under_min_isr=sum(one.is_under_min_isr for one in state.partitions) if with_min_isr else None,
        under_replicated=sum(one.is_missing_replicas for one in state.partitions) if are_read else None,
    )


def newest_observation(events: Iterable[Event]) -> Observation | None:
    """Return the newest observation among events of several runs; None without one."""
    found: Observation | None = None
    for event in sorted((one for one in events if isinstance(one, Observed | Started | Finalized)), key=lambda e: e.at):
        if isinstance(event, Observed):
            found = observe_again(found, event)
        elif found is not None:
            told = {event.node_id: event.release} if isinstance(event, Started) else {}
            found = _with(found, _after(found.observed, event), told, event.at)
    return found


def observe_again(before: Observation | None, observed: Observed) -> Observation:
    """Return the newer observation. Other releases or levels than before are a change, for example by hand."""
    releases = {node_id: release for node_id, release in observed.releases.items() if release is not None}
    return _with(before or Observation(observed=observed), observed, releases, observed.at)


def _with(before: Observation, observed: Observed, releases: Mapping[int, Release], at: float) -> Observation:
    """`releases`: those that the event at this time names."""
    levels = {feature: level for feature, level in observed.finalized.items() if level} or before.known_levels
    has_moved = any(before.known_releases.get(node_id, release) != release for node_id, release in releases.items())
    has_changed = has_moved or levels != (before.known_levels or levels)
    return Observation(
        observed=observed,
        changed_at=at if has_changed else before.changed_at,
        known_releases={**before.known_releases, **releases},
        known_levels=levels,
    )


def _after(observed: Observed, event: Started | Finalized) -> Observed:
    if isinstance(event, Finalized):
        return replace(observed, finalized={**observed.finalized, **event.levels})
    builds = {node_id: text for node_id, text in observed.builds.items() if node_id != event.node_id}
    releases = {**observed.releases, event.node_id: event.release}
    down = tuple(node_id for node_id in observed.down if node_id != event.node_id)
    return replace(observed, releases=releases, builds=builds, down=down)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalization:
    asked_at: float
    """Epoch seconds, just before the request. Epochs of the finalized features are offsets of the metadata log."""
    epoch_before: int | None
    """The highest epoch before the request."""
    epoch_after: int | None
    """An epoch whose image contains the levels."""


def finalization(events: Sequence[Event]) -> Finalization | None:
    """Return the change of metadata.version, else of the first changed feature; None if no level was changed."""
    asked: dict[str, Finalization] = {}
    for event in events:
        match event:
            case Finalizing():
                new = Finalization(asked_at=event.at, epoch_before=event.epoch_before, epoch_after=None)
                asked |= dict.fromkeys(event.levels, new)
            case Finalized():
                asked |= {
                    feature: replace(asked[feature], epoch_after=event.epoch_after)
                    for feature in event.levels
                    if feature in asked
                }
    return asked.get(METADATA_VERSION) or next(iter(asked.values()), None)


def metadata_logs(events: Sequence[Event], stage: ScanStage) -> tuple[MetadataLogFound, ...]:
    """Return the newest scan of all metadata logs at a stage."""
    scans = [scan for scan in events_of(events, MetadataScanned) if scan.stage is stage]
    return scans[-1].nodes if scans else ()


def planned_trims(events: Sequence[Event]) -> tuple[int, ...]:
    """Return the ids of the nodes whose metadata logs must be trimmed, by the newest scan after the levels.

    An action takes the events that the approver has read (`approved_events`).
    """
    logs = metadata_logs(events, ScanStage.READY)
    return tuple(sorted({log.node_id for log in logs if log.readiness is LogReadiness.TRIM}))


def unproved_logs(events: Sequence[Event], node_ids: Iterable[int]) -> tuple[int, ...]:
    """Return which of these nodes have no metadata log that the newest scan after the levels found readable, also after
    a trim.
    """
    readable = {LogReadiness.READY, LogReadiness.TRIM}
    logs = metadata_logs(events, ScanStage.READY)
    proved = {log.node_id for log in logs} - {log.node_id for log in logs if log.readiness not in readable}
    return tuple(sorted(set(node_ids) - proved))


def last_failing_offset(events: Sequence[Event]) -> int | None:
    """Return the last offset that a release of the path cannot replay; a snapshot must end after it."""
    offsets = (log.last_failing for stage in ScanStage for log in metadata_logs(events, stage))
    return max((offset for offset in offsets if offset is not None), default=None)


def unserved_since(events: Sequence[Event], now: float) -> float:
    """Return since when every check of the running nodes has failed, epoch seconds; `now` without such checks.

    Checks that are far apart are of two waits: between them somebody has acted, or nobody has waited.
    """
    since = now
    for event in reversed(events_of(events, GateChecked)):
        if event.ref.kind is GateKind.NODES:
            if event.check.passes or since - event.at > _ONE_WAIT_S:
                break
            since = event.at
    return since
