"""The input of a scan's workers, apart from the logs. The driver creates it from catalogue and schemas; picklable."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafka_rollout.kafka.formats.layouts import Layout
from kafka_rollout.releases.facts import Release

_BYTES_PER_BUCKET = 288 * 1024 * 1024  # six million keys if every record has a different key: 300 MB of a worker
PRIME = 2**61 - 1
FACTORS = 32  # sixteen products of numbers below 2^61 + 2^56 add up to less than 2^127
MOST_GROUPS = 10_000  # groups with commits per log and Spark task; a result lists as many (contents.LISTED)


def _random_numbers(count: int) -> tuple[int, ...]:
    return tuple(secrets.randbelow(PRIME) for _ in range(count))


@dataclass(frozen=True, slots=True)
class HashNumbers:
    """Random numbers for the two hashes: points and factors, those of the first and the second hash in turn."""

    points: tuple[int, ...] = field(default_factory=lambda: _random_numbers(2))
    factors: tuple[int, ...] = field(default_factory=lambda: _random_numbers(2 * FACTORS))

    def table(self) -> Any:
        """Return the array that the functions of hashing.py read."""
        import numpy as np  # the driver does not load numpy

        return np.array([*self.points, *self.factors], dtype=np.uint64)


class ScanDepth(StrEnum):
    """Parts of a record that are read. `classes`: key and value version. `deep`: every field of key and value."""

    CLASSES = "classes"
    DEEP = "deep"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutUse:
    """A layout, and the releases that read records with it."""

    layout: Layout
    releases: tuple[Release, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordUse:
    """The layouts of one record type of one log in all releases of the catalogue, those of the newest releases first.

    `values`: value version → layouts. `state`: the newest values describe a group or transactional id (rows `state`).
    """

    topic: str
    key_version: int
    name: str
    keys: tuple[LayoutUse, ...]
    values: Mapping[int, tuple[LayoutUse, ...]]
    state: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingSpec:
    """Input of the decoding.

    `records`: needed at depth `deep` only. `live`: also find the newest record of each key. `buckets`: number of parts
    of the keys for `live`, so that no step needs memory for all keys. `hash_numbers`: random numbers for the hashes of
    keys (kernel/hashing.py). `loaded_by_all`: (topic, key version, value version) that all requested releases load;
    records of all other classes are counted by group or transactional id.
    """

    depth: ScanDepth = ScanDepth.CLASSES
    live: bool = False
    buckets: int = 1
    hash_numbers: HashNumbers = field(default_factory=HashNumbers)
    records: tuple[RecordUse, ...] = ()
    loaded_by_all: frozenset[tuple[str, int, int | None]] = frozenset()


def buckets_for(log_bytes: int) -> int:
    """Return the number of buckets, so that the keys of one fit into a worker's memory in every case."""
    return max(1, -(-log_bytes // _BYTES_PER_BUCKET))
