"""A server on loopback that speaks the part of Prometheus's HTTP API that conditions from outside use."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Mapping[str, str], bytes]


def success(kind: str, result: Any, **more: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more}).encode()


def vector(*values: str, **more: Any) -> bytes:
    return success("vector", [{"metric": {"n": str(n)}, "value": [1.5, v]} for n, v in enumerate(values)], **more)


@contextmanager
def prometheus(answer: Callable[[str, Mapping[str, str]], bytes | Answer]) -> Iterator[str]:
    """Yield the URL. `answer`: query and headers of a request → a body, or status, headers and body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path != "/prefix/api/v1/query":
                self.send_error(404)
                return
            found = answer(parse_qs(url.query)["query"][0], dict(self.headers))
            status, headers, body = found if isinstance(found, tuple) else (200, {}, found)
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/prefix"
    finally:
        server.shutdown()
        server.server_close()
