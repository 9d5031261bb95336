"""Addresses of C functions in this process for CRC32C, lz4 and zstd, which extension modules of packages export.

If the functions of a codec are not found (another build of the package), its context is 0 and Python decompresses it.
Without a function for CRC32C the kernel computes it.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping

import crc32c

from kafka_rollout_spark.kernel import tables as t

_LZ4, _ZSTD = "lz4.frame._frame", "backports.zstd._zstd"


def open_libraries() -> dict[int, int]:
    """Return place in `control` → address, of C functions and of their contexts. One scan uses a context at a time."""
    lz4 = _functions(_LZ4, "LZ4F_resetDecompressionContext", "LZ4F_decompress")
    zstd = _functions(_ZSTD, "ZSTD_decompressDCtx")
    found = {t.CRC32C: _crc32c()}
    if lz4:
        found |= {t.LZ4_CONTEXT: _lz4_context(), t.LZ4_RESET: lz4[0], t.LZ4_DECOMPRESS: lz4[1]}
    if zstd:
        found |= {t.ZSTD_CONTEXT: _zstd_context(), t.ZSTD_DECOMPRESS: zstd[0]}
    return found


def close_libraries(addresses: Mapping[int, int]) -> None:
    for module, free, place in (
        (_LZ4, "LZ4F_freeDecompressionContext", t.LZ4_CONTEXT),
        (_ZSTD, "ZSTD_freeDCtx", t.ZSTD_CONTEXT),
    ):
        if context := addresses.get(place):
            _library(module)[free](ctypes.c_void_p(context))


def _library(module: str) -> ctypes.CDLL:
    return ctypes.CDLL(importlib.import_module(module).__file__)


def _functions(module: str, *names: str) -> tuple[int, ...]:
    """Return the addresses of C functions; empty if one is missing."""
    try:
        library = _library(module)
        return tuple(ctypes.cast(library[name], ctypes.c_void_p).value or 0 for name in names)
    except (ImportError, OSError, AttributeError):
        return ()


def _crc32c() -> int:
    """Return the function that crc32c has chosen for this processor (PyInit__crc32c), if it gives the right result."""
    names = ("_crc32c_hw_adler", "_crc32c_hw_arm64") if crc32c.hardware_based else ("_crc32c_sw_slicing_by_8",)
    for address in (found[0] for name in names if (found := _functions("crc32c._crc32c", name))):
        function = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_ulong)(address)
        if function(0xFFFFFFFF, b"123456789", 9) == 0xE3069283 ^ 0xFFFFFFFF:
            return address
    return 0


def _lz4_context() -> int:
    library = _library(_LZ4)
    library.LZ4F_getVersion.restype = ctypes.c_uint
    context = ctypes.c_void_p()
    library.LZ4F_createDecompressionContext(ctypes.byref(context), library.LZ4F_getVersion())
    return context.value or 0


def _zstd_context() -> int:
    create = _library(_ZSTD).ZSTD_createDCtx
    create.restype = ctypes.c_void_p
    return create() or 0
