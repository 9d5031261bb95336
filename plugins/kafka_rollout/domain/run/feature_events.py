"""Events of a run's record: feature levels and the snapshot that proves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_rollout.domain.features.outcomes import FeatureOutcome
from kafka_rollout.domain.model.checkpoints import CheckpointSummary
from kafka_rollout.domain.run.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated(Event, kind="validated"):
    """The controller's validate-only answers. `levels`: feature → level; `answers`: feature → error and message."""

    levels: Mapping[str, int]
    answers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSupport(Event, kind="feature-support"):
    """Whether every node supports the levels; `findings` as text."""

    levels: Mapping[str, int]
    ok: bool
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalizing(Event, kind="finalizing"):
    """Recorded before UpdateFeatures is sent. `epoch_before`: the highest epoch of finalized features seen before."""

    levels: Mapping[str, int]
    epoch_before: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalized(Event, kind="finalized"):
    """`epoch_after`: an epoch whose finalized features include the levels."""

    levels: Mapping[str, int]
    epoch_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRace(Event, kind="feature-race"):
    """Whether a node with a narrower range joined while levels were finalized (KIP-584); `findings` as text."""

    ok: bool
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureResults(Event, kind="feature-results"):
    outcomes: tuple[FeatureOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLoaded(Event, kind="snapshot"):
    """A snapshot of the metadata log, as Kafka's own classes loaded it.

    `end_offset` and `epoch` name the snapshot; `finalized_by_offset`: the offset at which this run's levels are
    finalized; `proved`: the snapshot has the planned levels.
    """

    summary: CheckpointSummary
    node_id: int
    end_offset: int
    epoch: int
    finalized_by_offset: int | None
    proved: bool
