"""Credentials and TLS settings of a cluster's clients, from the file of `--command-config` or Airflow Connections."""

from __future__ import annotations

import os
import re
import shlex
import textwrap
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.files import check_readable
from kafka_rollout.base.wording import few
from kafka_rollout.client.security.carried_security import file_in_memory
from kafka_rollout.client.security.client_security import (
    HOST_NAMES,
    PEM_FILES,
    ClientSecurity,
    PrometheusAccess,
    SaslMechanism,
    SecurityProtocol,
    checks_host_names,
    join_extensions,
    read_with_mode,
)
from kafka_rollout.client.security.java_settings import KAFKAS_CLASSES, OF_BROKERS, WITHOUT_EFFECT
from kafka_rollout.formats.files.server_properties import parse
from kafka_rollout.formats.jaas import parse_jaas
from kafka_rollout.model.configs import BYTE_ORDER_MARK, is_reference
from kafka_rollout.model.topology import ClusterSpec

_USE_FILE = "Use the path of a client.properties file."
_PREFIXES = ("security.", "sasl.", "ssl.")
_PROTOCOL, _MECHANISM, _JAAS = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 — a name
_URL_ENCODED = "sasl.oauthbearer.header.urlencode"
_TOKEN_ID = ("sasl.oauthbearer.client.credentials.client.id", "clientId")
_TOKEN_SECRET = ("sasl.oauthbearer.client.credentials.client.secret", "clientSecret")
_TOKEN_SCOPE = ("sasl.oauthbearer.scope", "scope")
_TRUSTED, _TRUSTED_PEM, _TRUSTED_PASSWORD = (
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
)
_STORE, _CHAIN_PEM, _KEY_PEM = "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key"
_STORE_PASSWORD, _KEY_PASSWORD = "ssl.keystore.password", "ssl.key.password"
_USED = {
    *(_PROTOCOL, _MECHANISM, _JAAS, HOST_NAMES, _TOKEN_URL, _TOKEN_ID[0], _TOKEN_SECRET[0], _TOKEN_SCOPE[0]),
    _URL_ENCODED,
    *(_TRUSTED, _TRUSTED_PEM, _TRUSTED_PASSWORD, _STORE, _CHAIN_PEM, _KEY_PEM, _STORE_PASSWORD, _KEY_PASSWORD),
}
_SECRET = re.compile(r"sasl\.jaas\.config|.*\.password|ssl\.keystore\.key|.*\.client\.secret|.*\.private\.key\..*")
# Options that a login at a token server can have here. Those of TLS have no effect, or are those of Java's defaults.
_OF_TOKENS = re.compile(
    r"clientId|clientSecret|scope|extension_.+|ssl\.truststore\.(location|password|type)"
    r"|ssl\.(protocol|enabled\.protocols|provider|secure\.random\.implementation|trustmanager\.algorithm)"
)
_EXTENSION = "extension_"
_LOGIN_MODULES = {
    "PlainLoginModule": SaslMechanism.PLAIN,
    "ScramLoginModule": SaslMechanism.SCRAM_SHA_512,
    "OAuthBearerLoginModule": SaslMechanism.OAUTHBEARER,
}


def _jaas_example(mechanism: str) -> str:
    """Return the line of a user: Kafka's own tools refuse the login module of another mechanism."""
    begin, user = f"{_JAAS}=org.apache.kafka.common.security", 'username="NAME" password="PASSWORD"'
    if mechanism == SaslMechanism.OAUTHBEARER:
        return f'{begin}.oauthbearer.OAuthBearerLoginModule required clientId="ID" clientSecret="SECRET";'
    module = "plain.PlainLoginModule" if mechanism == SaslMechanism.PLAIN else "scram.ScramLoginModule"
    return f"{begin}.{module} required {user};"


