"""Listeners with TLS, SASL and ACLs: the Connection lets KafkaAdmin in, and what is missing is named.

The controllers' listener has settings of its own: TLS, by another authority than the brokers'.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner, Result

from kafka_rollout.base.errors import RefusedError, RolloutError, UserError
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.free_ports import reserved_ports
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.app import app
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.clusters.inventory import dump_cluster, load_cluster
from kafka_rollout.console.run_console import OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED
from kafka_rollout.coordinator_logs.spark.submit import scan_command
from kafka_rollout.model.topology import ClusterSpec, Role
from kafka_rollout.wiring.cluster_now import read_cluster_now
from tests.integration.conftest import MakeCluster
from tests.integration.harness.cluster_contents import wait_until_all_know
from tests.integration.harness.groups.committing import commit

pytestmark = pytest.mark.integration

PASSWORD = "a-password-of-tests"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_admin="{PASSWORD}" user_nobody="{PASSWORD}";'
)


@dataclass(frozen=True, kw_only=True)
class Secured:
    """`spec` has the secured listener's address; `plain` that of the one for everybody; `ca` is the
    certificate that signed it, `controllers` what lets into the controllers' listener."""

    spec: ClusterSpec
    plain: str
    ca: Path
    controllers: ClientSecurity

    def security(self, user: str = "admin", password: str = PASSWORD, **more: str) -> ClientSecurity:
        extra = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": str(self.ca), **more}
        return ClientSecurity.from_airflow_connection_extra(extra, login=user, password=password)

    def both(self, security: ClientSecurity) -> ClientSecurity:
        """With the settings of the controllers' listener."""
        return security.model_copy(update={"controllers": self.controllers})


@pytest.fixture(scope="module")
def secured(make_shared_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    ca, store = _self_signed(tmp_path_factory.mktemp("brokers"))
    controllers_ca, controllers_store = _self_signed(tmp_path_factory.mktemp("controllers"))
    cluster = make_shared_cluster(
        "4.3.1",
        name="secured",
        layout="combined",
        size=1,
        start=False,
        extra_config={
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            "listener.name.controller.ssl.keystore.type": "PEM",
            "listener.name.controller.ssl.keystore.location": str(controllers_store),
            "listener.name.controller.ssl.truststore.type": "PEM",
            "listener.name.controller.ssl.truststore.location": str(controllers_ca),
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.secure.plain.sasl.jaas.config": JAAS,
            "listener.name.secure.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": str(store),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
            "connections.max.reauth.ms": "8000",
        },
    )
    (node,) = cluster.spec.nodes
    with reserved_ports(1) as (port,):
        address = f"127.0.0.1:{port}"
    config = Path(str(node.directory)) / "server.properties"
    config.write_text(config.read_text().replace("listeners=", f"listeners=SECURE://{address},", 1))
    cluster.start()
    plain = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    plain.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion("admin", info, f"{PASSWORD}-of-scram".encode())
    plain.alter_user_scram_credentials([upsertion])["admin"].result(60)
    spec = replace(cluster.spec, nodes=(replace(node, broker_address=address),))
    controllers = {"security.protocol": "SSL", "ssl.ca.location": str(controllers_ca)}
    wait_until_all_know(cluster.spec)
    return Secured(
        spec=spec,
        plain=cluster.spec.bootstrap_servers,
        ca=ca,
        controllers=ClientSecurity.from_airflow_connection_extra(controllers),
    )


@pytest.fixture
def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))


def _ask_everything(admin: KafkaAdmin, spec: ClusterSpec) -> None:
    assert len(admin.cluster_id()) == 22
    assert admin.features(spec.brokers[0]).finalized
    # The controllers' listener does not know these settings, so a broker passes the question on.
    assert admin.quorum().leader_id == spec.brokers[0].node_id
    assert [p.name for p in admin.partitions()] == ["orders-0"]
    assert (admin.groups(), admin.transactions()) == ((), ())
    admin.elect_preferred_leaders(admin.partitions())
    assert admin.update_features({"group.version": 1}, validate_only=True)[0].accepted


def test_plain_over_tls_gets_all_answers(secured: Secured) -> None:
    with KafkaAdmin(secured.spec, secured.security()) as admin:
        _ask_everything(admin, secured.spec)


def test_scram_over_tls_gets_all_answers(secured: Secured) -> None:
    scram = secured.security(password=f"{PASSWORD}-of-scram", **{"sasl.mechanism": "SCRAM-SHA-512"})
    with KafkaAdmin(secured.spec, scram) as admin:
        _ask_everything(admin, secured.spec)


