"""Bodies of HTTP responses, with a limit of size and time."""

from __future__ import annotations

import time

import httpx


def text_of(
    client: httpx.Client, request: httpx.Request, *, most_mib: int, within_s: float
) -> tuple[httpx.Response, str]:
    """Return a response, whatever its status, and its body. A compressed one is refused: its size is unknown.

    Raises httpx.HTTPError without a response, and ValueError for one that is refused.
    """
    until = time.monotonic() + within_s
    request.headers["accept-encoding"] = "identity"
    answer = client.send(request, stream=True)
    try:
        if encoding := answer.headers.get("content-encoding"):
            raise ValueError(f"it sends a response with content encoding {encoding}, which was not requested")
        body = bytearray()
        for part in answer.iter_raw():
            body += part
            if len(body) > most_mib << 20:
                raise ValueError(f"it sends more than {most_mib} MiB")
            if time.monotonic() > until:
                raise ValueError(f"it did not send all of its response in {within_s:g} s")
    finally:
        answer.close()
    return answer, body.decode(errors="replace")
