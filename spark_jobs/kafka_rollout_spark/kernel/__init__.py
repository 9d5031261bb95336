"""The compiled part of decoding: loops over raw bytes that numba compiles. Only `decode` calls it.

The driver of a scan does not load numba: here are the decorators, and the cache folder of the compiled kernel.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kafka_rollout.base.system.files import is_private
from kafka_rollout.base.system.settings import Settings

Function = TypeVar("Function", bound=Callable[..., Any])


def _hash_sources() -> str:
    """Hash all sources: numba recompiles a function if its own file changes, but not if an inlined function changes."""
    state = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        state.update(f"{source.resolve()} {source.stat().st_mtime_ns}".encode() + source.read_bytes())
    return state.hexdigest()[:16]


def _folder() -> Path:
    """Return the folder of the compiled kernel, whose index is a pickle: reading it executes what it contains.

    The cache of releases can be a folder that several users write. Then it is below the private home of this user.
    """
    settings = Settings.from_environment()
    chosen = Path(os.environ.get("NUMBA_CACHE_DIR") or settings.cache / "numba")
    return chosen if is_private(chosen / _hash_sources()) and is_private(chosen) else settings.home / "numba"


CACHE = _folder() / _hash_sources()
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
