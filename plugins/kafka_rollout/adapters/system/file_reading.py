"""Reading files that somebody named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_rollout.domain.model.errors import UserError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What the operating system refuses becomes a sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename or path} cannot be read: {error.strerror}.",
            remedy="Check its owner and rights, or read a copy.",
        ) from None
