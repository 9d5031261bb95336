"""Two hashes of a key that tell it from all others.

A log's name and a key are read as one polynomial over the numbers modulo the prime 2^61 − 1: the name's length + 1, its
bytes seven at a time, the key's length + 1, its bytes seven at a time. Each hash is its value at a point that is drawn
at random for every scan. Different keys are different polynomials, and two of degree d agree at d points at most of
2.3e18: for keys of 100 bytes (d is 23 at most) two given keys become one with a probability of 1e-34, any two of 50
million keys with 1.3e-19, whatever the keys are and whoever chose them (docs/decisions/keys-by-two-hashes.md).
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_rollout_spark.kernel.compiling import compiled, inlined
from kafka_rollout_spark.kernel.memory import byte_at, high_product, word_at

PRIME = 2**61 - 1
_PRIME, _61, _3 = np.uint64(PRIME), np.uint64(61), np.uint64(3)
_CHUNK, _OF_CHUNK = 7, np.uint64(2**56 - 1)
_SHORT = 16  # chunks
_8, _64, _ONE = np.uint64(8), np.uint64(64), np.uint64(1)


def random_points() -> tuple[int, int]:
    return secrets.randbelow(PRIME - 1) + 1, secrets.randbelow(PRIME - 1) + 1


@inlined
def _modulo(low: Any, high: Any) -> Any:
    """high · 2^64 + low, which is below 2^124, modulo the prime, and at most five above that."""
    folded = (low & _PRIME) + (high << _3 | low >> _61)
    return (folded & _PRIME) + (folded >> _61)


@inlined
def _product(number: Any, point: Any) -> Any:
    """Likewise, and at most three above; `number` below 2^62."""
    return _modulo(number * point, high_product(number, point))


def powers_of(points: tuple[int, int]) -> npt.NDArray[np.uint64]:
    """The two points' powers by turns, as `hashes` wants them: from the first on, as many as short keys need."""
    return np.array([[pow(point, n, PRIME) for point in points] for n in range(1, _SHORT + 3)], dtype=np.uint64)


@inlined
def hashes(at: int, size: int, first: int, second: int, powers: int) -> tuple[Any, Any]:
    """The two hashes, neither of them 0, of the `size` bytes at an address behind what has the hashes `first` and
    `second` (0: nothing). `powers`: the address of what powers_of gives.
    """
    one, other = word_at(powers), word_at(powers + 8)
    length, chunks = np.uint64(size) + _ONE, max(1, (size + _CHUNK - 1) // _CHUNK)
    here, there = _product(np.uint64(first), one) + length, _product(np.uint64(second), other) + length
    if chunks > _SHORT:
        for place in range(chunks):
            chunk = _chunk(at + _CHUNK * place, at + size)
            here, there = _product(here, one) + chunk, _product(there, other) + chunk
        here, there = _product(here, one), _product(there, other)
    else:
        # The same sums, not made smaller before the end: 16 products of numbers below 2^56 and 2^61 are below 2^121.
        power = powers + 16 * chunks
        low, high = here * word_at(power), high_product(here, word_at(power))
        other_low, other_high = there * word_at(power + 8), high_product(there, word_at(power + 8))
        rest = size - _CHUNK * (chunks - 1)
        for place in range(chunks):
            if place < chunks - 1:
                chunk = word_at(at) & _OF_CHUNK
            elif chunks > 1:
                chunk = word_at(at + rest - 8) >> (_64 - _8 * np.uint64(rest))
            else:
                chunk = _chunk(at, at + size)
            at += _CHUNK
            power -= 16
            more = chunk * word_at(power)
            low += more
            high += high_product(chunk, word_at(power)) + np.uint64(low < more)
            more = chunk * word_at(power + 8)
            other_low += more
            other_high += high_product(chunk, word_at(power + 8)) + np.uint64(other_low < more)
        here, there = _modulo(low, high), _modulo(other_low, other_high)
    return np.int64(here + _ONE), np.int64(there + _ONE)


@inlined
def _chunk(at: int, end: int) -> Any:
    """The seven bytes at an address, or those that are there before the end."""
    if end - at > _CHUNK:
        return word_at(at) & _OF_CHUNK
    chunk, shift = np.uint64(0), np.uint64(0)
    while at < end:
        chunk |= np.uint64(byte_at(at)) << shift
        shift += _8
        at += 1
    return chunk


@compiled
def hashes_of(at: int, size: int, powers: int) -> tuple[Any, Any]:
    """The hashes of bytes that nothing stands before."""
    return hashes(at, size, 0, 0, powers)


@inlined
def bucket_of(first: int, buckets: int) -> int:
    """By bits that choose no slot of a table."""
    return ((first >> 29) & 0xFFFFFFFF) * buckets >> 32
