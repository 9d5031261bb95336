from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.rehearsal.machine import local
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


MIB = 1 << 20


@pytest.mark.parametrize(
    ("own", "files", "free"),
    [
        (  # a unit of systemd with MemoryMax=, in a slice without a limit
            "0::/kafka.slice/worker.service\n",
            {
                "kafka.slice": {"memory.max": "max", "memory.current": "9"},
                "kafka.slice/worker.service": {
                    "memory.max": str(500 * MIB),
                    "memory.current": str(300 * MIB),
                    "memory.stat": f"anon 1\ninactive_file {100 * MIB}\n",
                },
            },
            300 * MIB,
        ),
        (  # the parent has the limit
            "0::/pod/container\n",
            {
                "pod": {"memory.max": str(50 * MIB), "memory.current": "0"},
                "pod/container": {"memory.max": "max", "memory.current": "0"},
            },
            50 * MIB,
        ),
        (
            "5:devices:/\n4:cpu,memory:/a\n",
            {"memory/a": {"memory.limit_in_bytes": str(80 * MIB), "memory.usage_in_bytes": str(90 * MIB)}},
            0,
        ),
    ],
    ids=["unit", "container", "version 1"],
)
def test_a_control_group_limits_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: dict[str, dict[str, str]], free: int
) -> None:
    for folder, contents in files.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (tmp_path / folder / name).write_text(text)
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(local, "_CGROUP", tmp_path)
    monkeypatch.setattr(local, "_OWN_GROUPS", tmp_path / "own")
    assert free_memory() == free


def test_the_machine_has_memory_and_disk(tmp_path: Path) -> None:
    assert free_memory() > 0
    assert free_disk(tmp_path / "not" / "there") > 0
