"""The main process of a unit is Kafka's, shown with real processes below a real shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime, _without_wrapper
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_state import read_unit_options
from kafka_rollout.releases.facts import Release
from tests.waiting import wait_until

KAFKA = f"{sys.executable} -c 'import time; time.sleep(60)' kafka.Kafka server.properties --override broker.rack=b"
Start = Callable[[str], tuple[SshServiceRuntime, NodeSpec]]


class ShellWithUnit:
    """Runs each line with `/bin/sh` and a `systemctl` that shows a unit with this main process."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder = folder
        unit = f"LoadState=loaded\nActiveState=active\nMainPID={pid}\nExecMainPID={pid}\nUser=kafka"
        program = folder / "systemctl"
        program.write_text(f"#!/bin/sh\ncase $* in *=MainPID*) echo {pid};; *) echo '{unit}';; esac\n")
        program.chmod(0o755)

    def run(self, host: str, command: str | Sequence[str], **options: object) -> Done:
        assert isinstance(command, str)
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", "-c", command], env=path, capture_output=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def short_timeouts(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(line: str) -> tuple[SshServiceRuntime, NodeSpec]:
        process = subprocess.Popen(["/bin/sh", "-c", line], cwd=tmp_path, start_new_session=True)
        started.append(process)
        wait_until(lambda: _runs_kafka(process.pid), 10)
        node = NodeSpec(
            node_id=1,
            name="kafka-1",
            roles=frozenset({Role.BROKER}),
            service=ServiceSpec(host="h1", unit="kafka", symlink=str(tmp_path / "kafka")),
        )
        cluster = ClusterSpec(name="orders", runtime="ssh_service", nodes=(node,))
        return SshServiceRuntime(cluster, ShellWithUnit(tmp_path, process.pid), Release.parse), node

    yield begin
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


def _runs_kafka(session: int) -> bool:
    """Whether a process of the session runs."""
    found = subprocess.run(["ps", "-o", "args=", "-s", str(session)], capture_output=True, text=True, check=False)
    return any(line.startswith(sys.executable) for line in found.stdout.splitlines())


@pytest.mark.parametrize("line", [f"{KAFKA} > log 2>&1; true", f'sh -c "{KAFKA}; true" > log 2>&1; true'])
def test_a_shell_that_stays_the_main_process_is_refused_with_the_way_out(start: Start, line: str) -> None:
    runtime, node = start(line)
    for ask in (runtime.process, lambda one: runtime.java_version(one, ())):
        with pytest.raises(
            UserError, match=r"The main process of unit kafka on host h1 is sh \(process \d+\)"
        ) as raised:
            ask(node)
        assert raised.value.remedy == (
            "Write `exec` before kafka-server-start.sh in ExecStart (`systemctl edit --full kafka`), and restart node "
            "kafka-1."
        )


@pytest.mark.parametrize("line", [KAFKA, f"{KAFKA} > log 2>&1; true", f'sh -c "{KAFKA}; true" > log 2>&1; true'])
def test_the_command_line_is_that_of_kafka_also_below_a_shell(start: Start, line: str) -> None:
    runtime, node = start(line)
    process = read_unit_options(runtime, node).process
    assert process[3:] == ("kafka.Kafka", "server.properties", "--override", "broker.rack=b")
    assert process[0] == sys.executable


def test_the_command_line_of_another_program_is_not_that_of_kafka(start: Start) -> None:
    runtime, node = start(f"{KAFKA.replace('kafka.Kafka', 'other')} > log; true")
    unit = read_unit_options(runtime, node)
    assert unit.process == ()
    assert unit.unknown is not None


@pytest.mark.parametrize(
    ("wrapper", "says"),
    [
        ("sh", "Write `exec` before"),
        ("runuser", "Set User=kafka in the unit"),
        *((name, f"not in containers or below {name}") for name in ("docker", "conmon", "tini", "supervisord")),
    ],
)
def test_the_remedy_is_one_for_the_program_that_stays(wrapper: str, says: str) -> None:
    service = ServiceSpec(host="h1")
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    assert _without_wrapper(wrapper, service, node).startswith(("The tool", says))
    assert says in _without_wrapper(wrapper, service, node)


def test_a_shell_that_became_kafka_is_the_process_of_the_unit(start: Start) -> None:
    runtime, node = start(f"exec {KAFKA} > log 2>&1")
    unit = runtime.unit(node)
    assert unit.pid is not None
    assert unit.wrapper == ""