_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_JKS, _DER = b"\xfe\xed\xfe\xed", b"\x30"
# keyBag and pkcs8ShroudedKeyBag (RFC 7292). OpenSSL and Java encrypt a key alone, not the name of its bag.
_KEY_BAG = re.compile(rb"\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01[\x01\x02]")
_HEADERS = re.compile(r"(?:[^\r\n:]+:[^\r\n]*[\r\n]+)+")  # of an encrypted key


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Login, password and extra field of one Airflow Connection."""

    login: str | None
    password: str | None
    extra: Mapping[str, Any]


def read_security_file(path: Path) -> ClientSecurity:
    """Read Kafka's client.properties, or the JSON form, which can also have settings of other listeners and servers.

    Raises UserError for a file that cannot be read, is not usable, or has secrets that others can read.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file.", remedy=_USE_FILE)
    content, mode = read_with_mode(path, str(path), _USE_FILE)
    is_json = content.lstrip().startswith(b"{")
    security = ClientSecurity.from_file(path) if is_json else parse_client_properties(path, content, mode)
    files = ((key, s) for s in (security, security.of_controllers, security.of_traffic) for key in PEM_FILES)
    for key, settings in files:
        if file := getattr(settings, key):  # before any node is queried
            try:
                check_readable(Path(file))
            except OSError as error:
                raise UserError(
                    f"{file}, {key} in {path}, cannot be read: {error.strerror}.", remedy="Correct its path."
                ) from None
            except UserError as error:
                raise UserError(f"{key} in {path}: {error.sentence}", remedy="Correct its path.") from None
    return security


def read_credentials(cluster: ClusterSpec, file: Path | None) -> ClientSecurity | None:
    """Read the file of --command-config; None without one.

    Raises UserError if the inventory names a Connection and the file has no settings for it.
    """
    security = None if file is None else read_security_file(file)
    needed = [name for name in cluster.connection_ids if name is not None]
    if needed and security is None:
        raise UserError(
            f"Cluster {cluster.name} requires the settings of Connection {' and '.join(needed)}, which the command "
            "line cannot read.",
            remedy="Add a client.properties file with these settings: --command-config FILE.",
        )
    if security is not None:
        _, of_controllers, of_traffic = cluster.connection_ids
        for what, key, name, found in (
            ("controllers", "controllers", of_controllers, security.controllers),
            ("test traffic", "traffic", of_traffic, security.traffic),
        ):
            if name is not None and found is None:
                raise UserError(
                    f"The {what} of cluster {cluster.name} needs its own settings (Connection {name}), which {file} "
                    "does not contain.",
                    remedy=f'Write the settings as JSON, with those of the {what} in an object "{key}" '
                    "(docs/inventory.md).",
                )
    return security


def use_connections(
    brokers: ConnectionSettings | None,
    controllers: ConnectionSettings | None,
    traffic: ConnectionSettings | None,
    *,
    prometheus: PrometheusAccess | None = None,
) -> ClientSecurity:
    """Return the credentials from Airflow Connections; PLAINTEXT for brokers without a Connection.

    `controllers` and `traffic`: separate settings of the controllers and the test traffic, if there are any.
    """

    def read(found: ConnectionSettings) -> ClientSecurity:
        return ClientSecurity.from_airflow_connection_extra(found.extra, found.login, found.password)

    security = read(brokers) if brokers else ClientSecurity()
    others = {"controllers": controllers, "traffic": traffic}
    of_others = {name: read(found) for name, found in others.items() if found}
    return security.model_copy(update={**of_others, "prometheus": prometheus})


def parse_client_properties(path: Path, content: bytes, mode: int) -> ClientSecurity:
    """Read the security settings of Kafka's own client.properties, with the names of the Java clients.

    They have the meaning and the defaults of the Java clients; other settings are ignored. A key or certificate of a
    PKCS #12 store or of the file itself is a file in the memory of this process, and is not written to a disk. Child
    processes can read it while this process runs.

    Raises UserError for a file with secrets that others can read, and for security settings that cannot be applied to
    every client of this tool. No error quotes a value that can be a secret.
    """
    # Java's trim, as ConfigDef.parseType uses it.
    trimmed = {key: value.strip("".join(map(chr, range(33)))) for key, value in parse(content).items()}
    settings = {key: value for key, value in trimmed.items() if value or key == HOST_NAMES}
    secret = sorted(key for key in settings if _SECRET.fullmatch(key))
    if secret and mode & 0o077:
        raise UserError(
            f"{path} contains {secret[0]} and can be read by other users (mode {mode:04o}).",
            remedy=f"Run: chmod 600 {shlex.quote(str(path))}",
        )
    _refuse_unknown(path, settings)
    return _Properties(path, settings).security()


