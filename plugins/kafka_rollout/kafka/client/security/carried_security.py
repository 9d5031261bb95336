"""Security settings for processes that cannot read the files of this host: Spark's executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.kafka.client.security.memory_files import file_in_memory

_PEM_FILES = ("ca_location", "certificate_location", "key_location", "token_ca_location")


@dataclass(frozen=True, slots=True)
class CarriedSecurity:
    """Settings of one user with the contents of their PEM files. Only an encrypted connection can carry them."""

    settings: str = field(repr=False)  # ClientSecurity.to_json
    files: tuple[tuple[str, bytes], ...] = field(repr=False)  # field of ClientSecurity, content

    @classmethod
    def pack(cls, security: ClientSecurity) -> CarriedSecurity:
        """Read the PEM files. Raises UserError for a file that cannot be read."""
        paths = {name: path for name in _PEM_FILES if (path := getattr(security, name))}
        return cls(security.to_json(), tuple((name, _read(path)) for name, path in paths.items()))

    def unpack(self) -> ClientSecurity:
        """Return the settings. The PEM files exist in the memory of this process only, until it ends."""
        paths = {name: file_in_memory(content) for name, content in self.files}
        return ClientSecurity.from_json(self.settings, "The security settings of the scan").model_copy(update=paths)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(
            f"The TLS file {path} cannot be read: {error.strerror}.", remedy="Use a readable PEM file."
        ) from None
