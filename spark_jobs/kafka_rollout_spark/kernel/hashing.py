"""Two hashes that identify a key, modulo the prime 2^61 − 1, with random numbers of the scan (`HashNumbers`).

The input of a hash is a list of numbers below 2^56: the key's length + 1, and its bytes in chunks of seven.

- Key of up to 217 bytes: the numbers form pairs (m, n). A random factor is added to each number, and the products of
  the pairs are added: Σ (m + f)(n + g). This is one multiplication for fourteen bytes. If two keys differ in m, the
  difference of their sums contains (m − m′)·g. The sums are equal for only one of 2.3e18 values of g.
- Longer key, and the name of the log: the numbers are the coefficients of a polynomial. The hash is its value at a
  random point.

Two short keys get the same hash with the probability 1/p = 4.3e-19, two longer ones with d/p for a polynomial of degree
d. Both hashes are independent: 2.4e-22 for any two of fifty million short keys. The numbers are drawn after the keys
were written, so this also holds for keys that an attacker selected.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_rollout_spark.kernel import compiled, inlined
from kafka_rollout_spark.kernel.memory import byte_at, high_product, word_at
from kafka_rollout_spark.kernel.programs import FACTORS, PRIME

_PRIME, _61, _3, _58 = np.uint64(PRIME), np.uint64(61), np.uint64(3), np.uint64(58)
_CHUNK, _OF_CHUNK = 7, np.uint64(2**56 - 1)
_8, _64, _ONE, _NONE = np.uint64(8), np.uint64(64), np.uint64(1), np.uint64(0)
_PAIR = 32  # bytes of the factors of two numbers, for both hashes


@inlined
def _modulo(low: Any, high: Any) -> Any:
    """Return high · 2^64 + low modulo the prime; the result can exceed the prime by up to three."""
    folded = (low & _PRIME) + ((high << _3 | low >> _61) & _PRIME) + (high >> _58)
    return (folded & _PRIME) + (folded >> _61)


@inlined
def _product(number: Any, point: Any) -> Any:
    """Return number · point modulo the prime; the result can exceed the prime by up to three."""
    return _modulo(number * point, high_product(number, point))


@inlined
def hashes(at: int, size: int, first: int, second: int, hash_numbers: int) -> tuple[Any, Any]:
    """Return the two hashes of a key; neither is 0.

    `at`, `size`: address and bytes of the key. `first`, `second`: hashes of the log's name. `hash_numbers`: address of
    the table of HashNumbers.
    """
    whole = max(size - 1, 0) // _CHUNK  # chunks that are not the last
    if whole > FACTORS - 2:
        return _of_polynomial(at, size, first, second, hash_numbers)
    rest = size - _CHUNK * whole
    last = word_at(at + size - 8) >> (_64 - _8 * np.uint64(rest)) if whole > 0 else _chunk(at, at + size)
    factors = hash_numbers + 16
    length = np.uint64(size) + _ONE
    low, high = _add_product(length, last, factors, np.uint64(first), _NONE)
    other_low, other_high = _add_product(length, last, factors + 8, np.uint64(second), _NONE)
    for _ in range(whole >> 1):
        factors += _PAIR
        one, other = word_at(at) & _OF_CHUNK, word_at(at + _CHUNK) & _OF_CHUNK
        low, high = _add_product(one, other, factors, low, high)
        other_low, other_high = _add_product(one, other, factors + 8, other_low, other_high)
        at += 2 * _CHUNK
    if whole & 1:
        factors += _PAIR
        one = word_at(at) & _OF_CHUNK
        low, high = _add_product(one, _NONE, factors, low, high)
        other_low, other_high = _add_product(one, _NONE, factors + 8, other_low, other_high)
    return np.int64(_modulo(low, high) + _ONE), np.int64(_modulo(other_low, other_high) + _ONE)


@inlined
def _add_product(one: Any, other: Any, factors: int, low: Any, high: Any) -> tuple[Any, Any]:
    """Add the product of two numbers, each plus its factor, to high · 2^64 + low. Return (low, high)."""
    one, other = one + word_at(factors), other + word_at(factors + 16)
    product = one * other
    low += product
    return low, high + high_product(one, other) + np.uint64(low < product)


@compiled
def _of_polynomial(at: int, size: int, first: int, second: int, hash_numbers: int) -> tuple[Any, Any]:
    one, other = word_at(hash_numbers), word_at(hash_numbers + 8)
    length, end = np.uint64(size) + _ONE, at + size
    here, there = _product(np.uint64(first), one) + length, _product(np.uint64(second), other) + length
    while at < end:
        chunk = _chunk(at, end)
        here, there = _product(here, one) + chunk, _product(there, other) + chunk
        at += _CHUNK
    return np.int64(here + _ONE), np.int64(there + _ONE)


@inlined
def _chunk(at: int, end: int) -> Any:
    """Return the seven bytes at an address, or fewer if the end is closer."""
    if end - at > _CHUNK:
        return word_at(at) & _OF_CHUNK
    chunk, shift = np.uint64(0), np.uint64(0)
    while at < end:
        chunk |= np.uint64(byte_at(at)) << shift
        shift += _8
        at += 1
    return chunk


@compiled
def hashes_of_name(at: int, size: int, hash_numbers: int) -> tuple[Any, Any]:
    """Return the two hashes of the name of a log."""
    return _of_polynomial(at, size, 0, 0, hash_numbers)


@inlined
def bucket_of(first: int, buckets: int) -> int:
    """Return the bucket of a key by those bits of its first hash that do not select a table slot."""
    return ((first >> 29) & 0xFFFFFFFF) * buckets >> 32
