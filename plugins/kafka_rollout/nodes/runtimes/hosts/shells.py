"""Commands on the hosts of a cluster: one SSH connection to each host, opened at its first command and then kept.

Errors: TransientError for a host that cannot be reached or a connection that broke, RefusedError for a host key that is
unknown or changed, a refused login, a missing right and a login shell that is not a shell, FatalError for endless
output, UserError for settings that switch off a check. The connections also carry HTTP to metrics agents that listen on
the loopback interface of a host.

The connections of a user come from `ssh -G`, the agent and known_hosts. Host keys are always verified, whatever
StrictHostKeyChecking the configuration contains, also those of jump hosts.
"""

from __future__ import annotations

import math
import secrets
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Protocol, cast

import httpx
import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.system.files import read_regular, reading
from kafka_rollout.base.wording import size
from kafka_rollout.nodes.runtimes.hosts.ssh_keys import PermittedKeys, is_public, public_half

COMMAND_S = 30.0
CPU_TIMES = 4  # processor time of a process of a command, as a multiple of the command's time
UNLIMITED = "{ ulimit -S -t unlimited 2>/dev/null || :; }"
OUTPUT_LIMIT = 64_000_000  # bytes of a command that are kept in memory
# With short timeouts: TCP closes a connection whose other end has acknowledged nothing for this time. The kernel of the
# host acknowledges, so a slow command and a busy host do not count.
SILENT_S = 6
_PROBE_AFTER_S, _PROBE_EVERY_S = 2, 1
# A plan has dozens of commands for each host: without a limit each of them would wait for the same silent host.
_LONG_WAIT_S, _SILENT_FOR_S = 1.0, 10.0
_CHUNK = 1 << 16
_POLL_S = 0.01
_HTTP_S = 10.0
CONNECT_S = 10.0
_KEEPALIVE_S = 15
_USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_GLOBAL_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_REVOKED = "@revoked"
_SETTINGS_S = 10.0
_PORT = 22
_SETTINGS = frozenset(
    (
        "hostname",
        "port",
        "user",
        "identityfile",
        "identitiesonly",
        "identityagent",
        "certificatefile",
        "proxycommand",
        "proxyjump",
        "userknownhostsfile",
        "globalknownhostsfile",
        "hostkeyalias",
    )
)
_NO_METHODS = "No authentication methods available"
_BACKSLASHES = "case '\\\\' in ??) ;; *) exit 1;; esac\n"  # fish makes one of two, also in quotes
_BROKEN = (paramiko.SSHException, HTTPException, OSError, EOFError)
_SUDO_REFUSALS = (
    "a password is required",
    "is not allowed to execute",
    "is not in the sudoers file",
    "may not run sudo",
)
Connect = Callable[[str], paramiko.SSHClient]
"""Opens a connection to a host, with its host key checked; raises what paramiko raises."""


class RevokedKeyError(paramiko.SSHException):
    """The key of the host is revoked in known_hosts."""


@dataclass(frozen=True, slots=True)
class Done:
    """A finished command."""

    code: int
    content: bytes
    """Its output, empty if it went to a sink."""
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
        """Run a command in the C locale: words, or a line for `/bin/sh`. `text`: its input. `sink` gets its
        output in pieces."""
        ...

    def short_timeouts(self) -> AbstractContextManager[None]:
        """Give up a host that does not respond after SILENT_S, during the block. Slow commands are not affected."""
        ...


