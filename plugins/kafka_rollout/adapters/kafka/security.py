"""How clients reach a secured cluster: one description, handed to every client that we use.

It comes from an Airflow Connection (Kafka provider's convention: librdkafka's names in the extra) or from a file with
mode 0600, never from parameters. Its text form shows no secret.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, model_validator

from kafka_rollout.adapters.system.files import open_regular, write_whole
from kafka_rollout.domain.model.errors import UserError


class SecurityProtocol(StrEnum):
    """Kafka's security.protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class SaslMechanism(StrEnum):
    """Kafka's sasl.mechanism, those that need a username and a password."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class ClientSecurity(BaseModel):
    """`check_hostname` is librdkafka's ssl.endpoint.identification.algorithm=https; paths are PEM files.

    `controllers` is for the controllers' listener, where its settings are not the brokers'.
    """

    # hide_input_in_errors: a validation error must not print what it was given.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: SaslMechanism | None = None
    username: str | None = None
    password: SecretStr | None = None
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: SecretStr | None = None
    check_hostname: bool = True
    controllers: ClientSecurity | None = None

    @model_validator(mode="after")
    def _complete(self) -> ClientSecurity:
        if self.uses_sasl and not (self.mechanism and self.username and self.password):
            raise ValueError(f"{self.protocol} needs sasl.mechanism, a username and a password")
        if bool(self.certificate_location) != bool(self.key_location):
            raise ValueError("a client certificate needs both ssl.certificate.location and ssl.key.location")
        return self

    @property
    def of_controllers(self) -> ClientSecurity:
        """For the controllers' listener."""
        return self.controllers or self

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @property
    def uses_tls(self) -> bool:
        return self.protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    def confluent(self) -> dict[str, Any]:
        """Settings for confluent-kafka (librdkafka). Holds secrets: not for logs."""
        settings: dict[str, Any] = {"security.protocol": self.protocol.value}
        if self.uses_sasl:
            settings |= {
                "sasl.mechanism": self.mechanism.value if self.mechanism else None,
                "sasl.username": self.username,
                "sasl.password": _reveal(self.password),
            }
        if self.uses_tls:
            settings |= {
                "ssl.ca.location": self.ca_location,
                "ssl.certificate.location": self.certificate_location,
                "ssl.key.location": self.key_location,
                "ssl.key.password": _reveal(self.key_password),
                "ssl.endpoint.identification.algorithm": "https" if self.check_hostname else "none",
            }
        return {key: value for key, value in settings.items() if value is not None}

    def kafka_python(self) -> dict[str, Any]:
        """Settings for kafka-python. Holds secrets: not for logs."""
        settings: dict[str, Any] = {"security_protocol": self.protocol.value}
        if self.uses_sasl:
            settings |= {
                "sasl_mechanism": self.mechanism.value if self.mechanism else None,
                "sasl_plain_username": self.username,
                "sasl_plain_password": _reveal(self.password),
            }
        if self.uses_tls:
            settings |= {
                "ssl_cafile": self.ca_location,
                "ssl_certfile": self.certificate_location,
                "ssl_keyfile": self.key_location,
                "ssl_password": _reveal(self.key_password),
                "ssl_check_hostname": self.check_hostname,
            }
        return {key: value for key, value in settings.items() if value is not None}

    def write_file(self, path: Path) -> None:
        """Write `to_json` readable by the owner only; replaces the file whole."""
        write_whole(path, self.to_json().encode(), mode=0o600)

    def to_json(self) -> str:
        """With secrets, and without the settings of the controllers: test traffic and Spark connect to brokers."""
        plain = self.model_dump(mode="json", exclude_none=True, exclude={"controllers"})
        for name in ("password", "key_password"):
            if name in plain:
                plain[name] = _reveal(getattr(self, name))
        return json.dumps(plain)

    @classmethod
    def from_json(cls, text: str, what: str) -> ClientSecurity:
        """Read `to_json`. Raises UserError that names `what` for malformed text."""
        try:
            values = json.loads(text)
        except ValueError:
            raise UserError(f"{what} is not JSON.", remedy="Repeat the step that starts the process.") from None
        return _checked(values, what)

    @classmethod
    def from_file(cls, path: Path) -> ClientSecurity:
        """Read what `write_file` wrote, or a person by the same names (`controllers` is an object like the whole).

        Raises UserError for a file that others may read, or that is malformed.
        """
        try:
            # The mode is asked of the opened file: a swap between look and read changes nothing.
            with os.fdopen(open_regular(path), encoding="utf-8") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode & 0o077:
                    raise UserError(
                        f"Security file {path} may be read by others (mode {mode:04o}).",
                        remedy=f"Run: chmod 600 {path}",
                    )
                values = json.load(file)
        except OSError as error:
            raise UserError(
                f"Security file {path} cannot be read: {error.strerror}.", remedy="Name an existing file."
            ) from None
        except ValueError:
            raise UserError(
                f"Security file {path} is not JSON.", remedy="Write it anew from the cluster's Airflow Connection."
            ) from None
        return _checked(values, f"Security file {path}")

    @classmethod
    def from_airflow_connection_extra(
        cls, extra: Mapping[str, Any], login: str | None = None, password: str | None = None
    ) -> ClientSecurity:
        """Read an Airflow Connection of the Kafka provider: librdkafka's property names in its extra.

        `login` and `password` of the Connection stand in where the extra has no sasl.username or sasl.password.
        Properties that are not about security (bootstrap.servers, group.id, …) are left alone.
        """
        unsupported = sorted(
            key for key in extra if key.startswith(("sasl.", "ssl.", "security.")) and key not in _LIBRDKAFKA_NAMES
        )
        if unsupported:
            raise UserError(
                f"The Connection's extra has {', '.join(unsupported)}, which this tool does not hand to every client.",
                remedy=f"Use only {', '.join(_LIBRDKAFKA_NAMES)}.",
            )
        values: dict[str, Any] = {
            field: extra[key] for key, field in _LIBRDKAFKA_NAMES.items() if extra.get(key) not in (None, "")
        }
        if "check_hostname" in values:
            values["check_hostname"] = values["check_hostname"] == "https"
        for name in ("protocol", "mechanism"):
            if isinstance(values.get(name), str):
                values[name] = values[name].upper()
        if values.get("protocol", "").startswith("SASL_"):
            if login:
                values.setdefault("username", login)
            if password:
                values.setdefault("password", password)
        return _checked(values, "The Connection's extra")


# librdkafka's property → field; both spellings of the mechanism are librdkafka's own.
_LIBRDKAFKA_NAMES = {
    "security.protocol": "protocol",
    "sasl.mechanisms": "mechanism",
    "sasl.mechanism": "mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "ssl.ca.location": "ca_location",
    "ssl.certificate.location": "certificate_location",
    "ssl.key.location": "key_location",
    "ssl.key.password": "key_password",
    "ssl.endpoint.identification.algorithm": "check_hostname",
}


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _checked(values: Any, what: str) -> ClientSecurity:
    try:
        return ClientSecurity.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        why = first["msg"].removeprefix("Value error, ")
        raise UserError(
            f"{what} does not describe a usable security: {where + ': ' if where else ''}{why}.",
            remedy="Correct it; secrets belong into the Connection.",
        ) from None
