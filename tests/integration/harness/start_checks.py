"""What Kafka's own classes say about the start of one node."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.model.host_state import DirectoryFormat
from kafka_rollout.model.starts import NodeStart
from kafka_rollout.releases.facts import Release


def rejected(
    classes: JvmKafkaClasses,
    release: Release,
    properties: Mapping[str, str],
    formats: Mapping[str, DirectoryFormat] | None = None,
) -> tuple[str, ...]:
    """Why the release refuses to start with a configuration, whose plugins are all among its jars."""
    problems = classes.start_problems(release, {0: NodeStart(properties=properties, formats=formats)})[0]
    assert problems.plugins == ()
    return problems.rejected
