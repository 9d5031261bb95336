"""HTTP to a metrics agent that listens on the loopback interface of a host, through the SSH connection."""

from __future__ import annotations

import socket
from http.client import HTTPConnection, HTTPException
from typing import cast

import httpx
import paramiko

from kafka_rollout.adapters.runtimes.hosts.shells import SshShell
from kafka_rollout.domain.model.errors import RolloutError

_TIMEOUT_S = 10.0


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
            finally:
                channel.close()
        except (paramiko.SSHException, HTTPException, OSError, EOFError) as error:
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
        answer = connection.getresponse()
        return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())
