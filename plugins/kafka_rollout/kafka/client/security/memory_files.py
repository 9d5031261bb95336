"""Files without a name, for keys and certificates that must not be written to a disk."""

from __future__ import annotations

import os
import re
from functools import cache


def is_in_memory(path: str) -> bool:
    """Return whether a path is that of a file from `file_in_memory`, which ends with its process."""
    return re.fullmatch(r"/proc/(self|\d+)/fd/\d+", path) is not None


@cache
def file_in_memory(content: bytes, process: str = "self") -> str:
    """Return the path of a file without a name (memfd_create(2)), because OpenSSL reads a key from a path only.

    It stays open until this process ends, because clients read it again with each connection. `process`: whose path is
    returned; child processes can read the path of a process id while that process runs.
    """
    descriptor = os.memfd_create("kafka-rollout")
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return f"/proc/{process}/fd/{descriptor}"
