"""When the cleaner has removed a record at the latest, by a topic's settings."""

from __future__ import annotations

from kafka_rollout.formats.cleaning import (
    DAY,
    MINUTE,
    SECOND,
    CleaningConfig,
    SettingChange,
    defaults_of,
)

OFFSETS = "__consumer_offsets"


def test_by_kafkas_defaults_nothing_bounds_the_time() -> None:
    config = defaults_of(OFFSETS)
    assert config.closed_after_ms == 7 * DAY
    assert config.pass_within_ms is None
    assert config.tombstones_gone_within_ms is None


def test_a_maximal_lag_closes_the_segment_and_bounds_the_time() -> None:
    config = CleaningConfig(max_compaction_lag_ms=10 * MINUTE)
    assert config.closed_after_ms == 10 * MINUTE
    assert config.pass_within_ms == 10 * MINUTE + 15 * SECOND


def test_a_ratio_of_zero_bounds_the_time_by_the_segments_age() -> None:
    assert CleaningConfig(min_cleanable_dirty_ratio=0.0, segment_ms=MINUTE).pass_within_ms == MINUTE + 15 * SECOND


def test_a_minimal_lag_counts_from_the_closed_segment() -> None:
    config = CleaningConfig(min_compaction_lag_ms=5 * MINUTE, max_compaction_lag_ms=6 * MINUTE)
    assert config.pass_within_ms == 11 * MINUTE + 15 * SECOND


def test_a_tombstone_needs_two_passes_and_the_retention_between_them() -> None:
    config = CleaningConfig(max_compaction_lag_ms=MINUTE, delete_retention_ms=DAY)
    assert config.tombstones_gone_within_ms == 2 * (MINUTE + 15 * SECOND) + DAY


def test_faster_cleaning_lowers_the_waits_and_restores_the_topics_own_settings() -> None:
    config = CleaningConfig.from_settings(
        {"min.compaction.lag.ms": "3600000", "delete.retention.ms": "7200000"}, own=["delete.retention.ms"]
    )
    assert config.faster_settings(OFFSETS) == (
        SettingChange(topic=OFFSETS, name="min.compaction.lag.ms", value="0", previous=None),
        SettingChange(topic=OFFSETS, name="max.compaction.lag.ms", value="60000", previous=None),
        SettingChange(topic=OFFSETS, name="delete.retention.ms", value="60000", previous="7200000"),
    )
    assert config.with_faster_cleaning().tombstones_gone_within_ms == 3 * MINUTE + 30 * SECOND


def test_a_topic_with_fast_cleaning_needs_no_settings() -> None:
    assert CleaningConfig(max_compaction_lag_ms=SECOND, delete_retention_ms=0).faster_settings(OFFSETS) == ()


def test_the_log_of_the_share_coordinator_is_not_compacted() -> None:
    config = defaults_of("__share_group_state")
    assert (config.compacted, config.pass_within_ms, config.faster_settings("__share_group_state")) == (False, None, ())


def test_compaction_beside_deletion_is_compaction() -> None:
    assert CleaningConfig(policy="delete, compact").compacted
