"""The cache folder of the compiled kernel. Imports no numba, because the driver of a scan does not load numba."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from kafka_rollout.base.system.settings import Settings


def _hash_sources() -> str:
    """Hash all sources: numba recompiles a function if its own file changes, but not if an inlined function changes."""
    state = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        state.update(f"{source.resolve()} {source.stat().st_mtime_ns}".encode() + source.read_bytes())
    return state.hexdigest()[:16]


_FOLDER = Path(os.environ.get("NUMBA_CACHE_DIR") or Settings.from_environment().cache / "numba")
CACHE = _FOLDER / _hash_sources()
COMPLETE = CACHE / "whole"  # exists when every function is compiled
