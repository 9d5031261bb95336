"""`kafka-rollout check` on a secured cluster, with the client.properties of Kafka's own tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.cli import app as cli
from kafka_rollout.model.rights import READING
from tests.integration.conftest import MakeCluster
from tests.integration.harness.security.secured import READER, SecuredCluster

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def secured(make_shared_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> SecuredCluster:
    found = SecuredCluster.create(
        make_shared_cluster, "4.3.1", tmp_path_factory.mktemp("secured"), name="checked", layout="combined", size=1
    )
    found.use_coordinators()
    return found


def properties(folder: Path, secured: SecuredCluster, password: str, more: str = "") -> Path:
    path = folder / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{READER}" password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.files}/ca.pem\n{more}"
    )
    path.chmod(0o600)
    return path


def run(capsys: pytest.CaptureFixture[str], secured: SecuredCluster, file: Path | None) -> tuple[int, Any, str]:
    words = ["check", "--bootstrap-server", secured.spec.bootstrap_servers, "--to", "4.4.0", "--json"]
    code = cli.run_main([*words, *(["--command-config", str(file)] if file else [])])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def entry(document: dict[str, Any], check: str) -> dict[str, Any]:
    (found,) = (one for one in document["checks"] if one["id"] == check)
    return found


def test_a_user_that_can_read_gets_the_answers(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, _ = run(capsys, secured, properties(tmp_path, secured, secured.passwords[READER]))
    assert (code, found["change"]) == (3, "upgrade")  # one controller
    for known in ("user-rights", "groups-and-transactions", "dynamic-configuration", "coordinator-logs"):
        assert entry(found, known)["result"] in {"ok", "info"}, entry(found, known)
    assert secured.passwords[READER] not in json.dumps(found)


def test_a_missing_right_is_a_warning_with_the_command_that_grants_it(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (right,) = (one for one in READING if str(one) == "DESCRIBE on TRANSACTIONAL_ID *")
    with secured.without(READER, right):
        _, found, _ = run(capsys, secured, properties(tmp_path, secured, secured.passwords[READER]))
    (missing,) = entry(found, "user-rights")["findings"]
    assert missing["severity"] == "warning"
    assert "kafka-acls.sh" in missing["remedy"]
    assert f"--allow-principal 'User:{READER}' --operation Describe --transactional-id '*'" in missing["remedy"]
    assert entry(found, "groups-and-transactions")["result"] == "unknown"


def test_a_wrong_password_and_no_security_are_one_sentence(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, said = run(capsys, secured, properties(tmp_path, secured, "wrong-password"))
    who = f"Bootstrap server {secured.spec.bootstrap_servers}"
    sentence = f"{who} refused the authentication of user {READER} (SCRAM-SHA-512)."
    assert (code, found["error"]["kind"], found["error"]["sentence"]) == (2, "credentials", sentence)
    assert "wrong-password" not in f"{found}{said}"
    code, found, said = run(capsys, secured, None)
    assert (code, found["error"]["kind"]) == (1, "transient")
