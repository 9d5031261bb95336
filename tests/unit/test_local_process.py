"""Processes of nodes, without a broker."""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.adapters.runtimes import local_process


def test_a_process_is_found_as_soon_as_it_is_started(tmp_path: Path) -> None:
    """Popen returns before the kernel shows the command line: one look in ten came too early."""
    command = ["/bin/sleep", "60"]
    for _ in range(100):
        process = local_process._spawn(command, tmp_path)
        try:
            assert process.cmdline() == command
        finally:
            process.kill()
            process.wait()
