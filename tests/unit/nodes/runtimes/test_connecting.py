"""What of an SSH configuration decides whether a host is trusted."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path

import paramiko
import pytest
from paramiko.ssh_exception import IncompatiblePeer

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.nodes.runtimes.hosts.shells import (
    SshShell,
    config_options,
    connect_as_user,
    known_hosts_files,
    proxy_command,
    read_settings,
    revoked_keys,
    trusted_lines,
)
from tests.fakes.ssh_host import SshHost, listening


def settings(folder: Path, text: str | bytes, host: str = "kafka-1") -> paramiko.SSHConfigDict:
    file = folder / "ssh_config"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_settings(config_options(file), host)


def test_keys_of_the_machine_are_read_after_those_of_the_user(tmp_path: Path) -> None:
    own, machine = tmp_path / "own", tmp_path / "machine"
    for path in (own, machine):
        path.write_text("")
    text = f"Host *\n UserKnownHostsFile {own} {tmp_path}/none\n GlobalKnownHostsFile {machine}\n"
    found = settings(tmp_path, text)
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


def test_a_host_of_an_included_file_has_the_settings_that_ssh_gives_it(tmp_path: Path) -> None:
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d" / "kafka").write_text("Host kafka-1\n HostName 10.0.0.7\n Port 2299\n User ops\n")
    text = f"Include {tmp_path}/config.d/*\nMatch originalhost kafka-1 user ops\n IdentityFile /keys/%h-%r\n"
    found = settings(tmp_path, text)
    assert (found["hostname"], found["port"], found["user"]) == ("10.0.0.7", "2299", "ops")
    assert found["identityfile"] == ["/keys/10.0.0.7-ops"]


def test_names_in_another_encoding_and_of_services_are_read_as_ssh_does(tmp_path: Path) -> None:
    found = settings(tmp_path, "# Höst\nHost kafka-1\n Port 2299\n".encode("latin-1"))
    assert found["port"] == "2299"
    service = "Host kafka-1\n Port ssh\n"
    if Path("/etc/services").exists():
        assert settings(tmp_path, service)["port"] == "22"
    else:  # a bare system names no services, and ssh refuses the line
        with pytest.raises(UserError, match="Bad port 'ssh'"):
            settings(tmp_path, service)


def test_a_file_with_host_keys_can_have_spaces_in_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    own, second = folder / "known hosts", tmp_path / "second"
    for path in (own, second):
        path.write_text("")
    found = settings(tmp_path, f'Host *\n UserKnownHostsFile "{own}" {tmp_path}/none {second}\n')
    assert known_hosts_files(found)[:2] == (own, second)


def test_the_key_of_a_host_is_looked_up_by_its_alias(tmp_path: Path) -> None:
    key = paramiko.ECDSAKey.generate()
    known = tmp_path / "known_hosts"
    with listening(key, SshHost(tmp_path / "host")) as port:
        config = tmp_path / "config"
        config.write_text(
            f"Host kafka-1\n HostName 127.0.0.1\n Port {port}\n User rollout\n IdentitiesOnly yes\n"
            f" HostKeyAlias kafka-alias\n UserKnownHostsFile {known}\n GlobalKnownHostsFile {known}.none\n"
        )
        known.write_text(f"kafka-alias {key.get_name()} {key.get_base64()}\n")
        with pytest.raises(paramiko.SSHException, match="No authentication methods"):  # its key is trusted
            connect_as_user(config)("kafka-1")
        known.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
        with pytest.raises(RefusedError, match="The host key of kafka-1 is not in known_hosts"):
            SshShell(connect_as_user(config)).run("kafka-1", ["true"])


KEY = paramiko.ECDSAKey.generate()
TYPE, BLOB = KEY.get_name(), KEY.get_base64()


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (f"kafka-1 {TYPE} {BLOB}", {"kafka-1", "[kafka-1]:2222"}),
        (f"*.example.com,kafka-? {TYPE} {BLOB} a comment", {"kafka-1", "kafka-2", "a.example.com", "[kafka-1]:2222"}),
        (f"kafka-*,!kafka-2 {TYPE} {BLOB}", {"kafka-1", "[kafka-1]:2222"}),
        (f"KAFKA-1 {TYPE} {BLOB}", {"kafka-1", "[kafka-1]:2222"}),
        (f"[kafka-1]:2222 {TYPE} {BLOB}", {"[kafka-1]:2222"}),
        (f"{paramiko.HostKeys.hash_host('kafka-1')} {TYPE} {BLOB}", {"kafka-1", "[kafka-1]:2222"}),
        (f"@cert-authority *.example.com {TYPE} {BLOB}", set()),
        (f"kafka-1 {TYPE} broken", set()),
    ],
    ids=["plain", "patterns", "negation", "capitals", "port", "hash", "authority", "broken"],
)
def test_the_key_of_a_host_is_found_where_ssh_finds_it(tmp_path: Path, line: str, known: set[str]) -> None:
    file, trusted = tmp_path / "known hosts", tmp_path / "trusted"
    file.write_text(f"# a comment\n\n{line}\n")
    found = set()
    for host, port in (("kafka-1", 22), ("kafka-2", 22), ("a.example.com", 22), ("kafka-1", 2222)):
        trusted.write_text("".join(trusted_lines([file], host, port)))
        name = host if port == 22 else f"[{host}]:{port}"
        found |= {name} if paramiko.HostKeys(str(trusted)).lookup(name) else set()
    assert found == known


@pytest.mark.parametrize(
    ("line", "says", "remedy"),
    [
        ("IdentityAgent /run/own.sock", r"agent /run/own\.sock \(IdentityAgent\)", "SSH_AUTH_SOCK=/run/own.sock"),
        ("CertificateFile /keys/own.pub", r"presents /keys/own\.pub \(CertificateFile\)", "-cert.pub"),
    ],
)
def test_a_login_that_ssh_makes_with_a_setting_of_its_own_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, says: str, remedy: str
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    key, own = paramiko.ECDSAKey.generate(), tmp_path / "own"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", own], check=True)
    known, config = tmp_path / "known_hosts", tmp_path / "config"
    with listening(key, SshHost(tmp_path / "host")) as port:
        known.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
        host = f"Host kafka-1\n HostName 127.0.0.1\n Port {port}\n User rollout\n UserKnownHostsFile {known}\n"
        for identity in ("", f" IdentityFile {own}\n"):  # with no key at all, and with one that the host refuses
            config.write_text(f"{host}{identity} {line}\n")
            with pytest.raises(RefusedError, match=f"kafka-1 refused the login: .*{says}") as refused:
                SshShell(connect_as_user(config)).run("kafka-1", ["true"])
            assert remedy in refused.value.remedy
        for without in ("", " IdentityAgent none\n", " IdentityAgent SSH_AUTH_SOCK\n"):
            config.write_text(f"{host} IdentityFile {own}\n{without}")
            with pytest.raises(RefusedError, match="kafka-1 refused the login: ") as refused:
                SshShell(connect_as_user(config)).run("kafka-1", ["true"])
            assert "In the SSH configuration" not in refused.value.sentence


def test_a_doubled_sign_of_a_proxy_command_is_one(tmp_path: Path) -> None:
    found = settings(tmp_path, "Host kafka-1\n ProxyCommand ssh jump%%1 -W %h:%p\n")
    assert proxy_command(found, []) == "ssh jump%1 -W kafka-1:22"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Host a\n HostName\n", r"ssh refuses its configuration for host kafka-1: .*line 2: no argument after"),
        ("Host a\n Bogus x\n", r"line 2: Bad configuration option: bogus"),
        ("\ufeffHost a\n", r"line 1: Bad configuration option"),
        ("KnownHostsCommand /bin/keys %H\nKnownHostsCommand none\n", "has KnownHostsCommand, which this tool does not"),
    ],
)
def test_what_ssh_refuses_is_one_sentence_with_its_own_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        settings(tmp_path, text)


def test_a_machine_without_ssh_gets_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="The command ssh is not installed on this machine"):
        settings(tmp_path, "")


@pytest.mark.parametrize("text", ["", "ProxyJump none", "ProxyCommand none"])
def test_a_host_without_a_jump_host_is_reached_directly(tmp_path: Path, text: str) -> None:
    assert proxy_command(settings(tmp_path, f"Host *\n {text}\n"), []) is None


def test_the_key_of_every_jump_host_is_checked(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("")
    text = "Host *\n ProxyJump ops@gate:2222,inner\n Port 23\n StrictHostKeyChecking no\n"
    outer = shlex.split(proxy_command(settings(tmp_path, text), config_options(config)) or "")
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


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (FileNotFoundError(2, "No such file or directory", "nc"), UserError, "needs nc: No such file or directory"),
        (PermissionError(13, "Permission denied", "/etc/key"), UserError, "needs /etc/key: Permission denied"),
        (IncompatiblePeer("no acceptable host key"), RefusedError, "no algorithm of SSH in common"),
        (ConnectionResetError(104, "Connection reset by peer"), TransientError, "Connection reset by peer"),
    ],
)
def test_only_the_network_of_a_connection_can_recover(error: Exception, kind: type[Exception], says: str) -> None:
    def connect(host: str) -> paramiko.SSHClient:
        raise error

    with pytest.raises(kind, match=says):
        SshShell(connect).run("kafka-1", ["true"])
