"""Kafka's client.properties: the settings of the Java clients with their meaning, and no error shows a secret."""

from __future__ import annotations

import os
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kafka_rollout.base.errors import UserError
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.client.security.credentials import read_security_file
from kafka_rollout.formats.jaas import parse_jaas
from kafka_rollout.releases.jvm.java import java_home
from tests.integration.harness.security.secured import authority, certificate

SECRET = "hunter2-very-secret"
SCRAM = (
    "sasl.mechanism=SCRAM-SHA-512\n"
    "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
    f'  username="rollout" \\\n  password="{SECRET}";\n'
)


def _file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "client.properties"
    path.write_text(text, encoding="latin-1")
    path.chmod(mode)
    return path


def _read(folder: Path, text: str) -> ClientSecurity:
    return read_security_file(_file(folder, text))


def _refused(folder: Path, text: str) -> str:
    with pytest.raises(UserError) as refused:
        _read(folder, text)
    assert SECRET not in str(refused.value)
    assert refused.value.remedy
    return str(refused.value)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    certificate(tmp_path, "ca")
    certificate(tmp_path, "rollout", authority(tmp_path))
    return tmp_path


def test_a_file_without_security_is_plaintext_and_its_other_settings_are_ignored(tmp_path: Path) -> None:
    assert read_security_file(_file(tmp_path, "request.timeout.ms=5\nclient.id=a\n", 0o644)) == ClientSecurity()


def test_a_scram_user_over_tls(certificates: Path) -> None:
    ca = certificates / "ca.pem"
    read = _read(
        certificates,
        f"security.protocol=SASL_SSL\n{SCRAM}ssl.truststore.type=PEM\nssl.truststore.location={ca}\n",
    )
    assert read.confluent() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "rollout",
        "sasl.password": SECRET,
        "ssl.ca.location": str(ca),
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_the_protocol_in_small_letters_and_plain(tmp_path: Path) -> None:
    read = _read(
        tmp_path,
        "security.protocol=sasl_plaintext\nsasl.mechanism=PLAIN\nsasl.jaas.config=a.b.PlainLoginModule required"
        f" username=rollout password='{SECRET}' ;\n",
    )
    assert (read.protocol, read.mechanism, read.username) == ("SASL_PLAINTEXT", "PLAIN", "rollout")
    assert read.confluent()["sasl.password"] == SECRET


@pytest.mark.parametrize(("value", "checked"), [("", False), ("none", False), ("HTTPS", True)])
def test_an_empty_algorithm_turns_the_check_of_host_names_off(tmp_path: Path, value: str, checked: bool) -> None:
    text = f"security.protocol=SSL\nssl.endpoint.identification.algorithm={value}\n"
    assert _read(tmp_path, text).check_hostname is checked


def test_pem_store_of_the_client_with_key_and_certificate(certificates: Path) -> None:
    store = certificates / "rollout.store"
    read = _read(certificates, f"security.protocol=SSL\nssl.keystore.location={store}\nssl.key.password={SECRET}\n")
    assert (read.certificate_location, read.key_location) == (str(store), str(store))
    assert read.confluent()["ssl.key.password"] == SECRET
    assert read.principal == "User:CN=rollout"


