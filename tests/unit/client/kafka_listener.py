"""A listener on loopback that answers Kafka's protocol by a script: for what a connection does with its peer."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

Answer = Callable[[int, int, bytes], Any]  # (api key, version, body) → a response, or None to close the connection

_OFFERED = (
    (ApiVersionsRequest, 4),
    (SaslHandshakeRequest, 1),
    (SaslAuthenticateRequest, 1),
    (ListGroupsRequest, 2),
)


class Listener:
    """Counts connections and remembers the SASL tokens it was sent."""

    def __init__(self, answer: Answer | None = None) -> None:
        self._answer = answer or self.well
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.connections = 0
        self.tokens: list[bytes] = []
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @staticmethod
    def question() -> Any:
        return ListGroupsRequest()

    def well(self, api_key: int, version: int, body: bytes) -> Any:
        """Answer as a broker that lets everybody in and has no groups."""
        if api_key == ApiVersionsRequest.API_KEY:
            key = ApiVersionsResponse.ApiVersion
            offered = [key(api_key=r.API_KEY, min_version=0, max_version=highest) for r, highest in _OFFERED]
            return ApiVersionsResponse(version=version, error_code=0, api_keys=offered)
        if api_key == SaslHandshakeRequest.API_KEY:
            return SaslHandshakeResponse(version=version, error_code=0, mechanisms=["PLAIN"])
        if api_key == SaslAuthenticateRequest.API_KEY:
            self.tokens.append(body[4:])
            return SaslAuthenticateResponse(
                version=version, error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0
            )
        return ListGroupsResponse(version=version, error_code=0, groups=[])

    def hang_up(self) -> None:
        """Close every open connection, as a node does that goes away; new ones are accepted."""
        for connection in self._open:
            connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as stream:
                while len(size := stream.read(4)) == 4:
                    request = io.BytesIO(stream.read(struct.unpack(">i", size)[0]))
                    api_key, version = struct.unpack(">hh", request.read(4))
                    flexible = api_key == ApiVersionsRequest.API_KEY and version >= 3
                    request.seek(0)
                    header = RequestHeader.decode(request, flexible=flexible)
                    response = self._answer(api_key, version, request.read())
                    if response is None:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    response.with_header(correlation_id=header.correlation_id)
                    connection.sendall(response.encode(framed=True, header=True))
        except OSError:
            return


@contextmanager
def accepting_plain(answer: Answer | None = None) -> Iterator[Listener]:
    listener = Listener(answer)
    try:
        yield listener
    finally:
        listener.close()
