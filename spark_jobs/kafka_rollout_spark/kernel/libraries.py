"""Addresses of the C functions of lz4 and zstd in this process; the extension modules of two packages export them.

If the functions of a codec are not found (another build of the package), its context is 0 and Python decompresses it.
"""

from __future__ import annotations

import ctypes
import importlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Decompressors:
    """Addresses of the C functions and of their contexts. One scan uses a context at a time."""

    lz4_context: int = 0
    lz4_reset: int = 0
    lz4_decompress: int = 0
    zstd_context: int = 0
    zstd_decompress: int = 0

    @classmethod
    def create(cls) -> Decompressors:
        lz4 = _functions("lz4.frame._frame", "LZ4F_resetDecompressionContext", "LZ4F_decompress")
        zstd = _functions("backports.zstd._zstd", "ZSTD_decompressDCtx")
        return cls(
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
