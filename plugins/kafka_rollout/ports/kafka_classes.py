"""Port for Kafka's own classes of one release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kafka_rollout.domain.model.checkpoints import CheckpointSummary
from kafka_rollout.domain.model.releases import Release


class KafkaClasses(Protocol):
    """What only Kafka's own classes can say for certain, run on a release's jars in a separate JVM."""

    def config_problems(self, release: Release, properties: Mapping[str, str]) -> tuple[str, ...]:
        """Why the release would refuse to start with these properties (empty: it would not)."""
        ...

    def load_checkpoint(self, release: Release, path: Path) -> CheckpointSummary:
        """Load a snapshot with MetadataDelta/MetadataImage of the release; raises RefusedError if it cannot."""
        ...
