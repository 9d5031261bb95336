"""Keys of a test bed: one of the tool's user, one for each host, and the files by which `ssh` finds and checks them."""

from __future__ import annotations

from pathlib import Path

from tools.testbed.image import LOGIN
from tools.testbed.machine import run


def make_key(path: Path) -> str:
    """Make a key pair without a passphrase, mode 0600; return the public key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f", path)
    return path.with_suffix(path.suffix + ".pub").read_text().strip()


def write_host_files(upper: Path, public_key: str) -> str:
    """Write the host key of one host and the key that can log in; return the public host key."""
    host_key = make_key(upper / "etc" / "ssh" / "ssh_host_ed25519_key")
    ssh = upper / "home" / LOGIN / ".ssh"
    ssh.mkdir(parents=True)
    (ssh / "authorized_keys").write_text(public_key + "\n")
    return " ".join(host_key.split()[:2])


# On the host: the ids of its users are those of the image.
OWN_LOGIN = f"""set -e
chown {LOGIN}:{LOGIN} /home/{LOGIN}
chown -R {LOGIN}:{LOGIN} /home/{LOGIN}/.ssh
chmod 0700 /home/{LOGIN}/.ssh
chmod 0600 /home/{LOGIN}/.ssh/authorized_keys
"""


def write_client_files(folder: Path, hosts: dict[str, str]) -> None:
    """Write `config` and `known_hosts` for ssh, both with mode 0600. `hosts`: address → public host key."""
    known_hosts = folder / "known_hosts"
    _write(known_hosts, "".join(f"{address} {key}\n" for address, key in hosts.items()))
    _write(
        folder / "config",
        "Host *\n"
        f"  User {LOGIN}\n"
        f"  IdentityFile {folder / 'id_ed25519'}\n"
        "  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known_hosts}\n"
        "  StrictHostKeyChecking yes\n",
    )


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
