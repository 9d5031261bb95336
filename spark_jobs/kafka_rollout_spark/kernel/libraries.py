"""Addresses of C functions in this process for CRC32C, lz4 and zstd, which extension modules of packages export.

If the functions of a codec are not found (another build of the package), its context is 0 and Python decompresses it.
Without a function for CRC32C the kernel computes it.
"""

from __future__ import annotations

import ctypes
import importlib
from dataclasses import dataclass

import crc32c


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """Addresses of the C functions and of their contexts. One scan uses a context at a time."""

    crc32c: int = 0
    lz4_context: int = 0
    lz4_reset: int = 0
    lz4_decompress: int = 0
    zstd_context: int = 0
    zstd_decompress: int = 0

    @classmethod
    def create(cls) -> Libraries:
        lz4 = _functions("lz4.frame._frame", "LZ4F_resetDecompressionContext", "LZ4F_decompress")
        zstd = _functions("backports.zstd._zstd", "ZSTD_decompressDCtx")
        return cls(
            crc32c=_crc32c(),
            lz4_context=_lz4_context() if lz4 else 0,
            lz4_reset=lz4[0] if lz4 else 0,
            lz4_decompress=lz4[1] if lz4 else 0,
            zstd_context=_zstd_context() if zstd else 0,
            zstd_decompress=zstd[0] if zstd else 0,
        )

    def close(self) -> None:
        for module, free, context in (
            ("lz4.frame._frame", "LZ4F_freeDecompressionContext", self.lz4_context),
            ("backports.zstd._zstd", "ZSTD_freeDCtx", self.zstd_context),
        ):
            if context:
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
    library = _library("lz4.frame._frame")
    library.LZ4F_getVersion.restype = ctypes.c_uint
    context = ctypes.c_void_p()
    library.LZ4F_createDecompressionContext(ctypes.byref(context), library.LZ4F_getVersion())
    return context.value or 0


def _zstd_context() -> int:
    create = _library("backports.zstd._zstd").ZSTD_createDCtx
    create.restype = ctypes.c_void_p
    return create() or 0
