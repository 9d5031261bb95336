"""A unit is stopped if no process in its control group can be Kafka, shown with real processes below a real shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.nodes.runtimes.hosts.unit_processes import LeftProcesses, left_command, parse_left, without_kafka
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

UNIT, GROUP = "kafka@1.service", "/system.slice/system-kafka.slice/kafka@1.service"
GONE = 1 << 22  # above pid_max
Left = Callable[..., tuple[LeftProcesses, bool]]
Begin = Callable[..., int]


@pytest.fixture
def begin() -> Iterator[Begin]:
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str) -> int:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *words]))
        return started[-1].pid

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def left(tmp_path: Path) -> Left:
    def ask(
        processes: str = "", *, group: str = f"ControlGroup={GROUP}", root: str = "", inner: str = "", first: str = "1"
    ) -> tuple[LeftProcesses, bool]:
        """`processes`: of the control group, which exists if there are some. `first`: of init.scope."""
        folders = tmp_path / "cgroup" / root
        for name, content in (("/init.scope", first), (GROUP + inner, processes)):
            if content:
                (folders / name[1:]).mkdir(parents=True, exist_ok=True)
                (folders / name[1:] / "cgroup.procs").write_text(f"{content}\n")
        systemctl = tmp_path / "systemctl"
        systemctl.write_text(f"#!/bin/sh\ncase $* in *init.scope) echo /init.scope;; *{UNIT}) echo '{group}';; esac\n")
        systemctl.chmod(0o755)

        def run(line: str) -> subprocess.CompletedProcess[str]:
            line = line.replace("/sys/fs/cgroup", str(tmp_path / "cgroup"))
            path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
            return subprocess.run(["/bin/sh", "-c", line], env=path, capture_output=True, text=True, check=False)

        return parse_left(run(left_command(UNIT)).stdout), run(without_kafka(UNIT)).returncode == 0

    return ask


@pytest.mark.parametrize("root", ["", "unified", "systemd"], ids=["v2", "v2 beside v1", "v1"])
@pytest.mark.parametrize("inner", ["", "/broker/a"])
def test_a_process_that_can_be_kafka_is_left_wherever_it_is_in_the_group(
    left: Left, begin: Begin, root: str, inner: str
) -> None:
    kafka, log = begin("kafka.Kafka", "/etc/kafka/server.properties"), begin("ship", "kafka.Kafka.log")
    seen, is_free = left(f"{kafka}\n{log}", root=root, inner=inner)
    assert (seen.kafka, is_free) == ((kafka,), False)
    assert [name.split()[0] for name in seen.names] == [str(kafka), str(log)]


@pytest.mark.parametrize("words", [["/opt/kafka/bin/kafka-server-start.sh", "x"], ["/usr/lib/jvm/bin/java"], ["java"]])
def test_a_script_or_a_jvm_that_can_become_kafka_is_not_known_to_be_another(
    left: Left, begin: Begin, words: list[str]
) -> None:
    process = begin(*words)
    assert left(str(process)) == (LeftProcesses((process,), (f"{process} ({comm(process)})",)), False)


def comm(process: int) -> str:
    return Path(f"/proc/{process}/comm").read_text().strip()


def test_another_process_does_not_keep_a_unit_from_being_stopped(left: Left, begin: Begin) -> None:
    log = begin("ship", "/var/log/kafka/server.log")
    assert left(str(log)) == (LeftProcesses((), (f"{log} ({comm(log)})",)), True)


def test_a_unit_without_a_control_group_or_with_an_empty_one_has_no_process(left: Left) -> None:
    assert left(group="ControlGroup=") == (LeftProcesses(()), True)
    assert left() == (LeftProcesses(()), True)  # removed since systemd was asked


def test_a_process_that_the_user_cannot_see_can_be_kafka(left: Left) -> None:
    assert left(str(GONE)) == (LeftProcesses((GONE,), (f"{GONE} (unknown)",)), False)


@pytest.mark.parametrize("group", ["", "Failed to get properties: Connection timed out"])
def test_a_group_that_systemd_does_not_show_is_unknown(left: Left, group: str) -> None:
    assert left(group=group) == (LeftProcesses(None), False)


def test_a_folder_that_is_not_that_of_systemd_shows_no_absence(left: Left) -> None:
    for first in ("", "11"):
        assert left(first=first) == (LeftProcesses(None), False)


def test_a_file_that_cannot_be_read_is_unknown(left: Left, tmp_path: Path) -> None:
    (tmp_path / "cgroup" / GROUP[1:] / "cgroup.procs").mkdir(parents=True)
    assert left() == (LeftProcesses((0,), ("0 (unknown)",)), False)


def given_up(**changes: object) -> FakeHost:
    return FakeHost(active="failed", sub="failed", pid=0, **{"left": {58: "java", 61: "sleep"}, **changes})  # type: ignore[arg-type]


def test_a_stop_ends_when_kafka_has_ended_and_not_when_systemd_gives_it_up() -> None:
    host = FakeHost(kill_mode="none")
    runtime = runtime_on(host)
    with pytest.raises(FatalError, match=r"after 180 s in the control group .* calls inactive \(50 \(java\)\)\."):
        runtime.stop(NODE, deadline_s=180)
    assert runtime.process(NODE).pid == 50
    runtime.stop(NODE, deadline_s=180, force=True)
    assert runtime.process(NODE).pid is None


def test_nothing_is_installed_or_started_over_a_process_that_systemd_has_given_up() -> None:
    runtime = runtime_on(given_up())
    process = runtime.process(NODE)
    assert (process.pid, process.running) == (58, Release(4, 2, 1))
    with pytest.raises(FatalError, match=r"still runs in the control .* failed \(58 \(java\), 61 \(sleep\)\), so"):
        runtime.install(NODE, Release(4, 3, 1))
    with pytest.raises(TransientError, match="so it was not started"):
        runtime.start(NODE)


def test_what_is_left_and_unknown_is_not_stopped() -> None:
    host = given_up(left=None)
    runtime = runtime_on(host)
    with pytest.raises(TransientError, match="so it was not started"):
        runtime.start(NODE)
    with pytest.raises(FatalError, match="processes that the host does not report"):
        runtime.stop(NODE, deadline_s=3)
    host.left = {61: "sleep"}
    runtime.stop(NODE, deadline_s=3)
    runtime.start(NODE)
    assert host.started == 1


def test_a_unit_that_systemd_has_not_read_again_is_shown() -> None:
    states = [runtime_on(FakeHost(needs_reload=one)).host(NODE, [Release(4, 3, 1)]) for one in ("yes", "no")]
    assert [(one.needs_reload, one.unknown) for one in states] == [("NeedDaemonReload=yes", ()), ("", ())]


@pytest.mark.parametrize(
    ("host", "says"),
    [
        (
            FakeHost(left=None),
            (
                "the processes in the control group of kafka.service (/sys/fs/cgroup)",
                "what else starts through /opt/kafka (`systemctl show`, /proc/*/cmdline)",
            ),
        ),
        (FakeHost(kill_mode=""), ("KillMode of the unit",)),
        (FakeHost(needs_reload=""), ("NeedDaemonReload of the unit",)),
        (FakeHost(kill_signal=""), ("KillSignal of the unit",)),
    ],
)
def test_what_a_stop_needs_to_know_is_asked_before_it(host: FakeHost, says: tuple[str, ...]) -> None:
    assert runtime_on(host).host(NODE, [Release(4, 3, 1)]).unknown == says