@dataclass(slots=True)
class SshShell:
    """Shell over SSH. Threads can use it at the same time."""

    connect: Connect
    long_wait_s: float = _LONG_WAIT_S
    """A host that did not connect, and only said so after the one, is not asked again for the other."""
    silent_for_s: float = _SILENT_FOR_S
    """A host that did not connect, and only said so after the one, is not asked again for the other."""
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
                return _execute(channel, host, line, text, within_s=within_s, sink=sink)
            finally:
                channel.close()
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

    def forward(self, host: str, address: tuple[str, int]) -> paramiko.Channel:
        """Connect from the host to an address. Raises paramiko.SSHException or RolloutError if that is not possible."""
        channel = self._transport(host).open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=_HTTP_S)
        channel.settimeout(_HTTP_S)
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
        if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
            raise RefusedError(
                f"Host {host} and this tool have no algorithm of SSH in common: {error}.",
                remedy="Upgrade the SSH server of the host, or permit a current algorithm in its configuration.",
            ) from error
        raise _unreachable(host, error) from error
    except (OSError, EOFError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # of this machine, and not of the connection
            raise UserError(
                f"The connection to host {host} needs {error.filename}: {error.strerror}.",
                remedy="Correct the path in the SSH configuration, or the rights of the file.",
            ) from error
        raise _unreachable(host, error) from error


def _execute(
    channel: paramiko.Channel,
    host: str,
    line: str,
    text: str | bytes | None,
    *,
    within_s: float,
    sink: Callable[[bytes], object] | None,
) -> Done:
    """Write the input while both outputs are read, and wait for the end.

    A command can end before it has read its input. Its exit code and its error are the result then.
    """
    deadline = time.monotonic() + within_s
    channel.settimeout(within_s)
    nonce = secrets.token_hex(16)
    channel.exec_command(_marked(line, nonce, within_s))
    content: list[bytes] = []
    err: list[bytes] = []
    out, errors = _MarkedOutput(nonce, sink or content.append), _MarkedOutput(nonce, err.append)
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
            raise FatalError(
                f"A command on host {host} printed more than {size(OUTPUT_LIMIT)}: {line[:80]}",
                remedy="Run the command on the host and find out what it prints.",
            )
        if idle and channel.exit_status_ready() and (channel.eof_received or channel.closed):
            break
        if time.monotonic() >= deadline:
            raise TimeoutError
        if idle:
            time.sleep(_POLL_S)
    code = channel.recv_exit_status()
    if code == -1:
        raise EOFError("the connection was closed")
    if not out.begun or (code == 0 and not out.ended):
        printed = (errors.seen or out.seen).decode(errors="replace").strip().splitlines()
        why = f" ({printed[-1][:120]})" if printed else ""
        raise RefusedError(
            f"The login shell on host {host} did not run a command as it was sent{why}: {line[:80]}",
            remedy="Give the SSH user bash, dash, ksh or zsh as its login shell, without a forced command in sshd or "
            "authorized_keys.",
        )
    out.close()
    errors.close()
    return Done(code, b"".join(content), b"".join(err).decode(errors="replace"))


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


def _marked(line: str, nonce: str, within_s: float) -> str:
    """Return a line for a login shell that marks the output of a command with marks that only this line can print.

    A login can print lines of its own before and after a command (.bashrc, banners). The command gets the C locale:
    messages of programs are compared with English texts, and sudo passes these variables on.

    OpenSSH does not end a command when its channel is closed. So the kernel ends a process that takes CPU_TIMES of the
    command's time on a processor: no fault of a line can take a core of a broker for longer. It is a soft limit, which
    UNLIMITED removes: a daemon that a command of the operator starts would inherit it for its life.
    """
    mark = 'echo "$nonce {0}"; echo "$nonce {0}" >&2'
    limit = math.ceil(CPU_TIMES * within_s)
    # A subshell, so that `exit` in the line does not skip the second mark; on lines of its own, so that a comment at
    # the end of the line does not hide the bracket.
    marked = (
        f"nonce={nonce}; {mark.format('begin')}\n(\nulimit -S -t {limit} 2>/dev/null\nexport LC_ALL=C LANGUAGE=C\n"
        f"{line}\n)\n"
        f"code=$?; {mark.format('end')}; exit $code"
    )
    # The lines are those of a POSIX shell. zsh has other variables and patterns, and passes them on unchanged. tcsh and
    # fish read the quotes in another way, so the marks are missing: tcsh would run each line, and knows no assignment.
    return f"exec /bin/sh -c {shlex.quote(f'{_BACKSLASHES}{marked}')}"


class _MarkedOutput:
    """Passes on the bytes between two marks, in pieces. `seen`: all bytes before the first mark, or the last ones."""

    def __init__(self, nonce: str, take: Callable[[bytes], object]) -> None:
        self.begun = self.ended = False
        self.seen = b""
        self._begin, self._end, self._take = f"{nonce} begin\n".encode(), f"{nonce} end\n".encode(), take

    def feed(self, data: bytes) -> None:
        if self.ended:
            return
        self.seen += data
        if not self.begun:
            _, found, rest = self.seen.partition(self._begin)
            if not found:
                return
            self.begun, self.seen = True, rest
        before, found, _ = self.seen.partition(self._end)
        if found:
            self.ended, self.seen = True, b""
        else:  # its end can be the beginning of the mark
            before, self.seen = self.seen[: 1 - len(self._end)], self.seen[1 - len(self._end) :]
        if before:
            self._take(before)

    def close(self) -> None:
        """Pass on what is left if the second mark is missing, because the command line was ended."""
        if self.begun and not self.ended and self.seen:
            self._take(self.seen)


def connect_as_user(config: Path) -> Callable[[str], paramiko.SSHClient]:
    """Return a function that connects to a host with the settings that ssh has for it, as `read_settings`."""
    options = config_options(config)

    def connect(host: str) -> paramiko.SSHClient:
        found = read_settings(options, host)
        client = paramiko.SSHClient()
        files = known_hosts_files(found)
        # paramiko looks for the key of the name that it is given, so a HostKeyAlias needs an open connection.
        alias = found.get("hostkeyalias")
        place = found["hostname"], int(found["port"])
        with tempfile.NamedTemporaryFile("w") as trusted:  # paramiko reads host keys from a file only
            trusted.writelines(trusted_lines(files, *(place if alias is None else (alias, _PORT))))
            trusted.flush()
            client.load_system_host_keys(trusted.name)
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        proxy = proxy_command(found, options)
        identities = list(found.get("identityfile", []))
        files_of_keys = [Path(name).expanduser() for name in identities]
        keys = [path for path in files_of_keys if path.is_file() and not is_public(path)]
        has_agent = found.get("identityagent") != "none"
        permitted = {path: half for path in files_of_keys if (half := public_half(path))}
        agent: PermittedKeys | None = None
        try:
            if has_agent and _is_limited(found):
                agent = client._agent = PermittedKeys(permitted.values())  # type: ignore[attr-defined]
            connection: Any = paramiko.ProxyCommand(proxy) if proxy is not None else None
            if alias is not None and connection is None:
                connection = socket.create_connection(place, timeout=CONNECT_S)
            client.connect(
                place[0] if alias is None else alias,
                port=place[1] if alias is None else _PORT,
                username=found.get("user"),
                key_filename=[str(path) for path in keys] or None,  # type: ignore[arg-type]  # paramiko takes a list
                allow_agent=has_agent,
                look_for_keys=not identities,
                sock=connection,
                timeout=CONNECT_S,
                banner_timeout=CONNECT_S,
                auth_timeout=CONNECT_S,
                transport_factory=refusing(revoked_keys(files)),
            )
        except BaseException as error:
            client.close()
            if agent is not None:
                agent.close()  # a client that has not connected does not
            if isinstance(error, paramiko.AuthenticationException) or _NO_METHODS in str(error):
                _refuse_unused(host, found, error, [path for path in permitted if path not in keys or _is_locked(path)])
            raise
        transport = client.get_transport()
        if transport is not None:
            transport.set_keepalive(_KEEPALIVE_S)
        return client

    return connect


def _is_limited(found: paramiko.SSHConfigDict) -> bool:
    return found.get("identitiesonly", "no") == "yes"


def _is_locked(key: Path) -> bool:
    """Return whether a private key has a passphrase."""
    try:
        paramiko.PKey.from_path(key)
    except (paramiko.PasswordRequiredException, TypeError):  # TypeError: cryptography got no passphrase
        return True
    except (OSError, ValueError, paramiko.SSHException):
        return False
    return False


def _refuse_unused(
    host: str, found: paramiko.SSHConfigDict, error: BaseException, of_agents: Sequence[Path] = ()
) -> None:
    """Raise RefusedError if ssh would also log in with an agent or a certificate that paramiko does not use.

    `of_agents`: files of IdentityFile whose private keys only an agent can use.
    """
    agent, certificate = found.get("identityagent", "none"), found.get("certificatefile", "none")
    why, remedies = [], []
    if of_agents and _is_limited(found):
        why.append(
            f"IdentitiesOnly permits {' and '.join(map(str, of_agents))}, and this tool needs an agent for it that has "
            "the key"
        )
        remedies.append(
            "Add the key to the agent of SSH_AUTH_SOCK (`ssh-add -L` lists its keys), or name a private key without a "
            "passphrase."
        )
    if agent not in ("none", "SSH_AUTH_SOCK"):
        why.append(f"ssh asks the agent {agent} (IdentityAgent), and this tool asks that of SSH_AUTH_SOCK")
        remedies.append(f"Set SSH_AUTH_SOCK={agent} for this tool.")
    if certificate != "none":
        why.append(
            f"ssh presents {certificate} (CertificateFile), and this tool presents KEY-cert.pub of a key file KEY"
        )
        remedies.append("Give the certificate the name of its key in IdentityFile, with -cert.pub.")
    if why:
        raise RefusedError(
            f"Host {host} refused the login: {str(error).rstrip('.')}. In the SSH configuration, {'; '.join(why)}.",
            remedy=" ".join(remedies),
        ) from error


def config_options(config: Path) -> list[str]:
    """Return the options with which ssh reads the file. The user's own file is read with that of the machine, as by
    `ssh HOST`; so is none, if the file is missing."""
    config = config.expanduser().absolute()
    is_own = config == Path("~/.ssh/config").expanduser().absolute()
    return [] if is_own or not config.exists() else ["-F", str(config)]


def read_settings(options: Sequence[str], host: str) -> paramiko.SSHConfigDict:
    """Return what `ssh -G` prints for a host: it applies Include, Match and the defaults of the machine.

    Tokens such as %h are replaced. Raises UserError with ssh's own line for a configuration that ssh refuses, and for a
    setting that this tool does not have.
    """
    command = ["ssh", "-T", *options, "-G", "--", host]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SETTINGS_S, check=False, cwd="/"
        )
    except FileNotFoundError as error:
        raise UserError(
            "The command ssh is not installed on this machine, and the settings of a host are read with it.",
            remedy="Install the OpenSSH client.",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"`{shlex.join(command)}` did not end in {_SETTINGS_S:.0f} s.",
            remedy="Check the commands of `Match exec` in the SSH configuration.",
        ) from error
    lines = done.stdout.decode(errors="replace").splitlines()
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise UserError(
            f"ssh refuses its configuration for host {host}: {said[0].strip()}",
            remedy=f"Correct the file until `{shlex.join(command)}` prints the settings.",
        )
    settings = [(name.lower(), value) for name, _, value in (line.partition(" ") for line in lines) if value]
    if any(name == "knownhostscommand" and value != "none" for name, value in settings):
        raise UserError(
            f"The SSH configuration of host {host} has KnownHostsCommand, which this tool does not support.",
            remedy="Write the host key into a file of UserKnownHostsFile.",
        )
    # Only to replace the tokens: the lines apply to this host.
    text = "".join(f"{name} {value}\n" for name, value in settings if name in _SETTINGS)
    return paramiko.SSHConfig.from_text(f"Host *\n{text}").lookup(host)


