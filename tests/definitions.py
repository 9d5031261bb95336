"""The message definitions of the catalogue, by release and name."""

from __future__ import annotations

import json
from functools import cache

from kafka_rollout.formats.documents.definitions import Definitions
from kafka_rollout.formats.layouts import MessageSchema
from tests.paths import INCLUDE

_DEFINITIONS = Definitions(INCLUDE)


@cache
def definition_names(release: str) -> dict[str, str]:
    """Message → the name of its definition's file."""
    document = json.loads((INCLUDE / "schemas" / "kafka" / f"{release}.json").read_text())
    return {name: one["definition"] for name, one in document["messages"].items()}


def schema(release: str, name: str) -> MessageSchema:
    return _DEFINITIONS.schema(definition_names(release)[name])


@cache
def distinct_definitions() -> dict[str, tuple[str, str]]:
    """Name of a definition's file → the first release that has it, and the message."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted((INCLUDE / "schemas" / "kafka").glob("*.json")):
        for name, definition in definition_names(path.stem).items():
            found.setdefault(definition, (path.stem, name))
    return found
