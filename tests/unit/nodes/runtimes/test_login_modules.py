"""The login modules of a JAAS file on a host: a real shell prints their names, and no other word of the file."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.model.host_state import Absence, StartFileKind
from kafka_rollout.model.starts import LOGIN_FILE, login_sections, modules_of_files
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.files_at_start import read_named_files
from kafka_rollout.nodes.runtimes.hosts.login_files import read_key_tabs
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.planning.findings.hosts import host_problems
from kafka_rollout.planning.findings.starts import ObservedFiles, ObservedStarts, start_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import CONFIGURATION, FakeHost
from tests.unit.nodes.runtimes.test_service import CATALOGUE, NODE, runtime_on

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
    def __init__(self, user: int | None = None) -> None:
        self.printed, self.user = "", user

    def run(self, _: object, command: str) -> Done:
        ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False, timeout=20, user=self.user)
        self.printed += ran.stdout.decode()
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_file_that_the_ssh_user_cannot_read_has_unknown_modules() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "jaas.conf")
        file.write_text(TEXT)
        seen = []
        for mode in (0o600, 0o644):
            file.chmod(mode)
            (found,) = read_named_files(cast(HostCommands, RealHost(65534)), NODE, {LOGIN_FILE: str(file)})
            observed = ObservedFiles(names=(LOGIN_FILE,), files=(found,), started_at=time.time() + 60)
            seen.append([one.subject for one in start_findings(ObservedStarts(files={1: observed}))])
        assert seen == [[f"node 1, {LOGIN_FILE}, login modules"], []]


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


KERBEROS = """\
KafkaServer { // "keyTab="/etc/comment.keytab"
    com.sun.security.auth.module.Krb5LoginModule required
        keyTab = "/opt/kafka/config/it's.keytab"   password='keyTab="/S3CRET"' principal="keyTab=\\"/S3CRET"
        /* keyTab="/etc/comment2.keytab" */ useKeyTab=true storeKey="true";
    com.sun.security.auth.module.Krb5LoginModule optional useKeyTab="true" keyTab='/etc/two.keytab';
    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=false keyTab="/etc/unused.keytab";
};
clients.KafkaServer { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/c.keytab"; };
Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/zk.keytab"; };
"""


@pytest.mark.parametrize(
    ("listeners", "paths"),
    [
        ("EXTERNAL://:9092", [("/opt/kafka/config/it's.keytab", True), ("/etc/two.keytab", False)]),
        ("CLIENTS://:9092", [("/etc/c.keytab", True)]),
        ("PLAIN://:9092", []),
    ],
)
def test_the_key_tabs_of_the_used_sections_are_read_and_no_other_text(
    tmp_path: Path, listeners: str, paths: list[tuple[str, bool]]
) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(KERBEROS)
    host = RealHost()
    config = {
        "listeners": listeners,
        "listener.security.protocol.map": "EXTERNAL:SASL_SSL,CLIENTS:SASL_SSL,PLAIN:PLAINTEXT",
    }
    arguments = [f"-Djava.security.auth.login.config={file}"]
    found = read_key_tabs(cast(HostCommands, host), NODE, config, arguments)
    assert [(one.path, one.is_required) for one in found] == paths
    assert not any(word in host.printed for word in ("S3CRET", "comment", "principal"))


def test_a_key_tab_of_the_jaas_file_is_a_file_of_the_start() -> None:
    host = FakeHost(
        gone={"/opt/kafka/config/kafka.keytab"},
        login_file="KafkaServer {\nA.B required\nuseKeyTab=true\nkeytab /opt/kafka/config/kafka.keytab\n}\n",
    )
    host.files[CONFIGURATION] += "listeners=SASL_PLAINTEXT://:9092\n"
    host.jvm = "arg java\narg -Djava.security.auth.login.config=/etc/kafka/jaas.conf\n"
    host.words = ("java", "-Djava.security.auth.login.config=/etc/kafka/jaas.conf")
    state = runtime_on(host).host(NODE, [Release(4, 3, 1)])
    (path,) = (one for one in state.start_paths if one.kind is StartFileKind.KEY_TAB)
    assert (path.path, path.is_needed, path.absence) == ("/opt/kafka/config/kafka.keytab", True, Absence.FATAL)
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,))
    problems = host_problems(cluster, CATALOGUE, {1: state}, [Release(4, 3, 1)])
    found = [one for one in problems if "keytab" in one.sentence]
    assert [(one.code, one.severity.value) for one in found] == [("START-PATH-MISSING", "blocker")]
    assert "JAAS file" in found[0].remedy
