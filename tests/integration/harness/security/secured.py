"""A cluster with SASL_SSL and SCRAM on the brokers, mutual TLS on the controllers, StandardAuthorizer, and its users.

The listener names are those of LocalCluster; PLAINTEXT is only a name here. Every node has the certificate of `nodes`.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.free_ports import HOST, reserved_ports
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.rights import (
    CHANGING,
    CLUSTER,
    PINNING,
    READING,
    RIGHTS,
    TRAFFIC,
    Right,
    RightsOf,
)
from kafka_rollout.model.topology import ClusterSpec
from tests.integration.conftest import MakeCluster
from tests.integration.harness.groups.committing import commit
from tests.integration.harness.security.token_server import TokenServer
from tools.demo.local_cluster import LocalCluster

ROOT, READER, CHANGER, TRAFFIC_USER, CONTROLLERS = "broker", "reader", "changer", "traffic", "CN=rollout"
MUTUAL = "mutual"
_LOGIN = ("sasl.username", "sasl.password")
_RESOURCES = {
    CLUSTER: ResourceType.BROKER,  # librdkafka's name of the resource CLUSTER
    "TOPIC": ResourceType.TOPIC,
    "GROUP": ResourceType.GROUP,
    "TRANSACTIONAL_ID": ResourceType.TRANSACTIONAL_ID,
}


def certificate(
    folder: Path,
    name: str,
    ca: tuple[x509.Certificate, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey] | None = None,
    *,
    ends_in: datetime.timedelta = datetime.timedelta(days=90),
    address: str = HOST,
) -> Path:
    """Write name.pem and name.key, and both together as name.store; valid for `address` from a week ago on."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca[0].subject if ca else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=7))
        .not_valid_after(now + ends_in)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
        .sign(ca[1] if ca else key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for suffix, content in (("pem", pem), ("key", private), ("store", private + pem)):
        path = folder / f"{name}.{suffix}"
        path.write_bytes(content)
        path.chmod(0o600)
    return folder / f"{name}.pem"


def authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The certificate authority of the cluster, from `certificate(folder, "ca")`."""
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()), key


@dataclass(frozen=True, kw_only=True)
class SecuredCluster:
    """The running cluster. `passwords`: SCRAM password of each user. `mutual_addresses`: by node, the listener for
    client certificates."""

    cluster: LocalCluster
    files: Path
    passwords: Mapping[str, str] = field(repr=False)
    mutual_addresses: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def create(
        cls, make: MakeCluster, release: str, folder: Path, *, tokens: TokenServer | None = None, **options: Any
    ) -> SecuredCluster:
        """Start the cluster and create its users with exactly the rights of model/rights.py.

        `tokens`: its clients can connect too. `options`: of LocalCluster.
        """
        folder.mkdir(parents=True, exist_ok=True)
        certificate(folder, "ca")
        for name in ("nodes", "rollout", MUTUAL):
            certificate(folder, name, authority(folder))
        passwords = {name: f"pw-{name}-{secrets.token_hex(8)}" for name in (ROOT, READER, CHANGER, TRAFFIC_USER)}
        of_controllers = {"controllers": mutual(folder, "rollout")}
        root = scram(folder, ROOT, passwords[ROOT])
        config = {**_node_config(folder, passwords[ROOT]), **_token_config(folder, tokens)}
        config |= options.pop("extra_config", {})
        cluster = make(
            release,
            security=root.model_copy(update=of_controllers),
            extra_config=config,
            format_options=["--add-scram", f"SCRAM-SHA-512=[name={ROOT},password={passwords[ROOT]}]"],
            start=False,
            **options,
        )
        brokers = [node.node_id for node in cluster.spec.brokers]
        with reserved_ports(len(brokers)) as ports:
            addresses = {node: f"{HOST}:{port}" for node, port in zip(brokers, ports, strict=True)}
        found = cls(cluster=cluster, files=folder, passwords=passwords, mutual_addresses=addresses)
        found._prepare(config)
        cluster.start()
        found._create_users()
        found.allow(READER, READING)
        found.allow(CHANGER, (*CHANGING, *PINNING))
        found.allow(TRAFFIC_USER, TRAFFIC)
        found.allow(CONTROLLERS, RIGHTS[RightsOf.CONTROLLERS])
        spec = replace(
            cluster.spec,
            connection_id="secured_brokers",
            controller_connection_id="secured_controllers",
            traffic_connection_id="secured_traffic",
        )
        cluster.inventory_path.write_text(dump_cluster(spec))
        return replace(found, cluster=replace(cluster, spec=spec))

    def _prepare(self, config: Mapping[str, str]) -> None:
        """Add the listener for client certificates, and the Java option that 4.x wants for each URL of OAUTHBEARER."""
        urls = ",".join(value for key, value in config.items() if key.endswith("jwks.endpoint.url"))
        for node, address in self.mutual_addresses.items():
            home = Path(str(self.spec.node(node).directory))
            text = (home / "server.properties").read_text()
            write_whole(
                home / "server.properties", text.replace("listeners=", f"listeners=MUTUAL://{address},", 1).encode()
            )
            with (home / "jvm.options").open("a") as options:
                options.write(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}\n")

    @property
    def spec(self) -> ClusterSpec:
        return self.cluster.spec

    def security(self, user: str) -> ClientSecurity:
        """The settings of a user with SCRAM, with those of the controllers and of the test traffic."""
        return self.complete(scram(self.files, user, self.passwords[user]))

    def complete(self, user: ClientSecurity, *, traffic: ClientSecurity | None = None) -> ClientSecurity:
        """Add the settings of the controllers and the test traffic to those of a user."""
        of_traffic = traffic or scram(self.files, TRAFFIC_USER, self.passwords[TRAFFIC_USER])
        return user.model_copy(update={"controllers": mutual(self.files, "rollout"), "traffic": of_traffic})

    def connections(self, user: str) -> dict[str, dict[str, Any]]:
        """The Airflow Connections that the inventory names, as Airflow's API takes them."""
        security = self.security(user)
        assert security.controllers is not None
        assert security.traffic is not None
        users = {"brokers": security, "controllers": security.controllers, "traffic": security.traffic}
        found = {}
        for name, settings in users.items():
            extra = {key: value for key, value in settings.confluent().items() if key not in _LOGIN}
            login, password = (settings.confluent().get(key) for key in _LOGIN)
            body = {"connection_id": f"secured_{name}", "conn_type": "kafka", "extra": json.dumps(extra)}
            found[name] = body | ({"login": login, "password": password} if login else {})
        return found

    def command_config(self, security: ClientSecurity, *, alone: bool = False) -> Path:
        """A file for --command-config. `alone`: without settings of controllers and test traffic."""
        path = self.files / f"connection-{secrets.token_hex(4)}.json"
        if alone:
            path.write_text(security.to_json())
            path.chmod(0o600)
            return path
        assert security.controllers is not None
        assert security.traffic is not None
        nested = {"controllers": security.controllers.to_json(), "traffic": security.traffic.to_json()}
        inside = ", ".join(f'"{name}": {text}' for name, text in nested.items())
        path.write_text(f"{security.to_json()[:-1]}, {inside}}}")
        path.chmod(0o600)
        return path

    def root(self) -> AdminClient:
        """An admin client of the super user; its calls fail when the last reference to it is gone."""
        security = scram(self.files, ROOT, self.passwords[ROOT])
        return AdminClient({**security.confluent(), "bootstrap.servers": self.spec.bootstrap_servers})

    def allow(self, user: str, rights: Iterable[Right]) -> None:
        admin = self.root()
        for created in admin.create_acls([_binding(user, right) for right in rights]).values():
            created.result(60)

    def deny(self, user: str, right: Right) -> None:
        """Remove the ACL that allows a right."""
        binding = _binding(user, right)
        found = AclBindingFilter(
            binding.restype,
            binding.name,
            binding.resource_pattern_type,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission_type,
        )
        admin = self.root()
        for removed in admin.delete_acls([found]).values():
            assert len(removed.result(60)) == 1

    @contextmanager
    def without(self, user: str, right: Right) -> Iterator[None]:
        """The cluster while a user does not have a right."""
        self.deny(user, right)
        try:
            yield
        finally:
            self.allow(user, (right,))

    @contextmanager
    def denying(self, user: str, topic: str) -> Iterator[None]:
        """The cluster while an ACL denies a user all operations on a topic."""
        kinds = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*"
        operation = AclOperation.ALL, AclPermissionType.DENY
        admin = self.root()
        for created in admin.create_acls([AclBinding(*kinds, *operation)]).values():
            created.result(60)
        try:
            yield
        finally:
            for removed in admin.delete_acls([AclBindingFilter(*kinds, *operation)]).values():
                removed.result(60)

    def use_coordinators(self) -> None:
        """Make the coordinators' topics exist, as on a cluster in use."""
        security = scram(self.files, ROOT, self.passwords[ROOT])
        client = {**security.confluent(), "bootstrap.servers": self.spec.bootstrap_servers}
        admin = self.root()
        for made in admin.create_topics([NewTopic("orders", 1), NewTopic("__share_group_state", 1)]).values():
            made.result(60)
        commit(Consumer({**client, "group.id": "billing", "enable.auto.commit": False}), TopicPartition("orders", 0, 1))
        Producer({**client, "transactional.id": "payments"}).init_transactions(180)

    def _create_users(self) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users = [
            UserScramCredentialUpsertion(name, info, password.encode())
            for name, password in self.passwords.items()
            if name != ROOT
        ]
        admin = self.root()
        for made in admin.alter_user_scram_credentials(users).values():
            made.result(60)


def scram(folder: Path, user: str, password: str) -> ClientSecurity:
    extra = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **_trust(folder)}
    return ClientSecurity.from_airflow_connection_extra(extra, login=user, password=password)