def connect_with(hook: Any) -> paramiko.SSHClient:
    """Connect to the host of Airflow's SSHHook with its settings, and with what ssh reads in known_hosts.

    SSHHook.get_conn fails on a line with a marker, and would trust a key that such a line revokes. Raises as `Connect`.
    """
    client = paramiko.SSHClient()
    with tempfile.NamedTemporaryFile("w") as trusted:
        lines = _lines(_existing([_USER_FILES.split(" ", maxsplit=1)[0]]))
        trusted.writelines(f"{line}\n" for line in lines if not line.startswith("@"))
        trusted.flush()
        client.load_system_host_keys(trusted.name)
    if hook.host_key is not None:
        name = hook.remote_host if hook.port == _PORT else f"[{hook.remote_host}]:{hook.port}"
        client.get_host_keys().add(name, hook.host_key.get_name(), hook.host_key)
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    revoked = revoked_keys(_existing([*_USER_FILES.split(" "), *_GLOBAL_FILES.split(" ")]))
    try:
        client.connect(
            hook.remote_host,
            port=hook.port,
            username=hook.username,
            password=hook.password.strip() if hook.password else None,
            pkey=hook.pkey,
            key_filename=hook.key_file or None,
            sock=hook.host_proxy,
            look_for_keys=hook.look_for_keys,
            compress=hook.compress,
            disabled_algorithms=hook.disabled_algorithms,
            timeout=hook.conn_timeout,
            banner_timeout=hook.banner_timeout,
            auth_timeout=hook.auth_timeout,
            transport_factory=refusing(revoked),
        )
    except BaseException:
        client.close()
        raise
    transport = client.get_transport()
    if transport is not None:
        transport.set_keepalive(hook.keepalive_interval or _KEEPALIVE_S)
        if hook.ciphers:
            transport.get_security_options().ciphers = hook.ciphers
    return client


