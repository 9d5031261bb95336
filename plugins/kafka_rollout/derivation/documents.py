"""The files of one release in the catalogue, as JSON. The same facts give the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kafka_rollout.base.system.files import sha256_of
from kafka_rollout.derivation import jars
from kafka_rollout.derivation.jars import Message
from kafka_rollout.metadata_log.records import MetadataLogFacts
from kafka_rollout.releases.documents.catalogue import file_form
from kafka_rollout.releases.facts import ReleaseFacts

TOOL = "kafka-rollout catalogue add, version 7"
_DIGITS = 12  # of the SHA-256 in the name of a definition


def facts_document(facts: ReleaseFacts, libs: Path) -> dict[str, Any]:
    """Return the JSON form of a release's facts, which releases/documents/catalogue.py reads."""
    return {"release": str(facts.release), "derived_from": _source(jars.kafka_jars(libs)), **file_form(facts)}


def metadata_document(facts: MetadataLogFacts, libs: Path) -> dict[str, Any]:
    """Return the JSON form of the facts about the metadata log, which metadata_log/classes/known_releases.py reads."""
    of_metadata = [jar for jar in jars.kafka_jars(libs) if jar.name.startswith(("kafka-metadata", "kafka-raft"))]
    return {
        "release": str(facts.release),
        "derived_from": _source(of_metadata),
        "starts_from_snapshot": facts.starts_from_snapshot,
        "records": [file_form(record) for _, record in sorted(facts.records.items())],
    }


def _source(of: Iterable[Path]) -> dict[str, Any]:
    return {"tool": TOOL, "jars": {jar.name: sha256_of(jar) for jar in of}}


def definition_file(name: str, definition: Mapping[str, Any]) -> str:
    """Return the name of a definition's file without its suffix: equal definitions of all releases share one file."""
    return f"{name}-{hashlib.sha256(pretty(definition).encode()).hexdigest()[:_DIGITS]}"


def messages_document(messages: Mapping[str, Message], libs: Path) -> dict[str, Any]:
    """Return the definitions of a release's coordinator records, by reference, and their jars."""
    names = sorted({message.jar for message in messages.values()})
    return {
        "jars": {name: sha256_of(libs / name) for name in names},
        "messages": {
            name: {"jar": message.jar, "definition": definition_file(name, message.definition)}
            for name, message in messages.items()
        },
    }


def pretty(value: Any, depth: int = 0) -> str:
    """Return JSON with one value per line if it fits, so that a diff is short."""
    line = json.dumps(value)
    if len(line) + depth <= 110 or not isinstance(value, dict | list) or not value:
        return line
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        inner = [f"{pad}{json.dumps(key)}: {pretty(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner) + "\n" + " " * depth + "}"
    inner = [f"{pad}{pretty(item, depth + 1)}" for item in value]
    return "[\n" + ",\n".join(inner) + "\n" + " " * depth + "]"
