"""Servers on loopback that never end their response."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from kafka_rollout.base.system.http import can_pass, http_client, text_of

WITHIN_S = 0.4
PARTS = 200  # each PAUSE_S after the other: 10 s, after which a test without a limit fails
PAUSE_S = 0.05


@contextmanager
def sends(first: bytes, part: bytes) -> Iterator[str]:
    """Yield the URL of a server that sends `first`, and then `part` again and again."""

    def serve() -> None:
        link, _ = server.accept()
        with link, suppress(OSError):
            link.recv(65_536)
            link.sendall(first)
            for _ in range(PARTS):
                link.sendall(part)
                time.sleep(PAUSE_S)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("first", "part"),
    [
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", b"1"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b"1"),
    ],
    ids=["interim responses", "header", "body", "body until the end of the connection"],
)
def test_a_response_without_an_end_is_refused_after_its_time(first: bytes, part: bytes) -> None:
    began = time.monotonic()
    with sends(first, part) as url, httpx.Client(timeout=5, trust_env=False) as client:
        with pytest.raises(ValueError, match=r"it did not send all of its response in 0\.4 s"):
            text_of(client, client.build_request("GET", url), most_mib=1, within_s=WITHIN_S)
        assert time.monotonic() - began < PARTS * PAUSE_S / 2


def test_a_certificate_that_is_not_trusted_is_not_cured_by_a_repetition() -> None:
    def failed(cause: Exception) -> httpx.ConnectError:
        try:
            raise httpx.ConnectError(str(cause)) from cause
        except httpx.ConnectError as error:
            return error

    assert can_pass(failed(ConnectionRefusedError()))
    assert not can_pass(failed(ssl.SSLCertVerificationError("self-signed certificate")))


def test_no_url_of_a_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, stream=httpx.ByteStream(b"1")))
    with httpx.Client(transport=transport) as client:
        _, text = text_of(client, client.build_request("GET", "http://a/?query=up"), most_mib=1, within_s=5)
    assert text == "1"
    assert "query" not in caplog.text


def test_an_address_without_tls_reads_no_certificates_and_trusts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    load = ssl.SSLContext.load_verify_locations

    def note(context: ssl.SSLContext, *args: Any, **options: Any) -> None:
        read.append("certificates")
        load(context, *args, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", note)
    with http_client("https://localhost:1", timeout_s=1):
        assert read == ["certificates"]
    with http_client("http://localhost:1", timeout_s=1):
        assert read == ["certificates"]
    unused = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert (unused.verify_mode, unused.check_hostname, unused.get_ca_certs()) == (ssl.CERT_REQUIRED, True, [])
