"""Which commands of a unit can end a start of its node in another way than they ended the last one.

A command of the site asks something: a token, a server, a mount, a repository. Its last answer is as old as the last
start. A command counts unless it is known to only prepare folders and files, which other checks look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PREPARES = frozenset(
    {
        *("chgrp", "chmod", "chown", "echo", "install", "ln", "mkdir", "restorecon", "rm", "setfacl", "sleep", "touch"),
        "true",
    }
)
_SHELL = re.compile(r"\S*/(?:ba|da)?sh\s+-\w*c\s+(.*)", re.DOTALL)
_PARTS = re.compile(r"&&|\|\||[;\n]")
_COMPUTES = re.compile(r"\$\(|`|[<|&]")


def find_conditions(commands: Iterable[str]) -> tuple[str, ...]:
    """Return the commands whose next result is unknown, each once. Those of Kafka have a check of their own."""
    return tuple(dict.fromkeys(one for one in commands if not _is_known(one)))


def _is_known(command: str) -> bool:
    shell = _SHELL.match(command)
    if shell is None:
        return _prepares(command) or _program(command).startswith("kafka-")
    parts = _PARTS.split(shell[1].strip("'\""))
    return all(_prepares(part) and not _COMPUTES.search(part) for part in parts if part.strip())


def _prepares(command: str) -> bool:
    return _program(command) in _PREPARES


def _program(command: str) -> str:
    words = command.split(maxsplit=1)
    return words[0].rpartition("/")[2] if words else ""
