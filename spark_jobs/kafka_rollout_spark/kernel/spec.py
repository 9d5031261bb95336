"""The input of a scan's workers, apart from the logs. The driver creates it (scan.py); picklable."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kafka_rollout_spark.kernel.programs import LogPrograms, RecordUse

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

    def table(self) -> npt.NDArray[np.uint64]:
        """Return the array that the functions of hashing.py read."""
        return np.array([*self.points, *self.factors], dtype=np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingSpec:
    """Input of the decoding.

    `logs`: topic → programs for its records; empty if records are only counted by key and value version. `live`: also
    find the newest record of each key. `buckets`: number of parts of the keys for `live`, so that no step needs memory
    for all keys. `hash_numbers`: random numbers for the hashes of keys (kernel/hashing.py).
    """

    logs: Mapping[str, LogPrograms] = field(default_factory=dict)
    live: bool = False
    buckets: int = 1
    hash_numbers: HashNumbers = field(default_factory=HashNumbers)

    @property
    def records(self) -> tuple[RecordUse, ...]:
        return tuple(record for log in self.logs.values() for record in log.records)


def buckets_for(log_bytes: int) -> int:
    """Return the number of buckets, so that the keys of one fit into a worker's memory in every case."""
    return max(1, -(-log_bytes // _BYTES_PER_BUCKET))
