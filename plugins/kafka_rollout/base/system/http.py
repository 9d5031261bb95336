"""HTTP requests with or without credentials: no redirect is followed, and responses have a limit of size and time.

Every request to a server that an operator names is made with this client, so that no credential reaches another server.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from kafka_rollout.base.loopback import is_loopback
from kafka_rollout.base.system.links import shut_after

logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs the URL of each request


class SlowResponseError(ValueError):
    """A response was not complete in time."""


def can_pass(error: BaseException) -> bool:
    """Return whether a repeated request can succeed after this error.

    The server did not respond, or too slowly. A file, an address, a certificate and a response stay as they are.
    """
    if isinstance(error, SlowResponseError):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (ssl.SSLCertVerificationError, httpx.UnsupportedProtocol)):
            return False
        cause = cause.__cause__ or cause.__context__
    return isinstance(error, httpx.TransportError)


@contextmanager
def http_client(
    url: str,
    *,
    timeout_s: float,
    verify: ssl.SSLContext | bool = True,
    auth: tuple[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    through: httpx.BaseTransport | None = None,
    proxied: bool = False,
) -> Iterator[httpx.Client]:
    """Yield the client of the server at `url`.

    `through`: the transport for a server at loopback, which is that of a node. `proxied`: the server can be on the
    Internet, so an https URL is reached through the proxy of the environment, which sees only the encrypted connection.
    A proxy sees the credentials of an http URL, so that is never proxied.
    """
    encrypted = httpx.URL(url).scheme == "https"
    if not encrypted:  # httpx would load all certificates each time: 15 ms, for each agent of each node
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts no server
    with httpx.Client(
        timeout=timeout_s,
        verify=verify,
        auth=auth,
        headers=headers,
        transport=through if is_loopback(httpx.URL(url).host) else None,
        trust_env=proxied and encrypted,
        follow_redirects=False,
    ) as client:
        yield client


def text_of(
    client: httpx.Client, request: httpx.Request, *, most_mib: int, within_s: float
) -> tuple[httpx.Response, str]:
    """Return a response, whatever its status, and its body. A compressed one is refused: its size is unknown.

    The connection is shut down after `within_s`: the timeouts of httpx are for each read, and a server can send interim
    responses, or header bytes one by one, without an end. Raises httpx.HTTPError without a response, and ValueError for
    one that is refused.
    """
    until = time.monotonic() + within_s
    too_slow = f"it did not send all of its response in {within_s:g} s"
    with ExitStack() as links:

        def opened(name: str, info: dict[str, Any]) -> None:
            if name == "connection.connect_tcp.complete":
                link = info["return_value"].get_extra_info("socket")
                links.enter_context(shut_after(link.fileno(), max(0.0, until - time.monotonic())))

        request.extensions["trace"] = opened
        # A new connection for each request, so that it is seen above.
        request.headers.update({"accept-encoding": "identity", "connection": "close"})
        try:
            found = _exchange(client, request, most_mib)
        except httpx.TransportError as error:
            if time.monotonic() >= until:
                raise SlowResponseError(too_slow) from error
            raise
        if time.monotonic() >= until:  # the end of the connection can be the end of the body
            raise SlowResponseError(too_slow)
        return found


def _exchange(client: httpx.Client, request: httpx.Request, most_mib: int) -> tuple[httpx.Response, str]:
    answer = client.send(request, stream=True)
    try:
        if encoding := answer.headers.get("content-encoding"):
            raise ValueError(f"it sends a response with content encoding {encoding}, which was not requested")
        body = bytearray()
        for part in answer.iter_raw():
            body += part
            if len(body) > most_mib << 20:
                raise ValueError(f"it sends more than {most_mib} MiB")
    finally:
        answer.close()
    return answer, body.decode(errors="replace")
