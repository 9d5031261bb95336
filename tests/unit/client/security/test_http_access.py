"""Airflow Connections of type HTTP as the access to a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.client.security.client_security import HttpAccess


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"host": "prom", "port": 9090}, "http://prom:9090"),
        ({"host": "prom", "schema": "https", "password": "p"}, "https://prom"),
        ({"host": "prom", "schema": "http", "password": "p"}, "http://prom"),
        ({"host": "http://prom", "password": "p"}, "http://prom"),
        ({"host": "prom", "password": "p"}, None),
        ({"host": "prom", "login": "ops", "password": "p"}, None),
        ({"host": "https://ops:p@prom"}, None),
        ({"host": ""}, None),
    ],
)
def test_a_password_is_sent_over_plain_http_only_if_http_is_written(fields: dict[str, Any], url: str | None) -> None:
    empty = {"host": None, "port": None, "schema": None, "login": None, "password": None, "extra_dejson": {}}
    access = HttpAccess.from_airflow_connection(SimpleNamespace(**{**empty, **fields}))
    assert (access.url if access else None) == url
