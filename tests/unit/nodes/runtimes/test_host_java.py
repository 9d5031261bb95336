"""The Java of a node over SSH: nothing that the user of the broker chooses is executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.releases.facts import Release
from tests.fakes.ssh_host import SshHost, ssh_shell

UNIT = "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=50\nExecMainPID=50\nNRestarts=0\n"
UNIT += "ExecStart={ path=/x ; argv[]=/opt/kafka/bin/kafka-server-start.sh /x ; ignore_errors=no ; }\n"


@pytest.mark.parametrize("release", [None, 'JAVA_VERSION="17.0.1"\n'])
def test_the_program_of_a_process_is_not_executed_by_the_ssh_user(tmp_path: Path, release: str | None) -> None:
    home, host = tmp_path / "java", SshHost(tmp_path / "host")
    (home / "bin").mkdir(parents=True)
    home.chmod(0o777)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    (host.folder / "unit").write_text(UNIT)
    host.write_program("sudo", f"echo {java}")
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="kafka-1"))
    with ssh_shell(host) as shell, pytest.raises((UserError, RefusedError), match="The Java version of node kafka-1"):
        SshServiceRuntime(
            ClusterSpec(name="far", runtime="ssh_service", nodes=(node,)), shell, Release.parse
        ).java_version(node, ())
    assert not (tmp_path / "executed").exists()
