"""What of an SSH configuration decides whether a host is trusted."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import paramiko
import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.nodes.runtimes.hosts.shells import (
    SshShell,
    connect_as_user,
    known_hosts_files,
    proxy_command,
    revoked_keys,
)
from tests.fakes.ssh_host import SshHost, listening


def lookup(text: str, host: str = "kafka-1") -> paramiko.SSHConfigDict:
    return paramiko.SSHConfig.from_text(text).lookup(host)


def test_keys_of_the_machine_are_read_after_those_of_the_user(tmp_path: Path) -> None:
    own, machine = tmp_path / "own", tmp_path / "machine"
    for path in (own, machine):
        path.write_text("")
    found = lookup(f"Host *\n UserKnownHostsFile {own} {tmp_path}/none\n GlobalKnownHostsFile {machine}\n")
    assert known_hosts_files(found) == (own, machine)


def test_revoked_keys_are_found_for_every_host(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("kafka-1 ssh-ed25519 AAAA\n@revoked * ssh-ed25519 BBBB comment\n@cert-authority * ssh-rsa CCCC\n")
    assert revoked_keys([file]) == {"BBBB"}


def test_a_host_with_a_revoked_key_is_refused_before_the_login(tmp_path: Path) -> None:
    key = paramiko.ECDSAKey.generate()
    known = tmp_path / "known_hosts"
    with listening(key, SshHost(tmp_path / "host")) as port:
        config = tmp_path / "config"
        config.write_text(
            f"Host kafka-1\n HostName 127.0.0.1\n Port {port}\n User rollout\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {known}\n GlobalKnownHostsFile {known}.none\n"
        )
        line = f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n"
        known.write_text(f"{line}@revoked * {key.get_name()} BBBB\nkafka-2 ssh-ed25519 A\n")
        with pytest.raises(paramiko.SSHException, match="No authentication methods"):  # its key is trusted
            connect_as_user(config)("kafka-1")
        known.write_text(f"{line}@revoked * {key.get_name()} {key.get_base64()}\n")
        shell = SshShell(connect_as_user(config))
        with pytest.raises(RefusedError, match="The key of host kafka-1 is revoked in known_hosts: SHA256:"):
            shell.run("kafka-1", ["true"])


@pytest.mark.parametrize("text", ["", "ProxyJump none", "ProxyCommand none"])
def test_a_host_without_a_jump_host_is_reached_directly(text: str) -> None:
    assert proxy_command(lookup(f"Host *\n {text}\n"), Path("/none")) is None


def test_the_key_of_every_jump_host_is_checked(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("")
    text = "Host *\n ProxyJump ops@gate:2222,inner\n Port 23\n StrictHostKeyChecking no\n"
    outer = shlex.split(proxy_command(lookup(text), config) or "")
    assert outer[-3:] == ["-W", "[kafka-1]:23", "ssh://inner"]
    nested = next(word for word in outer if word.startswith("ProxyCommand="))
    inner = shlex.split(nested.partition("=")[2])
    assert inner[-3:] == ["-W", "[inner]:22", "ssh://ops@gate:2222"]
    for words in (outer, inner):
        assert words[:3] == ["ssh", "-o", "StrictHostKeyChecking=yes"]
        assert words[3:5] == ["-F", str(config)]


def test_a_silent_host_is_waited_for_once_and_asked_again_later() -> None:
    asked: list[str] = []

    def connect(host: str) -> paramiko.SSHClient:
        asked.append(host)
        time.sleep(0.05)
        raise TimeoutError

    shell = SshShell(connect, long_wait_s=0.04, silent_for_s=0.5)
    for _ in range(3):
        with pytest.raises(TransientError, match=r"Host kafka-1 cannot be reached by SSH \(no response in time\)"):
            shell.run("kafka-1", ["true"])
    assert asked == ["kafka-1"]
    time.sleep(0.5)
    with pytest.raises(TransientError):
        shell.run("kafka-1", ["true"])
    assert asked == ["kafka-1"] * 2


def test_a_host_that_refuses_a_connection_at_once_is_asked_each_time() -> None:
    asked: list[str] = []

    def connect(host: str) -> paramiko.SSHClient:
        asked.append(host)
        raise ConnectionRefusedError

    shell = SshShell(connect)
    for _ in range(2):
        with pytest.raises(TransientError):
            shell.run("kafka-1", ["true"])
    assert asked == ["kafka-1"] * 2
