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
        ({"host": "https://prom/metrics/", "port": 9090}, "https://prom:9090/metrics/"),
        ({"host": "prom/metrics", "port": 9090}, "http://prom:9090/metrics"),
        ({"host": "https://[::1]/metrics", "port": 9090}, "https://[::1]:9090/metrics"),
        ({"host": "https://prom:9091/metrics", "port": 9090}, "https://prom:9091/metrics"),
        ({"host": "https://prom:port"}, None),
        ({"host": "https://prom/?query=up"}, None),
        ({"host": "prom", "extra_dejson": {"X-Scope-OrgID": "a"}}, None),
        ({"host": ""}, None),
    ],
)
def test_a_password_is_sent_over_plain_http_only_if_http_is_written(fields: dict[str, Any], url: str | None) -> None:
    empty = {"host": None, "port": None, "schema": None, "login": None, "password": None, "extra_dejson": {}}
    access = HttpAccess.from_airflow_connection(SimpleNamespace(**{**empty, **fields}))
    assert (access.url if access else None) == url


def _access(**fields: Any) -> HttpAccess | None:
    empty = {"port": None, "schema": None, "login": None, "password": None, "extra_dejson": {}}
    return HttpAccess.from_airflow_connection(SimpleNamespace(**{"host": "https://prom", **empty, **fields}))


def test_the_headers_of_a_connection_are_sent_as_airflow_sends_them() -> None:
    extra = {"X-Scope-OrgID": "tenant-a", "verify": False, "timeout": 3, "headers": {"X-Api-Key": "geheim"}}
    access = _access(extra_dejson=extra, password="token")
    assert access is not None
    assert access.sent_headers == {
        "X-Scope-OrgID": "tenant-a",
        "X-Api-Key": "geheim",
        "Authorization": "Bearer token",
    }
    assert "geheim" not in repr(access)


@pytest.mark.parametrize(
    "extra",
    [{"Host": "other"}, {"X-A": "a\r\nX-B: b"}, {"X A": "a"}, {"X-A": {"b": "c"}}, {"headers": "X-A: a"}, {"X-A": "ä"}],
    ids=["of the tool", "two lines", "no name", "an object", "text", "not in ASCII"],
)
def test_a_header_that_cannot_be_sent_makes_the_connection_unusable(extra: dict[str, Any]) -> None:
    assert _access(extra_dejson=extra) is None
