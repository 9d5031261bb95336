"""Main of the process that carries out a rehearsal: it owns the nodes of the sandbox and ends with its parent.

Its standard output is the progress, one line each. The parent keeps its standard input open: the end of it means that
the parent is gone.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import FrameType

from kafka_rollout.base.errors import FatalError, RolloutError
from kafka_rollout.composition.sandbox import run_in_sandbox
from kafka_rollout.rehearsal.machine.machine import enter_loopback
from kafka_rollout.rehearsal.machine.sandbox import Sandbox


def main() -> int:
    parser = argparse.ArgumentParser(description="The process of a rehearsal, in a network namespace of its own.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--remove", action="store_true", help="only end the nodes and remove the folder")
    arguments = parser.parse_args()
    sandbox = Sandbox(arguments.folder)
    if arguments.remove:
        sandbox.end()
        return 0
    asked = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    Thread(target=_end_with_parent, args=(sandbox,), daemon=True).start()
    try:
        enter_loopback()
        run_in_sandbox(sandbox.path, _say, lambda: asked)
    except RolloutError as error:
        _say(str(error))
        return error.exit_code
    except Exception as error:
        _say(f"Unexpected error: {type(error).__name__}: {error}")
        return FatalError.exit_code
    return 0


def _say(line: str) -> None:
    with suppress(BrokenPipeError):  # the parent is gone, and the other thread has everything removed
        print(line, flush=True)


def _end_with_parent(sandbox: Sandbox) -> None:
    """Wait for the end of the parent, then have everything removed: no later process would.

    Another process removes it, because the main thread of this one still starts nodes and writes files.
    """
    while os.read(0, 1):  # a buffered read would hold a lock at this process's end
        pass
    command = [sys.executable, "-m", "kafka_rollout.processes.rehearsal", str(sandbox.path), "--remove"]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    os._exit(FatalError.exit_code)


if __name__ == "__main__":
    sys.exit(main())
