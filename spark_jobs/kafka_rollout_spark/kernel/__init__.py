"""The compiled part of decoding: loops over raw bytes that numba compiles. Only `decode` calls it.

One call takes the raw record batches of a block, about 2 MiB, and returns when the block is done or a table is full.
`scanning` reads batch headers and hands gzip, snappy and formats v0 and v1 back to Python. `walking` and `programs`
parse keys and values, `noting` adds each record to the tables, and `keys` finds the newest record of each key.
`decode.py` calls the kernel, and empties the tables into Arrow rows.

`memory.py` checks nothing: a read outside of a buffer crashes the worker. A full table ends the call with a `FULL_…`
code. Python empties it and calls again; `STAGE` prevents that a step runs twice.

To change it safely:

1. Change `formats` first (the same in plain Python), then the kernel, until
   `tests/contract/test_kernel_and_wire_agree.py` passes.
2. Compare a size before each read. Use `value`, `set_value` and `item` for tables.
3. Return `FULL_…` before changing anything, or use a separate `STAGE`.
4. A new number in `control` gets a place in `tables.py`; `_CONTROLS` stays above all places.
5. Call a function that Python calls in `compile_kernel` (`decode.py`) too.
6. Run `tests/unit/spark/kernel/`, and `python -m bench.scan` before and after.

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
