"""Connections that another thread ends, because their peer neither sends an end nor stays silent."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer


@contextmanager
def shut_after(descriptor: int, seconds: float) -> Iterator[None]:
    """Shut down the socket of a file descriptor if the block lasts longer, which ends each read and write in it."""
    with socket.socket(fileno=os.dup(descriptor)) as link:
        timer = Timer(seconds, _shut, [link])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _shut(link: socket.socket) -> None:
    with suppress(OSError):  # the block has just ended
        link.shutdown(socket.SHUT_RDWR)
