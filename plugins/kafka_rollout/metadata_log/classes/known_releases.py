"""The catalogue's facts about metadata logs, releases/metadata/ and schemas/metadata/.

derivation writes both.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.system.files import read_regular
from kafka_rollout.formats.documents.definitions import METADATA_RECORDS, Definitions, read_references
from kafka_rollout.formats.layouts import MessageSchema
from kafka_rollout.metadata_log.record_types import MetadataLogFacts, MetadataRecordFacts
from kafka_rollout.releases.documents.catalogue import release_files
from kafka_rollout.releases.facts import Release, VersionRange

FACTS = "releases/metadata"


def metadata_facts(release: Release, *folders: Path) -> MetadataLogFacts:
    """`folders`: those of the catalogue. Raises UserError for a release that has no file."""
    found = release_files(*folders, of=FACTS)
    if release not in found:
        raise UserError(
            f"The catalogue does not contain which metadata records {release} reads.",
            remedy=f"Choose one of {', '.join(map(str, found))}.",
        )
    document = _document(found[release])
    return MetadataLogFacts(
        release=release,
        records={
            one["type"]: MetadataRecordFacts(**{**one, "reads": VersionRange(*one["reads"])})
            for one in document["records"]
        },
        names={one["type"]: one["name"] for path in found.values() for one in _document(path)["records"]},
        starts_from_snapshot=document["starts_from_snapshot"],
    )


def known_releases(*folders: Path) -> tuple[Release, ...]:
    """The releases whose metadata records are known, oldest first."""
    return tuple(release_files(*folders, of=FACTS))


@lru_cache(maxsize=4)
def metadata_schemas(release: Release, *folders: Path) -> dict[int, MessageSchema]:
    """The definition of each record type."""
    definitions = Definitions(*folders)
    references = read_references(release_files(*folders, of=METADATA_RECORDS), release)
    return {int(kind): definitions.schema(name) for kind, name in references.items()}


def _document(path: Path) -> Any:
    return parse_json(read_regular(path))
