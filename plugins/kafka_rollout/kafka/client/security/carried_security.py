"""Security settings for processes that cannot read the files of this one: Spark's executors, background processes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.kafka.client.security.memory_files import file_in_memory, is_in_memory

_PEM_FILES = ("ca_location", "certificate_location", "key_location", "token_ca_location")


@dataclass(frozen=True, slots=True)
class CarriedSecurity:
    """Settings of one user with the contents of their PEM files. Carry them encrypted, or by a pipe."""

    settings: str = field(repr=False)  # ClientSecurity.to_json
    files: tuple[tuple[str, bytes], ...] = field(repr=False)  # field of ClientSecurity, content

    @classmethod
    def pack(cls, security: ClientSecurity, *, only_memory: bool = False) -> CarriedSecurity:
        """Read the PEM files. `only_memory`: those that end with this process; the others are read at their paths.

        Raises UserError for a file that cannot be read.
        """
        paths = {name: path for name in _PEM_FILES if (path := getattr(security, name))}
        if only_memory:
            paths = {name: path for name, path in paths.items() if is_in_memory(path)}
        return cls(security.to_json(), tuple((name, _read(path)) for name, path in paths.items()))

    def unpack(self) -> ClientSecurity:
        """Return the settings. The PEM files exist in the memory of this process only, until it ends."""
        paths = {name: file_in_memory(content) for name, content in self.files}
        return ClientSecurity.from_json(self.settings, "The security settings").model_copy(update=paths)

    def to_json(self) -> str:
        """With secrets, for the standard input of a process."""
        return json.dumps({"settings": self.settings, "files": {name: data.decode() for name, data in self.files}})

    @classmethod
    def from_json(cls, text: str) -> CarriedSecurity:
        """Read `to_json`."""
        data = json.loads(text)
        return cls(data["settings"], tuple((name, content.encode()) for name, content in data["files"].items()))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(
            f"The TLS file {path} cannot be read: {error.strerror}.", remedy="Use a readable PEM file."
        ) from None
