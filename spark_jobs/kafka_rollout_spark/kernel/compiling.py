"""Decorators that compile the kernel's functions: cached on disk, without the interpreter lock, with C's division."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from kafka_rollout_spark.kernel.cache import CACHE

Function = TypeVar("Function", bound=Callable[..., Any])

numba.config.CACHE_DIR = str(CACHE)


def compiled(function: Function) -> Function:
    """Compile a function of integers and addresses. The function itself must check the bounds of each read."""
    return numba.njit(nogil=True, cache=True, error_model="numpy")(function)


def inlined(function: Function) -> Function:
    """Compile a function into its callers, for functions that are called at least once per record."""
    return numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)(function)
