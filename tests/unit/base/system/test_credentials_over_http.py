"""Every request with credentials: a redirect gets no header, and a proxy sees no credential."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.system.http import http_client, text_of
from kafka_rollout.client.security.client_security import ClientSecurity, PrometheusAccess
from kafka_rollout.client.security.tokens import TokenClient, TokenProvider
from kafka_rollout.model.topology import NodeSpec, OutsideCondition
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.nodes.outside import query_prometheus

SECRET = "s3cret-of-the-client"
CONDITION = OutsideCondition(name="up", query="up", requires="< 5", timeout_s=5.0)


@dataclass
class Server:
    """`seen`: method, path and Authorization of each request."""

    url: str = ""
    seen: list[tuple[str, str, str]] = field(default_factory=list)


@contextmanager
def server(code: int = 200, location: str = "") -> Iterator[Server]:
    found = Server()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found.seen.append((self.command, self.path, self.headers.get("Authorization", "")))
            body = b'{"access_token": "t", "expires_in": 60}'
            self.send_response(code)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_CONNECT = answer

        def log_message(self, *_: object) -> None:
            """Nothing."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{listening.server_address[1]}"
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield found
    finally:
        listening.shutdown()
        listening.server_close()


def request_token(url: str) -> None:
    TokenProvider(TokenClient(url, "rollout", SECRET)).token()


def request_token_with_librdkafka(url: str) -> None:
    security = ClientSecurity.model_validate(
        {
            "protocol": "SASL_PLAINTEXT",
            "mechanism": "OAUTHBEARER",
            "username": "rollout",
            "password": SECRET,
            "token_url": url,
        }
    )
    AdminClient({"bootstrap.servers": "127.0.0.1:9", "log_level": 0, **security.confluent()}).poll(0.3)


def query(url: str) -> None:
    access = PrometheusAccess(url=url, username="rollout", password=SecretStr(SECRET))
    query_prometheus(access, False, CONDITION)


def query_with_a_bearer_token(url: str) -> None:
    query_prometheus(PrometheusAccess(url=url, password=SecretStr(SECRET)), False, CONDITION)


def query_agents(url: str) -> None:
    NodeMetricsReader().read(NodeSpec(node_id=1, name="one", roles=frozenset(), jolokia_url=url, prometheus_url=url))


def post(url: str) -> None:
    with http_client(url, timeout_s=5, headers={"Authorization": f"Bearer {SECRET}"}, proxied=True) as client:
        text_of(client, client.build_request("POST", url, json={}), most_mib=1, within_s=5)


CALLERS = [request_token, request_token_with_librdkafka, query, query_with_a_bearer_token, query_agents, post]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(("call", "host"), [*((call, "localhost") for call in CALLERS), (request_token, "127.0.0.1")])
def test_a_redirect_is_not_followed(call: Callable[[str], None], code: int, host: str) -> None:
    with server() as other:
        target = other.url.replace("127.0.0.1", host)
        with server(code, f"{target}/elsewhere") as first:
            with suppress(RolloutError, httpx.HTTPError, ValueError):
                call(first.url)
            assert first.seen, "the request was made"
            assert {path for _, path, _ in first.seen} <= {"/", "/api/v1/query?query=up&timeout=5s"}
        assert other.seen == []


@pytest.mark.parametrize("call", [caller for caller in CALLERS if caller is not request_token_with_librdkafka])
def test_the_proxy_of_the_environment_gets_no_plain_request(
    call: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as proxy, server() as first:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        with suppress(RolloutError, httpx.HTTPError, ValueError):
            call(first.url)
        assert first.seen
        assert proxy.seen == []


@pytest.mark.parametrize(
    ("call", "is_tunnelled"),
    [(request_token, True), (post, True), (query, False), (query_with_a_bearer_token, False), (query_agents, False)],
)
def test_a_proxy_sees_at_most_the_host_of_an_encrypted_request(
    call: Callable[[str], None], is_tunnelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token servers and webhooks can be on the Internet, which some workers reach through a proxy only."""
    with server(403) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        with suppress(RolloutError, httpx.HTTPError, ValueError):
            call("https://host.invalid/token")
        assert proxy.seen == ([("CONNECT", "host.invalid:443", "")] if is_tunnelled else [])
