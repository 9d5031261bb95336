"""The real way of the jars: the network, the lock; and the real Java that then runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jars.maven import Module, open_repository
from kafka_rollout.releases.jvm import java
from tools.demo.folder import PROJECT_ROOT

pytestmark = pytest.mark.jvm


@pytest.fixture
def without_system_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PATH without a Java, as on a fresh machine."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "env"):
        (tools / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java.java_home.cache_clear()


@pytest.fixture(autouse=True)
def forget_java() -> object:
    yield
    java.java_home.cache_clear()


def test_agents_are_fetched_and_verified(tmp_path: Path) -> None:
    agents = ReleaseCache(tmp_path, PROJECT_ROOT / "include").agents()
    assert agents.jmx_exporter.name == "jmx_prometheus_javaagent-1.0.1.jar"
    assert agents.jolokia.name == "jolokia-agent-jvm-2.2.9-javaagent.jar"
    assert agents.jolokia.stat().st_size > 100_000


@pytest.mark.usefixtures("without_system_java")
def test_the_packaged_java_runs_kafkas_tools(tmp_path: Path) -> None:
    settings = Settings.from_environment()
    libs = ReleaseCache.from_settings(settings).libs(Release.parse("4.3.1"))
    answer = subprocess.run(
        [str(java.java_binary()), "-Xmx200m", "-cp", f"{libs}/*", "kafka.Kafka", "--version"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert answer.stdout.strip() == "4.3.1"


@pytest.mark.usefixtures("without_system_java")
def test_sparks_java_takes_the_option_that_the_packaged_java_refuses(tmp_path: Path) -> None:
    option = f"--add-modules={java.VECTOR_MODULE}"
    bare = subprocess.run([str(java.java_binary()), option, "-version"], capture_output=True, timeout=60, check=False)
    assert bare.returncode != 0
    home = java.spark_java_home(tmp_path)
    wrapped = subprocess.run([str(home / "bin" / "java"), option, "-version"], timeout=60, check=False)
    assert wrapped.returncode == 0


def test_a_java_home_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    java.java_home.cache_clear()
    assert java.java_version(old) == 8
    assert java.java_home() != tmp_path / "old"


def test_a_release_that_was_never_published_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    sentence = r"^The repository of the jars does not have \S+kafka_2\.13:0\.0\.1\. "
    with pytest.raises(FatalError, match=sentence) as caught, open_repository() as repository:
        repository.jars([Module.parse("org.apache.kafka:kafka_2.13:0.0.1")], tmp_path / "libs")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "reason", "error"),
    [
        ("https_proxy", "http://127.0.0.1:9", "Connection refused", TransientError),
        ("SSL_CERT_FILE", "one", "CERTIFICATE_VERIFY_FAILED", FatalError),
    ],
    ids=["no network", "a certificate authority that the system does not know"],
)
def test_a_network_that_does_not_answer_may_answer_later_and_one_that_is_not_trusted_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, *, reason: str, error: type[Exception]
) -> None:
    if value == "one":
        value = str(tmp_path / "one.pem")
        Path(value).write_text(_own_certificate())
    monkeypatch.setenv(variable, value)
    with pytest.raises(error, match=reason), open_repository() as repository:
        repository.jars([Module.parse("org.slf4j:slf4j-api:1.7.36")], tmp_path / "libs")


def _own_certificate() -> str:
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nobody")])
    certificate = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    return certificate.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def test_the_prefetch_command_prints_the_folders() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "kafka_rollout.releases.jars.cache", "agents", "4.3.1"],
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT / "plugins")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert [Path(line).is_dir() for line in answer.stdout.split()] == [True, True]