def oauth(folder: Path, tokens: TokenServer, client: str) -> ClientSecurity:
    extra = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": tokens.url,
        "sasl.oauthbearer.client.id": client,
        "sasl.oauthbearer.client.secret": tokens.clients[client],
        **_trust(folder),
    }
    return ClientSecurity.from_airflow_connection_extra(extra)


def mutual(folder: Path, name: str) -> ClientSecurity:
    """With the client certificate of `name`."""
    files = {
        "ssl.certificate.location": str(folder / f"{name}.pem"),
        "ssl.key.location": str(folder / f"{name}.key"),
    }
    return ClientSecurity.from_airflow_connection_extra({"security.protocol": "SSL", **_trust(folder), **files})


def _trust(folder: Path) -> dict[str, str]:
    return {"ssl.ca.location": str(folder / "ca.pem")}


def _token_config(folder: Path, tokens: TokenServer | None) -> dict[str, str]:
    if tokens is None:
        return {}
    of_oauth = "org.apache.kafka.common.security.oauthbearer"
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.server.callback.handler.class": (
            f"{of_oauth}.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": f"{of_oauth}.OAuthBearerLoginModule required;",
        "listener.name.plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": tokens.write_jwks(
            folder / "jwks.json"
        ),
        "listener.name.plaintext.oauthbearer.sasl.oauthbearer.expected.issuer": "tests",
        "listener.name.plaintext.oauthbearer.connections.max.reauth.ms": "3600000",
    }


def _node_config(folder: Path, password: str) -> dict[str, str]:
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{ROOT}" password="{password}";'
    return {
        "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:SASL_SSL,MUTUAL:SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": login,
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "nodes.store"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ROOT};User:CN=nodes",
    }


def _binding(user: str, right: Right) -> AclBinding:
    is_prefix = right.name.endswith("*") and right.name != "*"
    return AclBinding(
        _RESOURCES[right.resource],
        right.name.removesuffix("*") if is_prefix else right.name,
        ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[right.operation],
        AclPermissionType.ALLOW,
    )
