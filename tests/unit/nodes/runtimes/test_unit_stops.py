"""What a stop executes and whom it reaches, with real processes below a real shell and on a host in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.host_state import UnitStop
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_stops import read_unit_stop
from kafka_rollout.planning.findings.stops import stop_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

SCRIPT = "/opt/kafka/bin/kafka-server-stop.sh"
CLUSTER = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,))
R431 = Release(4, 3, 1)
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


@dataclass
class RealShell:
    """`group`: the processes in the control group of the unit. `files`: what `systemctl cat` prints. `user`: its
    property User."""

    folder: Path
    group: str = ""
    files: str = f"[Service]\nExecStop={SCRIPT}"
    first: str = "/proc/1/cmdline"
    user: str = "User=1001"

    def run(self, host: str, command: str, **_: object) -> Done:
        for name, content in (("/init.scope", "1"), ("/kafka.service", self.group)):
            (self.folder / name[1:]).mkdir(exist_ok=True)
            (self.folder / name[1:] / "cgroup.procs").write_text(f"{content}\n" if content else "")
        (self.folder / "cat").write_text(f"{self.files}\n" if self.files else "")
        systemctl = self.folder / "systemctl"
        shown = f"*property=User*) echo {self.user};; "
        shown += "*init.scope) echo /init.scope;; *kafka.service) echo ControlGroup=/kafka.service;;"
        systemctl.write_text(f"#!/bin/sh\ncase $* in cat*) cat {self.folder}/cat;; {shown} esac\n")
        systemctl.chmod(0o755)
        line = command.replace("/sys/fs/cgroup", str(self.folder)).replace("/proc/1/cmdline", self.first)
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        done = subprocess.run(["/bin/sh", "-c", line], env=path, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout.encode(), done.stderr)


def read(shell: RealShell, *stop: str, pid: int | None = None) -> UnitStop:
    runtime = runtime_on(FakeHost())
    runtime.shell = shell  # type: ignore[assignment]
    return read_unit_stop(runtime, NODE, stop=stop, after=(), pid=pid)


def test_every_kafka_outside_of_the_unit_is_seen_with_its_file(tmp_path: Path, begin: Begin) -> None:
    file = tmp_path / "b.properties"
    file.write_text("# node.id=9\n node.id = 7\nprocess.roles=broker,controller\nlog.dirs=/data\n")
    own, other = (begin("-Xmx1g", "kafka.Kafka", path) for path in ("/etc/kafka/server.properties", str(file)))
    relative, log = begin("-Xmx1g", "kafka.Kafka", "x.properties"), begin("ship", "kafka.Kafka.log")
    search = begin("-f", "kafka.Kafka")  # as the arguments of pgrep
    stop = read(RealShell(tmp_path, group=str(own)), SCRIPT, pid=own)
    found = {one.pid: one for one in stop.processes or ()}
    assert {other, relative} <= set(found)
    assert not {own, log, search} & set(found)
    assert all(Path(f"/proc/{pid}").exists() for pid in found), "no process of the reading itself"
    assert (found[other].node_id, found[other].roles, found[other].configuration) == (
        "7",
        "broker,controller",
        str(file),
    )
    assert found[other].command[-2:] == ("kafka.Kafka", str(file))
    assert (found[other].user_id, stop.user_id, stop.is_privileged) == (os.getuid(), 1001, False)
    assert own in stop.own
    assert (found[relative].configuration, found[relative].node_id) == ("x.properties", "")


@pytest.mark.parametrize(
    ("files", "is_privileged"),
    [
        ("ExecStop=/x\nExecStartPre=+/bin/mkdir /run/x", False),
        ("ExecStop=-+/x", True),
        ("ExecStopPost = !/x", True),
        ("ExecStop=\\\n# now\n  +/x", True),
        ("ExecStop=-/y a \\\n  b ; !/x", True),
        ("ExecStart=/y \\\\\nExecStop=+/x", True),  # no line goes on after an escaped backslash
        ("ExecStart=/y \\\n  ExecStop=+/x", False),
        ("# ExecStop=+/x", False),
        ("PermissionsStartOnly=true", True),
        ("AmbientCapabilities=CAP_KILL", True),
        ("", True),
    ],
)
def test_a_command_of_root_is_seen_in_the_files_of_the_unit(tmp_path: Path, files: str, *, is_privileged: bool) -> None:
    assert read(RealShell(tmp_path, files=files), SCRIPT).is_privileged is is_privileged


@pytest.mark.parametrize(
    ("user", "user_id"), [("User=", 0), ("User=root", 0), ("User=997", 997), ("User=nobody-has-this", None), ("", None)]
)
def test_the_user_of_a_stop_is_that_of_the_unit_and_not_of_its_process(
    tmp_path: Path, begin: Begin, user: str, user_id: int | None
) -> None:
    """A start script can change the user, and systemd runs ExecStop= as that of the unit."""
    own = begin("-Xmx1g", "kafka.Kafka", "/etc/kafka/server.properties")
    assert read(RealShell(tmp_path, group=str(own), user=user), SCRIPT, pid=own).user_id == user_id


@pytest.mark.parametrize("main", ["kafka", "shell"])
def test_another_kafka_in_the_control_group_ends_with_each_stop(tmp_path: Path, begin: Begin, main: str) -> None:
    """systemd sends the signal to all of them, also without ExecStop=."""
    file = "/etc/kafka/server.properties"
    own, child = (begin("-Xmx1g", "kafka.Kafka", file) for _ in range(2))
    other, shell = begin("-Xmx1g", "kafka.Kafka", "/etc/kafka-b/x.properties"), begin("wait")
    group = "\n".join(map(str, (own, child, other, shell)))
    stop = read(RealShell(tmp_path, group=group), pid=own if main == "kafka" else shell)
    assert [(one.pid, one.configuration) for one in stop.grouped] == [(other, "/etc/kafka-b/x.properties")]
    assert read(RealShell(tmp_path, group=f"{own}\n{child}"), pid=own).grouped == ()
    state = replace(runtime_on(FakeHost()).host(NODE, [R431]), stop=stop)
    (blocker,) = stop_findings(CLUSTER, NODE, state)
    assert (blocker.code, blocker.severity.value) == ("STOP-REACHES-OTHER-NODES", "blocker")
    assert f"process {other} (/etc/kafka-b/x.properties), which a stop of node {NODE.node_id} ends" in blocker.sentence
    assert list(stop_findings(CLUSTER, NODE, replace(state, kill_mode="process"))) == []
    connect = replace(stop.grouped[0], program="org.apache.kafka.connect.cli.ConnectDistributed", configuration="")
    (warning,) = stop_findings(CLUSTER, NODE, replace(state, stop=UnitStop(grouped=(connect,))))
    assert (warning.code, warning.severity.value) == ("STOP-REACHES-OTHER-UNITS", "warning")


def test_hidden_processes_are_unknown_and_a_unit_without_a_command_reaches_none(tmp_path: Path) -> None:
    assert read(RealShell(tmp_path, first=f"{tmp_path}/gone"), SCRIPT).processes is None
    assert read(RealShell(tmp_path)) == UnitStop()


def host_with_another(*, stop: str = SCRIPT, sees: str = "Processes=known\nUser=997\nPrivileged=no\n") -> FakeHost:
    shown = f"\nExecStop={{ path={stop} ; argv[]={stop} ; ignore_errors=no ; }}"
    return FakeHost(capabilities=shown, processes=sees)


OTHER = "Sees=77 997 kafka\nService=77 kafka-b.service\nWord=77 java\nWord=77 kafka.Kafka\nWord=77 /etc/b.properties\n"


def test_a_stop_that_would_reach_a_kafka_that_was_started_since_the_plan_is_refused() -> None:
    host = host_with_another()
    runtime: SshServiceRuntime = runtime_on(host)
    assert runtime.host(NODE, [Release(4, 3, 1)]).stop.processes == ()
    host.processes += OTHER
    with pytest.raises(RefusedError, match=r"can also stop kafka-b\.service \(/etc/b\.properties\)") as raised:
        runtime.stop(NODE, deadline_s=180)
    assert "`ExecStop=` there" in raised.value.remedy
    assert host.pid == 50
    host.processes = host.processes.replace(OTHER, "")
    runtime.stop(NODE, deadline_s=180)
    assert host.pid == 0


def test_a_stop_is_refused_if_the_host_does_not_show_its_processes() -> None:
    host = host_with_another(sees="")
    with pytest.raises(RefusedError, match="does not show its processes"):
        runtime_on(host).stop(NODE, deadline_s=180)
    assert host.pid == 50


def test_a_script_that_a_script_of_the_stop_executes_is_read() -> None:
    host = host_with_another(stop="/usr/local/bin/stop-kafka")
    host.files["/usr/local/bin/stop-kafka"] = "#!/bin/sh\n. /lib/functions\nexec /usr/local/lib/stop-all\n"
    host.files["/usr/local/lib/stop-all"] = "#!/bin/sh\npkill -f kafka.Kafka\n"
    host.files["/lib/functions"] = "killproc() { kill -9 $1; }\n"
    stop = runtime_on(host).host(NODE, [Release(4, 3, 1)]).stop
    assert stop.lines == (
        ("/usr/local/bin/stop-kafka", ". /lib/functions"),
        ("/usr/local/bin/stop-kafka", "exec /usr/local/lib/stop-all"),
        ("/usr/local/lib/stop-all", "pkill -f kafka.Kafka"),
    )
    assert stop.scripts["/usr/local/bin/stop-kafka"] == ". /lib/functions\nexec /usr/local/lib/stop-all"


def test_only_a_script_of_a_shell_that_was_read_to_its_end_is_judged_by_its_text() -> None:
    texts = {
        "/opt/a": "#!/bin/sh\nsleep 1\n",
        "/opt/b": "#!/usr/bin/perl\nsleep 1;\n",
        "/opt/c": f"#!/bin/sh\n{'#' * 60_000}\nsleep 1\n",
        "/opt/d": "#!/bin/sh\n# a \\\npkill -f kafka.Kafka\n",  # a comment has no second line
        "/opt/e": "#!/bin/sh\necho a \\\\\npkill -f kafka.Kafka\n",  # nor has an escaped backslash
        "/opt/f": "#!/bin/sh\necho a\\\n#b; pkill -f kafka.Kafka\n",  # a shell reads `a#b`
    }
    read = {
        "/opt/a": "sleep 1",
        "/opt/d": "pkill -f kafka.Kafka",
        "/opt/e": "echo a \\\\\npkill -f kafka.Kafka",
        "/opt/f": "echo a#b; pkill -f kafka.Kafka",
    }
    for path, text in texts.items():
        host = host_with_another(stop=path, sees=f"Processes=known\nUser=997\nPrivileged=no\n{OTHER}")
        host.files[path] = text
        stop = runtime_on(host).host(NODE, [Release(4, 3, 1)]).stop
        assert dict(stop.scripts) == ({path: read[path]} if path in read else {})
        if path == "/opt/a":
            runtime_on(host).stop(NODE, deadline_s=180)
        else:
            with pytest.raises(RefusedError):
                runtime_on(host).stop(NODE, deadline_s=180)


def test_the_process_ids_in_a_file_are_read_before_each_stop() -> None:
    line = "/bin/sh -c kill $(cat /run/kafka.pid)"
    host = host_with_another(stop=line, sees=f"Processes=known\nUser=997\nPrivileged=no\n{OTHER}")
    runtime = runtime_on(host)
    assert runtime.host(NODE, [Release(4, 3, 1)]).stop.pid_files == {"/run/kafka.pid": ()}
    host.files["/run/kafka.pid"] = "77\n"
    with pytest.raises(RefusedError, match=r"can also stop kafka-b\.service"):
        runtime.stop(NODE, deadline_s=180)
    del host.files["/run/kafka.pid"]
    host.unreadable["/run/kafka.pid"] = "Permission denied"
    with pytest.raises(RefusedError, match="cannot tell whether this also stops"):
        runtime.stop(NODE, deadline_s=180)
    host.files["/run/kafka.pid"] = "50\n"
    runtime.stop(NODE, deadline_s=180)
    assert host.pid == 0


def test_the_owner_of_the_inventory_lets_a_run_stop_a_node_of_which_the_tool_cannot_tell() -> None:
    host = host_with_another(stop="/opt/site/stop", sees=f"Processes=known\nUser=997\nPrivileged=no\n{OTHER}")
    with pytest.raises(RefusedError, match="cannot tell whether this also stops") as raised:
        runtime_on(host).stop(NODE, deadline_s=180)
    assert "`stop_spares_others: true`" in raised.value.remedy
    assert NODE.service is not None
    runtime_on(host).stop(replace(NODE, service=replace(NODE.service, stop_spares_others=True)), deadline_s=180)
    assert host.pid == 0
