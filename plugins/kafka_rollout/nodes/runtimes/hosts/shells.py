"""Commands on the hosts of a cluster: one SSH connection to each host, opened at its first command and then kept.

Errors: TransientError for a host that cannot be reached or a connection that broke, RefusedError for a host key that is
unknown or changed, a refused login, a missing right and a login shell that is not a shell, FatalError for endless
output, UserError for settings that switch off a check.
"""

from __future__ import annotations

import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import paramiko

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.wording import size
from kafka_rollout.nodes.runtimes.hosts.connecting import RevokedKeyError
from kafka_rollout.nodes.runtimes.hosts.marked import MarkedLine

COMMAND_S = 30.0
OUTPUT_LIMIT = 64_000_000  # bytes of a command that are kept in memory
# With short timeouts: TCP closes a connection whose other end has acknowledged nothing for this time. The kernel of the
# host acknowledges, so a slow command and a busy host do not count.
SILENT_S = 6
_PROBE_AFTER_S, _PROBE_EVERY_S = 2, 1
# A plan has dozens of commands for each host: without a limit each of them would wait for the same silent host.
_LONG_WAIT_S, _SILENT_FOR_S = 1.0, 10.0
_CHUNK = 1 << 16
_POLL_S = 0.01
_SUDO_REFUSALS = (
    "a password is required",
    "is not allowed to execute",
    "is not in the sudoers file",
    "may not run sudo",
)
Connect = Callable[[str], paramiko.SSHClient]
"""Opens a connection to a host, with its host key checked; raises what paramiko raises."""


@dataclass(frozen=True, slots=True)
class Done:
    """A finished command. `content`: its output, empty if it went to a sink."""

    code: int
    content: bytes
    err: str

    @property
    def out(self) -> str:
        return self.content.decode(errors="replace")

    @property
    def problem(self) -> str:
        """The last line of its output, for a sentence."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


class Shell(Protocol):
    """Runs commands on hosts."""

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        *,
        text: str | bytes | None = None,
        within_s: float = COMMAND_S,
        sink: Callable[[bytes], object] | None = None,
    ) -> Done:
        """Run a command in the C locale: words, or a line for the login shell. `text`: its input. `sink` gets its
        output in pieces."""
        ...

    def short_timeouts(self) -> AbstractContextManager[None]:
        """Give up a host that does not respond after SILENT_S, during the block. Slow commands are not affected."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class SshShell:
    """Shell over SSH. Threads can use it at the same time.

    `long_wait_s`, `silent_for_s`: a host that did not connect, and only said so after the one, is not asked again for
    the other.
    """

    connect: Connect
    long_wait_s: float = _LONG_WAIT_S
    silent_for_s: float = _SILENT_FOR_S
    _is_short: bool = False
    _clients: dict[str, paramiko.SSHClient] = field(default_factory=dict)
    _silent: dict[str, tuple[float, TransientError]] = field(default_factory=dict)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        *,
        text: str | bytes | None = None,
        within_s: float = COMMAND_S,
        sink: Callable[[bytes], object] | None = None,
    ) -> Done:
        line = command if isinstance(command, str) else shlex.join(command)
        transport = self._transport(host)
        try:
            channel = transport.open_session(timeout=COMMAND_S)
            try:
                return _execute(channel, line, text, within_s, sink)
            finally:
                channel.close()
        except _OutputError as error:
            raise error.of_host(host, line) from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            if isinstance(error, TimeoutError) and transport.is_active():
                raise TransientError(
                    f"A command on host {host} did not finish in {within_s:.0f} s: {line[:80]}",
                    remedy="Check the load and the disks of the host, then repeat the step.",
                ) from None
            self._forget(host)
            raise _unreachable(host, error) from error

    @contextmanager
    def short_timeouts(self) -> Iterator[None]:
        with self._lock:
            self._is_short = True
            for client in self._clients.values():
                _watch(client, on=True)
        try:
            yield
        finally:
            with self._lock:
                self._is_short = False
                for client in self._clients.values():
                    _watch(client, on=False)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def forward(self, host: str, address: tuple[str, int], *, timeout_s: float) -> paramiko.Channel:
        """Connect from the host to an address. Raises paramiko.SSHException or RolloutError if that is not possible."""
        channel = self._transport(host).open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=timeout_s)
        channel.settimeout(timeout_s)
        return channel

    def _transport(self, host: str) -> paramiko.Transport:
        """The kept connection; a new one if it broke since the last command."""
        client = self._client(host)
        transport = client.get_transport()
        if transport is None or not transport.is_active():
            self._forget(host)
            transport = self._client(host).get_transport()
        if transport is None:
            raise TransientError(f"The SSH connection to host {host} was closed.", remedy="Repeat the step.")
        return transport

    def _client(self, host: str) -> paramiko.SSHClient:
        with self._lock:
            lock = self._locks.setdefault(host, threading.Lock())
        with lock:
            if host not in self._clients:
                self._clients[host] = self._connected(host)
                _watch(self._clients[host], on=self._is_short)
            return self._clients[host]

    def _connected(self, host: str) -> paramiko.SSHClient:
        until, known = self._silent.get(host, (0.0, None))
        if known is not None and time.monotonic() < until:
            raise TransientError(known.sentence, remedy=known.remedy)
        began = time.monotonic()
        try:
            return _connected(self.connect, host)
        except TransientError as error:
            if (now := time.monotonic()) - began >= self.long_wait_s:
                self._silent[host] = now + self.silent_for_s, error
            raise

    def _forget(self, host: str) -> None:
        with self._lock:
            client = self._clients.pop(host, None)
        if client is not None:
            client.close()


