"""How the kernel's functions are compiled: stored on disk, without Python's lock, dividing integers as C does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from kafka_rollout_spark.kernel.cache import CACHE

Function = TypeVar("Function", bound=Callable[..., Any])

numba.config.CACHE_DIR = str(CACHE)


def compiled(function: Function) -> Function:
    """Compile a function of integers, among them addresses. It must check what it reads: nothing else does."""
    return numba.njit(nogil=True, cache=True, error_model="numpy")(function)


def inlined(function: Function) -> Function:
    """Compile a function into the functions that call it, for work that is done once or more per record."""
    return numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)(function)
