"""Keystores, truststores and login modules, loaded by Kafka's own classes as a starting node loads them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from kafka_rollout.formats.files import server_properties
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.metadata_log.classes.tls import ask
from kafka_rollout.model.starts import LOGIN_FILE, NodeStart
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.planning.findings.configuration import config_findings
from kafka_rollout.preparation.next_starts import observe_starts
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import Jvm, run_jvm
from tests.fakes.cluster import FakeCluster, make_spec
from tests.fakes.ports import fake_ports
from tests.integration.harness.security.secured import authority, certificate
from tests.integration.metadata_log.test_kafka_classes import CONTROLLER

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_java_per_release")]

OLD, NEW = Release(3, 4, 1), Release(4, 3, 1)
INTER_BROKER, CLIENTS = "BROKERS", "CLIENTS"
SECRET = "hunter2-very-secret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True)
class Stores:
    """The files of a node in a folder that its configuration knows as /node."""

    folder: Path

    def start(self, *, listener: str = INTER_BROKER, protocol: str = "SSL", **more: str) -> NodeStart:
        other = CLIENTS if listener == INTER_BROKER else INTER_BROKER
        prefix = f"listener.name.{listener.lower()}."
        properties = {
            **CONTROLLER,
            "listeners": f"{INTER_BROKER}://127.0.0.1:9092,{CLIENTS}://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
            "inter.broker.listener.name": INTER_BROKER,
            "listener.security.protocol.map": f"{listener}:{protocol},{other}:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": "/node/node.store",
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": "/node/ca.pem",
            **{key.replace("__", "-").replace("_", "."): value for key, value in more.items()},
        }
        # The runtime knows the place of a file also if it does not exist.
        files = {f"/node/{name}": str(self.folder / name) for name in ("node.store", "ca.pem", "jaas.conf")}
        return NodeStart(properties=properties, files=files, jvm_arguments=())


def _stores(folder: Path) -> Stores:
    folder.mkdir(exist_ok=True)
    certificate(folder, "ca")
    certificate(folder, "node", authority(folder))
    return Stores(folder)


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return _stores(tmp_path)


def _problems(release_cache: ReleaseCache, start: NodeStart, release: Release = NEW) -> tuple[str, ...]:
    return JvmKafkaClasses(release_cache).start_problems(release, {1: start})[1].rejected


def _end(folder: Path) -> None:
    certificate(folder, "node", authority(folder), ends_in=-datetime.timedelta(hours=1))


def _remove(folder: Path) -> None:
    (folder / "node.store").unlink()


def _cut(folder: Path) -> None:
    (folder / "node.store").write_bytes((folder / "node.store").read_bytes()[:100])


def _mix(folder: Path) -> None:
    certificate(folder, "other", authority(folder))
    (folder / "node.store").write_bytes((folder / "other.key").read_bytes() + (folder / "node.pem").read_bytes())


def _issue_elsewhere(folder: Path) -> None:
    certificate(folder, "ca")  # the certificate of the node is of the authority before


DAMAGE: Mapping[str, tuple[Callable[[Path], None], str, str]] = {
    "ended": (_end, "PKIX path validation failed", "the certificate CN=node of its keystore ended at "),
    "missing": (_remove, "/node/node.store", "/node/node.store"),
    "cut": (_cut, "Failed to load PEM SSL keystore /node/node.store", "/node/node.store"),
    "mixed": (
        _mix,
        "can't connect to a server SSLEngine",
        "the key of its keystore does not belong to the certificate",
    ),
    # Clients of the other listener can trust another authority than the truststore has.
    "of another authority": (_issue_elsewhere, "can't connect to a server SSLEngine", ""),
}


@pytest.mark.parametrize("release", [OLD, NEW], ids=str)
def test_a_keystore_with_which_no_node_starts_or_serves_is_named(
    release_cache: ReleaseCache, stores: Stores, tmp_path: Path, release: Release
) -> None:
    """All nodes in one JVM, of which the first one has the right files, between brokers and for clients."""
    starts = {0: stores.start(), 1: stores.start(listener=CLIENTS)}
    for number, (damage, _, _) in enumerate(DAMAGE.values(), start=1):
        broken = _stores(tmp_path / str(number))
        damage(broken.folder)
        starts |= {2 * number: broken.start(), 2 * number + 1: broken.start(listener=CLIENTS)}
    found = JvmKafkaClasses(release_cache).start_problems(release, starts)
    assert (found[0].rejected, found[1].rejected) == ((), ())
    for number, (_, between_brokers, of_clients) in enumerate(DAMAGE.values(), start=1):
        for node_id, listener, expected in (
            (2 * number, INTER_BROKER, between_brokers),
            (2 * number + 1, CLIENTS, of_clients),
        ):
            sentences = found[node_id].rejected
            assert len(sentences) == bool(expected)
            for sentence in sentences:
                assert sentence.startswith(f"listener {listener}: ")
                assert expected in sentence
                assert str(tmp_path) not in sentence


def _keystore(jvm: Jvm, folder: Path, certificates: Mapping[str, str]) -> Path:
    """Write a keystore with one entry of `certificates` (alias → name of PEM files) after the other, as keytool does:
    a Java of jlink has no keytool."""
    security, files = jvm.packages.java.security, jvm.packages.java.io
    word = ask(jvm, "java.lang.String", "secret", "toCharArray")
    store = security.KeyStore.getInstance("PKCS12")
    store.load(None, None)
    for alias, name in certificates.items():
        key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        leaf = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())
        with_password = serialization.BestAvailableEncryption(b"secret")
        part = folder / f"{alias}.p12"
        part.write_bytes(pkcs12.serialize_key_and_certificates(alias.encode(), key, leaf, None, with_password))
        one = security.KeyStore.getInstance("PKCS12")
        one.load(files.FileInputStream(str(part)), word)
        store.setKeyEntry(alias, one.getKey(alias, word), word, one.getCertificateChain(alias))
    path = folder / "node.store"
    path.unlink(missing_ok=True)
    out = files.FileOutputStream(str(path))
    store.store(out, word)
    out.close()
    return path


def _start_of_store(stores: Stores) -> NodeStart:
    own = {"keystore.type": "PKCS12", "keystore.password": "secret", "key.password": "secret"}
    start = stores.start(listener=CLIENTS)
    properties = {**start.properties, **{f"listener.name.clients.ssl.{name}": value for name, value in own.items()}}
    return replace(start, properties=properties)


def test_the_certificate_that_the_listener_presents_is_judged(
    release_cache: ReleaseCache, stores: Stores, tmp_path: Path
) -> None:
    """A keystore keeps an old entry. Java chooses by the aliases, so the ended one is presented in one of the orders.
    The oracle is a connection to the listener's own engine, as a client makes it."""
    starts = {}
    with run_jvm(release_cache.libs(NEW)) as jvm:
        for number, (of_first, of_second) in enumerate((("ended", "node"), ("node", "ended"))):
            one = _stores(tmp_path / f"store-{number}")
            certificate(one.folder, "ended", authority(one.folder), ends_in=-datetime.timedelta(hours=1))
            _keystore(jvm, one.folder, {"broker-2024": of_first, "broker-2026": of_second})
            starts[number] = _start_of_store(one)
    found = JvmKafkaClasses(release_cache).start_problems(NEW, starts)
    refused = [node_id for node_id in starts if found[node_id].rejected]
    assert len(refused) == 1
    (other,) = starts.keys() - set(refused)
    assert "the certificate CN=ended of its keystore ended at " in found[refused[0]].rejected[0]
    (remark,) = found[other].remarks
    assert "CN=ended" in remark.sentence
    assert ", and not broker-20" in remark.sentence


