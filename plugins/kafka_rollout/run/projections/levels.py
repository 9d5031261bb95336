"""Feature levels and metadata logs of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_rollout.metadata_log.scan import Readiness
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.events import Event, events_of
from kafka_rollout.run.step_events import Finalized, Finalizing, MetadataLogFound, MetadataScanned, ScanStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalization:
    """`asked_at`: epoch seconds, just before the request. Epochs of the finalized features are offsets of the metadata
    log.

    `epoch_before`: the highest epoch before the request. `epoch_after`: an epoch whose image contains the levels.
    """

    asked_at: float
    epoch_before: int | None
    epoch_after: int | None


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
    """Return the ids of the nodes whose metadata logs must be trimmed, as the approval lists them."""
    logs = metadata_logs(events, ScanStage.READY)
    return tuple(sorted({log.node_id for log in logs if log.readiness is Readiness.TRIM}))


def last_failing_offset(events: Sequence[Event]) -> int | None:
    """Return the last offset that a release of the path cannot replay; a snapshot must end after it."""
    offsets = (log.last_failing for stage in ScanStage for log in metadata_logs(events, stage))
    return max((offset for offset in offsets if offset is not None), default=None)
