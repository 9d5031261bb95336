"""When Kafka's log cleaner removes a record from a compacted topic, at the latest.

Read in LogCleanerManager, Cleaner, UnifiedLog and MemoryRecords of 3.4.0 and 4.3.1, which decide alike:

- Segments before the active one are cleaned, the active one never. It is closed by an append (never by time alone)
  once it is `segment.bytes` large or its first record is older than `segment.ms` or `max.compaction.lag.ms`.
- A partition is taken when the closed segments not yet cleaned are more than `min.cleanable.dirty.ratio` of its bytes,
  or when the first record of one of them is older than `max.compaction.lag.ms`. Segments with records younger than
  `min.compaction.lag.ms` wait, and so does everything behind the first open transaction. A cleaner that finds nothing
  looks again after `log.cleaner.backoff.ms`.
- A pass removes records that a newer one of the same key shadows. A tombstone stays: the first pass over it writes into
  its batch when it may go, `delete.retention.ms` later (KIP-534), and only a pass after that removes it. So two passes,
  and for the second one more append, one more closed segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NO_LIMIT = 2**63 - 1  # Long.MAX_VALUE: Kafka's default of max.compaction.lag.ms

HURRIED_MS = MINUTE

POLICY, SEGMENT_MS, SEGMENT_BYTES = "cleanup.policy", "segment.ms", "segment.bytes"
DELETE_RETENTION, DIRTY_RATIO = "delete.retention.ms", "min.cleanable.dirty.ratio"
MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"
CLEANING_SETTINGS = (POLICY, SEGMENT_MS, SEGMENT_BYTES, DELETE_RETENTION, DIRTY_RATIO, MIN_LAG, MAX_LAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting of a topic to alter for a while; `put_back` None: it had none of its own, delete it afterwards."""

    topic: str
    name: str
    value: str
    put_back: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningConfig:
    """What a topic's cleaning depends on. Without arguments: Kafka's defaults for the topics of the coordinators.

    `known`: False when it was assumed and not read from the cluster. `own`: names of the settings that were made for
    the topic itself and are not the brokers'.
    """

    policy: str = "compact"
    segment_ms: int = 7 * DAY
    segment_bytes: int = 100 * 1024 * 1024
    delete_retention_ms: int = DAY
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LIMIT
    cleaner_backoff_ms: int = 15 * SECOND
    known: bool = False
    own: tuple[str, ...] = ()

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, own: Iterable[str] = ()) -> CleaningConfig:
        """Of a topic's configuration as DescribeConfigs answers it; what it does not name is Kafka's default."""
        default = cls()
        return cls(
            policy=settings.get(POLICY, default.policy),
            segment_ms=int(settings.get(SEGMENT_MS, default.segment_ms)),
            segment_bytes=int(settings.get(SEGMENT_BYTES, default.segment_bytes)),
            delete_retention_ms=int(settings.get(DELETE_RETENTION, default.delete_retention_ms)),
            min_cleanable_dirty_ratio=float(settings.get(DIRTY_RATIO, default.min_cleanable_dirty_ratio)),
            min_compaction_lag_ms=int(settings.get(MIN_LAG, default.min_compaction_lag_ms)),
            max_compaction_lag_ms=int(settings.get(MAX_LAG, default.max_compaction_lag_ms)),
            known=True,
            own=tuple(name for name in CLEANING_SETTINGS if name in set(own)),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CleaningConfig:
        return cls(**{**data, "own": tuple(data["own"])})

    @property
    def compacted(self) -> bool:
        return "compact" in [policy.strip() for policy in self.policy.split(",")]

    @property
    def closed_after_ms(self) -> int:
        """Age of its first record at which the next append closes the active segment."""
        return min(self.segment_ms, self.max_compaction_lag_ms)

    @property
    def pass_within_ms(self) -> int | None:
        """How long, at most, until a pass over a record written now begins; None: nothing bounds it but the log's size.

        Given that records keep coming: without an append the active segment is not closed.
        """
        if not self.compacted:
            return None
        ready = self.closed_after_ms + self.min_compaction_lag_ms
        if self.min_cleanable_dirty_ratio > 0:
            if self.max_compaction_lag_ms == NO_LIMIT:
                return None
            ready = max(ready, self.max_compaction_lag_ms)
        return ready + self.cleaner_backoff_ms

    @property
    def tombstones_gone_within_ms(self) -> int | None:
        """How long, at most, until the pass begins that removes a tombstone written now: two passes and between them
        `delete.retention.ms`."""
        one = self.pass_within_ms
        return None if one is None else 2 * one + self.delete_retention_ms

    def hurried(self) -> CleaningConfig:
        """The same topic with the settings of `hurry`: what the times are then."""
        return replace(
            self,
            delete_retention_ms=min(self.delete_retention_ms, HURRIED_MS),
            min_compaction_lag_ms=0,
            max_compaction_lag_ms=min(self.max_compaction_lag_ms, HURRIED_MS),
        )

    def hurry(self, topic: str, *, tombstones: bool = True) -> tuple[SettingChange, ...]:
        """What to set for a while so that the cleaner comes soon; none for a topic that is not compacted.

        `tombstones`: they are to go as well.

        `max.compaction.lag.ms` both closes the active segment and sends the cleaner whatever the ratio. It may not be
        less than `min.compaction.lag.ms`. `delete.retention.ms` counts from the first pass over a tombstone, as it was
        then: lowered afterwards it changes nothing for that tombstone.
        """
        if not self.compacted:
            return ()
        wanted = self.hurried()
        values = {
            MIN_LAG: (self.min_compaction_lag_ms, wanted.min_compaction_lag_ms),
            MAX_LAG: (self.max_compaction_lag_ms, wanted.max_compaction_lag_ms),
            DELETE_RETENTION: (self.delete_retention_ms, wanted.delete_retention_ms),
        }
        return tuple(
            SettingChange(topic=topic, name=name, value=str(then), put_back=str(now) if name in self.own else None)
            for name, (now, then) in values.items()
            if now != then and (tombstones or name != DELETE_RETENTION)
        )


def defaults_of(topic: str) -> CleaningConfig:
    """What Kafka gives a coordinator's topic. `__share_group_state` is not compacted: its coordinator deletes the
    records before the oldest that it still needs (ShareCoordinatorService, `shareGroupStateTopicConfigs`)."""
    return CleaningConfig(policy="delete") if topic == "__share_group_state" else CleaningConfig()
