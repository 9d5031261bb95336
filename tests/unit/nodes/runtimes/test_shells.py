"""Commands over SSH: what is their output, and what an early end, noise of a login and endless output lead to."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts import shells
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import SshShell
from kafka_rollout.releases.facts import Release
from tests.fakes.ssh_host import SshHost, ssh_shell

BYTES = bytes(range(256))


@pytest.fixture
def host(tmp_path: Path) -> SshHost:
    return SshHost(tmp_path / "host")


@pytest.fixture
def shell(host: SshHost) -> Iterator[SshShell]:
    with ssh_shell(host) as shell:
        yield shell


def test_the_output_of_a_command_is_its_bytes(host: SshHost, shell: SshShell) -> None:
    (host.home / "file").write_bytes(BYTES)
    assert shell.run("kafka-1", ["cat", "file"]).content == BYTES
    assert shell.run("kafka-1", "cat", text=BYTES).content == BYTES


def test_what_a_login_prints_is_not_part_of_the_output(host: SshHost, shell: SshShell) -> None:
    host.prelude = "echo 'log.dirs=/x'; echo 'rollout is not in the sudoers file' >&2; trap 'echo bye' EXIT"
    (host.home / "file").write_bytes(BYTES)
    done = shell.run("kafka-1", "cat file; echo low disk >&2; exit 3")
    assert (done.code, done.content, done.err) == (3, BYTES, "low disk\n")
    pieces: list[bytes] = []
    shell.run("kafka-1", ["cat", "file"], sink=pieces.append)
    assert b"".join(pieces) == BYTES


def test_long_output_reaches_a_sink_in_pieces(host: SshHost, shell: SshShell) -> None:
    pieces: list[bytes] = []
    done = shell.run("kafka-1", "head -c 3000000 /dev/zero", sink=pieces.append)
    assert (done.code, b"".join(pieces)) == (0, bytes(3_000_000))
    assert len(pieces) > 1


def test_commands_run_in_the_c_locale(host: SshHost, shell: SshShell) -> None:
    host.environment = {"LC_ALL": "C.UTF-8", "LANGUAGE": "de", "LANG": "de_DE.UTF-8"}
    assert shell.run("kafka-1", 'echo "$LC_ALL $LANGUAGE"').out == "C C\n"
    assert shell.run("kafka-1", ["sh", "-c", 'echo "$LC_ALL $LANGUAGE"']).out == "C C\n"


def test_a_shell_that_does_not_run_the_line_is_refused(host: SshHost, shell: SshShell) -> None:
    host.write_program("menu", "echo Choose a host:; exit 0")
    host.shell = str(host.folder / "bin" / "menu")
    with pytest.raises(RefusedError, match="The login shell on host kafka-1 did not run a command as it was sent"):
        shell.run("kafka-1", ["true"])


@pytest.mark.parametrize("line", ["echo \"Unmatched ''.\" >&2; exit 1", "echo \"Unmatched ''.\"; exit 1"])
def test_a_shell_that_refuses_the_line_is_named_with_its_reason(host: SshHost, shell: SshShell, line: str) -> None:
    host.write_program("tcsh", line)
    host.shell = str(host.folder / "bin" / "tcsh")
    with pytest.raises(RefusedError, match=r"did not run a command as it was sent \(Unmatched ''\.\): true") as raised:
        shell.run("kafka-1", ["true"])
    assert "bash, dash, ksh or zsh" in raised.value.remedy


def test_a_shell_that_changes_backslashes_in_quotes_is_refused(host: SshHost, shell: SshShell) -> None:
    """As fish does."""
    host.write_program("fish", "exec bash -c \"$(printf '%s' \"$2\" | sed 's/\\\\\\\\/\\\\/g')\"")
    host.shell = str(host.folder / "bin" / "fish")
    with pytest.raises(RefusedError, match="did not run a command as it was sent"):
        shell.run("kafka-1", ["echo", "a\\\\b"])


def test_variables_of_the_login_shell_are_not_those_of_a_line(host: SshHost, shell: SshShell) -> None:
    """zsh ties `path` to PATH, and makes `status` read-only."""
    host.prelude = "readonly path=/x status=1"
    assert shell.run("kafka-1", "path=$(echo /a); status=3; echo $path $status").out == "/a 3\n"
    assert shell.run("kafka-1", "echo 'a\\\\b' \"it's\" !x").out.strip() in ("a\\\\b it's !x", "a\\b it's !x")


def test_a_command_that_ends_before_it_has_read_its_input_is_shown_with_its_own_error(
    host: SshHost, shell: SshShell
) -> None:
    host.refuse("tar: /opt/x: Cannot write: No space left on device")
    for _ in range(2):
        done = shell.run("kafka-1", ["sudo", "tar"], text=bytes(6_000_000))
        assert (done.code, done.problem) == (1, "tar: /opt/x: Cannot write: No space left on device")
    assert host.connections == 1


def test_a_command_that_prints_while_it_reads_its_input_ends(shell: SshShell) -> None:
    content = bytes(6_000_000)
    pieces: list[bytes] = []
    assert shell.run("kafka-1", "cat", text=content, sink=pieces.append).code == 0
    assert b"".join(pieces) == content


@pytest.mark.parametrize("line", ["cat /dev/zero", "cat /dev/zero >&2"])
def test_endless_output_ends_the_command(shell: SshShell, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(shells, "OUTPUT_LIMIT", 1_000_000)
    with pytest.raises(FatalError, match=r"printed more than 1\.0 MB: cat /dev/zero"):
        shell.run("kafka-1", line)
    assert shell.run("kafka-1", ["true"]).code == 0


def test_a_sink_that_refuses_its_input_ends_the_command(host: SshHost, shell: SshShell) -> None:
    def refuse(data: bytes) -> None:
        raise RefusedError("Too much.")

    with pytest.raises(RefusedError, match="Too much"):
        shell.run("kafka-1", "cat /dev/zero", sink=refuse)
    assert shell.run("kafka-1", ["true"]).code == 0
    assert host.connections == 1


def test_a_command_that_does_not_end_by_itself_takes_a_processor_for_a_limited_time(
    shell: SshShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSH does not end it when the channel is closed."""
    monkeypatch.setattr(shells, "CPU_TIMES", 0.02)
    done = shell.run("kafka-1", "while :; do :; done", within_s=50)
    assert done.code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL), done


def test_what_a_command_of_the_operator_starts_has_no_limit_of_processor_time(shell: SshShell) -> None:
    """A daemon that after_start starts lives on, for days."""
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="kafka-1"))
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(node,))
    runtime = SshServiceRuntime(cluster, shell, Release.parse)
    limits = "grep 'Max cpu time' /proc/self/limits"
    assert shell.run("kafka-1", limits, within_s=50).out.split()[3:] == ["200", "unlimited", "seconds"]
    for one in (limits, f"sh -c {shlex.quote(limits)}", f"setsid --wait {limits}"):
        assert runtime.run_foreign(node, one, within_s=50).out.split()[3:] == ["unlimited", "unlimited", "seconds"]
