"""The coordinator logs' message definitions, schemas/kafka/<release>.json, by the catalogue's record names.

Such a file names a definition in schemas/definitions/ for each message. Equal definitions of releases are one file,
which is parsed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.system.files import read_regular
from kafka_rollout.formats.coordinator_records import RecordLayouts
from kafka_rollout.formats.layouts import MessageSchema, SchemaError
from kafka_rollout.releases.documents.catalogue import load_catalogue, release_files
from kafka_rollout.releases.facts import CoordinatorLogFacts, Release

COORDINATOR_MESSAGES, METADATA_RECORDS = "schemas/kafka", "schemas/metadata"
DEFINITIONS = "schemas/definitions"

_REMEDY = "Restore it from the repository, or derive it again with `kafka-rollout-derive add RELEASE`."


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


class Definitions:
    """The parsed definitions of the catalogue's folders, by the name of their file. Each file is read once."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._parsed: dict[str, MessageSchema] = {}

    def schema(self, name: str) -> MessageSchema:
        """Raises UserError with the name of a missing or invalid file."""
        if name not in self._parsed:
            self._parsed[name] = self._read(name)
        return self._parsed[name]

    def _read(self, name: str) -> MessageSchema:
        paths = [folder / DEFINITIONS / f"{name}.json" for folder in self._folders]
        path = next((one for one in paths if one.exists()), paths[0])
        try:
            return MessageSchema.parse(read_regular(path).decode())
        except OSError as error:
            raise UserError(
                f"The message definition {path} cannot be read: {error.strerror}.", remedy=_REMEDY
            ) from None
        except SchemaError as error:
            raise UserError(f"{path}: {error.sentence}", remedy=_REMEDY) from None


def read_references(files: Mapping[Release, Path], release: Release) -> Any:
    """Return the content of a release's file among `files`, those of COORDINATOR_MESSAGES or METADATA_RECORDS.

    Raises UserError for a missing or invalid file.
    """
    path = files.get(release)
    if path is None:
        raise UserError(f"The catalogue has no message definitions of {release}.", remedy=_REMEDY)
    try:
        return parse_json(read_regular(path))
    except (OSError, ValueError) as error:
        raise UserError(f"The catalogue file {path} cannot be read: {error}.", remedy=_REMEDY) from None


def load_schemas(*folders: Path, new_group_coordinator: bool | None = False) -> Schemas:
    """The definitions of every release of the catalogue; raises UserError with the name of an invalid file.

    `new_group_coordinator`: for releases that are configured to start it (Catalogue.configured).
    """
    catalogue = load_catalogue(*folders).configured(new_group_coordinator=new_group_coordinator)
    definitions, files = Definitions(*folders), release_files(*folders, of=COORDINATOR_MESSAGES)
    found = {}
    for release, of_release in catalogue.releases.items():
        messages = read_references(files, release)["messages"]
        for topic, facts in of_release.coordinator_logs.items():
            found[release, topic] = _log(definitions, messages, facts)
    return Schemas(found)


def _log(definitions: Definitions, messages: Mapping[str, Any], facts: CoordinatorLogFacts) -> dict[int, RecordLayouts]:
    def schema(name: str) -> MessageSchema:
        if name not in messages:
            raise UserError(f"The catalogue has no definition of the message {name}.", remedy=_REMEDY)
        return definitions.schema(messages[name]["definition"])

    found = {}
    for record in facts.records:
        key = schema(f"{record.name}Key")
        # Up to 4.0 the version of a key is the record type; from 4.1 every key has version 0 and an apiKey.
        version = record.key_version if record.key_version in key.valid_versions else key.valid_versions.max
        found[record.key_version] = RecordLayouts(
            name=record.name,
            key=key.layout(version),
            value=schema(f"{record.name}Value"),
            rules=record.rules,
        )
    return found
