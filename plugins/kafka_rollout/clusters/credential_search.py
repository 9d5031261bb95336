"""Finds a possible credential in the values of an inventory, by its key or by its form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_CREDENTIAL_KEY = re.compile(
    r"(^|[._-])(password|passwd|passphrase|secret|token|credentials?|jaas[._-]config"
    r"|(api|secret|private|access|keystore)[._-]?key)$",
    re.IGNORECASE,
)
_CREDENTIAL_ARGUMENT = re.compile(
    r"(authorization)\s*:\s*\S"
    r"|(?<!\S)(-u|--user)[=\s]+[^\s:]+:(?!//|\d{1,5}(?:\s|$))\S",  # not the URL or the port of another program's -u
    re.IGNORECASE,
)
_CREDENTIAL_VALUE = re.compile(r"-----BEGIN |://[^/\s@]*:[^/\s@]*@|\bpassword\s*=", re.IGNORECASE)


def find_credential(value: object) -> str | None:
    """The place of a possible credential, as a path of keys; never its value."""
    return _find(value, set(), "")


def find_credential_argument(words: Iterable[str]) -> str | None:
    """Return the name of a possible credential in the arguments of a command, without its value.

    Such as `--token`, `TOKEN=x`, `-u user:x` and `Authorization: Bearer x`, also in the text of a shell's `-c`.
    """
    line = " ".join(words)
    for word in line.split():
        name, equals, _ = word.partition("=")
        if (equals or word.startswith("-")) and _CREDENTIAL_KEY.search(name):
            return name
    found = _CREDENTIAL_ARGUMENT.search(line)
    return None if found is None else found[1] or found[2]


def _find(value: object, seen: set[int], where: str) -> str | None:
    """`seen`: ids of the values that were checked. A few YAML aliases can repeat a value too often to check each."""
    if id(value) in seen:
        return None
    if isinstance(value, Mapping | list):
        seen.add(id(value))
    if isinstance(value, Mapping):
        for key, below in value.items():
            here = f"{where}.{key}" if where else str(key)
            if _CREDENTIAL_KEY.search(str(key)):
                return here
            if found := _find(below, seen, here):
                return found
    elif isinstance(value, list):
        for index, below in enumerate(value):
            if found := _find(below, seen, f"{where}[{index}]"):
                return found
    elif isinstance(value, str) and _CREDENTIAL_VALUE.search(value):
        return where
    return None
