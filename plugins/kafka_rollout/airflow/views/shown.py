"""Texts from outside in an answer of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_rollout.base.outside_text import escape_invisible


def shown(value: Any) -> Any:
    """Return the same data with each text as one visible line, because names and log lines come from the cluster."""
    if isinstance(value, str):
        return escape_invisible(value)
    if isinstance(value, Mapping):
        return {escape_invisible(str(key)): shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list | tuple) else value
