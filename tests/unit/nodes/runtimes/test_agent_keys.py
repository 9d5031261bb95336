"""Keys of a real agent with IdentitiesOnly, at a server that asks for a public key."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
import pytest
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL
from paramiko.pkey import PublicBlob

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.nodes.runtimes.hosts.shells import SshShell, connect_as_user
from tests.fakes.ssh_host import SshHost, listening

PASSPHRASE = "of the test"


@dataclass
class KeyHost(SshHost):
    """A host that accepts one public key, and notes those that it was asked about."""

    accepted: bytes = b""
    asked: list[bytes] = field(default_factory=list)

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.asked.append(key.asbytes())
        return AUTH_SUCCESSFUL if key.asbytes() == self.accepted else AUTH_FAILED


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = tmp_path_factory.mktemp("a") / "s"
    printed = subprocess.run(["ssh-agent", "-s", "-a", path], capture_output=True, text=True, check=True).stdout
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield
    match = re.search(r"SSH_AGENT_PID=(\d+)", printed)
    assert match is not None
    os.kill(int(match[1]), signal.SIGTERM)


def new_key(path: Path, passphrase: str = "", kind: str = "ed25519", *, into_agent: bool = True) -> bytes:
    """Make a key, and return its public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
    if into_agent:
        subprocess.run(["ssh-add", "-q", path], check=True)
    if passphrase:
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", passphrase, "-f", path], check=True)
    return PublicBlob.from_file(f"{path}.pub").key_blob


def logged_in(tmp_path: Path, identity: Path, accepted: bytes) -> list[bytes]:
    """Log in with IdentitiesOnly, and return the keys that the tool has shown."""
    key, known, config = paramiko.ECDSAKey.generate(), tmp_path / "known_hosts", tmp_path / "config"
    shutil.rmtree(tmp_path / "host", ignore_errors=True)
    host = KeyHost(tmp_path / "host", accepted=accepted)
    with listening(key, host) as port:
        known.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
        config.write_text(
            f"Host kafka-1\n HostName 127.0.0.1\n Port {port}\n User rollout\n IdentitiesOnly yes\n"
            f" IdentityFile {identity}\n UserKnownHostsFile {known}\n GlobalKnownHostsFile {known}.none\n"
        )
        shell = SshShell(connect_as_user(config))
        try:
            assert shell.run("kafka-1", ["true"]).code == 0
        finally:
            shell.close()
    return host.asked


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("public", "ed25519"),
        ("public", "rsa"),
        ("private file is not there", "ecdsa"),
        ("passphrase", "ed25519"),
        ("passphrase, no .pub", "rsa"),
        ("link to .pub", "ed25519"),
    ],
)
def test_only_the_keys_that_the_configuration_names_are_used(tmp_path: Path, form: str, kind: str) -> None:
    for number in range(3):  # a host ends the connection after a few wrong keys
        new_key(tmp_path / f"other{number}")
    identity = tmp_path / "own"
    own = new_key(identity, PASSPHRASE if "passphrase" in form else "", kind)
    if form == "passphrase, no .pub":
        identity.with_name("own.pub").unlink()
    elif "passphrase" not in form:
        identity.unlink()
    if form == "public":
        identity = identity.with_name("own.pub")
    elif form == "link to .pub":
        identity.symlink_to(identity.with_name("own.pub"))
    assert set(logged_in(tmp_path, identity, own)) == {own}


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("passphrase", ["", PASSPHRASE], ids=["public", "passphrase"])
def test_a_key_that_the_agent_lacks_is_named_with_the_way_out(tmp_path: Path, passphrase: str) -> None:
    new_key(tmp_path / "other")
    identity = tmp_path / "own"
    own = new_key(identity, passphrase, into_agent=False)
    if not passphrase:
        identity.unlink()
        identity = identity.with_name("own.pub")
    with pytest.raises(RefusedError) as refused:
        logged_in(tmp_path, identity, own)
    assert f"IdentitiesOnly permits {identity}" in refused.value.sentence
    assert "Add the key to the agent of SSH_AUTH_SOCK" in refused.value.remedy
    shutil.rmtree(tmp_path / "host")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "plain"], check=True)
    plain = PublicBlob.from_file(str(tmp_path / "plain.pub")).key_blob
    assert set(logged_in(tmp_path, tmp_path / "plain", plain)) == {plain}, "a private file needs no agent"
