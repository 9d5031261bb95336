"""Security settings of a cluster's listeners, in one form for every client library.

Source: an Airflow Connection (with librdkafka's names in the extra, as for the Kafka provider) or a file with mode
0600, never parameters. The text form shows no secret.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import ssl
import stat
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.x509.oid import NameOID
from pydantic import (
    BaseModel,
    ConfigDict,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.files import open_regular, read_regular
from kafka_rollout.base.system.tls import trusting


class SecurityProtocol(StrEnum):
    """Kafka's security.protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class SaslMechanism(StrEnum):
    """Kafka's sasl.mechanism: those that both client libraries support.

    The wheel of confluent-kafka has no GSSAPI and no AWS_MSK_IAM.
    """

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


# Options of Airflow's HttpHook in the extra of a Connection; it sends the others as headers.
_NEEDLESS_OPTIONS = frozenset({"allow_redirects", "check_response", "max_redirects", "stream", "timeout"})
_OTHER_OPTIONS = frozenset({"auth_kwargs", "auth_type", "cert", "proxies", "proxy", "trust_env"})
_HTTP_OPTIONS = _NEEDLESS_OPTIONS | _OTHER_OPTIONS | {"headers", "verify"}
_OWN_HEADERS = frozenset(["accept-encoding", "connection", "content-length", "host", "transfer-encoding"])
_HeaderName = Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]  # RFC 9110, token
# Java writes the other attributes of a subject with their numbers (X500Principal.getName, RFC 2253).
_NAMED_BY_JAVA = frozenset(
    (
        *(NameOID.COMMON_NAME, NameOID.LOCALITY_NAME, NameOID.STATE_OR_PROVINCE_NAME, NameOID.ORGANIZATION_NAME),
        *(NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COUNTRY_NAME, NameOID.STREET_ADDRESS, NameOID.DOMAIN_COMPONENT),
        NameOID.USER_ID,
    )
)