def test_pkcs12_stores_are_converted_in_memory(certificates: Path) -> None:
    ca, _ = authority(certificates)
    key = serialization.load_pem_private_key((certificates / "rollout.key").read_bytes(), None)
    own = x509.load_pem_x509_certificate((certificates / "rollout.pem").read_bytes())
    encrypted = serialization.BestAvailableEncryption(SECRET.encode())
    (certificates / "trust.p12").write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(ca, b"ca")], encrypted)
    )
    (certificates / "key.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"rollout", key, own, [ca], encrypted))
    before = sorted(certificates.iterdir())
    read = _read(
        certificates,
        f"security.protocol=SSL\nssl.truststore.location={certificates}/trust.p12\nssl.truststore.password={SECRET}\n"
        f"ssl.keystore.location={certificates}/key.p12\nssl.keystore.password={SECRET}\n",
    )
    assert _usable(read)
    assert read.principal == "User:CN=rollout"
    assert sorted(certificates.iterdir()) == sorted([*before, certificates / "client.properties"])


def test_of_a_store_with_certificates_of_others_the_chain_of_the_key_is_used(certificates: Path) -> None:
    """cryptography lists them beside those of the issuers."""
    ca, _ = authority(certificates)
    certificate(certificates, "other", authority(certificates))
    key = serialization.load_pem_private_key((certificates / "rollout.key").read_bytes(), None)
    own, other = (
        x509.load_pem_x509_certificate((certificates / f"{name}.pem").read_bytes()) for name in ("rollout", "other")
    )
    assert own.issuer == other.issuer
    encrypted = serialization.BestAvailableEncryption(SECRET.encode())
    store = pkcs12.serialize_key_and_certificates(b"rollout", key, own, [other, ca], encrypted)
    (certificates / "keys.p12").write_bytes(store)
    read = _read(
        certificates,
        f"security.protocol=SSL\nssl.keystore.location={certificates}/keys.p12\nssl.keystore.password={SECRET}\n",
    )
    assert x509.load_pem_x509_certificates(Path(read.certificate_location or "").read_bytes()) == [own, ca]


def test_a_byte_order_mark_hides_the_first_setting_from_java(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"begins with a byte order mark, so .* first setting, security\.protocol\."):
        _read(tmp_path, "\xef\xbb\xbfsecurity.protocol=SSL\nclient.id=x\n")


def test_a_child_process_can_read_what_is_in_memory(certificates: Path) -> None:
    pem = (certificates / "ca.pem").read_text().replace("\n", " ")
    read = _read(certificates, f"security.protocol=SSL\nssl.truststore.certificates={pem}\n")
    done = subprocess.run(["cat", read.ca_location or ""], capture_output=True, check=True)
    assert done.stdout == (certificates / "ca.pem").read_bytes()


@pytest.mark.jvm
def test_a_keystore_with_several_keys_is_refused(tmp_path: Path) -> None:
    keytool = java_home() / "bin" / "keytool"
    if not keytool.exists():
        pytest.skip("this Java has no keytool")
    security = f"security.protocol=SSL\nssl.keystore.location={tmp_path}/own.p12\nssl.keystore.password={SECRET}\n"

    def make(name: str) -> None:
        about = ("-genkeypair", "-alias", name, "-dname", f"CN={name}", "-keyalg", "EC", "-storetype", "PKCS12")
        store = ("-keystore", tmp_path / "own.p12", "-storepass", SECRET)
        subprocess.run([keytool, *about, *store], check=True, capture_output=True)

    make("rollout")
    assert _read(tmp_path, security).principal == "User:CN=rollout"
    make("another")
    with pytest.raises(UserError, match=r"own\.p12 contains several keys, of which Java chooses one"):
        _read(tmp_path, security)


@pytest.mark.jvm
def test_a_truststore_of_keytool_and_one_in_its_old_format(certificates: Path) -> None:
    keytool = java_home() / "bin" / "keytool"
    if not keytool.exists():
        pytest.skip("this Java has no keytool")
    for kind in ("PKCS12", "JKS"):
        subprocess.run(
            [
                *(keytool, "-importcert", "-noprompt", "-alias", "ca", "-file", certificates / "ca.pem"),
                *("-keystore", certificates / kind, "-storetype", kind, "-storepass", SECRET),
            ],
            check=True,
            capture_output=True,
        )
    text = "security.protocol=SSL\nssl.truststore.location={}\nssl.truststore.password=" + SECRET
    assert _usable(_read(certificates, text.format(certificates / "PKCS12")))
    said = _refused(certificates, text.format(certificates / "JKS"))
    assert "is a JKS store" in said
    assert f"keytool -importkeystore -srckeystore {certificates}/JKS" in said


def _usable(security: ClientSecurity) -> bool:
    context = ssl.create_default_context(cafile=security.ca_location)
    if security.certificate_location:
        context.load_cert_chain(security.certificate_location, security.key_location)
    return len(context.get_ca_certs()) == 1


def test_a_client_of_a_token_server(tmp_path: Path) -> None:
    read = _read(
        tmp_path,
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.token.endpoint.url=https://idp.example.com/token\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="rollout" clientSecret="{SECRET}" scope="kafka";\n',
    )
    assert (read.token_url, read.username, read.scope) == ("https://idp.example.com/token", "rollout", "kafka")


@pytest.mark.parametrize("key", ["sasl.jaas.config", "ssl.truststore.password", "ssl.keystore.key"])
def test_a_file_with_a_secret_must_be_private(tmp_path: Path, key: str) -> None:
    path = _file(tmp_path, f"{key}={SECRET}\n", 0o640)
    with pytest.raises(UserError, match=r"can be read by other users \(mode 0640\)\. Run: chmod 600 ") as refused:
        read_security_file(path)
    assert key in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("security.protocol=TLS\n", "security.protocol is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("security.protocol=SASL_SSL\n", "do not support sasl.mechanism=GSSAPI, the default"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n", "do not support sasl.mechanism=AWS_MSK_IAM."),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n",
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username",
        ),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n", "PLAIN has no sasl.jaas.config. Add the line sasl.jaas"),
        (
            f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=a.PlainLoginModule {SECRET};\n",
            "sasl.jaas.config is not one login module with its options and a semicolon",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=a.Krb5LoginModule required;\n",
            "has the login module a.Krb5LoginModule",
        ),
        (
            f"security.protocol=SASL_SSL\n{SCRAM.replace('required', 'required tokenauth=true')}",
            "a delegation token (tokenauth)",
        ),
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n", "an http or https address in sasl.oauthbearer"),
        ("sasl.username=rollout\nsasl.password=x\n", "security settings that this tool cannot apply"),
        ("ssl.engine.factory.class=a.B\n", "a class in ssl.engine.factory.class that this tool cannot use. Remove it."),
        ("ssl.key.password=${file:/etc/secret:key}\n", "a reference to a config provider in ssl.key.password"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere/ca\n", "/nowhere/ca cannot be read: No such file"),
        ("security.protocol=SSL\nssl.keystore.key=x\n", "ssl.keystore.certificate.chain and ssl.keystore.key belong"),
        ("sasl.login.callback.handler.class=a.Own\n", "a class in sasl.login.callback.handler.class"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in _refused(tmp_path, text)


@pytest.mark.parametrize("content", [b"\x30\x82not a store", b"something else"])
def test_a_store_that_cannot_be_opened_is_named_with_the_command(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store").write_bytes(content)
    said = _refused(
        tmp_path, f"security.protocol=SSL\nssl.keystore.location={tmp_path}/store\nssl.keystore.password={SECRET}\n"
    )
    assert "keytool -" in said


def test_a_certificate_in_der_is_named_as_what_it_is(tmp_path: Path, certificates: Path) -> None:
    pem = (certificates / "ca.pem").read_bytes()
    der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    (tmp_path / "ca.der").write_bytes(der)
    said = _refused(tmp_path, f"security.protocol=SSL\nssl.truststore.location={tmp_path}/ca.der\n")
    assert f"ssl.truststore.location {tmp_path}/ca.der is one certificate in DER" in said
    assert "openssl x509 -inform DER" in said


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"client\.properties cannot be read: No such file or directory\."):
        read_security_file(tmp_path / "client.properties")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('a.Module required username="a b" password="x;=\\"y\\\\";', {"username": "a b", "password": 'x;="y\\'}),
        ("a.Module REQUIRED /* x */ user=b // end\n;", {"user": "b"}),
        ("a.Module required k='\\101\\t';", {"k": "A\t"}),
        ("a.Module required ;", {}),
    ],
)
def test_login_modules_are_read_as_java_reads_them(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text)[1] == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.Module;",
        "a.Module required",
        'a.Module required k="x;',
        "a.Module required k;",
        "a b k==;",
        "a.Module required password=1234;",
        "a.Module required password=a\\b;",
        'a.Module required password="a\nb";',
        "a.Module required; b.Module required;",
        '"" required;',
    ],
)
def test_other_text_is_no_login_module(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not |^no semicolon"):
        parse_jaas(text)


COMMENT = "# the CA of orders\n"
BAG = "Bag Attributes\n    friendlyName: rollout\n    localKeyID: 54 69\nKey Attributes: <No Attributes>\n"
TEXT = "Certificate:\n    Data:\n        Version: 3 (0x2)\n"


@pytest.mark.parametrize("before", [COMMENT, BAG, TEXT], ids=["comment", "bag", "text"])
def test_text_before_the_blocks_of_a_pem_file_is_left_out(certificates: Path, before: str) -> None:
    ca, own = (certificates / "ca.pem").read_text(), (certificates / "rollout.store").read_text()
    (certificates / "ca-with-text.pem").write_text(f"{before}{ca}")
    key, chain = own.split("-----BEGIN CERTIFICATE-----")
    (certificates / "own-with-text.pem").write_text(f"{before}{key}{before}-----BEGIN CERTIFICATE-----{chain}")
    read = _read(
        certificates,
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={certificates}/ca-with-text.pem\n"
        f"ssl.keystore.location={certificates}/own-with-text.pem\n",
    )
    assert _usable(read)
    assert Path(read.ca_location or "").read_text() == ca
    assert Path(read.key_location or "").read_text() == own


def test_an_encrypted_key_keeps_its_headers(certificates: Path) -> None:
    key = serialization.load_pem_private_key((certificates / "rollout.key").read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(SECRET.encode()),
    )
    assert b"Proc-Type: 4,ENCRYPTED" in encrypted
    store = certificates / "encrypted.pem"
    store.write_bytes(COMMENT.encode() + encrypted + (certificates / "rollout.pem").read_bytes())
    read = _read(certificates, f"security.protocol=SSL\nssl.keystore.location={store}\nssl.key.password={SECRET}\n")
    context = ssl.create_default_context()
    context.load_cert_chain(read.certificate_location or "", read.key_location, SECRET)


def test_settings_of_brokers_and_kafkas_own_classes_change_nothing(tmp_path: Path) -> None:
    text = f"security.protocol=SASL_PLAINTEXT\n{SCRAM}"
    copied = (
        "ssl.client.auth=required\nsasl.enabled.mechanisms=SCRAM-SHA-512\nsecurity.inter.broker.protocol=SASL_SSL\n"
        "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\nsasl.oauthbearer.expected.audience=kafka\n"
        "ssl.engine.factory.class=org.apache.kafka.common.security.ssl.DefaultSslEngineFactory\n"
        "sasl.login.class=org.apache.kafka.common.security.authenticator.DefaultLogin\n"
    )
    assert _read(tmp_path, text + copied) == _read(tmp_path, text)


OAUTH = (
    "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
    "sasl.oauthbearer.token.endpoint.url=https://idp.example.com/token\n"
    "sasl.oauthbearer.jwt.retriever.class="
    "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever\n"
    "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    f'clientId="rollout" clientSecret="{SECRET}"'
)


def test_sasl_extensions_of_a_login_reach_every_client(tmp_path: Path) -> None:
    read = _read(tmp_path, f'{OAUTH} extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2";\n')
    assert read.confluent()["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1,identityPoolId=pool-2"
    provider = read.sasl()["sasl_oauth_token_provider"]
    assert provider.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}
    assert ClientSecurity.from_json(read.to_json(), "The settings") == read


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('ssl.keystore.location="/a"', "has options of the login that this tool cannot apply to all its clients: ssl."),
        ('unsecuredLoginStringClaim_sub="a"', "cannot apply to all its clients: unsecuredLoginStringClaim_sub"),
        ('extension_auth="a"', "a SASL extension whose name is not of letters only"),
        ('extension_pool="a,b"', "the SASL extension pool with an empty value, a comma or"),
    ],
)
def test_login_options_that_cannot_be_applied_are_refused(tmp_path: Path, more: str, sentence: str) -> None:
    assert sentence in _refused(tmp_path, f"{OAUTH} {more};\n")


def test_a_url_encoded_client_id_is_refused_only_if_it_differs(tmp_path: Path) -> None:
    encoded = "sasl.oauthbearer.header.urlencode=true\n"
    assert _read(tmp_path, f"{encoded}{OAUTH};\n") == _read(tmp_path, f"{OAUTH};\n")
    assert "urlencode changes the client id" in _refused(
        tmp_path, encoded + OAUTH.replace('"rollout"', '"a b"') + ";\n"
    )


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["FIFO", "NUL"])
def test_a_path_of_a_setting_that_is_no_file_is_named(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "ca")
    name = f"{tmp_path}/ca" if kind == "FIFO" else "/a\\u0000b"
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\nssl.truststore.location={name}\n")
    file.chmod(0o600)
    with pytest.raises(UserError, match="ca is a FIFO, not a file" if kind == "FIFO" else "is not a path"):
        read_security_file(file)
