"""Reads, writes, copies and calls at addresses, for compiled functions only. The caller must check the bounds.

Addresses are plain integers and arguments, so that compiled code can be cached on disk. An address that is part of the
code would be wrong in the next process.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kafka_rollout_spark.kernel import compiled, inlined

_WORD = ir.IntType(64)


def _load(bits: int, returned: Any = types.int64, *, signed: bool = True, big_endian: bool = True) -> Any:
    """Return an intrinsic that reads a number at an address. `big_endian`: if not, in the byte order of the machine."""

    @intrinsic
    def load(typingctx, address):
        def generate(context, builder, signature, arguments):
            number = ir.IntType(bits)
            pointer = builder.inttoptr(arguments[0], number.as_pointer())
            value = builder.load(pointer, align=1)
            if big_endian and bits > 8:
                swap = builder.module.declare_intrinsic("llvm.bswap", [number])
                value = builder.call(swap, [value])
            return value if bits == 64 else (builder.sext if signed else builder.zext)(value, _WORD)

        return returned(types.int64), generate

    return load


int8_at, int16_at, int32_at, int64_at = _load(8), _load(16), _load(32), _load(64)
byte_at = _load(8, signed=False)
get_int64, word_at = _load(64, big_endian=False), _load(64, types.uint64, big_endian=False)


@intrinsic
def set_int64(typingctx, address, value):
    def generate(context, builder, signature, arguments):
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def copy(typingctx, target, source, size):
    """Copy `size` bytes between two addresses that do not overlap."""

    def generate(context, builder, signature, arguments):
        pointer = ir.IntType(8).as_pointer()
        to, of = (builder.inttoptr(argument, pointer) for argument in arguments[:2])
        cgutils.raw_memcpy(builder, to, of, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def prefetch(typingctx, address):
    """Let the processor load the memory at an address into its cache. Any address is allowed."""

    def generate(context, builder, signature, arguments):
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        for_writing, keep, of_data = number(1), number(3), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), for_writing, keep, of_data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def high_product(typingctx, one, other):
    """Return the upper 64 bits of the product of two uint64."""

    def generate(context, builder, signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, wide(64)), _WORD)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def call(typingctx, function, arguments_type):
    """Call the C function at an address with a tuple of 64-bit integers or addresses. Return its 64-bit result."""

    def generate(context, builder, signature, arguments):
        count = len(signature.args[1])
        kind = ir.FunctionType(_WORD, [_WORD] * count)
        pointer = builder.inttoptr(arguments[0], kind.as_pointer())
        return builder.call(pointer, cgutils.unpack_tuple(builder, arguments[1], count))

    return types.int64(types.int64, arguments_type), generate


@inlined
def value(block: int, place: int) -> int:
    """Return number `place` of a block of int64. `block`: its address."""
    return get_int64(block + 8 * place)


@inlined
def set_value(block: int, place: int, new: int) -> None:
    set_int64(block + 8 * place, new)


@inlined
def add(block: int, place: int, more: int) -> None:
    set_int64(block + 8 * place, get_int64(block + 8 * place) + more)


@inlined
def item(block: int, table: int, index: int) -> int:
    """Return number `index` of a table of int64. Place `table` of the block contains the table's address."""
    return get_int64(get_int64(block + 8 * table) + 8 * index)


@inlined
def set_item(block: int, table: int, index: int, new: int) -> None:
    set_int64(get_int64(block + 8 * table) + 8 * index, new)


_CRC_TABLE = np.arange(256, dtype=np.int64)
for _ in range(8):
    _CRC_TABLE = (_CRC_TABLE >> 1) ^ np.where(_CRC_TABLE & 1, 0x82F63B78, 0)
_ALL_ONES = 0xFFFFFFFF


@compiled
def crc32c(function: int, at: int, size: int) -> int:
    """Return the CRC32C of `size` bytes at an address, by the C function at another address (0: there is none)."""
    if function:
        return (call(function, (_ALL_ONES, at, size)) & _ALL_ONES) ^ _ALL_ONES
    crc = _ALL_ONES
    for place in range(at, at + size):
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte_at(place)) & 255]
    return crc ^ _ALL_ONES


_MIX, _SPREAD = np.uint64(0x2127599BF4325C37), np.uint64(0x880355F21E6D1965)
_23, _47, _SEED = np.uint64(23), np.uint64(47), np.uint64(1)


@compiled
def _mix(word: Any) -> Any:
    word ^= word >> _23
    word *= _MIX
    return word ^ (word >> _47)


@compiled
def hash_at(at: int, size: int) -> Any:
    """Return a 64-bit hash (Zilong Tan's fasthash64) of the bytes at an address. Never 0, which marks an empty slot."""
    value, end = _SEED ^ (np.uint64(size) * _SPREAD), at + size
    while end - at >= 8:
        value = (value ^ _mix(word_at(at))) * _SPREAD
        at += 8
    rest, shift = np.uint64(0), np.uint64(0)
    while at < end:
        rest |= np.uint64(byte_at(at)) << shift
        shift += np.uint64(8)
        at += 1
    if shift != np.uint64(0):
        value = (value ^ _mix(rest)) * _SPREAD
    value = _mix(value)
    return np.int64(value) if value != np.uint64(0) else np.int64(1)