def test_a_session_is_renewed_before_the_broker_ends_it(secured: Secured) -> None:
    with KafkaAdmin(secured.spec, secured.security()) as admin:
        until = time.monotonic() + 10  # connections.max.reauth.ms is 8000
        while time.monotonic() < until:
            admin.features(secured.spec.brokers[0])
            time.sleep(0.3)


def test_a_controllers_listener_with_other_settings_is_asked_with_its_own(secured: Secured) -> None:
    node = secured.spec.nodes[0].node_id
    plain = replace(secured.spec, nodes=(replace(secured.spec.nodes[0], broker_address=secured.plain),))
    for spec, brokers in ((secured.spec, secured.security()), (plain, ClientSecurity())):
        with KafkaAdmin(spec, secured.both(brokers)) as admin:
            registered = admin.registered()
            assert (registered.brokers, registered.controllers) == ({node}, {node})
            controllers_only = replace(spec.nodes[0], broker_address=None, roles=frozenset({Role.CONTROLLER}))
            assert admin.features(controllers_only).finalized["metadata.version"] == 30


def test_the_command_line_observes_it_by_one_file_and_says_when_the_file_lacks_the_controllers(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(secured.spec, name="two", connection_id="brokers", controller_connection_id="controllers")
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "two.yaml").write_text(dump_cluster(spec))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    file = tmp_path / "connection.json"

    def observe(**more: object) -> Result:
        write_whole(file, secured.security().to_json().encode())
        file.write_text(json.dumps({**json.loads(file.read_text()), **more}))
        return CliRunner().invoke(
            app, ["verify", "--details", "--cluster", "two", "--command-config", str(file), "--json"]
        )

    refused = observe()
    assert isinstance(refused.exception, UserError)
    assert 'object "controllers"' in str(refused.exception)
    observed = observe(controllers={"protocol": "SSL", "ca_location": secured.controllers.ca_location})
    assert observed.exit_code == 3, observed.output  # the quorum of one node has no spare
    state = json.loads(observed.stdout)["state"]
    assert state["unanswered"] == []
    assert state["registered"]["controllers"] == [spec.nodes[0].node_id]


@pytest.mark.parametrize("knows_controllers", [True, False])
def test_the_inventory_of_a_secured_cluster_is_written_with_the_file(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_controllers: bool
) -> None:
    """Without the settings of the controllers' listener, the node is known as a controller without an address."""
    (tmp_path / "clusters").mkdir()
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    file, (node,) = tmp_path / "connection.json", secured.spec.nodes
    write_whole(file, secured.security().to_json().encode())
    more = {"controllers": {"protocol": "SSL", "ca_location": secured.controllers.ca_location}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **(more if knows_controllers else {})}))
    words = ["inventory", "init", "--bootstrap-server", secured.spec.bootstrap_servers, "--command-config", str(file)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "clusters").iterdir()
    assert PASSWORD not in path.read_text()
    (found,) = load_cluster(path).nodes
    assert (found.roles, found.broker_address) == (node.roles, node.broker_address)
    assert found.controller_address == (node.controller_address if knows_controllers else None)
    assert ("Controller 1 is in the quorum: " in path.read_text()) != knows_controllers


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_and_not_repeated_in_the_error(secured: Secured, mechanism: str) -> None:
    wrong = secured.security(password="wrong-and-secret", **{"sasl.mechanism": mechanism})
    with KafkaAdmin(secured.spec, wrong) as admin, pytest.raises(RefusedError, match="user admin") as caught:
        admin.cluster_id()
    assert "wrong-and-secret" not in str(caught.value)


def test_a_mechanism_that_is_not_offered_names_those_that_are(secured: Secured) -> None:
    other = secured.security(**{"sasl.mechanism": "SCRAM-SHA-256"})
    with KafkaAdmin(secured.spec, other) as admin, pytest.raises(RefusedError, match="PLAIN") as caught:
        admin.cluster_id()
    assert "SCRAM-SHA-256" in str(caught.value)


def test_a_certificate_nobody_vouches_for_is_refused(secured: Secured, tmp_path: Path) -> None:
    stranger, _ = _self_signed(tmp_path)
    security = secured.security(**{"ssl.ca.location": str(stranger)})
    with KafkaAdmin(secured.spec, security) as admin, pytest.raises(RefusedError, match="Correct the CA file"):
        admin.cluster_id()


@pytest.mark.parametrize(
    ("question", "right"),
    [
        (lambda admin: admin.quorum(), "DESCRIBE on CLUSTER"),
        (lambda admin: admin.update_features({"group.version": 1}, validate_only=True), "ALTER on CLUSTER"),
    ],
)
def test_the_right_that_is_missing_is_named(
    secured: Secured, question: Callable[[KafkaAdmin], object], right: str
) -> None:
    with KafkaAdmin(secured.spec, secured.security("nobody")) as admin, pytest.raises(RolloutError) as caught:
        question(admin)
    assert isinstance(caught.value, RefusedError), caught.value
    assert right in str(caught.value)


