"""Airflow Connections of type HTTP as the access to a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.client.security.client_security import HttpAccess, PrometheusAccess


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
    if url is None:
        with pytest.raises(UserError, match="Airflow Connection prom has"):
            _access(**{"host": None, **fields})
    else:
        assert _access(**{"host": None, **fields}).url == url


_EMPTY: dict[str, Any] = {"port": None, "schema": None, "login": None, "password": None, "extra_dejson": {}}


def _access(**fields: Any) -> PrometheusAccess:
    connection = SimpleNamespace(**{"conn_id": "prom", "host": "https://prom", **_EMPTY, **fields})
    return PrometheusAccess.from_airflow_connection(connection)


def test_the_headers_of_a_connection_are_sent_as_airflow_sends_them() -> None:
    extra = {"X-Scope-OrgID": "tenant-a", "verify": False, "timeout": 3, "headers": {"X-Api-Key": "geheim"}}
    access = _access(extra_dejson=extra, password="token")
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
    with pytest.raises(UserError, match="a URL, a header or a CA file that cannot be used"):
        _access(extra_dejson=extra)


@pytest.mark.parametrize("option", ["auth_type", "auth_kwargs", "cert", "proxies", "proxy", "trust_env"])
def test_an_option_that_would_not_be_applied_is_refused(option: str) -> None:
    with pytest.raises(UserError, match=f"Airflow Connection prom has {option} in its extra"):
        _access(extra_dejson={option: "geheim", "timeout": 3})


def test_a_header_and_a_password_are_not_sent_as_one() -> None:
    with pytest.raises(UserError, match="cannot be used"):
        _access(password="geheim", extra_dejson={"authorization": "Bearer other"})


SECRET_URL = "https://hooks.test/webhookb2/one@two/workflows?api-version=1&sig=geheim"


def _hook(**fields: Any) -> HttpAccess:
    connection = SimpleNamespace(**{"conn_id": "hook", "host": None, **_EMPTY, **fields})
    return HttpAccess.from_airflow_connection(connection, can_be_password=True)


def test_a_secret_url_is_the_password_and_is_not_sent_as_a_token() -> None:
    access = _hook(password=SECRET_URL, extra_dejson={"X-A": "a"})
    assert (access.url, access.sent_headers, access.basic) == (SECRET_URL, {"X-A": "a"}, None)
    assert _hook(password="https://hooks.test/x", port=8443).url == "https://hooks.test:8443/x"
    with pytest.raises(UserError) as caught:
        _access(host=SECRET_URL)  # the path of a query would follow it
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("password", [None, "geheim", "ftp://geheim", "https://", "https://ops:geheim@hooks.test"])
def test_a_password_that_is_no_url_is_never_used_as_one(password: str | None) -> None:
    with pytest.raises(UserError, match="Airflow Connection hook has") as caught:
        _hook(password=password)
    assert "geheim" not in str(caught.value)