def known_hosts_files(found: paramiko.SSHConfigDict) -> tuple[Path, ...]:
    """Return the files with host keys that exist: of the user, then of the machine."""
    names = [found.get("userknownhostsfile", _USER_FILES), found.get("globalknownhostsfile", _GLOBAL_FILES)]
    return tuple(path for one in names for path in _existing(one.split(" ")))


def _existing(words: Sequence[str]) -> Iterator[Path]:
    """Yield the files that exist. ssh prints a path with spaces without quotes, so words can belong together."""
    at = 0
    while at < len(words):
        for end in range(len(words), at, -1):
            path = Path(" ".join(words[at:end])).expanduser()
            if path.is_file():
                yield path
                at = end - 1
                break
        at += 1


def proxy_command(found: paramiko.SSHConfigDict, config: Sequence[str]) -> str | None:
    """Return the command that connects to the host: ProxyCommand, or ssh through the jump hosts of ProxyJump.

    `config`: as `config_options`.
    """
    command = found.get("proxycommand")
    if command is not None:
        # paramiko replaces the other tokens of ssh_config(5).
        return None if command == "none" else str(command).replace("%%", "%")
    jumps = [jump.strip() for jump in str(found.get("proxyjump", "none")).split(",")]
    if jumps == ["none"]:
        return None
    options = ["-o", "StrictHostKeyChecking=yes", *config]
    through: list[str] = []
    for number, jump in enumerate(jumps):
        # An own ProxyCommand for each jump host: ssh does not pass on its options to those that it starts itself.
        target = _address(jumps[number + 1]) if number + 1 < len(jumps) else (found["hostname"], found.get("port", 22))
        nested = ["-o", f"ProxyCommand={shlex.join(through).replace('%', '%%')}"] if through else []
        destination = jump if jump.startswith("ssh://") else f"ssh://{jump}"
        through = ["ssh", *options, *nested, "-W", f"[{target[0]}]:{target[1]}", destination]
    return shlex.join(through)


