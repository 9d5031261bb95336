"""Runs `kafka-rollout`, and writes a line `phase begin end` after each call of the functions that bench.hosts times.

python -m bench.hosts.timed LINES upgrade --cluster …
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TextIO

from kafka_rollout.cli.app import main
from kafka_rollout.nodes.runtimes.hosts import shells
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.roll import loop, walk


def time_phases(lines: TextIO) -> None:
    """Replace the functions by ones that are timed. A gate is timed with its waits."""

    def timed(owner: Any, inner: Callable[..., Any], phase: Callable[..., str]) -> None:
        @wraps(inner)
        def outer(*given: Any, **more: Any) -> Any:
            began = time.time()
            try:
                return inner(*given, **more)
            finally:
                print(phase(*given), began, time.time(), file=lines)

        setattr(owner, inner.__name__, outer)

    timed(shells, shells._connected, lambda *_: "connect")
    timed(SshServiceRuntime, SshServiceRuntime.stop, lambda *_: "stop")
    timed(SshServiceRuntime, SshServiceRuntime.install, lambda *_: "install")
    timed(SshServiceRuntime, SshServiceRuntime.start, lambda *_: "start")
    timed(loop, loop.replace, lambda *_: "replace")
    timed(walk._Walk, walk._Walk._wait, lambda of, batch, watch, gate: gate.__name__.replace("_", " "))


if __name__ == "__main__":
    with open(sys.argv.pop(1), "w", buffering=1) as lines:
        time_phases(lines)
        main()