def _refuse_unknown(path: Path, settings: Mapping[str, str]) -> None:
    if marked := [key for key in settings if key.startswith(BYTE_ORDER_MARK)]:
        raise UserError(
            f"{path} begins with a byte order mark, so Kafka's clients do not read its first setting, "
            f"{escape_invisible(marked[0].removeprefix(BYTE_ORDER_MARK))}.",
            remedy="Save the file without the byte order mark.",
        )
    known = {*_USED, *KAFKAS_CLASSES}
    unknown = sorted(
        key
        for key in settings
        if key.startswith(_PREFIXES)
        and key not in known
        and key not in OF_BROKERS
        and not WITHOUT_EFFECT.fullmatch(key)
    )
    if unknown:
        names = few(map(escape_invisible, unknown))
        raise UserError(
            f"{path} has security settings that this tool cannot apply to all its clients: {names}.",
            remedy=f"Remove them, or use {', '.join((_PROTOCOL, _MECHANISM, _JAAS, _TRUSTED, _STORE))}.",
        )
    for key, classes in KAFKAS_CLASSES.items():
        if (name := settings.get(key)) and name not in classes:
            raise UserError(
                f"{path} has a class in {key} that this tool cannot use.",
                remedy=f"Remove it. This tool logs in with {', '.join(SaslMechanism)}, without a class of your own.",
            )
    references = sorted(key for key, value in settings.items() if key in known and is_reference(value))
    if references:
        raise UserError(
            f"{path} has a reference to a config provider in {few(references)}. Only the Java clients resolve it.",
            remedy="Write the value into a copy of the file with mode 0600.",
        )


