"""A server at loopback is that of the node's host, under each of its names."""

from __future__ import annotations

import httpx
import pytest

from kafka_rollout.base.loopback import is_loopback
from kafka_rollout.base.system.http import http_client

OWN = ("127.0.0.1", "127.0.0.2", "localhost", "LOCALHOST", "localhost.", "ip6-localhost", "[::1]")
OTHERS = ("10.0.0.1", "kafka-1", "localhost.example.com", "[fe80::1]", "127.0.0.1.example.com", "")


@pytest.mark.parametrize(("host", "expected"), [*((one, True) for one in OWN), *((one, False) for one in OTHERS)])
def test_the_names_of_the_own_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", OWN)
def test_each_of_them_is_reached_through_the_connection_to_the_host(host: str) -> None:
    through = httpx.MockTransport(lambda request: httpx.Response(200, text=f"of {request.url.host}"))
    url = f"http://{host}:9404/metrics"
    with http_client(url, timeout_s=1, through=through) as client:
        assert client.get(url).text.startswith("of ")


def test_another_host_is_reached_directly() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200)

    url = "http://host.invalid:9404/metrics"
    with http_client(url, timeout_s=1, through=httpx.MockTransport(answer)) as client, pytest.raises(httpx.HTTPError):
        client.get(url)
    assert asked == []
