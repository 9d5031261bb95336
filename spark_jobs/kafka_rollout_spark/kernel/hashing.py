"""Two hashes of a key that tell it from all others, computed modulo the prime 2^61 − 1 with numbers drawn at random for
every scan (`Drawn`). How likely they take two keys for one, for any keys, also if an attacker selected them:
docs/decisions/keys-by-two-hashes.md.

What is hashed is a list of numbers below 2^56: a key's length + 1, and its bytes seven at a time.

- A key of up to 217 bytes: its numbers in pairs, to each number a drawn one (its factor) is added, the two sums are
  multiplied, and the products are added up: Σ (m + f)(n + g). One product for fourteen bytes. If two keys differ in m,
  their sums differ by (m − m′)·g and what does not depend on g: they agree for one g of 2.3e18.
- A longer one, and the log's name before any: the value at a drawn point of the polynomial whose coefficients the
  numbers are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_rollout_spark.kernel.compiling import compiled, inlined
from kafka_rollout_spark.kernel.memory import byte_at, high_product, word_at
from kafka_rollout_spark.kernel.spec import FACTORS, PRIME

_PRIME, _61, _3, _58 = np.uint64(PRIME), np.uint64(61), np.uint64(3), np.uint64(58)
_CHUNK, _OF_CHUNK = 7, np.uint64(2**56 - 1)
_8, _64, _ONE, _NONE = np.uint64(8), np.uint64(64), np.uint64(1), np.uint64(0)
_PAIR = 32  # bytes of the factors of two numbers, for both hashes


@inlined
def _modulo(low: Any, high: Any) -> Any:
    """high · 2^64 + low modulo the prime, and at most three above that."""
    folded = (low & _PRIME) + ((high << _3 | low >> _61) & _PRIME) + (high >> _58)
    return (folded & _PRIME) + (folded >> _61)


@inlined
def _product(number: Any, point: Any) -> Any:
    """number · point modulo the prime, and at most three above that."""
    return _modulo(number * point, high_product(number, point))


@inlined
def hashes(at: int, size: int, first: int, second: int, drawn: int) -> tuple[Any, Any]:
    """The two hashes, neither of them 0, of the `size` bytes of a key at an address, in a log whose name has the hashes
    `first` and `second`. `drawn`: the address of Drawn's table.
    """
    whole = max(size - 1, 0) // _CHUNK  # chunks that are not the last
    if whole > FACTORS - 2:
        return _of_polynomial(at, size, first, second, drawn)
    rest = size - _CHUNK * whole
    last = word_at(at + size - 8) >> (_64 - _8 * np.uint64(rest)) if whole > 0 else _chunk(at, at + size)
    factors = drawn + 16
    length = np.uint64(size) + _ONE
    low, high = _multiplied(length, last, factors, np.uint64(first), _NONE)
    other_low, other_high = _multiplied(length, last, factors + 8, np.uint64(second), _NONE)
    for _ in range(whole >> 1):
        factors += _PAIR
        one, other = word_at(at) & _OF_CHUNK, word_at(at + _CHUNK) & _OF_CHUNK
        low, high = _multiplied(one, other, factors, low, high)
        other_low, other_high = _multiplied(one, other, factors + 8, other_low, other_high)
        at += 2 * _CHUNK
    if whole & 1:
        factors += _PAIR
        one = word_at(at) & _OF_CHUNK
        low, high = _multiplied(one, _NONE, factors, low, high)
        other_low, other_high = _multiplied(one, _NONE, factors + 8, other_low, other_high)
    return np.int64(_modulo(low, high) + _ONE), np.int64(_modulo(other_low, other_high) + _ONE)


@inlined
def _multiplied(one: Any, other: Any, factors: int, low: Any, high: Any) -> tuple[Any, Any]:
    """high · 2^64 + low, and the product of two numbers with their factors added: (low, high) of it."""
    one, other = one + word_at(factors), other + word_at(factors + 16)
    product = one * other
    low += product
    return low, high + high_product(one, other) + np.uint64(low < product)


@compiled
def _of_polynomial(at: int, size: int, first: int, second: int, drawn: int) -> tuple[Any, Any]:
    one, other = word_at(drawn), word_at(drawn + 8)
    length, end = np.uint64(size) + _ONE, at + size
    here, there = _product(np.uint64(first), one) + length, _product(np.uint64(second), other) + length
    while at < end:
        chunk = _chunk(at, end)
        here, there = _product(here, one) + chunk, _product(there, other) + chunk
        at += _CHUNK
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
def hashes_of_name(at: int, size: int, drawn: int) -> tuple[Any, Any]:
    """The hashes of bytes that nothing stands before."""
    return _of_polynomial(at, size, 0, 0, drawn)


@inlined
def bucket_of(first: int, buckets: int) -> int:
    """By bits that choose no slot of a table."""
    return ((first >> 29) & 0xFFFFFFFF) * buckets >> 32
