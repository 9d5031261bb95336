"""SSH connections from a user's own SSH configuration: ~/.ssh/config, the agent and known_hosts.

Host keys are always verified, whatever StrictHostKeyChecking the configuration contains, also those of jump hosts.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

CONNECT_S = 10.0
_KEEPALIVE_S = 15
_USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_GLOBAL_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_REVOKED = "@revoked"


def connect_as_user(config: Path) -> Callable[[str], paramiko.SSHClient]:
    """Return a function that connects to a host with the settings of `config` (missing file: ssh's defaults)."""
    config = config.expanduser()
    ssh = paramiko.SSHConfig.from_path(str(config)) if config.exists() else paramiko.SSHConfig()

    def connect(host: str) -> paramiko.SSHClient:
        found = ssh.lookup(host)
        client = paramiko.SSHClient()
        files = known_hosts_files(found)
        with tempfile.NamedTemporaryFile("w") as trusted:  # paramiko reads host keys from a file only
            trusted.writelines(trusted_lines(files))
            trusted.flush()
            client.load_system_host_keys(trusted.name)
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        proxy = proxy_command(found, config)
        identities = list(found.get("identityfile", []))
        keys = [path for path in (Path(name).expanduser() for name in identities) if path.is_file()]
        try:
            client.connect(
                found["hostname"],
                port=int(found.get("port", 22)),
                username=found.get("user"),
                key_filename=[str(path) for path in keys] or None,  # type: ignore[arg-type]  # paramiko takes a list
                allow_agent=found.get("identitiesonly", "no") != "yes",
                look_for_keys=not identities,
                sock=paramiko.ProxyCommand(proxy) if proxy is not None else None,
                timeout=CONNECT_S,
                banner_timeout=CONNECT_S,
                auth_timeout=CONNECT_S,
                transport_factory=refusing(revoked_keys(files)),
            )
        except BaseException:
            client.close()
            raise
        transport = client.get_transport()
        if transport is not None:
            transport.set_keepalive(_KEEPALIVE_S)
        return client

    return connect


def known_hosts_files(found: paramiko.SSHConfigDict) -> tuple[Path, ...]:
    """Return the files with host keys that exist: of the user, then of the machine."""
    names = [found.get("userknownhostsfile", _USER_FILES), found.get("globalknownhostsfile", _GLOBAL_FILES)]
    paths = [Path(name).expanduser() for one in names for name in (one.split() if isinstance(one, str) else list(one))]
    return tuple(path for path in paths if path.is_file())


def proxy_command(found: paramiko.SSHConfigDict, config: Path) -> str | None:
    """Return the command that connects to the host: ProxyCommand, or ssh through the jump hosts of ProxyJump."""
    command = found.get("proxycommand")
    if command is not None:
        return None if command == "none" else str(command)
    jumps = [jump.strip() for jump in str(found.get("proxyjump", "none")).split(",")]
    if jumps == ["none"]:
        return None
    options = ["-o", "StrictHostKeyChecking=yes", *(["-F", str(config)] if config.exists() else [])]
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


def trusted_lines(files: Iterable[Path]) -> Iterator[str]:
    """Yield the lines with a host key. paramiko fails on lines with a marker, such as @revoked, and on broken keys."""
    for line in _lines(files):
        with suppress(InvalidHostKey, paramiko.SSHException):
            if not line.startswith("@") and HostKeyEntry.from_line(line) is not None:
                yield f"{line}\n"


def revoked_keys(files: Iterable[Path]) -> frozenset[str]:
    """Return the keys (Base64) that the files mark as revoked, for whatever hosts: such a key is not trusted at all."""
    lines = (line.split() for line in _lines(files))
    return frozenset(words[3] for words in lines if len(words) > 3 and words[0] == _REVOKED)


def _lines(files: Iterable[Path]) -> Iterator[str]:
    return (line.strip() for path in files for line in path.read_text(errors="replace").splitlines())


def refusing(revoked: frozenset[str]) -> Any:
    """Return a transport that ends the connection before the login if the host has one of these keys."""

    class Transport(paramiko.Transport):
        def get_remote_server_key(self) -> paramiko.PKey:
            key = super().get_remote_server_key()
            if key.get_base64() in revoked:
                raise RevokedKeyError(key.fingerprint)
            return key

    return Transport


class RevokedKeyError(paramiko.SSHException):
    """The key of the host is revoked in known_hosts."""