def test_an_ended_certificate_of_an_authority_in_the_chain_is_a_remark(
    release_cache: ReleaseCache, stores: Stores
) -> None:
    """Clients that have the renewed root in their truststore do not look at the one that is sent."""
    folder = stores.folder
    root, key = authority(folder)
    made = x509.CertificateBuilder(root.issuer, root.subject, root.public_key(), x509.random_serial_number())
    now = datetime.datetime.now(datetime.UTC)
    made = made.not_valid_before(now - datetime.timedelta(days=9)).not_valid_after(now - datetime.timedelta(hours=1))
    ended = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / "node.store").write_bytes((folder / "node.store").read_bytes() + ended)
    found = JvmKafkaClasses(release_cache).start_problems(NEW, {1: stores.start(listener=CLIENTS)})[1]
    assert found.rejected == ()
    (remark,) = found.remarks
    assert "CN=ca of its keystore ended" in remark.sentence


def test_files_that_this_process_cannot_read_are_not_judged(release_cache: ReleaseCache, stores: Stores) -> None:
    _remove(stores.folder)
    start = stores.start()
    for files in (None, {}):
        unread = NodeStart(properties=start.properties, files=files, jvm_arguments=None)
        assert _problems(release_cache, unread) == ()


PLAIN = f'{MODULE} username="a" password="{SECRET}";'
LDAP = "com.sun.security.auth.module.LdapLoginModule optional"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
NO_ENTRY = "Could not find a 'KafkaServer' or 'clients.KafkaServer' entry in the JAAS configuration"
# Lines of the listener by mechanism, the JAAS file (None: no argument names one) → what each problem contains.
LOGINS: tuple[tuple[Mapping[str, str], str | None, tuple[str, ...]], ...] = (
    ({"plain": PLAIN, "scram-sha-512": SCRAM}, None, ()),
    ({"plain": PLAIN}, None, (NO_ENTRY,)),
    ({"plain": PLAIN.rstrip(";"), "scram-sha-512": SCRAM}, None, ("JAAS config entry not terminated by semi-colon",)),
    ({}, f"KafkaServer {{ {PLAIN} }};", ()),
    ({}, f"clients.KafkaServer {{ {PLAIN} }};", ()),
    (
        {},
        f"KafkaServer {{ {MODULE}\n password=a{SECRET} {SECRET}; }};",
        ("=/node/5.conf: Line 2: expected [=]",),
    ),
    ({}, f"KafkaClient {{ {PLAIN} }};", (NO_ENTRY,)),
    ({}, "", ("=/node/7.conf: No such file or directory",)),
    # Kafka reads the file for a mechanism without a line of its own only.
    ({"plain": PLAIN, "scram-sha-512": SCRAM}, "", ()),
    ({"plain": PLAIN, "scram-sha-512": SCRAM}, "KafkaServer {", ()),
    ({"plain": PLAIN}, "", ("=/node/10.conf: No such file or directory",)),
    ({"plain": f"{PLAIN} {LDAP};", "scram-sha-512": SCRAM}, None, ("contains 2 login modules, should be 1 module",)),
    ({}, f"KafkaServer {{ {PLAIN} {LDAP}; }};", ("LdapLoginModule is not allowed",)),
)


