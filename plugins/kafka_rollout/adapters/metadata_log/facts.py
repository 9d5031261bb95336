"""The catalogue's facts about metadata logs: include/releases/metadata/ and include/schemas/metadata/.

tools/derivation/metadata.py writes both.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from kafka_rollout.domain.metadata_log.records import MetadataLogFacts, MetadataRecordFacts
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.releases import Release, VersionRange
from kafka_rollout.wire.layouts import MessageSchema


def metadata_facts(include: Path, release: Release) -> MetadataLogFacts:
    """Raises UserError for a release that has no file."""
    document = _document(include / "releases" / "metadata", release)
    return MetadataLogFacts(
        release=release,
        records={
            one["type"]: MetadataRecordFacts(
                **{**one, "reads": VersionRange(*one["reads"])},
            )
            for one in document["records"]
        },
        names={
            one["type"]: one["name"]
            for known in known_releases(include)
            for one in _document(include / "releases" / "metadata", known)["records"]
        },
        starts_from_snapshot=document["starts_from_snapshot"],
    )


def known_releases(include: Path) -> tuple[Release, ...]:
    return tuple(sorted(Release.parse(path.stem) for path in (include / "releases" / "metadata").glob("*.json")))


@lru_cache(maxsize=4)
def metadata_schemas(include: Path, release: Release) -> dict[int, MessageSchema]:
    """The definition of each record type."""
    document = _document(include / "schemas" / "metadata", release)
    return {int(kind): MessageSchema.parse(json.dumps(definition)) for kind, definition in document.items()}


def _document(folder: Path, release: Release) -> Any:
    try:
        return json.loads((folder / f"{release}.json").read_text())
    except FileNotFoundError:
        known = ", ".join(sorted(path.stem for path in folder.glob("*.json")))
        raise UserError(
            f"The catalogue does not say which metadata records {release} reads.",
            remedy=f"Choose one of {known}, or derive it with `python -m tools.derivation.metadata {release}`.",
        ) from None
