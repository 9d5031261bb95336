"""SSH connections from a user's own SSH configuration: ~/.ssh/config, the agent and known_hosts.

Host keys are always verified, whatever StrictHostKeyChecking the configuration contains.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import paramiko

CONNECT_S = 10.0
_KEEPALIVE_S = 15


def connect_as_user(config: Path) -> Callable[[str], paramiko.SSHClient]:
    """Return a function that connects to a host with the settings of `config` (missing file: ssh's defaults)."""
    config = config.expanduser()
    ssh = paramiko.SSHConfig.from_path(str(config)) if config.exists() else paramiko.SSHConfig()

    def connect(host: str) -> paramiko.SSHClient:
        found = ssh.lookup(host)
        client = paramiko.SSHClient()
        known = found.get("userknownhostsfile", "~/.ssh/known_hosts")
        for name in known.split() if isinstance(known, str) else known:
            path = Path(name).expanduser()
            if path.is_file():
                client.load_system_host_keys(str(path))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        proxy = found.get("proxycommand")
        if "proxyjump" in found and proxy is None:
            proxy = f"ssh -F {config} -W {found['hostname']}:{found.get('port', 22)} {found['proxyjump']}"
        identities = list(found.get("identityfile", []))
        keys = [path for path in (Path(name).expanduser() for name in identities) if path.is_file()]
        client.connect(
            found["hostname"],
            port=int(found.get("port", 22)),
            username=found.get("user"),
            key_filename=[str(path) for path in keys] or None,  # type: ignore[arg-type]  # paramiko takes a list
            allow_agent=found.get("identitiesonly", "no") != "yes",
            look_for_keys=not identities,
            sock=paramiko.ProxyCommand(proxy) if proxy and proxy != "none" else None,
            timeout=CONNECT_S,
            banner_timeout=CONNECT_S,
            auth_timeout=CONNECT_S,
        )
        transport = client.get_transport()
        if transport is not None:
            transport.set_keepalive(_KEEPALIVE_S)
        return client

    return connect