class HttpAccess(BaseModel):
    """How a server that an operator names is reached. `password` without a `username` is a bearer token."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s#]+$")]
    username: str | None = None
    password: SecretStr | None = None
    headers: Mapping[_HeaderName, SecretStr] = {}
    """Further headers of each request, such as X-Scope-OrgID for the tenant. Each can be a credential."""
    ca_location: str | None = None
    """PEM file with which its certificate is verified; default: those of the machine."""
    verify: bool = True
    """False: the certificate is not verified."""

    @classmethod
    def from_airflow_connection(cls, connection: Any, *, can_be_password: bool = False) -> Self:
        """Read a Connection of type HTTP as Airflow's HTTP provider does. `can_be_password`: without a host, the
        password is the URL.

        The port belongs to the host, also if a path follows it. A password or a header needs a scheme in the host or
        the schema: the provider's default http would send it in plain text. In the extra, `verify` is false or the path
        of a CA file, and what is no option of the provider is a header. Raises UserError, which contains no value of
        the Connection, for one that cannot be applied as it is.
        """
        what = f"Airflow Connection {connection.conn_id}"
        host, password, extra = connection.host or "", connection.password or None, connection.extra_dejson
        if not isinstance(extra, Mapping):
            raise UserError(f"The extra of {what} is no JSON object.", remedy="Correct it.")
        if others := sorted(extra.keys() & _OTHER_OPTIONS):
            raise UserError(
                f"{what} has {', '.join(others)} in its extra, which this tool does not apply.",
                remedy="Remove it, or use a Connection of its own without it.",
            )
        if can_be_password and not host:
            host, password = password or "", None
            if "://" not in host:
                raise UserError(
                    f"{what} has no URL.",
                    remedy="Write it with https:// into the password if it is a secret, else into the host.",
                )
        headers = extra.get("headers") or {}
        if "://" not in host:
            if (password or headers or extra.keys() - _HTTP_OPTIONS) and not connection.schema:
                raise UserError(
                    f"{what} has a password or a header, and no scheme: they would be sent in plain text.",
                    remedy="Begin its host with https://, or with http:// for plain text.",
                )
            host = f"{connection.schema or 'http'}://{host}"
        verify = extra.get("verify", True)
        try:
            parts = urlsplit(host)
            port = parts.port or connection.port
            if port and parts.port is None:
                parts = parts._replace(netloc=f"{parts.netloc}:{port}")
            return cls.model_validate(
                {
                    "url": parts.geturl(),
                    "username": connection.login or None,
                    "password": password,
                    "headers": {**{name: extra[name] for name in extra.keys() - _HTTP_OPTIONS}, **headers},
                    "ca_location": verify if isinstance(verify, str) else None,
                    "verify": True if isinstance(verify, str) else verify,
                }
            )
        except (ValueError, TypeError):  # pydantic's ValidationError is a ValueError
            raise UserError(
                f"{what} has a URL, a header or a CA file that cannot be used.",
                remedy="Write the URL without credentials into its host, and each header as text into its extra.",
            ) from None

    @field_validator("url")
    @classmethod
    def _names_a_server_alone(cls, url: str) -> str:
        parts = urlsplit(url)
        if not parts.hostname or "@" in parts.netloc or parts.port == 0:
            raise ValueError("it must be an http or https address without credentials")
        return url

    @model_validator(mode="after")
    def _has_one_credential(self) -> Self:
        if (self.username or self.password) and "authorization" in map(str.lower, self.headers):
            raise ValueError("a header Authorization beside a username or a password")
        return self

    @field_validator("headers")
    @classmethod
    def _refuse_other_lines(cls, headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, value in headers.items():
            text = value.get_secret_value()
            if name.lower() in _OWN_HEADERS or not (text.isascii() and text.isprintable()):
                raise ValueError(f"the header {name} cannot be set")
        return headers

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers of each request, with that of a bearer token."""
        headers = {name: value.get_secret_value() for name, value in self.headers.items()}
        if self.password is not None and self.username is None:
            headers |= {"Authorization": f"Bearer {self.password.get_secret_value()}"}
        return headers

    @property
    def basic(self) -> tuple[str, str] | None:
        """Username and password; None without a username."""
        if self.username is None:
            return None
        return self.username, "" if self.password is None else self.password.get_secret_value()

    def tls(self) -> ssl.SSLContext | bool:
        """Return the TLS settings for httpx. Raises OSError for a CA file that cannot be used."""
        return trusting(self.ca_location) if self.verify else False


