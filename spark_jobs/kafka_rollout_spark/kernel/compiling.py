"""How the kernel's functions are compiled: kept on disk, without Python's lock, dividing integers as C does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

from kafka_rollout.settings import Settings

Function = TypeVar("Function", bound=Callable[..., Any])


def _state_of_sources() -> str:
    """numba compiles anew when a function's own file is another one or has another time, but not when what was inlined
    into it does.
    """
    state = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        state.update(f"{source.resolve()} {source.stat().st_mtime_ns}".encode() + source.read_bytes())
    return state.hexdigest()[:16]


_folder = Path(numba.config.CACHE_DIR or Settings.from_environment().cache / "numba")
CACHE = _folder / _state_of_sources()
numba.config.CACHE_DIR = str(CACHE)


def compiled(function: Function) -> Function:
    """A function of integers, addresses among them, as machine code. Nobody else checks what it reads."""
    return numba.njit(nogil=True, cache=True, error_model="numpy")(function)


def inlined(function: Function) -> Function:
    """Likewise, and put into the functions that call it: for what is done once or more for every record."""
    return numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)(function)
