"""Commands that change a host are sent right after a check of the fence, and not run if they arrive late."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control.lock import calls_of
from kafka_rollout.model.claims import Claim
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.topology import ClusterSpec, HostCommand, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.ports.cluster import NodeChanges
from kafka_rollout.releases.facts import Release
from tests.fakes.clock import FakeClock
from tests.fakes.host import FakeHost
from tests.waiting import wait_until

R431 = Release(4, 3, 1)
CHANGE = ConfigChange(node_id=1, release=R431, key="num.io.threads", value="9", reason="a test")


def node_of(**service: object) -> NodeSpec:
    return NodeSpec(
        node_id=1,
        name="kafka-1",
        roles=frozenset({Role.BROKER}),
        broker_address="kafka-1:9092",
        service=ServiceSpec(host="kafka-1", **service),
    )


NODE = node_of()
PREPARED = node_of(
    before_stop=(HostCommand(command="drain 1"),),
    after_start=(HostCommand(command="drain 0"),),
    install=HostCommand(command="install {release}"),
)


def runtime_on(host: FakeHost) -> SshServiceRuntime:
    clock = FakeClock()
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,))
    return SshServiceRuntime(cluster, host, Release.parse, sleep=clock.sleep, monotonic=clock.monotonic)


CLAIM = Claim(cluster_id="x", node_id=1, run_id="run-1", nonce="ab" * 16, at=1.0, database="a.db")
CALLS: dict[str, Callable[[SshServiceRuntime], object]] = {
    "bring": lambda runtime: runtime.bring(PREPARED, Release(4, 4, 0)),
    "prepare_stop": lambda runtime: runtime.prepare_stop(PREPARED),
    "stop": lambda runtime: runtime.stop(PREPARED, deadline_s=180),
    "install": lambda runtime: runtime.install(PREPARED, R431, [CHANGE]),
    "start": lambda runtime: runtime.start(PREPARED),
    "finish_start": lambda runtime: runtime.finish_start(PREPARED),
    "claim": lambda runtime: runtime.claim(PREPARED, CLAIM),
    "end_claims": lambda runtime: runtime.end_claims(PREPARED, [CLAIM], changed=True),
}


@pytest.mark.parametrize("call", sorted(calls_of(NodeChanges)))
def test_every_change_of_a_host_is_refused_by_the_fence_when_it_reaches_the_runtime(call: str) -> None:
    runs = call in ("prepare_stop", "stop", "finish_start")
    host = FakeHost(**({} if runs else {"active": "failed", "sub": "failed", "pid": 0}))
    files = dict(host.files)
    runtime, checks = runtime_on(host), [0]

    def refuse() -> None:
        checks[0] += 1
        raise RefusedError("The lease is lost.")

    runtime.fence = refuse
    with pytest.raises(RefusedError, match="The lease is lost"):
        CALLS[call](runtime)
    assert checks == [1]
    assert not [line for line in host.history if not line.startswith(("dd if=", "sha256sum ", "ls ", "readlink "))]
    assert (host.files, host.pid, host.link) == (files, 50 if runs else 0, FakeHost().link)


def test_a_command_that_reaches_the_host_late_is_sent_again_after_a_new_check_of_the_fence() -> None:
    """As a process that was paused after the check, or a network that was cut."""
    host, checks, late = FakeHost(), [0], [True, False]
    runtime = runtime_on(host)

    def fence() -> None:
        checks[0] += 1

    def arrive(line: str) -> None:
        if "systemctl stop" in line and late.pop(0):
            host.uptime += 20
            runtime.sleep(20)

    runtime.fence, host.on_command = fence, arrive
    runtime.stop(NODE, deadline_s=180)
    assert (host.pid, checks, late) == (0, [2], [])


def test_a_command_that_is_always_late_is_never_run() -> None:
    host = FakeHost()
    runtime = runtime_on(host)

    def arrive(line: str) -> None:
        if "systemctl stop" in line:
            host.uptime += 20
            runtime.sleep(20)

    host.on_command = arrive
    with pytest.raises(TransientError, match="more than 20 s after the check of the lock"):
        runtime.stop(NODE, deadline_s=180)
    assert host.pid == 50


def test_a_reading_of_a_hosts_uptime_is_used_for_two_seconds() -> None:
    host = FakeHost(active="inactive", pid=0)
    runtime, read = runtime_on(host), [0]

    def arrive(line: str) -> None:
        if line.startswith("cut "):
            read[0] += 1
        if "/usr/bin/ln " in line:
            runtime.sleep(3)

    host.on_command = arrive
    runtime.install(NODE, R431, [CHANGE])
    assert read == [2]


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_line_goes_on_only_while_its_connection_is_open(tmp_path: Path, *, is_closed: bool) -> None:
    """sshd is the parent of the shell that runs the line, and ends with the connection; here a shell is."""
    runs = tmp_path / "runs"
    host = FakeHost()
    runtime, sent = runtime_on(host), list[str]()
    host.on_command = sent.append
    runtime.run_fenced(NODE, f"{{ touch {runs}; sleep 0.5; }}", f"touch {tmp_path}/changed")
    (line,) = (one for one in sent if "in_time" in one)
    line = re.sub(r"-lt \d+", "-lt 9999999999", line)
    parent = subprocess.Popen(["/bin/sh", "-c", f"/bin/sh -c {shlex.quote(line)}; echo ended > {tmp_path}/end"])
    wait_until(runs.exists, 10, every_s=0.02)
    if is_closed:
        parent.kill()
    parent.wait()
    time.sleep(1)
    assert (tmp_path / "changed").exists() is not is_closed
