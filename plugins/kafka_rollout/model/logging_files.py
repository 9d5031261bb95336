"""The logging configuration that the start script of a release takes from its folder, before and after a switch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingFile:
    path: str
    lines: tuple[str, ...]
    """Without comments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingFiles:
    now: LoggingFile
    """Of the process."""
    then: LoggingFile | None
    """Of the release; None: its folder is not there yet, and will have Kafka's own file."""
