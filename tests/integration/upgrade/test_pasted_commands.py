"""Every command that a run on a secured cluster prints is pasted into a shell as it is, at a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Stopping
from tests.integration.conftest import MakeCluster
from tests.integration.harness.faults.breaking import BREAKS_WHERE_A_FILE_IS_IN_THE_WAY
from tests.integration.harness.security.secured import CHANGER, SecuredCluster
from tests.integration.harness.shell import Shell
from tests.printed import filled_in, printed_commands

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(3000)]

OLD, NEW = "4.2.1", "4.3.1"
_CALL_S = 900.0
_QUESTION = re.compile(r"\[y/N\]: ?$")
# A dry run ends with 0, a pause with 130, a node that does not start and a refusal with 3.
_EXPECTED = {0, 3, 130}


def paste(shell: Shell, command: str, answer: str = "y") -> tuple[int, str]:
    """Type a line into bash at a terminal, and answer each question; return its exit code and what it has printed.

    The place of the command is found as a person has it, and no variable names credentials.
    """
    line = f"kafka-rollout {command}"
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**shell.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        os.chdir(shell.folder)
        os.execve("/bin/bash", ["bash", "-c", line], environment)  # noqa: S606
    said, answered, deadline = "", 0, time.monotonic() + _CALL_S
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # the other side of the terminal is closed
            part = b""
        if not part:
            break
        said += part.decode(errors="replace").replace("\r\n", "\n")
        if _QUESTION.search(said[answered:]):
            os.write(terminal, f"{answer}\n".encode())
            answered = len(said)
    else:
        os.kill(pid, 9)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)


def bare(command: str) -> str:
    """Return a command without the file of its credentials, which the run has kept too."""
    return re.sub(r"--command-config \S+ ", "", command)


def test_each_command_that_a_secured_run_prints_works_as_it_is_pasted(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """From the dry run through a pause and a node that does not start, back to the old release."""
    secured = SecuredCluster.create(make_cluster, OLD, tmp_path / "files", name="pasted", layout="combined")
    secured.use_coordinators()
    cluster = secured.cluster
    spec = replace(cluster.spec, approvers=("alice",), release_overrides={NEW: BREAKS_WHERE_A_FILE_IS_IN_THE_WAY})
    cluster.inventory_path.write_text(dump_cluster(spec))
    second = spec.nodes[1]
    (Path(str(second.directory)) / "figures").write_text("in the way")
    shell = Shell(tmp_path, cluster)
    credentials = secured.command_config(secured.security(CHANGER))

    first = f"upgrade --cluster {spec.name} --to {NEW} --dry-run --no-scan --no-rehearse --pace fast"
    code, said = paste(shell, f"{first} --pause-after first-node --command-config {shlex.quote(str(credentials))}")
    assert code == 0, said
    run = shell.newest_run().run_id
    texts = [said]
    pasted: dict[str, int] = {}
    while new := [one for one in printed_commands("\n".join(texts)) if bare(one) not in pasted]:
        code, said = paste(shell, filled_in(new[0]))
        assert code in _EXPECTED, (new[0], said)  # 2: without its options, or with no or wrong credentials
        pasted[bare(new[0])] = code
        texts.append(said)
        for words in ("status", "runs report"):
            code, said = paste(shell, f"{words} --cluster {spec.name} --run {run}")
            assert code in _EXPECTED, (words, said)
            texts.append(said)
    assert {command.split()[0] for command in pasted} >= {"upgrade", "retry", "rollback"}, pasted
    assert events_of(shell.newest_run().events(), Stopping), "it stopped a node"
    releases = {node.node_id: str(cluster.runtime.starts(node)[-1].release) for node in spec.nodes}
    assert set(releases.values()) == {OLD}, releases
    assert not any(secured.passwords[CHANGER] in text for text in texts)
