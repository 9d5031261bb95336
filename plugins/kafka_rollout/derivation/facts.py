"""Derives the catalogue's facts of one release from its jars. The same jars give the same facts.

No value is guessed: a fact that cannot be derived becomes a gap of the release (ReleaseFacts.gaps).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kafka_rollout.base.errors import FatalError
from kafka_rollout.derivation import features, jars
from kafka_rollout.derivation.coordinators.records import coordinator_logs, new_group_coordinator
from kafka_rollout.derivation.gaps import Gaps, reason_of
from kafka_rollout.derivation.jars import Message
from kafka_rollout.metadata_log.records import MetadataLogFacts
from kafka_rollout.releases.facts import (
    METADATA_VERSION,
    CoordinatorClass,
    CoordinatorLogFacts,
    FeatureFacts,
    Release,
    ReleaseFacts,
)
from kafka_rollout.releases.jvm.jvm import Jvm

Progress = Callable[[str], None]
# Each function derives the fact with its name; the value if it cannot be derived.
_OF_CLASSES: tuple[tuple[Callable[[Jvm], Any], Any], ...] = (
    (features.oldest_requests, {}),
    (features.config_names, frozenset()),
    (features.config_defaults, {}),
    (features.config_resources, frozenset()),
    (features.has_current_metadata_version_metric, False),
    (features.has_snapshot_emitter_metrics, False),
)


def derive_facts(
    release: Release,
    jvm: Jvm,
    messages: Mapping[str, Message],
    intolerant: ReleaseFacts | None,
    progress: Progress = lambda text: None,
) -> tuple[ReleaseFacts, MetadataLogFacts | None]:
    """Derive the facts of one release; the second value is None if those of the metadata log are a gap.

    `intolerant`: the release with which the coordinator class is compared; None for that release itself. Raises
    FatalError if the range of metadata.version cannot be derived: nothing can be planned without it.
    """
    libs, gaps = jvm.libs, Gaps()
    progress("deriving features and levels")
    supported = _features(release, jvm, gaps)
    ranges = {name: facts.supported for name, facts in supported.items()}
    progress("deriving the records of the coordinators")
    logs = coordinator_logs(jvm, libs, messages, ranges, gaps)
    new = gaps.derive("new_group_coordinator", lambda: new_group_coordinator(jvm, messages, ranges), None)
    progress("deriving metadata records, configuration and metrics")
    of_metadata_log = gaps.derive("metadata_log", lambda: features.metadata_log(jvm, release), None)
    of_classes: dict[str, Any] = {
        way.__name__: gaps.derive(way.__name__, partial(way, jvm), otherwise) for way, otherwise in _OF_CLASSES
    }
    reference = intolerant.coordinator_logs if intolerant else logs
    missing = [name for name in gaps.reasons if name.startswith("coordinator_logs.")]
    return (
        ReleaseFacts(
            release=release,
            features=supported,
            metadata_versions=features.metadata_versions(jvm, ranges[METADATA_VERSION]),
            coordinator_logs=logs,
            new_group_coordinator=new,
            coordinator_class=CoordinatorClass.UNKNOWN if missing else coordinator_class(logs, reference),
            java_minimum=gaps.derive("java_minimum", lambda: jars.java_minimum(libs), None),
            logging=gaps.derive("logging", lambda: features.logging_backend(libs), "unknown"),
            lossy_downgrade_level=gaps.derive(
                "lossy_downgrade_level", lambda: features.lossy_downgrade_level(libs), None
            ),
            gaps=dict(sorted(gaps.reasons.items())),
            **of_classes,
        ),
        of_metadata_log,
    )


def _features(release: Release, jvm: Jvm, gaps: Gaps) -> dict[str, FeatureFacts]:
    try:
        return features.features(jvm, gaps)
    except Exception as error:
        raise FatalError(
            f"The feature levels of Kafka {release} could not be derived from its jars: {reason_of(error)}",
            remedy="Nothing was written. Report the release; it needs a newer version of this tool.",
        ) from error


def coordinator_class(
    logs: Mapping[str, CoordinatorLogFacts], intolerant: Mapping[str, CoordinatorLogFacts]
) -> CoordinatorClass:
    """Return KIP-915's class, from the release's reaction to unknown keys and an intolerant release's to its records.

    Logs that the intolerant release does not have do not count.
    """
    if not all(log.ignores_unknown_keys for log in logs.values()):
        return CoordinatorClass.INTOLERANT
    for topic, old in intolerant.items():
        for record in logs[topic].records:
            known = old.record(record.key_version)
            if record.writes and (known is None or any(version not in known.reads for version in record.writes)):
                return CoordinatorClass.EMITTING
    return CoordinatorClass.TOLERANT
