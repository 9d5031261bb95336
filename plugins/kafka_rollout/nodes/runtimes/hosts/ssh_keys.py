"""The keys of an SSH agent that `IdentitiesOnly` permits: those whose public half is in a file of `IdentityFile`.

The file can be the public half itself, as for a key on a card; a private file that is not there or has a passphrase; or
one of OpenSSH's form, which contains the public half in the clear (ssh_config(5), PROTOCOL.key of OpenSSH).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import paramiko

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.files import read_regular

_OPENSSH = "-----BEGIN OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"
_PUBLIC = re.compile(r"(?:ssh|ecdsa|sk-ssh|sk-ecdsa)-\S+ ([A-Za-z0-9+/=]+)(?:\s|$)")


def public_half(identity: Path) -> bytes | None:
    """Return the public key of a file of IdentityFile, also if there is only FILE.pub; None if no file has it."""
    return _public(_text(identity)) or _public(_text(identity.with_name(f"{identity.name}.pub")))


def is_public(identity: Path) -> bool:
    """Return whether a file is a public key, which needs an agent."""
    return _PUBLIC.match(_text(identity)) is not None


class PermittedKeys(paramiko.Agent):
    """The agent of SSH_AUTH_SOCK with the keys of these public halves only."""

    def __init__(self, permitted: Iterable[bytes]) -> None:
        super().__init__()
        self._permitted = frozenset(permitted)

    def get_keys(self) -> tuple[paramiko.AgentKey, ...]:
        return tuple(key for key in super().get_keys() if key.asbytes() in self._permitted)


def _text(path: Path) -> str:
    with suppress(OSError, UserError):
        return read_regular(path).decode(errors="replace")
    return ""


def _public(text: str) -> bytes | None:
    with suppress(binascii.Error, IndexError, paramiko.SSHException):
        if match := _PUBLIC.match(text):
            return base64.b64decode(match[1])
        if text.startswith(_OPENSSH):
            content = base64.b64decode("".join(text.split("-----")[2].split()))
            if content.startswith(_MAGIC):
                message = paramiko.Message(content[len(_MAGIC) :])
                for _ in range(3):  # the cipher, the function that makes its key, and the options of it
                    message.get_string()
                return message.get_string() if message.get_int() == 1 else None
    return None