class PrometheusAccess(HttpAccess):
    """How a Prometheus server is reached. The path of its API is added to the URL, which has no query therefore."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s@?#]+$")]


class ClientSecurity(BaseModel):
    """Settings of the broker listener. Paths are PEM files."""

    # hide_input_in_errors: a validation error must not print the input.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: SaslMechanism | None = None
    username: str | None = None
    """With OAUTHBEARER the client id and its secret, for which the server at `token_url` issues tokens (grant type
    client_credentials)."""
    password: SecretStr | None = None
    """With OAUTHBEARER the client id and its secret, for which the server at `token_url` issues tokens (grant type
    client_credentials)."""
    token_url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$")] | None = None
    scope: str | None = None
    token_ca_location: str | None = None
    """Certificates that this server's certificate is verified with."""
    extensions: str | None = None
    """Sent with each token (SASL extensions, KIP-342), as `name=value,name=value`."""
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: SecretStr | None = None
    check_hostname: bool = True
    """librdkafka's ssl.endpoint.identification.algorithm=https."""
    controllers: ClientSecurity | None = None
    """Settings of the controller listener, if they differ."""
    traffic: ClientSecurity | None = None
    """Settings of the test traffic, if they differ."""
    prometheus: PrometheusAccess | None = None
    """The server with the values of conditions from outside."""

    @field_validator("mechanism", mode="before")
    @classmethod
    def _is_supported(cls, name: object) -> object:
        if isinstance(name, str) and name not in set(SaslMechanism):
            raise ValueError(
                f"the client libraries (confluent-kafka, kafka-python) do not both support {name}; use "
                f"{', '.join(SaslMechanism)}"
            )
        return name

    @field_validator("extensions")
    @classmethod
    def _are_extensions(cls, text: str | None) -> str | None:
        return text and join_extensions(split_extensions(text))

    @model_validator(mode="after")
    def _complete(self) -> ClientSecurity:
        if self.uses_sasl and not (self.mechanism and self.username and self.password):
            raise ValueError(f"{self.protocol} needs sasl.mechanism, a username and a password")
        if self.uses_oauth != bool(self.token_url):
            raise ValueError("OAUTHBEARER, and no other mechanism, needs sasl.oauthbearer.token.endpoint.url")
        if self.extensions and not self.uses_oauth:
            raise ValueError("only OAUTHBEARER has SASL extensions")
        if bool(self.certificate_location) != bool(self.key_location):
            raise ValueError("a client certificate needs both ssl.certificate.location and ssl.key.location")
        return self

    @property
    def of_controllers(self) -> ClientSecurity:
        """Settings of the controller listener."""
        return self.controllers or self

    @property
    def of_traffic(self) -> ClientSecurity:
        """Settings of the test traffic."""
        return self.traffic or self

    @property
    def principal(self) -> str | None:
        """The user as Kafka's default principal builder names it; None if only the token or the broker has the name, or
        if the certificate's subject has an attribute that Java writes with its number and value in hexadecimal."""
        if self.uses_sasl:
            return None if self.uses_oauth else f"User:{self.username}"
        if not (self.uses_tls and self.certificate_location):
            return "User:ANONYMOUS"
        try:
            certificate = x509.load_pem_x509_certificate(read_regular(Path(self.certificate_location)))
        except (OSError, ValueError, UserError):
            return None
        if any(attribute.oid not in _NAMED_BY_JAVA for attribute in certificate.subject):
            return None
        return f"User:{certificate.subject.rfc4514_string()}"

    @property
    def uses_oauth(self) -> bool:
        return self.uses_sasl and self.mechanism is SaslMechanism.OAUTHBEARER

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @property
    def uses_tls(self) -> bool:
        return self.protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    def confluent(self) -> dict[str, Any]:
        """Settings for confluent-kafka (librdkafka). Contains secrets: not for logs."""
        names = {**_CLIENT_NAMES, **(_OAUTH_NAMES if self.uses_oauth else {})}
        unused = (() if self.uses_sasl else _SASL) + (() if self.uses_tls else _TLS)
        settings = {names[name]: value for name, value in self._with_secrets().items() if name not in unused}
        if self.uses_oauth:
            settings[_OAUTH_METHOD] = "oidc"
        if self.uses_tls:
            settings["ssl.endpoint.identification.algorithm"] = "https" if self.check_hostname else "none"
        return settings

    def sasl(self) -> dict[str, Any]:
        """Settings for a SASL mechanism of kafka-python. Contains secrets: not for logs."""
        plain = self._with_secrets()
        settings = {"security_protocol": plain["protocol"], "sasl_mechanism": plain["mechanism"]}
        if self.uses_oauth:
            from kafka_rollout.client.security.tokens import TokenClient, token_provider

            values: list[Any] = [plain.get(name) for name in _OAUTH_NAMES]
            provider = token_provider(TokenClient(*values))
            return {**settings, "sasl_oauth_token_provider": provider}
        return {**settings, "sasl_plain_username": plain["username"], "sasl_plain_password": plain["password"]}

    def _with_secrets(self) -> dict[str, Any]:
        """All fields that are set, of the broker listener alone."""
        plain = self.model_dump(mode="json", exclude_none=True, exclude={"controllers", "traffic", "prometheus"})
        for name in ("password", "key_password"):
            if name in plain:
                plain[name] = getattr(self, name).get_secret_value()
        return plain

    def to_json(self) -> str:
        """With secrets, and without the settings of other users and servers: its reader uses one user."""
        return json.dumps(self._with_secrets())

    @classmethod
    def from_json(
        cls, text: str | bytes, what: str, remedy: str = "Repeat the step that starts the process."
    ) -> ClientSecurity:
        """Read `to_json`. Raises UserError that names `what`, for text that is not JSON with `remedy`."""
        try:
            values = parse_json(text)
        except ValueError:
            raise UserError(f"{what} is not JSON.", remedy=remedy) from None
        return _validate(values, what)

    @classmethod
    def from_file(cls, path: Path) -> ClientSecurity:
        """Read a file with `to_json`, or an operator's file with the same names.

        There `controllers`, `traffic` and `prometheus` are nested objects.
        Raises UserError for a malformed file and for one that others can read.
        """
        what = f"Security file {path}"
        content, mode = read_with_mode(path, what, "Use the path of an existing file.")
        if mode & 0o077:
            raise UserError(
                f"{what} can be read by other users (mode {mode:04o}).",
                remedy=f"Run: chmod 600 {shlex.quote(str(path))}",
            )
        return cls.from_json(content, what, "Correct it, or write a client.properties file.")

    @classmethod
    def from_airflow_connection_extra(
        cls, extra: object, login: str | None = None, password: str | None = None
    ) -> ClientSecurity:
        """Read an Airflow Connection of the Kafka provider: librdkafka's property names in its extra.

        `login` and `password` of the Connection are the defaults of sasl.username and sasl.password. Other properties
        than those of security (bootstrap.servers, group.id, …) are ignored.
        """
        if not isinstance(extra, Mapping) or not all(isinstance(key, str) for key in extra):
            raise UserError(
                "The Connection's extra is no JSON object.",
                remedy='Write an object, for example {"security.protocol": "SSL"}.',
            )
        unsupported = sorted(
            key
            for key in extra
            if key.startswith(("sasl.", "ssl.", "security.")) and key not in {*_LIBRDKAFKA_NAMES, _OAUTH_METHOD}
        )
        if unsupported:
            raise UserError(
                f"The Connection's extra has {', '.join(unsupported)}, which this tool cannot apply to every client.",
                remedy=f"Use only {', '.join(_LIBRDKAFKA_NAMES)}.",
            )
        known = {_plain(name): name for name in (*_LIBRDKAFKA_NAMES, _OAUTH_METHOD)}
        for key in extra:
            if key not in known.values() and (meant := known.get(_plain(key))) is not None:
                raise UserError(
                    f"The Connection's extra has {key}, which nothing reads.", remedy=f"Write {meant} instead."
                )
        read = {key: extra[key] for key in (*_LIBRDKAFKA_NAMES, _OAUTH_METHOD) if extra.get(key) not in (None, "")}
        if strange := sorted(key for key, value in read.items() if not isinstance(value, str)):
            raise UserError(
                f"The Connection's extra has {', '.join(strange)} that is no text.",
                remedy="Write each value in quotes.",
            )
        if read.get(_OAUTH_METHOD, "oidc").lower() != "oidc":
            raise UserError(
                f"The Connection's extra has {_OAUTH_METHOD}, which must be oidc.",
                remedy=f"Set {_OAUTH_NAMES['token_url']} and the client's id and secret.",
            )
        values: dict[str, Any] = {field: read[key] for key, field in _LIBRDKAFKA_NAMES.items() if key in read}
        if "protocol" not in values and (lost := [*read, *(("login",) if login or password else ())]):
            raise UserError(
                f"The Connection has {', '.join(lost)} and no security.protocol, so nothing would use them.",
                remedy="Set security.protocol in its extra to SSL, SASL_SSL, SASL_PLAINTEXT or PLAINTEXT.",
            )
        if "check_hostname" in values:
            try:
                values["check_hostname"] = checks_host_names(values["check_hostname"])
            except ValueError as error:
                raise UserError(f"The Connection's extra has {error}.", remedy="Correct it.") from None
        for name in ("protocol", "mechanism"):
            if name in values:
                values[name] = values[name].upper()
        if values.get("protocol", "").startswith("SASL_"):
            if login:
                values.setdefault("username", login)
            if password:
                values.setdefault("password", password)
        return _validate(values, "The Connection's extra")


