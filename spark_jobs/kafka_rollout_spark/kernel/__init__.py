"""The compiled part of decoding: loops over raw bytes that numba compiles. Only `decode` calls it.

The driver of a scan does not load numba: here are the decorators, and the cache folder of the compiled kernel.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kafka_rollout.base.system.settings import Settings

Function = TypeVar("Function", bound=Callable[..., Any])


def _hash_sources() -> str:
    """Hash all sources: numba recompiles a function if its own file changes, but not if an inlined function changes."""
    state = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        state.update(f"{source.resolve()} {source.stat().st_mtime_ns}".encode() + source.read_bytes())
    return state.hexdigest()[:16]


_FOLDER = Path(os.environ.get("NUMBA_CACHE_DIR") or Settings.from_environment().cache / "numba")
CACHE = _FOLDER / _hash_sources()
COMPLETE = CACHE / "whole"  # exists when every function is compiled


def compiled(function: Function, **options: bool) -> Function:
    """Compile a function of integers and addresses: cached on disk, without the interpreter lock, with C's division.

    The function itself must check the bounds of each read.
    """
    import numba

    numba.config.CACHE_DIR = str(CACHE)
    return numba.njit(nogil=True, cache=True, error_model="numpy", **options)(function)


def inlined(function: Function) -> Function:
    """Compile a function into its callers, for functions that are called at least once per record."""
    return compiled(function, forceinline=True)