def _watch(client: paramiko.SSHClient, *, on: bool) -> None:
    """Let TCP close the connection after SILENT_S without an acknowledgement, or not.

    A connection through a ProxyCommand has no socket of its own: it keeps its timeouts.
    """
    transport = client.get_transport()
    connection = None if transport is None else transport.sock
    if not isinstance(connection, socket.socket):
        return
    with suppress(OSError):  # it is closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(on))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENT_S if on else 0)


def _connected(connect: Connect, host: str) -> paramiko.SSHClient:
    try:
        return connect(host)
    except paramiko.BadHostKeyException as error:
        raise RefusedError(
            f"Host {host} has another host key than known_hosts: {_fingerprint(error.key)} instead of "
            f"{_fingerprint(error.expected_key)}.",
            remedy="Find out whether the host was installed again. If so, replace its line in known_hosts.",
        ) from error
    except paramiko.AuthenticationException as error:
        raise RefusedError(
            f"Host {host} refused the login: {error}.",
            remedy="Check the user and the key of the SSH configuration or of the Airflow Connection.",
        ) from error
    except RevokedKeyError as error:
        raise RefusedError(
            f"The key of host {host} is revoked in known_hosts: {error}.",
            remedy="Give the host a new key, and replace its line in known_hosts.",
        ) from error
    except paramiko.SSHException as error:
        if "not found in known_hosts" in str(error):
            raise RefusedError(
                f"The host key of {host} is not in known_hosts.",
                remedy="Compare its fingerprint with the one on the host, then add it to known_hosts.",
            ) from error
        raise _unreachable(host, error) from error
    except (OSError, EOFError) as error:
        raise _unreachable(host, error) from error


class _OutputError(Exception):
    """Output that cannot be used. `is_endless`: it has too many bytes; otherwise it is not that of the command."""

    def __init__(self, *, is_endless: bool) -> None:
        self.is_endless = is_endless

    def of_host(self, host: str, line: str) -> RolloutError:
        if self.is_endless:
            return FatalError(
                f"A command on host {host} printed more than {size(OUTPUT_LIMIT)}: {line[:80]}",
                remedy="Run the command on the host and find out what it prints.",
            )
        return RefusedError(
            f"The login shell on host {host} did not run a command as it was sent: {line[:80]}",
            remedy="Give the SSH user a POSIX shell such as bash, without a forced command in sshd or authorized_keys.",
        )


def _execute(
    channel: paramiko.Channel,
    line: str,
    text: str | bytes | None,
    within_s: float,
    sink: Callable[[bytes], object] | None,
) -> Done:
    """Write the input while both outputs are read, and wait for the end.

    A command can end before it has read its input. Its exit code and its error are the result then.
    """
    deadline = time.monotonic() + within_s
    channel.settimeout(within_s)
    marked = MarkedLine(line)
    channel.exec_command(marked.text)
    content: list[bytes] = []
    err: list[bytes] = []
    out, errors = marked.output(sink or content.append), marked.output(err.append)
    left: memoryview | None = memoryview(text.encode() if isinstance(text, str) else text or b"")
    kept = 0
    while True:
        idle = True
        if left is not None and (done := _send(channel, left)) is not None:
            left = left[done:]
            idle = done == 0
            if not left:
                channel.shutdown_write()
                left = None
        else:
            left = None
        if channel.recv_ready():
            data = channel.recv(_CHUNK)
            kept += len(data) if sink is None or not out.begun else 0
            out.feed(data)
            idle = False
        if channel.recv_stderr_ready():
            data = channel.recv_stderr(_CHUNK)
            kept += len(data)
            errors.feed(data)
            idle = False
        if kept > OUTPUT_LIMIT:
            raise _OutputError(is_endless=True)
        if idle and channel.exit_status_ready() and (channel.eof_received or channel.closed):
            break
        if time.monotonic() >= deadline:
            raise TimeoutError
        if idle:
            time.sleep(_POLL_S)
    code = channel.recv_exit_status()
    if code == -1:
        raise EOFError("the connection was closed")
    if code == 0 and not out.ended:
        raise _OutputError(is_endless=False)
    out.close()
    errors.close()
    # A shell that did not run the line has printed the reason.
    return Done(code, b"".join(content), (b"".join(err) if errors.begun else errors.seen).decode(errors="replace"))


def _send(channel: paramiko.Channel, data: memoryview) -> int | None:
    """Return how many bytes were sent, 0 if the host takes none now; None if the command has ended."""
    if channel.exit_status_ready() or channel.closed:
        return None
    if not data or not channel.send_ready():
        return 0
    try:
        return channel.send(bytes(data[:_CHUNK]))
    except OSError:
        return None


def _unreachable(host: str, error: Exception) -> TransientError:
    reason = str(error).strip() or type(error).__name__
    if isinstance(error, TimeoutError):
        reason = "no response in time"
    return TransientError(
        f"Host {host} cannot be reached by SSH ({reason}).", remedy="Check the host and its network, then repeat."
    )


def refused_by_sudo(done: Done) -> bool:
    """Whether sudo refused the command, so it did not run."""
    return done.code != 0 and any(text in done.err for text in _SUDO_REFUSALS)


def _fingerprint(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"
