"""A token server: issues JWTs by the client credentials grant, signed with a key that brokers read as a JWKS file."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

LIFETIME_S = 20


@dataclass(kw_only=True)
class TokenServer:
    """`clients`: secret by client id; the client id is the `sub` of its tokens. `issued`: number by client id."""

    clients: dict[str, str]
    url: str = ""
    issued: dict[str, int] = field(default_factory=dict)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def write_jwks(self, path: Path) -> str:
        """Write the public key; returns the file's URL."""
        numbers = self.key.public_key().public_numbers()
        parts = {name: _encode(value.to_bytes((value.bit_length() + 7) // 8)) for name, value in _numbers(numbers)}
        path.write_text(json.dumps({"keys": [{"kty": "RSA", "kid": "tests", "alg": "RS256", "use": "sig", **parts}]}))
        return path.as_uri()

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if self.clients.get(client) != secret:
            return 401, {"error": "invalid_client"}
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        self.issued[client] = self.issued.get(client, 0) + 1
        return 200, {"access_token": self._token(client), "token_type": "Bearer", "expires_in": LIFETIME_S}

    def _token(self, client: str) -> str:
        now = int(time.time())
        claims = {"sub": client, "iat": now, "exp": now + LIFETIME_S, "iss": "tests", "scope": "kafka"}
        text = ".".join(_encode(json.dumps(one).encode()) for one in ({"alg": "RS256", "kid": "tests"}, claims))
        return f"{text}.{_encode(self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@contextmanager
def token_server(clients: dict[str, str]) -> Iterator[TokenServer]:
    tokens = TokenServer(clients=clients)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, answer = tokens.answer(self.headers.get("Authorization", ""), form)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    tokens.url = f"http://127.0.0.1:{server.server_address[1]}/token"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield tokens
    finally:
        server.shutdown()
        server.server_close()


def _numbers(numbers: rsa.RSAPublicNumbers) -> list[tuple[str, int]]:
    return [("n", numbers.n), ("e", numbers.e)]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
