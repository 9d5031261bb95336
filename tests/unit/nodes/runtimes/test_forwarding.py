"""HTTP through a connection to a host, with a socket in the place of the SSH channel."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any, cast

import httpx
import paramiko
import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.nodes.runtimes.hosts.shells import SshShell, SshTransport


class Forwards:
    """`forward` of an SshShell."""

    def __init__(self, open_channel: Callable[[], Any]) -> None:
        self.open_channel, self.asked = open_channel, list[tuple[str, tuple[str, int]]]()

    def forward(self, host: str, address: tuple[str, int]) -> Any:
        self.asked.append((host, address))
        return self.open_channel()


def client(forwards: Forwards) -> httpx.Client:
    return httpx.Client(mounts={"all://127.0.0.1": SshTransport(cast(SshShell, forwards), "kafka-1")})


def test_a_request_and_its_response_go_through_the_channel() -> None:
    ours, theirs = socket.socketpair()
    seen: list[bytes] = []

    def answer() -> None:
        seen.append(theirs.recv(65536))
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nup 1")
        theirs.close()

    server = threading.Thread(target=answer)
    server.start()
    forwards = Forwards(lambda: ours)
    with client(forwards) as http:
        assert http.get("http://127.0.0.1:9404/metrics?name=up").text == "up 1"
    server.join()
    assert forwards.asked == [("kafka-1", ("127.0.0.1", 9404))]
    assert seen[0].startswith(b"GET /metrics?name=up HTTP/1.1\r\n")


def test_a_response_is_read_in_pieces() -> None:
    ours, theirs = socket.socketpair()
    content = bytes(3_000_000)

    def answer() -> None:
        theirs.recv(65536)
        theirs.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + content)
        theirs.close()

    server = threading.Thread(target=answer)
    server.start()
    with client(Forwards(lambda: ours)) as http, http.stream("GET", "http://127.0.0.1:9404/metrics") as response:
        pieces = list(response.iter_raw())
    server.join()
    assert (len(pieces) > 1, b"".join(pieces)) == (True, content)
    assert ours.fileno() == -1, "the channel is closed"


def test_a_response_that_breaks_off_is_an_error_of_the_transport() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nup")
    theirs.shutdown(socket.SHUT_WR)
    with theirs, client(Forwards(lambda: ours)) as http, pytest.raises(httpx.TransportError):
        http.get("http://127.0.0.1:9404/metrics")


@pytest.mark.parametrize(
    "error", [paramiko.ChannelException(2, "Connect failed"), EOFError("closed"), TransientError("Host is away.")]
)
def test_a_host_that_does_not_forward_is_an_agent_without_a_response(error: Exception) -> None:
    def fail() -> Any:
        raise error

    with client(Forwards(fail)) as http, pytest.raises(httpx.ConnectError):
        http.get("http://127.0.0.1:9404/metrics")