def _address(jump: str) -> tuple[str, int]:
    """Host and port of `[user@]host[:port]` or an ssh URI."""
    place = jump.removeprefix("ssh://").rpartition("@")[2]
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        return place.strip("[]"), 22
    return host.strip("[]"), int(port)


def trusted_lines(files: Iterable[Path], host: str, port: int) -> Iterator[str]:
    """Yield a line for each key that ssh accepts for a host, with the name by which paramiko looks for it.

    `ssh-keygen -F` reads patterns, negations and hashes in the files. ssh accepts a key without a port for each port.
    Lines with a marker, such as @cert-authority, are left out, and broken keys, on which paramiko fails.
    """
    name = host if port == _PORT else f"[{host}]:{port}"
    for one in dict.fromkeys((name, host)):
        lines = [line for path in files for line in _lines_of(path, one.lower())]
        for words in (line.split() for line in lines if not line.startswith(("@", "#"))):
            line = " ".join([name, *words[1:3]])
            with suppress(InvalidHostKey, paramiko.SSHException):
                if HostKeyEntry.from_line(line) is not None:
                    yield f"{line}\n"
        if lines:
            return


def _lines_of(path: Path, name: str) -> list[str]:
    command = ["ssh-keygen", "-F", name, "-f", str(path)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SETTINGS_S, check=False, cwd="/"
        )
    except FileNotFoundError as error:
        raise UserError(
            "The command ssh-keygen is not installed on this machine, and known_hosts is read with it.",
            remedy="Install the OpenSSH client.",
        ) from error
    return done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []


def revoked_keys(files: Iterable[Path]) -> frozenset[str]:
    """Return the keys (Base64) that the files mark as revoked, for whatever hosts: such a key is not trusted at all."""
    lines = (line.split() for line in _lines(files))
    return frozenset(words[3] for words in lines if len(words) > 3 and words[0] == _REVOKED)


def _lines(files: Iterable[Path]) -> Iterator[str]:
    return (line.strip() for path in files for line in _text_of(path).splitlines())


def _text_of(path: Path) -> str:
    with reading(path):
        return read_regular(path).decode(errors="replace")


def refusing(revoked: frozenset[str]) -> Any:
    """Return a transport that ends the connection before the login if the host has one of these keys."""

    class Transport(paramiko.Transport):
        def get_remote_server_key(self) -> paramiko.PKey:
            key = super().get_remote_server_key()
            if key.get_base64() in revoked:
                raise RevokedKeyError(key.fingerprint)
            return key

    return Transport


class SshTransport(httpx.BaseTransport):
    """Sends each request over a channel of the connection to `host`, without a port on this machine."""

    def __init__(self, shell: SshShell, host: str) -> None:
        self._shell, self._host = shell, host

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx.TransportError, as for a direct connection."""
        address = (request.url.host, request.url.port or 80)
        try:
            channel = self._shell.forward(self._host, address)
            try:
                return self._exchange(channel, request)
            except BaseException:
                channel.close()
                raise
        except _BROKEN as error:
            raise httpx.ConnectError(f"not reached from host {self._host}: {error}") from error
        except RolloutError as error:
            raise httpx.ConnectError(error.sentence) from error

    def _exchange(self, channel: paramiko.Channel, request: httpx.Request) -> httpx.Response:
        connection = HTTPConnection(request.url.host, timeout=_HTTP_S)
        connection.sock = cast(socket.socket, channel)  # a channel has the methods that HTTPConnection calls
        headers = {key: value for key, value in request.headers.items() if key != "connection"} | {
            "connection": "close"
        }
        target = request.url.raw_path.decode("ascii")
        connection.request(request.method, target, body=request.read() or None, headers=headers)
        # Not getresponse(): it closes the channel of a response that ends with its connection.
        answer = HTTPResponse(connection.sock, method=request.method)
        answer.begin()
        return httpx.Response(answer.status, headers=answer.getheaders(), stream=_Body(answer, channel))


class _Body(httpx.SyncByteStream):
    """The body of a response, in pieces: its size is unknown. The channel ends with it."""

    def __init__(self, answer: HTTPResponse, channel: paramiko.Channel) -> None:
        self._answer, self._channel = answer, channel

    def __iter__(self) -> Iterator[bytes]:
        try:
            while part := self._answer.read(_CHUNK):
                yield part
        except _BROKEN as error:
            raise httpx.ReadError(f"the response through SSH broke off: {error}") from error
        if self._answer.length:  # read() of a part reports no early end
            raise httpx.ReadError(f"the response through SSH broke off {self._answer.length} bytes before its end")

    def close(self) -> None:
        self._answer.close()
        self._channel.close()
