"""Bodies of HTTP responses, with a limit of size and time."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import Any

import httpx

from kafka_rollout.base.system.links import shut_after

logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs the URL of each request


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
                raise ValueError(too_slow) from error
            raise
        if time.monotonic() >= until:  # the end of the connection can be the end of the body
            raise ValueError(too_slow)
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
