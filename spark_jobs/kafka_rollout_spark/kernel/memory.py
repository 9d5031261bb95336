"""Reads, writes, copies and calls at addresses, for compiled functions only. The caller must check the bounds.

Addresses are plain integers and arguments, so that compiled code can be cached on disk. An address that is part of the
code would be wrong in the next process.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kafka_rollout_spark.kernel.compiling import compiled, inlined

_WORD = ir.IntType(64)


def _load(bits: int) -> Any:
    """Return an intrinsic that reads the signed big-endian number of `bits` bits at an address, as int64."""

    @intrinsic
    def load(typingctx, address):
        def generate(context, builder, signature, arguments):
            number = ir.IntType(bits)
            pointer = builder.inttoptr(arguments[0], number.as_pointer())
            value = builder.load(pointer, align=1)
            if bits > 8:
                swap = builder.module.declare_intrinsic("llvm.bswap", [number])
                value = builder.call(swap, [value])
            return value if bits == 64 else builder.sext(value, _WORD)

        return types.int64(types.int64), generate

    return load


int8_at, int16_at, int32_at, int64_at = _load(8), _load(16), _load(32), _load(64)


@intrinsic
def word_at(typingctx, address):
    """Return the eight bytes at an address as uint64, in the byte order of the machine."""

    def generate(context, builder, signature, arguments):
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)

    return types.uint64(types.int64), generate


@intrinsic
def get_int64(typingctx, address):
    """Return the int64 at an address, in the byte order of the machine."""

    def generate(context, builder, signature, arguments):
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()))

    return types.int64(types.int64), generate


@intrinsic
def set_int64(typingctx, address, value):
    def generate(context, builder, signature, arguments):
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def byte_at(typingctx, address):
    """Return the byte at an address, 0 to 255, as int64."""

    def generate(context, builder, signature, arguments):
        byte = ir.IntType(8)
        return builder.zext(builder.load(builder.inttoptr(arguments[0], byte.as_pointer())), _WORD)

    return types.int64(types.int64), generate


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


def _crc_instruction() -> tuple[str, str] | None:
    """Return LLVM's names of the processor's CRC32C instructions for eight bytes and for one; None if it has none."""
    machine = platform.machine().lower()
    features = binding.get_host_cpu_features()
    if machine in ("x86_64", "amd64") and features.get("sse4.2"):
        return "llvm.x86.sse42.crc32.64.64", "llvm.x86.sse42.crc32.32.8"
    if machine in ("aarch64", "arm64") and features.get("crc"):
        return "llvm.aarch64.crc32cx", "llvm.aarch64.crc32cb"
    return None


_INSTRUCTION = _crc_instruction()
HAS_CRC_INSTRUCTION = _INSTRUCTION is not None


def _crc_of(data_bits: int) -> Any:
    """Return an intrinsic that continues a CRC32C (uint64 with an empty upper half) over eight bytes or one byte."""

    @intrinsic
    def crc_of(typingctx, crc, data):
        def generate(context, builder, signature, arguments):
            assert _INSTRUCTION is not None  # noqa: S101 - the caller has checked it
            half, crc, data = ir.IntType(32), arguments[0], arguments[1]
            on_x86 = "x86" in _INSTRUCTION[0]
            wide = on_x86 and data_bits == 64
            crc_type = _WORD if wide else half
            # Only aarch64's instruction for a single byte takes that byte in 32 bits.
            data_type = _WORD if data_bits == 64 else ir.IntType(8) if on_x86 else half
            name = _INSTRUCTION[0 if data_bits == 64 else 1]
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(crc_type, [crc_type, data_type]), name
            )
            crc = crc if wide else builder.trunc(crc, half)
            data = data if data_bits == 64 else builder.trunc(data, data_type)
            result = builder.call(function, [crc, data])
            return result if wide else builder.zext(result, _WORD)

        return types.uint64(types.uint64, types.uint64), generate

    return crc_of


_crc_of_word, _crc_of_byte = _crc_of(64), _crc_of(8)


def _table() -> Any:
    table = np.empty(256, dtype=np.uint64)
    for index in range(256):
        crc = index
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table[index] = crc
    return table


_TABLE = _table()
_ALL_ONES = np.uint64(0xFFFFFFFF)
# The result of the instruction is available three cycles after its operands. So three blocks of this many bytes are
# processed at the same time.
_BLOCK = 256


def _zeros_table() -> Any:
    """Return a table: for each byte of a CRC and each value, its part of the CRC after a block of zero bytes."""
    values, places = np.arange(256, dtype=np.uint64), np.arange(0, 32, 8, dtype=np.uint64)
    crc = (values[None, :] << places[:, None]).ravel()
    for _ in range(_BLOCK):
        crc = (crc >> np.uint64(8)) ^ _TABLE[(crc & np.uint64(255)).astype(np.int64)]
    return crc


_AFTER_ZEROS = _zeros_table()


@inlined
def _crc_after_zeros(crc: Any) -> Any:
    """Return the CRC after a block of zero bytes."""
    carried = _AFTER_ZEROS[crc & np.uint64(255)]
    carried ^= _AFTER_ZEROS[np.uint64(256) + (crc >> np.uint64(8) & np.uint64(255))]
    carried ^= _AFTER_ZEROS[np.uint64(512) + (crc >> np.uint64(16) & np.uint64(255))]
    return carried ^ _AFTER_ZEROS[np.uint64(768) + (crc >> np.uint64(24))]


@compiled
def _crc32c_by_instruction(at: int, size: int) -> Any:
    crc, end = _ALL_ONES, at + size
    while end - at >= 3 * _BLOCK:
        second = third = np.uint64(0)
        stop = at + _BLOCK
        while at < stop:
            crc = _crc_of_word(crc, word_at(at))
            second = _crc_of_word(second, word_at(at + _BLOCK))
            third = _crc_of_word(third, word_at(at + 2 * _BLOCK))
            at += 8
        crc = _crc_after_zeros(_crc_after_zeros(crc) ^ second) ^ third
        at += 2 * _BLOCK
    while end - at >= 8:
        crc = _crc_of_word(crc, word_at(at))
        at += 8
    while at < end:
        crc = _crc_of_byte(crc, np.uint64(byte_at(at)))
        at += 1
    return np.int64(crc ^ _ALL_ONES)


@compiled
def _crc32c_by_table(at: int, size: int) -> Any:
    crc = _ALL_ONES
    for place in range(at, at + size):
        crc = (crc >> np.uint64(8)) ^ _TABLE[(crc ^ np.uint64(byte_at(place))) & np.uint64(255)]
    return np.int64(crc ^ _ALL_ONES)


crc32c = _crc32c_by_instruction if HAS_CRC_INSTRUCTION else _crc32c_by_table
"""Return the CRC32C of `size` bytes at an address."""

_MIX, _SPREAD = np.uint64(0x2127599BF4325C37), np.uint64(0x880355F21E6D1965)
_23, _47 = np.uint64(23), np.uint64(47)


@compiled
def _mix(word: Any) -> Any:
    word ^= word >> _23
    word *= _MIX
    return word ^ (word >> _47)


@compiled
def hash_at(at: int, size: int, seed: int) -> Any:
    """Return a 64-bit hash (Zilong Tan's fasthash64) of the bytes at an address. Never 0, which marks an empty slot."""
    value, end = np.uint64(seed) ^ (np.uint64(size) * _SPREAD), at + size
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
