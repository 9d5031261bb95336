"""The coordinator logs' message definitions, include/schemas/kafka/<release>/, by the catalogue's record names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.adapters.releases.catalogue import load_catalogue
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.releases import CoordinatorLogFacts, Release
from kafka_rollout.wire.coordinator_records import RecordLayouts
from kafka_rollout.wire.layouts import MessageSchema, SchemaError

_REMEDY = "Restore it from the repository, or derive it again with `python -m tools.derive_catalogue`."


@dataclass(frozen=True, slots=True)
class Schemas:
    """The layouts with which each release of the catalogue reads each coordinator log, by key version."""

    by_log: Mapping[tuple[Release, str], Mapping[int, RecordLayouts]]

    @property
    def releases(self) -> tuple[Release, ...]:
        return tuple(sorted({release for release, _ in self.by_log}))

    def log(self, release: Release, topic: str) -> Mapping[int, RecordLayouts]:
        """Key version → layouts; empty if the release has no coordinator for this log."""
        return self.by_log.get((release, topic), {})

    def layouts(self, release: Release, topic: str, key_version: int) -> RecordLayouts | None:
        """None if the release does not support this key version."""
        return self.log(release, topic).get(key_version)


def load_schemas(include: Path, *, new_group_coordinator: bool = False) -> Schemas:
    """The definitions of every release of the catalogue; raises UserError with the name of an invalid file.

    `new_group_coordinator`: for releases that are configured to start it (Catalogue.configured).
    """
    folder = include / "schemas" / "kafka"
    catalogue = load_catalogue(include).configured(new_group_coordinator=new_group_coordinator)
    return Schemas(
        {
            (release, topic): _log(folder / str(release), facts)
            for release, of_release in catalogue.releases.items()
            for topic, facts in of_release.coordinator_logs.items()
        }
    )


def _log(folder: Path, facts: CoordinatorLogFacts) -> dict[int, RecordLayouts]:
    found = {}
    for record in facts.records:
        key = _schema(folder / f"{record.name}Key.json")
        # Up to 4.0 the version of a key is the record type; from 4.1 every key has version 0 and an apiKey.
        version = record.key_version if record.key_version in key.valid_versions else key.valid_versions.max
        found[record.key_version] = RecordLayouts(
            name=record.name,
            key=key.layout(version),
            value=_schema(folder / f"{record.name}Value.json"),
            rules=record.rules,
        )
    return found


def _schema(path: Path) -> MessageSchema:
    try:
        return MessageSchema.parse(path.read_text())
    except OSError as error:
        raise UserError(f"The message definition {path} cannot be read: {error.strerror}.", remedy=_REMEDY) from None
    except SchemaError as error:
        raise UserError(f"{path}: {error.sentence}", remedy=_REMEDY) from None
