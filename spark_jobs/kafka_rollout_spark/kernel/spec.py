"""What a scan's workers have to know to decode the logs; made by the driver from catalogue and schemas, picklable."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafka_rollout.domain.model.releases import Release
from kafka_rollout.wire.layouts import Layout

_BYTES_PER_BUCKET = 288 * 1024 * 1024  # six million keys, if every record has its own: 300 MB of a worker
PRIME = 2**61 - 1
FACTORS = 32  # the sum of sixteen products of sums below 2^61 + 2^56 is below 2^127
MOST_GROUPS = 10_000  # groups with commits per log and task: as many as a result lists (contents.LISTED)


def _draw(count: int) -> tuple[int, ...]:
    return tuple(secrets.randbelow(PRIME) for _ in range(count))


@dataclass(frozen=True, slots=True)
class Drawn:
    """A point and the factors for each of the two hashes, alternating."""

    points: tuple[int, ...] = field(default_factory=lambda: _draw(2))
    factors: tuple[int, ...] = field(default_factory=lambda: _draw(2 * FACTORS))

    def table(self) -> Any:
        """The array that the functions of hashing.py read."""
        import numpy as np  # not by the driver

        return np.array([*self.points, *self.factors], dtype=np.uint64)


class ScanDepth(StrEnum):
    """How far records are looked into: `classes`: their two versions; `deep`: every field of key and value."""

    CLASSES = "classes"
    DEEP = "deep"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutUse:
    """A layout, and the releases that read by it."""

    layout: Layout
    releases: tuple[Release, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordUse:
    """One record type of one log as the releases of the catalogue know it; of layouts, the newest releases' come first.

    `values`: by value version. `state`: its newest values tell what a group or transactional id is (kind `state`).
    """

    topic: str
    key_version: int
    name: str
    keys: tuple[LayoutUse, ...]
    values: Mapping[int, tuple[LayoutUse, ...]]
    state: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingSpec:
    """`records` is needed at depth `deep` only.

    `live`: also tell which records are the newest of their key. `buckets`: in how many parts the keys are dealt out
    for it, so that no step holds all of them. `drawn`: the random numbers of the keys' hashes (kernel/hashing.py).
    `loaded_by_all`: (topic, key version, value version) that every asked release loads; records of all other classes
    are counted by owner.
    """

    depth: ScanDepth = ScanDepth.CLASSES
    live: bool = False
    buckets: int = 1
    drawn: Drawn = field(default_factory=Drawn)
    records: tuple[RecordUse, ...] = ()
    loaded_by_all: frozenset[tuple[str, int, int | None]] = frozenset()


def buckets_for(log_bytes: int) -> int:
    """Buckets such that the keys of one fit a worker's memory, even where every record has its own key."""
    return max(1, -(-log_bytes // _BYTES_PER_BUCKET))
