"""A host that is reached by SSH on loopback: its commands run on this machine, by bash, in a home folder of their own.

`sudo` and `systemctl` are programs of the test in the folder `bin`, which begins PATH.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.common import AUTH_SUCCESSFUL, OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED, OPEN_SUCCEEDED

from kafka_rollout.nodes.runtimes.hosts.shells import SshShell

_ANSWER_S = 10.0
_CHUNK = 1 << 15
_SUDO = """\
if [ -e "$HOST/refusal" ]; then cat "$HOST/refusal" >&2; exit 1; fi
while :; do case $1 in -n|-l) shift;; -u) shift 2;; *) break;; esac; done
exec "$@"
"""
_SYSTEMCTL = """\
printf '%s\\n' "$*" >> "$HOST/systemctl"
case $1 in show) cat "$HOST/unit";; esac
"""


@dataclass
class SshHost(paramiko.ServerInterface):
    """`folder`: its files; the home is `folder`/home. `environment`: of each command in addition. `prelude`: a line
    that runs before each command, as a .bashrc does. `shell`: the login shell of the user."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    prelude: str = ""
    shell: str = "/bin/bash"
    connections: int = 0

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        (self.folder / "bin").mkdir()
        self.write_program("sudo", _SUDO)
        self.write_program("systemctl", _SYSTEMCTL)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def write_program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def refuse(self, text: str | None) -> None:
        """Let sudo print this text and fail, or run commands again."""
        refusal = self.folder / "refusal"
        refusal.unlink(missing_ok=True)
        if text is not None:
            refusal.write_text(f"{text}\n")

    # The methods that paramiko calls.

    def check_auth_password(self, username: str, password: str) -> int:
        return AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED if kind == "session" else OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command.decode()), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, line: str) -> None:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        process = subprocess.Popen(
            [self.shell, "-c", f"{self.prelude}\n{line}" if self.prelude else line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.home,
            env={"PATH": path, "HOME": str(self.home), "HOST": str(self.folder), **self.environment},
        )
        assert process.stdin
        assert process.stdout
        assert process.stderr

        is_accepted = threading.Event()

        def feed() -> None:
            data = channel.recv(_CHUNK)  # the caller sends its input, or its end, once it has the answer to its request
            is_accepted.set()
            with suppress(OSError), process.stdin as stdin:  # type: ignore[union-attr]
                while data:
                    stdin.write(data)
                    data = channel.recv(_CHUNK)

        def drain() -> None:
            with suppress(OSError):
                while data := process.stderr.read1(_CHUNK):  # type: ignore[union-attr]
                    channel.sendall_stderr(data)

        threads = [threading.Thread(target=each, daemon=True) for each in (feed, drain)]
        for thread in threads:
            thread.start()
        try:
            while data := process.stdout.read1(_CHUNK):  # type: ignore[attr-defined]
                channel.sendall(data)
            threads[1].join()
            is_accepted.wait(_ANSWER_S)
            if (status := process.wait()) >= 0:  # sshd names the signal of a killed program, and no status
                channel.send_exit_status(status)
        except OSError:  # the caller closed the channel
            process.kill()
            process.wait()
        finally:
            channel.close()


@contextmanager
def listening(key: paramiko.PKey, host: SshHost) -> Iterator[int]:
    """Yield the port on loopback of an SSH server with this host key."""
    transports: list[paramiko.Transport] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    transport = paramiko.Transport(client)
                    transport.add_server_key(key)
                    transports.append(transport)
                    with suppress(paramiko.SSHException, EOFError, OSError):  # the client has left; the next is served
                        transport.start_server(server=host)

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for transport in transports:
                transport.close()


@contextmanager
def ssh_shell(host: SshHost) -> Iterator[SshShell]:
    """Yield connections to `host`, whatever the name of the host in a command."""
    key = paramiko.ECDSAKey.generate()
    with listening(key, host) as port:

        def connect(name: str) -> paramiko.SSHClient:
            host.connections += 1
            client = paramiko.SSHClient()
            client.get_host_keys().add(f"[127.0.0.1]:{port}", key.get_name(), key)
            client.connect("127.0.0.1", port, username="rollout", password="x", look_for_keys=False, allow_agent=False)
            return client

        shell = SshShell(connect)
        try:
            yield shell
        finally:
            shell.close()