def _plain(key: str) -> str:
    """Return a key without what a form of Airflow or a variable of the environment makes of its dots."""
    return re.sub(r"[._-]", "", key.lower().removeprefix("extra__kafka__"))


_SASL = ("mechanism", "username", "password", "token_url", "scope", "token_ca_location", "extensions")
_TLS = ("ca_location", "certificate_location", "key_location", "key_password", "check_hostname")
PEM_FILES = ("ca_location", "certificate_location", "key_location", "token_ca_location")
# Field → its name in confluent-kafka (librdkafka).
_CLIENT_NAMES = {
    "protocol": "security.protocol",
    "mechanism": "sasl.mechanism",
    "username": "sasl.username",
    "password": "sasl.password",
    "ca_location": "ssl.ca.location",
    "certificate_location": "ssl.certificate.location",
    "key_location": "ssl.key.location",
    "key_password": "ssl.key.password",
    "check_hostname": "ssl.endpoint.identification.algorithm",
}
_OAUTH_METHOD = "sasl.oauthbearer.method"
# The same for OAUTHBEARER, in the order of the fields of TokenClient.
_OAUTH_NAMES = {
    "token_url": "sasl.oauthbearer.token.endpoint.url",
    "username": "sasl.oauthbearer.client.id",
    "password": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "token_ca_location": "https.ca.location",
    "extensions": "sasl.oauthbearer.extensions",
}
# librdkafka's property → field; both spellings of the mechanism are librdkafka's own.
_LIBRDKAFKA_NAMES = {
    "sasl.mechanisms": "mechanism",
    **{name: field for table in (_CLIENT_NAMES, _OAUTH_NAMES) for field, name in table.items()},
}


