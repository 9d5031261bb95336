"""A real SMTP server and a real HTTP server on the loopback interface, which keep what they get."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message

HOST = "127.0.0.1"


class _Mails(Message):
    def __init__(self, mails: list[EmailMessage]) -> None:
        super().__init__()
        self._mails = mails

    def handle_message(self, message: Any) -> None:
        self._mails.append(message_from_bytes(bytes(message), policy=policy.default))


class _Server(Controller):
    """A server on a free port, to which it connects once to wait for itself."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@dataclass(kw_only=True)
class MailServer:
    port: int
    mails: list[EmailMessage]


@contextmanager
def mail_server() -> Iterator[MailServer]:
    mails: list[EmailMessage] = []
    controller = _Server(_Mails(mails), hostname=HOST, port=0)
    controller.start()
    try:
        yield MailServer(port=controller.port, mails=mails)
    finally:
        controller.stop()


@dataclass(kw_only=True)
class Webhook:
    """`posts`: path, Authorization header and JSON of each request. `answers`: status codes, then 200."""

    url: str
    posts: list[tuple[str, str, Any]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)


@contextmanager
def webhook_server() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.posts.append((self.path, self.headers.get("Authorization", ""), json.loads(body)))
            self.send_response(made.answers.pop(0) if made.answers else 200)
            self.send_header("Location", f"{made.url}/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    made = Webhook(url=f"http://{HOST}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
