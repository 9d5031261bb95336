"""The login modules of a JAAS file on a host: a real shell prints their names, and no other word of the file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.model.starts import LOGIN_FILE, login_sections, modules_of_files
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.files_at_start import read_named_files
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from tests.unit.nodes.runtimes.test_service import NODE

TEXT = """\
/* com.example.No required;
   "} */ // KafkaServer { com.example.No required; };
KafkaServer {
    com.example.Ldap
        REQUIRED
        url="ldaps://a/; com.example.No required;"  password='S3CRET \\' required' // com.example.No required
        bare=S3CRET ; com.example.Other$Inner optional debug=true; /* x */ com.example.Third sufficient;
};
clients.KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required password="S3CRET required"; };
Client { com.example.OfZooKeeper required; };
"""
SECTIONS = (
    ("KafkaServer", "com.example.Ldap"),
    ("KafkaServer", "com.example.Other$Inner"),
    ("KafkaServer", "com.example.Third"),
    ("clients.KafkaServer", "org.apache.kafka.common.security.plain.PlainLoginModule"),
    ("Client", "com.example.OfZooKeeper"),
)


class RealHost:
    def __init__(self) -> None:
        self.printed = ""

    def run(self, _: object, command: str) -> Done:
        ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False, timeout=20)
        self.printed += ran.stdout.decode()
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())


def test_the_modules_of_a_file_are_read_and_no_secret_of_it(tmp_path: Path) -> None:
    file = tmp_path / "it's jaas.conf"
    file.write_text(TEXT)
    host = RealHost()
    found, store = read_named_files(cast(HostCommands, host), NODE, {LOGIN_FILE: str(file), "store": str(file)})
    assert found.login_modules == SECTIONS
    assert (found.changed_at, found.problem) == (store.changed_at, "")
    assert store.login_modules == ()
    assert "S3CRET" not in host.printed
    assert tuple(login_sections(TEXT)) == SECTIONS
    (none,) = read_named_files(cast(HostCommands, host), NODE, {LOGIN_FILE: str(tmp_path / "none")})
    assert (none.is_absent, none.login_modules) == (True, ())


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({}, ["Ldap", "Other$Inner", "Third"]),
        ({"listener.name.external.plain.sasl.jaas.config": "M required;"}, []),
        ({"plain.sasl.jaas.config": "M required;"}, ["Ldap", "Other$Inner", "Third"]),
        ({"listeners": "CLIENTS://:9092"}, ["PlainLoginModule"]),
        ({"listener.security.protocol.map": "EXTERNAL:SSL"}, []),
    ],
)
def test_a_start_loads_the_section_of_its_listener_or_the_general_one(
    tmp_path: Path, config: dict[str, str], names: list[str]
) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(TEXT)
    found = read_named_files(cast(HostCommands, RealHost()), NODE, {LOGIN_FILE: str(file)})
    own = {
        "listeners": "EXTERNAL://:9092",
        "listener.security.protocol.map": "EXTERNAL:SASL_SSL,CLIENTS:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "inter.broker.listener.name": "OTHER",
    }
    loaded = list(modules_of_files({**own, **config}, found))
    assert [name.rpartition(".")[2] for _, name in loaded] == names
    assert all(place.endswith(f"KafkaServer in {file}") for place, _ in loaded)
