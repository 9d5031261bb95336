"""A cable between two nodes that can be cut: the processes run on, and answer everybody else."""

from __future__ import annotations

import select
import socket
import threading

from tests.integration.harness.faults.proxy import Proxy


class Cable(Proxy):
    """Passes everything on to `upstream`, both ways, until it is cut; repaired, it accepts new connections."""

    def __init__(self, upstream: str) -> None:
        self._whole = threading.Event()
        self._whole.set()
        super().__init__(upstream)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self.cut()
        super().close()

    def serve(self, client: socket.socket) -> None:
        with client:
            if not self._whole.is_set():
                return
            with socket.create_connection(self.upstream) as server:
                other = {client: server, server: client}
                while self._whole.is_set():
                    for end in select.select(list(other), [], [], 0.1)[0]:
                        data = end.recv(1 << 16)
                        if not data or not self._whole.is_set():
                            return
                        other[end].sendall(data)
