"""From which metadata.version a demo starts when it goes down."""

from __future__ import annotations

from kafka_rollout.domain.features.rules import METADATA_VERSION_FLOOR
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.releases import METADATA_VERSION, MetadataVersionLevel, ReleaseFacts


def lowerable_from(source: ReleaseFacts, target: ReleaseFacts) -> MetadataVersionLevel:
    """The highest level of `source` from which released Kafka goes down to the highest of `target`: above it, none may
    have changed metadata. Raises UserError where the releases have no level in common."""
    highest = target.features[METADATA_VERSION].supported.max
    levels = {level.level: level for level in source.metadata_versions}
    if highest not in levels:
        raise UserError(
            f"Kafka {source.release} does not support metadata.version {highest}, the highest of {target.release}.",
            remedy="Choose releases that are closer to each other.",
        )
    found = levels[highest]
    if highest < METADATA_VERSION_FLOOR:  # no level is lowered to it
        return found
    while (above := levels.get(found.level + 1)) is not None and not above.changed:
        found = above
    return found
