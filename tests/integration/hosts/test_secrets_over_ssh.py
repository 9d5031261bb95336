"""No secret of a host or of the worker is left anywhere after runs over SSH that copy and replace metadata logs."""

from __future__ import annotations

import hashlib
import hmac
import tempfile
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.integration.harness.security.secret_search import files_with, middle_of, watched_processes
from tests.integration.harness.shell import Shell
from tests.integration.hosts.test_downgrades_over_ssh import assert_all_run, change
from tests.testbeds import MakeBed
from tools.demo.cluster import SNAPSHOT_INTERVAL
from tools.testbed.bed import DATA, Bed
from tools.testbed.hosts import Host

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

KEY_PASSWORD, JAAS_PASSWORD = "pw-of-the-key-5dc1", "pw-of-the-listener-9ab2"
ENVIRONMENT, ARGUMENT = "pw-in-the-environment-77e0", "pw-of-the-process-1c4f"
SCRAM_PASSWORD, SALT, ITERATIONS = "pw-of-alice-c3d9", b"salt-of-alice-02", 4096
PROPERTIES = {
    **SNAPSHOT_INTERVAL,
    "ssl.key.password": KEY_PASSWORD,
    "listener.name.internal.plain.sasl.jaas.config": f'PlainLoginModule required password="{JAAS_PASSWORD}";',
}


def verifier() -> bytes:
    """StoredKey of RFC 5802, which the metadata log has."""
    salted = hashlib.pbkdf2_hmac("sha256", SCRAM_PASSWORD.encode(), SALT, ITERATIONS)
    return hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()


def plant(bed: Bed) -> None:
    """Secrets that configurations do not have: in environments, in arguments of the processes, in the metadata."""
    for host in bed.hosts:
        text = host.run("cat", "/etc/kafka/kafka.env")
        option = f'KAFKA_OPTS="-Djavax.net.ssl.keyStorePassword={ARGUMENT} '
        host.run("tee", "/etc/kafka/kafka.env", text=text.replace('KAFKA_OPTS="', option) + f"TOKEN={ENVIRONMENT}\n")
        host.run("systemctl", "restart", "kafka.service")
    bed.start_kafka()
    admin = AdminClient({"bootstrap.servers": bed.spec.bootstrap_servers})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    wanted = UserScramCredentialUpsertion("alice", credential, SCRAM_PASSWORD.encode(), SALT)
    for future in admin.alter_user_scram_credentials([wanted]).values():
        future.result(60)


def left_on(host: Host, secrets: set[str | bytes]) -> set[str]:
    """Paths on a host of the files with a secret."""
    below = [(host.folder / "upper", host.folder / "upper"), (host.root, host.root / "var/lib/kafka")]
    return {f"/{Path(file).relative_to(root)}" for root, folder in below for file in files_with(secrets, folder)}


def test_runs_over_ssh_leave_no_secret(make_bed: MakeBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = make_bed("4.2.1", others=("4.3.1",), size=3, properties=PROPERTIES)
    plant(bed)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    shell = Shell(tmp_path, bed)
    passwords = {KEY_PASSWORD, JAAS_PASSWORD, ENVIRONMENT, SCRAM_PASSWORD}
    key = middle_of((bed.folder / "ssh" / "id_ed25519").read_text())
    with watched_processes({*passwords, key}, every_s=0.05) as seen:
        change(shell, "upgrade", "4.3.1", "--no-scan", "--finalize", "after-approval")
        change(shell, "downgrade", "4.2.1", "--lowering", "offline")
    assert_all_run(bed, "4.2.1")
    assert not seen

    # On the worker: nothing but the snapshot to install, which only its owner can read.
    assert files_with({*passwords, ARGUMENT, key}, tmp_path, kinds=(".db",)) == []
    copies = [Path(name) for name in files_with({verifier()}, tmp_path)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in copies), copies

    for host in bed.hosts:
        configurations = {
            "/etc/kafka/server.properties",
            *(f"/etc/kafka/server.properties.{r}" for r in ("4.2.1", "4.3.1")),
        }
        assert left_on(host, {KEY_PASSWORD, JAAS_PASSWORD}) <= configurations
        assert left_on(host, {ENVIRONMENT, ARGUMENT}) == {"/etc/kafka/kafka.env"}
        assert left_on(host, {SCRAM_PASSWORD, key}) == set()
        modes = host.run("sh", "-c", "stat -c '%a %U:%G' /etc/kafka/server.properties*").split("\n")
        assert set(filter(None, modes)) == {"640 root:kafka"}
        with_verifier = left_on(host, {verifier()})
        assert with_verifier, "the search found no metadata log"
        assert all(name.startswith(f"{DATA}/__cluster_metadata-0/") for name in with_verifier)
        called = host.run("journalctl", "--identifier=sudo", "--output=cat")
        assert "COMMAND=/usr/bin/systemctl stop" in called
        assert not any(secret in called for secret in {*passwords, ARGUMENT, key})
