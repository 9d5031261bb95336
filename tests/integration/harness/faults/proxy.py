"""A listener on loopback in front of a node, for what becomes of a connection on its way."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod


class Proxy(ABC):
    """Takes connections at `address` until it is closed; `serve` is called with each, in a thread of its own."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.rpartition(":")
        self.upstream = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    @abstractmethod
    def serve(self, client: socket.socket) -> None:
        """One connection, to its end."""

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()
