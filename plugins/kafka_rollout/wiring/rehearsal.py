"""Main of the process that carries out a rehearsal: it owns the nodes of the sandbox and ends with its parent.

It stands above the steps and not in the room of the rehearsal, because it opens the ports of the copy and carries out
steps on them.

Its standard output is the progress, one line each. The parent keeps its standard input open: the end of it means that
the parent is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import FrameType

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.python import python_process
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.procedure.rehearsal import Rehearsal
from kafka_rollout.rehearsal.job import RehearsalJob
from kafka_rollout.rehearsal.machine.local import PROCESS, enter_loopback
from kafka_rollout.rehearsal.machine.sandbox import JOB, RESULT, GuardedRuntime, Sandbox
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.wiring.cluster_ports import open_cluster_ports

_RUN_ID = "rehearsal"
_OWNER_TRIES, _OWNER_PAUSE_S = 40, 0.25


def main() -> int:
    parser = argparse.ArgumentParser(description="The process of a rehearsal, in a network namespace of its own.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--remove", action="store_true", help="only end the nodes and remove the folder")
    arguments = parser.parse_args()
    sandbox = Sandbox(arguments.folder)
    if arguments.remove:
        return remove_after_owner(sandbox)
    asked = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    Thread(target=_end_with_parent, args=(sandbox,), daemon=True).start()
    try:
        enter_loopback()
        run_in_sandbox(sandbox, _say, lambda: asked)
    except RolloutError as error:
        _say(str(error))
        return error.exit_code
    except Exception as error:
        _say(f"Unexpected error: {type(error).__name__}: {error}")
        return FatalError.exit_code
    return 0


def remove_after_owner(sandbox: Sandbox) -> int:
    """Remove a sandbox whose owner is ending: the kernel releases its lock a moment after its pipe. Exit code."""
    for _ in range(_OWNER_TRIES):
        if not sandbox.path.exists():
            return 0
        with suppress(RefusedError):
            sandbox.end_leftover()
            return 0
        time.sleep(_OWNER_PAUSE_S)
    return RefusedError.exit_code


def run_in_sandbox(sandbox: Sandbox, say: Callable[[str], None], stop_asked: Callable[[], bool]) -> None:
    """Carry out the job of a sandbox and write its result."""
    path = sandbox.path
    job = from_json(RehearsalJob, json.loads((path / JOB).read_text()))
    settings = sandbox.settings(Settings.from_environment())

    def guard(ports: ClusterPorts) -> ClusterPorts:
        runtime = GuardedRuntime(
            ports.cluster,
            ReleaseCache.from_settings(settings),
            sandbox=path,
            real_addresses=frozenset(job.real_addresses),
            real_directories=frozenset(job.real_directories),
        )
        return replace(ports, runtime=runtime)

    with open_cluster_ports(job.cluster, _RUN_ID, None, settings, adjust=guard) as ports:
        result = Rehearsal(ports=ports, job=job, say=say, stop_asked=stop_asked).run()
    write_whole(path / RESULT, json.dumps(to_json(result)).encode())


def _say(line: str) -> None:
    with suppress(BrokenPipeError):  # the parent is gone, and the other thread has everything removed
        print(line, flush=True)


def _end_with_parent(sandbox: Sandbox) -> None:
    """Wait for the end of the parent, then have everything removed: no later process would.

    Another process removes it, because the main thread of this one still starts nodes and writes files.
    """
    while os.read(0, 1):  # a buffered read would hold a lock at this process's end
        pass
    remove = python_process(["-m", PROCESS, str(sandbox.path), "--remove"], os.environ)
    remove.start(stdin=subprocess.DEVNULL, start_new_session=True)
    os._exit(FatalError.exit_code)


if __name__ == "__main__":
    sys.exit(main())