HOST_NAMES = _CLIENT_NAMES["check_hostname"]


def checks_host_names(value: str) -> bool:
    """Return whether names in certificates are compared (ssl.endpoint.identification.algorithm), as clients read it.

    Raises ValueError for any other text than https, none and the empty one: it must never switch the comparison off.
    """
    algorithm = value.strip().lower()
    if algorithm not in ("https", "", "none"):
        raise ValueError(f"{HOST_NAMES}, which is neither https nor none")
    return algorithm == "https"


_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")


def join_extensions(extensions: Mapping[str, str]) -> str:
    """Return SASL extensions in librdkafka's form. Raises ValueError for one that Kafka or librdkafka refuses.

    Source: OAuthBearerClientInitialResponse.validateExtensions.
    """
    for name, value in extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            raise ValueError("a SASL extension whose name is not of letters only")
        if not _EXTENSION_VALUE.fullmatch(value) or "," in value:
            raise ValueError(f"the SASL extension {name} with an empty value, a comma or a sign that is not ASCII")
    return ",".join(f"{name}={value}" for name, value in extensions.items())


def split_extensions(text: str) -> dict[str, str]:
    """Return the extensions of `join_extensions`. Raises ValueError for a part that is not `name=value`."""
    parts = [part.strip().partition("=") for part in text.split(",")]
    if any(not equals for _, equals, _ in parts):
        raise ValueError("SASL extensions are not name=value,name=value")
    return {name: value for name, _, value in parts}


def read_with_mode(path: Path, what: str, remedy: str) -> tuple[bytes, int]:
    """Return content and mode of the opened file: the path can be replaced between the check and the read.

    Raises UserError that names `what` for a file that cannot be read.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise UserError(f"{what} cannot be read: {error.strerror}.", remedy=remedy) from None


def _validate(values: Any, what: str) -> ClientSecurity:
    try:
        return ClientSecurity.model_validate(values)
    except ValidationError as error:
        first: Any = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise UserError(
                f"{what} has the unknown key {escape_invisible(where)}.", remedy=_known_key(where)
            ) from None
        why = first["msg"].removeprefix("Value error, ")
        if (form := why.removeprefix("Input should be ")) != why:
            why = f"it must be {form}"
        elif first["type"] == "string_pattern_mismatch":
            why = "it must be an http or https address without credentials"
        raise UserError(
            f"{what} does not have usable security settings: {where + ': ' if where else ''}{why}.",
            remedy="Correct it.",
        ) from None


def _known_key(key: str) -> str:
    """Return the remedy for a key that the JSON form does not have: it can be that of a client library."""
    known = ", ".join(ClientSecurity.model_fields)
    meant = _LIBRDKAFKA_NAMES.get(key, "")
    return f"{f'Use {meant}. ' if meant else ''}The keys are {known}. A client.properties file has the names of Java."
