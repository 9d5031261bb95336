"""Credentials and TLS settings of a cluster's clients, from a file or from Airflow Connections."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.files import open_regular
from kafka_rollout.kafka.client.security.client_properties import read_client_properties
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.kafka.client.security.http_access import HttpAccess
from kafka_rollout.model.topology import ClusterSpec


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
        raise UserError(f"{path} is a folder, not a file.", remedy="Use the path of a client.properties file.")
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            is_json = file.read(1024).lstrip().startswith(b"{")
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}.", remedy="Use the path of a client.properties file."
        ) from None
    security = ClientSecurity.from_file(path) if is_json else read_client_properties(path)
    for settings in (security, security.of_controllers, security.of_traffic):
        _refuse_missing_files(path, settings)
    return security


def _refuse_missing_files(path: Path, settings: ClientSecurity) -> None:
    """Raise UserError for a TLS file that cannot be read, before any node is queried."""
    for key in ("ca_location", "certificate_location", "key_location", "token_ca_location"):
        if file := getattr(settings, key):
            try:
                with Path(file).open("rb"):
                    pass
            except OSError as error:
                raise UserError(
                    f"{file}, {key} in {path}, cannot be read: {error.strerror}.", remedy="Correct its path."
                ) from None


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
    prometheus: HttpAccess | None = None,
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