def test_login_modules_of_every_mechanism_are_read(release_cache: ReleaseCache, stores: Stores) -> None:
    """Each case is a node, all in one JVM."""
    starts = {}
    for number, (lines, file, _) in enumerate(LOGINS):
        start = stores.start(listener=CLIENTS, protocol="SASL_SSL", sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-512")
        own = {f"listener.name.clients.{mechanism}.sasl.jaas.config": text for mechanism, text in lines.items()}
        path = stores.folder / f"{number}.conf"
        if file:
            path.write_text(file)
        named = f"/node/{path.name}"
        starts[number] = replace(
            start,
            properties={**start.properties, **own},
            files={**(start.files or {}), named: str(path)},
            jvm_arguments=() if file is None else (f"-D{LOGIN_FILE}={named}",),
        )
    # Without the arguments of the JVM, the module can be in a file.
    starts[99] = replace(starts[1], jvm_arguments=None)
    found = JvmKafkaClasses(release_cache).start_problems(NEW, starts)
    assert found[99].rejected == ()
    for number, (_, _, expected) in enumerate(LOGINS):
        sentences = found[number].rejected
        assert len(sentences) == len(expected), (number, sentences)
        for sentence, part in zip(sentences, expected, strict=True):
            assert part in sentence
            assert SECRET not in sentence


def test_a_plan_of_local_nodes_reads_the_files_that_they_name(
    release_cache: ReleaseCache, tmp_path: Path, stores: Stores
) -> None:
    """Relative paths are those below the home of the node, in which it starts."""
    start = stores.start()
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "data" / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n")
    (home / "node.store").write_bytes((stores.folder / "node.store").read_bytes())
    certificate(stores.folder, "other", authority(stores.folder))
    properties = {
        key: value.replace("/node/ca.pem", str(stores.folder / "ca.pem")) for key, value in start.properties.items()
    }
    lines = {**properties, "listener.name.brokers.ssl.keystore.location": "node.store", "log.dirs": "data"}
    (home / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    cluster = FakeCluster(Release(3, 9, 1), spec=make_spec())
    node = replace(next(one for one in cluster.spec.nodes if one.is_broker), directory=str(home))
    spec = replace(cluster.spec, nodes=(node,))
    ports = replace(
        fake_ports(cluster, tmp_path / "ports"),
        cluster=spec,
        runtime=LocalProcessRuntime(spec, release_cache),
        classes=JvmKafkaClasses(release_cache),
    )

    def problems() -> tuple[str, ...]:
        found = observe_starts(
            ports, NEW, {node.node_id: server_properties.parse((home / "server.properties").read_bytes())}, down=False
        )
        return tuple(finding.sentence for finding in config_findings(NEW, found.rejected))

    assert problems() == ()
    (home / "node.store").write_bytes(
        (stores.folder / "other.key").read_bytes() + (stores.folder / "node.pem").read_bytes()
    )
    (mixed,) = problems()
    assert "would not start with the configuration of this node: listener BROKERS: " in mixed
    (home / "node.store").unlink()
    (missing,) = problems()
    assert "Failed to load PEM SSL keystore node.store" in missing
