"""Checks derived definitions and facts against the release's own classes and against the other releases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from kafka_rollout.base.errors import FatalError
from kafka_rollout.derivation.coordinators.shards import serialized
from kafka_rollout.derivation.jars import Message
from kafka_rollout.kafka.formats.layouts import MessageSchema, SchemaError
from kafka_rollout.kafka.formats.messages import MessageFormatError, decode
from kafka_rollout.releases.facts import Catalogue, ReleaseFacts
from kafka_rollout.releases.jvm.jvm import Jvm

_REMEDY = "Nothing was written. Report the release; it needs a newer version of this tool."
_VERSION_BYTES = 2


def coordinator_records(facts: ReleaseFacts, messages: Mapping[str, Message]) -> list[Message]:
    """Return the definitions that the facts use."""
    logs = [*facts.coordinator_logs.values(), *filter(None, [facts.new_group_coordinator])]
    names = {record.name for log in logs for record in log.records}
    return [messages[f"{name}{part}"] for name in sorted(names) for part in ("Key", "Value")]


def verify_definitions(jvm: Jvm, messages: Iterable[Message]) -> int:
    """Decode a message of each version that the release wrote, by its definition. Returns the number of messages.

    Raises FatalError for a definition that does not describe all bytes of its message.
    """
    checked = 0
    for message in messages:
        for version in message.valid_versions:
            data = serialized(jvm, message, version)
            try:
                layout = MessageSchema.parse(json.dumps(message.definition)).layout(version)
                end = decode(layout, data, _VERSION_BYTES).end
            except (SchemaError, MessageFormatError) as error:
                raise _wrong(message, version, str(error)) from error
            if end != len(data):
                raise _wrong(message, version, f"{len(data) - end} bytes are left over")
            checked += 1
    return checked


def _wrong(message: Message, version: int, problem: str) -> FatalError:
    return FatalError(
        f"The definition of {message.name} does not describe what the release writes at version {version}: {problem}.",
        remedy=_REMEDY,
    )


def verify_levels(facts: ReleaseFacts, others: Catalogue) -> None:
    """Raises FatalError if a level of metadata.version is a different one in another release of the catalogue."""
    for other in others.releases.values():
        known = {one.level: one for one in other.metadata_versions}
        for level in facts.metadata_versions:
            if level.level in known and known[level.level] != level and other.release != facts.release:
                raise FatalError(
                    f"metadata.version {level.level} is {level.name} in Kafka {facts.release}, but "
                    f"{known[level.level].name} in {other.release}.",
                    remedy=_REMEDY,
                )
