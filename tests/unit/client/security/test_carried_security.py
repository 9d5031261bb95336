"""Security settings that a process without the files of this host can use."""

from __future__ import annotations

import os
import pickle
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from kafka_rollout.base.errors import UserError
from kafka_rollout.client.security.carried_security import CarriedSecurity, file_in_memory
from kafka_rollout.client.security.client_security import ClientSecurity
from tests.integration.harness.security.secret_search import middle_of
from tests.integration.harness.security.secured import certificate


def test_pem_files_and_secrets_arrive_where_the_files_do_not_exist(tmp_path: Path) -> None:
    ca = certificate(tmp_path, "ca")
    security = ClientSecurity(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username="anna",
        password=SecretStr("hush"),
        ca_location=str(ca),
        certificate_location=str(ca),
        key_location=str(tmp_path / "ca.key"),
        controllers=ClientSecurity(protocol="SSL", ca_location="/not/carried.pem"),
    )
    packed = CarriedSecurity.pack(security)
    key = (tmp_path / "ca.key").read_text()
    for file in tmp_path.iterdir():
        file.unlink()
    assert not any(secret in f"{packed} {packed!r}" for secret in ("hush", middle_of(key)))

    arrived = pickle.loads(pickle.dumps(packed)).unpack()  # noqa: S301
    assert (arrived.protocol, arrived.username, arrived.controllers) == ("SASL_SSL", "anna", None)
    assert arrived.password == SecretStr("hush")
    for _ in range(2):  # with each connection
        context = ssl.create_default_context(cafile=arrived.ca_location)
        context.load_cert_chain(arrived.certificate_location or "", arrived.key_location)
        assert len(context.get_ca_certs()) == 1
    assert not Path(arrived.key_location or "").resolve().exists(), "it has no name in any folder"
    assert packed.unpack() == arrived, "every task of a process uses the same files"


def test_settings_without_files_are_carried_too() -> None:
    security = ClientSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="u", password=SecretStr("p"))
    assert CarriedSecurity.pack(security).unpack() == security


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UserError, match=r"The TLS file /nowhere/ca\.pem cannot be read: No such file"):
        CarriedSecurity.pack(ClientSecurity(protocol="SSL", ca_location="/nowhere/ca.pem"))


def test_a_process_gets_the_files_that_are_only_in_the_memory_of_another_one(tmp_path: Path) -> None:
    ca = certificate(tmp_path, "ca")
    in_memory = file_in_memory((tmp_path / "ca.key").read_bytes(), str(os.getpid()))
    security = ClientSecurity(protocol="SSL", ca_location=str(ca), certificate_location=str(ca), key_location=in_memory)
    sent = CarriedSecurity.pack(security, only_memory=True).to_json()
    program = (
        "import sys; from kafka_rollout.client.security.carried_security import CarriedSecurity; "
        "got = CarriedSecurity.from_json(sys.stdin.read()).unpack(); "
        "print(got.ca_location, got.key_location, open(got.key_location).read(), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, text=True, check=True)
    ca_location, key_location, key = done.stdout.split("\n", 2)
    assert (ca_location, key.strip()) == (str(ca), (tmp_path / "ca.key").read_text().strip())
    assert key_location.startswith("/proc/self/fd/"), "the file is its own, not that of the process that ends"


def test_a_pem_file_with_comments_in_latin_1_arrives_byte_by_byte(tmp_path: Path) -> None:
    ca = certificate(tmp_path, "ca")
    content = "subject=/O=Autoridad de Certificación\n".encode("latin-1") + ca.read_bytes()
    ca.write_bytes(content)
    packed = CarriedSecurity.pack(ClientSecurity(protocol="SSL", ca_location=str(ca)))
    arrived = CarriedSecurity.from_json(packed.to_json())
    assert arrived == packed
    assert Path(arrived.unpack().ca_location or "").read_bytes() == content
