"""Events of a run's record: what the logs and the cluster contain, and what the test traffic showed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.domain.metadata_log.scan import Readiness, ReplayFailure
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.run.events import Event
from kafka_rollout.domain.traffic_check import LedgerVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanEvaluated(Event, kind="scan"):
    """Whether `release` could still load the coordinator logs; `findings` as text."""

    release: Release
    records: int
    partitions: int
    ok: bool
    sentence: str
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalScan(Event, kind="scan-tail"):
    """The coordinator logs after the run's scan. `offsets`: their number; `since`: epoch seconds of that scan;
    `findings`: new ones, as text."""

    release_step: str
    offsets: int
    since: float
    seconds: float
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossesReported(Event, kind="losses"):
    """Number of losses of metadata at the lower level. `first`: sentences of at most 20 of them."""

    from_level: int
    to_level: int
    losses: int
    default_only: int
    unsafe: bool
    first: tuple[str, ...]


class ScanStage(StrEnum):
    """When all metadata logs were scanned."""

    BEFORE = "before"  # before anything was changed
    READY = "ready"  # when the levels were lowered


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogFound:
    """One node's metadata log, for one release. `last_failing`: the last offset that the release cannot replay;
    `starts_at`: from where the release would read, in words."""

    node_id: int
    release: Release
    verdict: str
    readiness: Readiness
    bootstrap_too_new: bool
    starts_at: str
    start_offset: int
    end_offset: int
    first_failure: ReplayFailure | None
    last_failing: int | None
    remedies: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataScanned(Event, kind="metadata-scan"):
    """Every metadata log that the runtime can read, for every release of the plan."""

    stage: ScanStage
    nodes: tuple[MetadataLogFound, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsTaken(Event, kind="inventory"):
    """The cluster's contents before a downgrade. `counts`: part → number."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsCompared(Event, kind="inventory-compared"):
    """The cluster's contents after a downgrade, and the number of differences."""

    counts: Mapping[str, int]
    differences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCompared(Event, kind="ledger"):
    """Acknowledged and consumed records of the test traffic."""

    verdict: LedgerVerdict
