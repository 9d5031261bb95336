"""The longest time until Kafka's log cleaner removes a record from a compacted topic.

Source: LogCleanerManager, Cleaner, UnifiedLog and MemoryRecords of 3.4.0 and 4.3.1, which behave the same:

- The cleaner cleans the segments before the active segment, never the active segment. Only an append closes the active
  segment, never the time alone. It closes it once it has `segment.bytes`, or once its first record is older than
  `segment.ms` or `max.compaction.lag.ms`.
- The cleaner selects a partition when the closed, uncleaned segments exceed `min.cleanable.dirty.ratio` of its bytes,
  or when the first record of one of them is older than `max.compaction.lag.ms`. Segments with records younger than
  `min.compaction.lag.ms` wait, and so does everything after the first open transaction. A cleaner that selects no
  partition checks again after `log.cleaner.backoff.ms`.
- A cleaning pass removes superseded records. A tombstone stays at first: the first pass over it writes into its batch
  when it can be removed, `delete.retention.ms` later (KIP-534), and only a pass after that time removes it. So a
  tombstone needs two passes. The second pass needs one more append and one more closed segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafka_rollout.base.internal_topics import SHARE_TOPIC

SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000
NO_LIMIT = 2**63 - 1  # Long.MAX_VALUE: Kafka's default of max.compaction.lag.ms

FASTER_MS = MINUTE
LONGEST_STOP_MS = 60 * MINUTE
"""A node of a roll is rarely down for longer."""

POLICY, SEGMENT_MS, SEGMENT_BYTES = "cleanup.policy", "segment.ms", "segment.bytes"
DELETE_RETENTION, DIRTY_RATIO = "delete.retention.ms", "min.cleanable.dirty.ratio"
MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"
CLEANING_SETTINGS = (POLICY, SEGMENT_MS, SEGMENT_BYTES, DELETE_RETENTION, DIRTY_RATIO, MIN_LAG, MAX_LAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A temporary topic setting."""

    topic: str
    name: str
    value: str
    previous: str | None
    """The value before; None: the topic had no own value, so delete it afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningConfig:
    """The configuration that decides when a topic is cleaned. Default: Kafka's for the coordinators' topics."""

    policy: str = "compact"
    segment_ms: int = 7 * DAY
    segment_bytes: int = 100 * 1024 * 1024
    delete_retention_ms: int = DAY
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LIMIT
    cleaner_backoff_ms: int = 15 * SECOND
    known: bool = False
    """False if it was assumed and not read from the cluster."""
    own: tuple[str, ...] = ()
    """Names of the settings of the topic itself, as opposed to broker defaults."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, own: Iterable[str] = ()) -> CleaningConfig:
        """Return the configuration from a DescribeConfigs response. Missing settings have Kafka's defaults."""
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

    @property
    def shows_deletions(self) -> bool:
        """Return whether a node that was down for LONGEST_STOP_MS still sees each deletion.

        The cleaner of the leader removes a tombstone `delete_retention_ms` after its first pass. A follower that does
        not have it by then keeps the older value of the key, and shows it when it leads.
        """
        return not self.compacted or self.delete_retention_ms >= LONGEST_STOP_MS

    @property
    def compacted(self) -> bool:
        return "compact" in [policy.strip() for policy in self.policy.split(",")]

    @property
    def closed_after_ms(self) -> int:
        """Age of its first record, in ms, at which the next append closes the active segment."""
        return min(self.segment_ms, self.max_compaction_lag_ms)

    @property
    def pass_within_ms(self) -> int | None:
        """Longest time in ms until a pass over a record written now begins; None: no upper limit except the size of the
        log.

        Condition: records keep being written. Without an append the active segment is not closed.
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
        """Longest time in ms until the pass that removes a tombstone written now begins; None: no upper limit.

        This takes two passes, with `delete.retention.ms` between them.
        """
        one = self.pass_within_ms
        return None if one is None else 2 * one + self.delete_retention_ms

    def with_faster_cleaning(self) -> CleaningConfig:
        """The same topic with the settings of `faster_settings`, to compute the times with them."""
        return replace(
            self,
            delete_retention_ms=min(self.delete_retention_ms, FASTER_MS),
            min_compaction_lag_ms=0,
            max_compaction_lag_ms=min(self.max_compaction_lag_ms, FASTER_MS),
        )

    def faster_settings(self, topic: str, *, tombstones: bool = True) -> tuple[SettingChange, ...]:
        """Return temporary settings for faster cleaning; empty for a topic that is not compacted.

        `tombstones`: tombstones must be removed too.

        `max.compaction.lag.ms` closes the active segment and makes the cleaner run whatever the ratio. It cannot be
        less than `min.compaction.lag.ms`. `delete.retention.ms` counts from the first pass over a tombstone with its
        value at that time. A later change does not affect that tombstone.
        """
        if not self.compacted:
            return ()
        wanted = self.with_faster_cleaning()
        values = {
            MIN_LAG: (self.min_compaction_lag_ms, wanted.min_compaction_lag_ms),
            MAX_LAG: (self.max_compaction_lag_ms, wanted.max_compaction_lag_ms),
            DELETE_RETENTION: (self.delete_retention_ms, wanted.delete_retention_ms),
        }
        return tuple(
            SettingChange(topic=topic, name=name, value=str(then), previous=str(now) if name in self.own else None)
            for name, (now, then) in values.items()
            if now != then and (tombstones or name != DELETE_RETENTION)
        )


def defaults_of(topic: str) -> CleaningConfig:
    """Return Kafka's default configuration of a coordinator's topic.

    `__share_group_state` is not compacted. Its coordinator deletes the records before the oldest record that it needs
    (ShareCoordinatorService, `shareGroupStateTopicConfigs`).
    """
    return CleaningConfig(policy="delete") if topic == SHARE_TOPIC else CleaningConfig()