class _Properties:
    """The security settings of one file."""

    def __init__(self, path: Path, settings: Mapping[str, str]) -> None:
        self._path = path
        self._settings = settings

    def security(self) -> ClientSecurity:
        protocol = self._settings.get(_PROTOCOL, SecurityProtocol.PLAINTEXT).upper()
        if protocol not in set(SecurityProtocol):
            raise self._wrong(f"{_PROTOCOL} is not one of {', '.join(SecurityProtocol)}", "Correct it.")
        values: dict[str, Any] = {"protocol": protocol}
        if protocol.startswith("SASL_"):
            values |= self._sasl()
        if protocol.endswith("SSL"):
            values |= self._tls()
        return ClientSecurity.model_validate(values)

    def _wrong(self, sentence: str, remedy: str) -> UserError:
        return UserError(f"{self._path}: {sentence}.", remedy=remedy)

    def _sasl(self) -> dict[str, Any]:
        mechanism = self._settings.get(_MECHANISM, "GSSAPI").upper()  # the default of the Java clients
        if mechanism not in set(SaslMechanism):
            raise self._wrong(
                f"the client libraries of this tool do not support {_MECHANISM}={escape_invisible(mechanism, limit=64)}"
                f"{'' if _MECHANISM in self._settings else ', the default'}",
                f"Set {_MECHANISM} to {', '.join(SaslMechanism)}, with a user for it.",
            )
        module, options = self._jaas(mechanism)
        if mechanism == SaslMechanism.OAUTHBEARER:
            return {"mechanism": mechanism, **self._tokens(options)}
        if not options.get("username") or not options.get("password"):
            missing = "no username and password" if module else f"no {_JAAS}"
            raise self._wrong(f"{mechanism} has {missing}", f"Add the line {_jaas_example(mechanism)}")
        if options.get("tokenauth", "").lower() == "true":
            raise self._wrong(
                f"{_JAAS} has a delegation token (tokenauth), which the client libraries of this tool do not support",
                "Use a user with a password.",
            )
        return {"mechanism": mechanism, "username": options["username"], "password": options["password"]}

    def _jaas(self, mechanism: str) -> tuple[str, dict[str, str]]:
        """Return the login module and its options; empty without sasl.jaas.config."""
        text = self._settings.get(_JAAS, "")
        if not text:
            return "", {}
        try:
            module, options = parse_jaas(text)
        except ValueError:
            raise self._wrong(
                f"{_JAAS} is not one login module with its options and a semicolon",
                f"Write it as {_jaas_example(mechanism)}",
            ) from None
        if module.rpartition(".")[2] not in _LOGIN_MODULES:
            raise self._wrong(
                f"{_JAAS} has the login module {escape_invisible(module, limit=120)}, which this tool cannot use",
                f"Use {', '.join(_LOGIN_MODULES)} of Apache Kafka.",
            )
        return module, options

    def _tokens(self, options: Mapping[str, str]) -> dict[str, Any]:
        client, secret, scope = (
            self._settings.get(key) or options.get(option) for key, option in (_TOKEN_ID, _TOKEN_SECRET, _TOKEN_SCOPE)
        )
        url = self._settings.get(_TOKEN_URL, "")
        if not re.fullmatch(r"https?://[^\s@]+", url):
            raise self._wrong(f"OAUTHBEARER needs an http or https address in {_TOKEN_URL}", "Add it.")
        if not (client and secret):
            raise self._wrong(
                f"OAUTHBEARER has no client id and secret in {_JAAS}",
                f"Add {_JAAS}=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'clientId="ID" clientSecret="SECRET";',
            )
        if unknown := sorted(key for key in options if not _OF_TOKENS.fullmatch(key)):
            raise self._wrong(
                f"{_JAAS} has options of the login that this tool cannot apply to all its clients: "
                f"{few(map(escape_invisible, unknown))}",
                "Remove them, or ask for a client that logs in without them.",
            )
        if self._settings.get(_URL_ENCODED, "").lower() == "true" and any(
            one != urllib.parse.quote_plus(one) for one in (client, secret)
        ):
            raise self._wrong(
                f"{_URL_ENCODED} changes the client id or the secret, and this tool sends them as they are",
                "Use an id and a secret of letters, digits, `.`, `-` and `_`.",
            )
        trusted = options.get(_TRUSTED)
        ca = self._trusted(_TRUSTED, Path(trusted), options.get(_TRUSTED_PASSWORD)) if trusted else None
        return {
            "token_url": url,
            "username": client,
            "password": secret,
            "scope": scope,
            "token_ca_location": ca,
            "extensions": self._extensions(options),
        }

    def _extensions(self, options: Mapping[str, str]) -> str | None:
        """Return the SASL extensions (KIP-342) in librdkafka's form; None without any."""
        found = {key.removeprefix(_EXTENSION): value for key, value in options.items() if key.startswith(_EXTENSION)}
        try:
            return join_extensions(found) or None
        except ValueError as error:
            raise self._wrong(f"{_JAAS} has {error}", "Correct the option.") from None

    def _tls(self) -> dict[str, Any]:
        try:
            values: dict[str, Any] = {"check_hostname": checks_host_names(self._settings.get(HOST_NAMES, "https"))}
        except ValueError as error:
            raise self._wrong(str(error), "Correct it.") from None
        if certificates := self._settings.get(_TRUSTED_PEM):
            values["ca_location"] = _in_memory(_with_line_ends(certificates))
        elif location := self._settings.get(_TRUSTED):
            values["ca_location"] = self._trusted(_TRUSTED, Path(location), self._settings.get(_TRUSTED_PASSWORD))
        return values | self._own_certificate()

    def _trusted(self, key: str, path: Path, password: str | None) -> str:
        """Return the path of a PEM file with the certificates of a truststore."""
        content = self._store(key, path)
        if pem := _pem_blocks(content):
            return str(path) if _is_bare(content) else _in_memory(pem)
        found = self._pkcs12(key, path, content, password)
        certificates = [found.cert, *found.additional_certs]
        pem = b"".join(one.certificate.public_bytes(serialization.Encoding.PEM) for one in certificates if one)
        if not pem:
            raise self._wrong(f"{key} {path} contains no certificate", "Use the truststore of the cluster.")
        return _in_memory(pem)

    def _own_certificate(self) -> dict[str, Any]:
        """Return the certificate and the key of this client, with which it authenticates; empty without them."""
        password = self._settings.get(_KEY_PASSWORD)
        chain, key, location = (self._settings.get(name) for name in (_CHAIN_PEM, _KEY_PEM, _STORE))
        if bool(chain) != bool(key):
            raise self._wrong(f"{_CHAIN_PEM} and {_KEY_PEM} belong together", "Add the one that is missing.")
        if chain and key:
            return _certificate(_in_memory(_with_line_ends(chain)), _in_memory(_with_line_ends(key)), password)
        if not location:
            return {}
        path = Path(location)
        content = self._store(_STORE, path)
        if pem := _pem_blocks(content):
            file = location if _is_bare(content) else _in_memory(pem)
            return _certificate(file, file, password)
        found = self._pkcs12(_STORE, path, content, self._settings.get(_STORE_PASSWORD))
        if len(_KEY_BAG.findall(content)) > 1:
            raise self._wrong(
                f"{_STORE} {path} contains several keys, of which Java chooses one by the certificate of each listener",
                f"Leave the key of one user in it. List them: keytool -list -keystore {shlex.quote(str(path))}",
            )
        if found.key is None or found.cert is None:
            raise self._wrong(f"{_STORE} {path} contains no key with its certificate", "Use the keystore of the user.")
        others = [one.certificate for one in found.additional_certs]
        pem = b"".join(
            one.public_bytes(serialization.Encoding.PEM) for one in _chain_of(found.cert.certificate, others)
        )
        private = found.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return _certificate(_in_memory(pem), _in_memory(private), None)

    def _store(self, key: str, path: Path) -> bytes:
        content, _ = read_with_mode(path, str(path), f"Correct {key} in {self._path}.")
        if content.startswith(_JKS) or not (content.startswith(_DER) or _pem_blocks(content)):
            shown, target = shlex.quote(str(path)), shlex.quote(f"{path}.p12")
            kind = "a JKS store" if content.startswith(_JKS) else "neither PEM nor PKCS #12"
            raise self._wrong(
                f"{key} {path} is {kind}, which only Java reads",
                f"Convert it: keytool -importkeystore -srckeystore {shown} -destkeystore {target} "
                f"-deststoretype PKCS12. Then write {key}={path}.p12 into the file.",
            )
        return content

    def _pkcs12(self, key: str, path: Path, content: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
        try:
            return pkcs12.load_pkcs12(content, password.encode() if password else None)
        except (ValueError, TypeError):
            if _is_der_certificate(content):
                raise self._wrong(
                    f"{key} {path} is one certificate in DER, which is no store",
                    f"Convert it: openssl x509 -inform DER -in {shlex.quote(str(path))} -out "
                    f"{shlex.quote(f'{path}.pem')}. Then write {key}={path}.pem into the file.",
                ) from None
            name = key.replace("location", "password")
            raise self._wrong(
                f"the PKCS #12 store {path} cannot be opened with {name}",
                f"Correct {name}. Test it: keytool -list -keystore {shlex.quote(str(path))}",
            ) from None


def _chain_of(own: x509.Certificate, others: Iterable[x509.Certificate]) -> Iterator[x509.Certificate]:
    """Yield a certificate and those that issued it. A store can have the certificates of other keys too."""
    left, current = list(others), own
    yield own
    while issuer := next((one for one in left if _issued(one, current)), None):
        yield issuer
        left.remove(issuer)
        current = issuer


def _issued(issuer: x509.Certificate, issued: x509.Certificate) -> bool:
    try:
        issued.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return issuer != issued


def _is_der_certificate(content: bytes) -> bool:
    try:
        x509.load_der_x509_certificate(content)
    except ValueError:
        return False
    return True


def _certificate(chain: str, key: str, password: str | None) -> dict[str, Any]:
    return {"certificate_location": chain, "key_location": key, "key_password": password}


def _pem_blocks(content: bytes) -> bytes:
    """Return the blocks of a PEM file; empty for another file. Text around them is allowed, as in Kafka's PemParser."""
    return _with_line_ends(content.decode("latin-1"))


def _is_bare(content: bytes) -> bool:
    """Return whether a PEM file has nothing but blocks, so that every library reads the file itself."""
    return not _BLOCK.sub("", content.decode("latin-1")).strip()


def _with_line_ends(pem: str) -> bytes:
    """Return the blocks of PEM as OpenSSL reads them: the Java clients also read other blanks for the line ends."""
    blocks = []
    for label, body in _BLOCK.findall(pem):
        headers = found[0].split("\n") if (found := _HEADERS.match(body.lstrip())) else []
        content = body.lstrip()[len(found[0]) :] if found else body
        lines = textwrap.wrap("".join(content.split()), 64)
        blank = [*filter(None, map(str.strip, headers)), ""] if headers else []
        blocks.append("\n".join((f"-----BEGIN {label}-----", *blank, *lines, f"-----END {label}-----", "")))
    return "".join(blocks).encode()


def _in_memory(content: bytes) -> str:
    return file_in_memory(content, str(os.getpid()))
