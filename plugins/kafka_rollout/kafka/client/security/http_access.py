"""URL, credentials and TLS settings of a Prometheus server. The file with the cluster's credentials can have them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, SecretStr, StringConstraints, ValidationError


class HttpAccess(BaseModel):
    """How an HTTP API is reached. `password` without a `username` is a bearer token.

    `ca_location`: PEM file with which its certificate is verified; default: those of the machine. `verify` False: the
    certificate is not verified.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$")]
    username: str | None = None
    password: SecretStr | None = None
    ca_location: str | None = None
    verify: bool = True

    @classmethod
    def from_airflow_connection(cls, connection: Any) -> HttpAccess | None:
        """Read a Connection of type HTTP as Airflow's HTTP provider does; None for one that is not usable.

        A password needs a scheme in the host or the schema: the provider's default http would send it in plain text.
        `verify` in its extra: false, or the path of a CA file. Other extras are not used.
        """
        host, verify = connection.host or "", connection.extra_dejson.get("verify", True)
        if "://" not in host:
            if connection.password and not connection.schema:
                return None
            host = f"{connection.schema or 'http'}://{host}"
        port = f":{connection.port}" if connection.port else ""
        values: Mapping[str, Any] = {
            "url": f"{host}{port}",
            "username": connection.login or None,
            "password": connection.password or None,
            "ca_location": verify if isinstance(verify, str) else None,
            "verify": True if isinstance(verify, str) else verify,
        }
        try:
            return cls.model_validate(values)
        except ValidationError:
            return None

    @property
    def headers(self) -> dict[str, str]:
        """The header of a bearer token; empty without one."""
        if self.password is None or self.username is not None:
            return {}
        return {"Authorization": f"Bearer {self.password.get_secret_value()}"}

    @property
    def basic(self) -> tuple[str, str] | None:
        """Username and password; None without a username."""
        if self.username is None:
            return None
        return self.username, "" if self.password is None else self.password.get_secret_value()

    def tls(self) -> ssl.SSLContext | bool:
        """Return the TLS settings for httpx. Raises OSError for a CA file that cannot be used."""
        return ssl.create_default_context(cafile=self.ca_location) if self.verify else False
