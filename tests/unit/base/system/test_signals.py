"""A process that is asked to end does so, wherever the request meets it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_WAITS = """
from kafka_rollout.base.system.signals import end_event
stop = end_event()
print("waits", flush=True)
while not stop.wait(0.0):
    pass
print("ends", flush=True)
"""


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_the_request_is_met_also_by_a_thread_that_just_begins_to_wait(asked: signal.Signals) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", _WAITS], stdout=subprocess.PIPE, text=True) for _ in range(8)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
            process.send_signal(asked)
        assert [process.communicate(timeout=60)[0] for process in processes] == ["ends\n"] * 8
    finally:
        for process in processes:
            process.kill()
            process.wait()
