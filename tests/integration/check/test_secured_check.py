"""`kafka-rollout check` on a secured cluster, with the client.properties of Kafka's own tools."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kafka_rollout.cli import app as cli
from kafka_rollout.model.rights import READING
from tests.integration.conftest import MakeCluster
from tests.integration.harness.security.secured import READER, SecuredCluster, certificate, mutual

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_java_per_release")]


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


def test_an_acl_that_means_more_on_the_target_is_a_blocker(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = properties(tmp_path, secured, secured.passwords[READER])
    assert entry(run(capsys, secured, file)[1], "acl-meaning")["result"] == "ok"
    place = ResourceType.TOPIC, "ranged", ResourcePatternType.LITERAL, "User:carol", "10.0.0.0/8"
    admin = secured.root()
    for created in admin.create_acls([AclBinding(*place, AclOperation.READ, AclPermissionType.ALLOW)]).values():
        created.result(60)
    try:
        code, found, _ = run(capsys, secured, file)
    finally:
        which = AclBindingFilter(*place, AclOperation.READ, AclPermissionType.ALLOW)
        for removed in admin.delete_acls([which]).values():
            removed.result(60)
    (more,) = entry(found, "acl-meaning")["findings"]
    assert (code, more["code"], more["severity"]) == (3, "ACL-MEANS-MORE", "blocker")
    assert "User:carol gains READ, DESCRIBE on topic ranged from 10.0.0.0, 10.255.255.255." in json.dumps(more)


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


def test_a_right_that_is_missing_with_another_one_is_in_the_same_command(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers report no operations to a user without DESCRIBE."""
    of_topics = [one for one in READING if str(one) in ("DESCRIBE on TOPIC *", "DESCRIBE_CONFIGS on TOPIC *")]
    of_cluster = [one for one in READING if one.resource == "CLUSTER"]
    with ExitStack() as stack:
        for right in (*of_topics, *of_cluster):
            stack.enter_context(secured.without(READER, right))
        code, found, _ = run(capsys, secured, properties(tmp_path, secured, secured.passwords[READER]))
    said = {group["remedy"] for group in entry(found, "user-rights")["findings"]}
    begin = f"Run: kafka-acls.sh --bootstrap-server {secured.spec.bootstrap_servers} --command-config ADMIN.properties"
    user = f"{begin} --add --allow-principal 'User:{READER}' --operation Describe --operation DescribeConfigs"
    assert said == {f"{user} --cluster", f"{user} --topic '*'"}
    assert code == 3, "READ of the coordinators' topics shows their single replicas"
    assert found["can_hide_blockers"]
    assert found["nodes"].endswith("controllers unknown")


def test_a_topic_without_readable_settings_keeps_its_partitions_and_a_hidden_one_is_named(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (settings,) = (one for one in READING if str(one) == "DESCRIBE_CONFIGS on TOPIC *")
    with secured.without(READER, settings), secured.denying(READER, "orders"):
        code, found, _ = run(capsys, secured, properties(tmp_path, secured, secured.passwords[READER]))
    topics = entry(found, "partition-availability")
    assert topics["result"] == "blocker"
    assert "RF-ONE-TOPIC" in {group["code"] for group in topics["findings"]}
    assert any("min.insync.replicas" in reason for reason in topics["reasons"])
    sentences = [one["sentence"] for group in entry(found, "user-rights")["findings"] for one in group["objects"]]
    assert any(one.startswith(f"An ACL denies User:{READER} the right DESCRIBE on TOPIC orders") for one in sentences)
    assert code == 3


def test_the_listener_of_a_controller_is_named(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controllers = secured.command_config(mutual(secured.files, "rollout"), alone=True)
    address = secured.spec.bootstrap_controllers
    words = ["check", "--bootstrap-server", address, "--to", "4.4.0", "--command-config", str(controllers)]
    code = cli.run_main([*words, "--json"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["kind"]) == (2, "invalid_input")
    assert error["sentence"] == f"{address} is the listener of a controller."
    code = cli.run_main(["check", "--bootstrap-server", address, "--to", "4.4.0", "--command-config",
                         str(properties(tmp_path, secured, secured.passwords[READER])), "--json"])  # fmt: skip
    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["kind"]) == (2, "credentials")
    assert error["sentence"] == f"Bootstrap server {address} requires a client certificate, and none was given."


def test_a_wrong_password_and_no_security_are_one_sentence(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, said = run(capsys, secured, properties(tmp_path, secured, "wrong-password"))
    who = f"Bootstrap server {secured.spec.bootstrap_servers}"
    sentence = f"{who} refused the authentication of user {READER} (SCRAM-SHA-512)."
    assert (code, found["error"]["kind"], found["error"]["sentence"]) == (2, "credentials", sentence)
    assert "wrong-password" not in f"{found}{said}"
    code, found, said = run(capsys, secured, None)
    assert (code, found["error"]["kind"]) == (2, "credentials")


def test_a_wrong_ca_and_a_wrong_mechanism_are_invalid_input(
    secured: SecuredCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 is for a cluster that blocks. The answer names what to correct."""
    file = properties(tmp_path, secured, secured.passwords[READER])
    right = file.read_text()
    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other", "ca")
    for wrong, sentence, remedy in (
        (right.replace("SCRAM-SHA-512", "SCRAM-SHA-256"), "does not offer SASL mechanism SCRAM-SHA-256", "mechanism"),
        (right.replace(f"{secured.files}/ca.pem", f"{tmp_path}/other/ca.pem"), "is not trusted", "truststore"),
    ):
        file.write_text(wrong)
        code, found, _ = run(capsys, secured, file)
        error = found["error"]
        assert (code, error["kind"], sentence in error["sentence"]) == (2, "credentials", True), error
        assert remedy in error["remedy"], error