def test_the_page_reads_a_secured_cluster_now(secured: Secured, no_home: None) -> None:
    found = read_cluster_now(secured.spec, secured.both(secured.security()))
    assert {name: counted.number for name, counted in found.counts.items()} == dict.fromkeys(found.counts, 0)
    assert (found.problems, found.controller, found.serves) == ((), secured.spec.nodes[0].node_id, True)
    assert (found.partitions or 0) >= 1
    assert found.levels["metadata.version"] == 30


def test_what_the_page_cannot_read_is_unknown_with_a_remedy_and_without_a_secret(
    secured: Secured, no_home: None, tmp_path: Path
) -> None:
    stranger = {"ssl.ca.location": str(_self_signed(tmp_path)[0])}
    missing = {"ssl.ca.location": str(tmp_path / "missing.pem")}
    for security, told in (
        (secured.security(password="wrong-and-secret"), "user admin (PLAIN). Check the user name and the password"),
        (ClientSecurity(), "this port speaks TLS. Set security.protocol to SSL or SASL_SSL"),
        (secured.security(**stranger), "self-signed certificate. Correct the CA file"),
        (secured.security(**missing), "missing.pem of the TLS settings cannot be read"),
    ):
        found = read_cluster_now(secured.spec, security)
        assert {counted.number for counted in found.counts.values()} == {None}, told
        assert (found.partitions, found.controller, found.most_lag, found.levels) == (None, None, None, {})
        assert (found.serves, found.clients[:33]) == (None, "The effect on clients is unknown:")
        assert told in " ".join(found.problems)
        assert "secret" not in str(found)
        assert PASSWORD not in str(found)


def test_partitions_that_the_brokers_hide_from_the_page_are_unknown_and_not_none(
    secured: Secured, no_home: None
) -> None:
    found = read_cluster_now(secured.spec, secured.both(secured.security("nobody")))
    assert {found.counts[name].number for name in (UNDER_REPLICATED, OFFLINE, UNDER_MIN_ISR)} == {None}
    assert (found.partitions, found.serves) == (None, None)
    (problem,) = found.problems
    assert "User:nobody does not have the right DESCRIBE on TOPIC *" in problem


def test_the_coordinator_logs_are_scanned_over_tls_and_the_password_stays_out_of_the_result(secured: Secured) -> None:
    """The last of this module: it leaves groups behind. With a transaction open, the driver reads the log as well."""
    client = {**secured.security().confluent(), "bootstrap.servers": secured.spec.bootstrap_servers}
    consumer = Consumer({**client, "group.id": "scanned", "enable.auto.commit": False})
    commit(consumer, TopicPartition("orders", 0, 7))
    consumer.close()
    stays_open = {"transactional.id": "open", "transaction.timeout.ms": 600_000}  # also on a slow machine
    producer, deleted = Producer({**client, **stays_open}), Consumer({**client, "group.id": "deleted"})
    producer.init_transactions(60)
    producer.begin_transaction()
    offsets = [TopicPartition("orders", 0, 8)]
    producer.send_offsets_to_transaction(offsets, deleted.consumer_group_metadata(), 60)
    admin = AdminClient(client)
    admin.delete_consumer_groups(["deleted"])["deleted"].result(60)
    code, result = scan_command(
        secured.spec, Settings.from_environment(), new_group_coordinator=None, security=secured.security()
    )
    producer.abort_transaction(60)
    deleted.close()
    assert code == 0
    assert sum(c.count for c in result.classes if c.key_version == 1) == 3  # the deletion's tombstone is one
    assert result.inventory is not None
    assert result.inventory.commits == {"orders": 3}
    assert [found.group for found in result.deleted_while_pending] == ["deleted"]
    assert PASSWORD not in str(result)
    with pytest.raises(RolloutError) as refused:
        scan_command(
            secured.spec,
            Settings.from_environment(),
            new_group_coordinator=None,
            security=secured.security(password="wrong-and-secret"),
        )
    assert "refused the authentication of user admin" in str(refused.value)
    assert "wrong-and-secret" not in str(refused.value)


def _self_signed(folder: Path) -> tuple[Path, Path]:
    """(certificate, key and certificate) in PEM, for 127.0.0.1 and a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kafka-rollout tests")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ca, store = folder / "ca.pem", folder / "store.pem"
    ca.write_bytes(certificate)
    store.write_bytes(private + certificate)
    store.chmod(0o600)
    return ca, store
