from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.rehearsal.machine.local import enter_loopback, free_disk, free_memory, namespace_command

LISTENS = """
import socket, sys
from kafka_rollout.rehearsal.machine.local import enter_loopback
enter_loopback()
with socket.socket() as inside:
    inside.bind(("127.0.0.1", 0))
with socket.socket() as outside:
    sys.exit(outside.connect_ex(("127.0.0.1", int(sys.argv[1]))))
"""


def test_a_namespace_has_a_loopback_of_its_own() -> None:
    command = namespace_command()
    if not command:
        pytest.skip("this machine allows no network namespace")
    with socket.socket() as outside:
        outside.bind(("127.0.0.1", 0))
        outside.listen()
        port = str(outside.getsockname()[1])
        assert subprocess.run([*command, sys.executable, "-c", LISTENS, port], check=False).returncode == 111


def test_a_process_with_another_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "eth9")])
    monkeypatch.setattr("kafka_rollout.rehearsal.machine.local._flags", lambda control, name: 1)
    with pytest.raises(RefusedError, match="has the network interface eth9"):
        enter_loopback()


def test_the_machine_has_memory_and_disk(tmp_path: Path) -> None:
    assert free_memory() > 0
    assert free_disk(tmp_path / "not" / "there") > 0
