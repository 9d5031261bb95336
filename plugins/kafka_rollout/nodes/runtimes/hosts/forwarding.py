"""HTTP to a metrics agent that listens on the loopback interface of a host, through the SSH connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import cast

import httpx
import paramiko

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.nodes.runtimes.hosts.shells import SshShell

_TIMEOUT_S = 10.0
_CHUNK = 1 << 16
_BROKEN = (paramiko.SSHException, HTTPException, OSError, EOFError)


class SshTransport(httpx.BaseTransport):
    """Sends each request over a channel of the connection to `host`, without a port on this machine."""

    def __init__(self, shell: SshShell, host: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._shell, self._host, self._timeout_s = shell, host, timeout_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx.TransportError, as for a direct connection."""
        address = (request.url.host, request.url.port or 80)
        try:
            channel = self._shell.forward(self._host, address, timeout_s=self._timeout_s)
            try:
                return self._exchange(channel, request)
            except BaseException:
                channel.close()
                raise
        except _BROKEN as error:
            raise httpx.ConnectError(f"not reached from host {self._host}: {error}") from error
        except RolloutError as error:
            raise httpx.ConnectError(error.sentence) from error

    def _exchange(self, channel: paramiko.Channel, request: httpx.Request) -> httpx.Response:
        connection = HTTPConnection(request.url.host, timeout=self._timeout_s)
        connection.sock = cast(socket.socket, channel)  # a channel has the methods that HTTPConnection calls
        headers = {key: value for key, value in request.headers.items() if key != "connection"} | {
            "connection": "close"
        }
        target = request.url.raw_path.decode("ascii")
        connection.request(request.method, target, body=request.read() or None, headers=headers)
        # Not getresponse(): it closes the channel of a response that ends with its connection.
        answer = HTTPResponse(connection.sock, method=request.method)
        answer.begin()
        return httpx.Response(answer.status, headers=answer.getheaders(), stream=_Body(answer, channel))


class _Body(httpx.SyncByteStream):
    """The body of a response, in pieces: its size is unknown. The channel ends with it."""

    def __init__(self, answer: HTTPResponse, channel: paramiko.Channel) -> None:
        self._answer, self._channel = answer, channel

    def __iter__(self) -> Iterator[bytes]:
        try:
            while part := self._answer.read(_CHUNK):
                yield part
        except _BROKEN as error:
            raise httpx.ReadError(f"the response through SSH broke off: {error}") from error
        if self._answer.length:  # read() of a part reports no early end
            raise httpx.ReadError(f"the response through SSH broke off {self._answer.length} bytes before its end")

    def close(self) -> None:
        self._answer.close()
        self._channel.close()
