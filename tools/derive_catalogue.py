"""Derive the catalogue's facts of Kafka releases, and the coordinators' message definitions, from the released jars.

    python -m tools.derive_catalogue 3.9.1 4.3.1

writes include/releases/<release>.json, include/schemas/kafka/<release>/ and the manifest next to them. The same jars
give the same bytes. Nothing is written by hand: a fact that cannot be derived stops the tool.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.adapters.releases.catalogue import INTOLERANT_REFERENCE, load_facts
from kafka_rollout.adapters.releases.jvm import run_jvm
from kafka_rollout.domain.model.errors import RolloutError
from kafka_rollout.domain.model.releases import (
    METADATA_VERSION,
    CoordinatorClass,
    CoordinatorLogFacts,
    FeatureFacts,
    FieldRule,
    GroupFamilyFacts,
    RecordTypeFacts,
    Release,
    ReleaseFacts,
    RuleKind,
)
from kafka_rollout.settings import Settings
from tools.derivation import features, jars
from tools.derivation.coordinators import coordinator_logs, new_group_coordinator
from tools.derivation.jars import Message

TOOL = "tools/derive_catalogue.py, version 4"


def derive(release: Release, libs: Path, intolerant: ReleaseFacts | None) -> ReleaseFacts:
    """Derive the facts of one release from the folder of its jars.

    `intolerant`: the release with which the coordinator class is compared; None for that release itself.
    """
    messages = jars.coordinator_messages(libs)
    with run_jvm(libs) as jvm:
        supported = features.features(jvm)
        ranges = {name: facts.supported for name, facts in supported.items()}
        logs = coordinator_logs(jvm, libs, messages, ranges)
        return ReleaseFacts(
            release=release,
            features=supported,
            metadata_versions=features.metadata_versions(jvm, ranges[METADATA_VERSION]),
            coordinator_logs=logs,
            new_group_coordinator=new_group_coordinator(jvm, messages, ranges),
            coordinator_class=coordinator_class(logs, intolerant.coordinator_logs if intolerant else logs),
            java_minimum=jars.java_minimum(libs),
            config_names=features.config_names(jvm),
            config_resources=features.config_resources(jvm),
            has_current_metadata_version_metric=features.has_current_metadata_version_metric(jvm),
            has_snapshot_emitter_metrics=features.has_snapshot_emitter_metrics(jvm),
            logging=features.logging_backend(libs),
            lossy_downgrade_level=features.lossy_downgrade_level(libs),
        )


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


def facts_document(facts: ReleaseFacts, libs: Path) -> dict[str, Any]:
    """Return the JSON form of a release's facts, which adapters/releases/catalogue.py reads."""
    return {
        "release": str(facts.release),
        "derived_from": {"tool": TOOL, "jars": {jar.name: jars.sha256(jar) for jar in jars.kafka_jars(libs)}},
        "coordinator_class": str(facts.coordinator_class),
        "java_minimum": facts.java_minimum,
        "logging": facts.logging,
        "has_current_metadata_version_metric": facts.has_current_metadata_version_metric,
        "has_snapshot_emitter_metrics": facts.has_snapshot_emitter_metrics,
        **({} if facts.lossy_downgrade_level is None else {"lossy_downgrade_level": facts.lossy_downgrade_level}),
        "features": {name: _feature_document(feature) for name, feature in sorted(facts.features.items())},
        "metadata_versions": [
            {"level": level.level, "name": level.name, "changed": level.changed} for level in facts.metadata_versions
        ],
        "coordinator_logs": {topic: _log_document(log) for topic, log in sorted(facts.coordinator_logs.items())},
        **(
            {}
            if facts.new_group_coordinator is None
            else {"new_group_coordinator": _log_document(facts.new_group_coordinator)}
        ),
        "config_resources": sorted(facts.config_resources),
        "config_names": sorted(facts.config_names),
    }


def _feature_document(feature: FeatureFacts) -> dict[str, Any]:
    return {
        "supported": [feature.supported.min, feature.supported.max],
        "latest_production": feature.latest_production,
        "dependencies": {
            str(level): dict(sorted(needed.items())) for level, needed in sorted(feature.dependencies.items())
        },
    }


def _family_document(family: GroupFamilyFacts) -> dict[str, Any]:
    return {name: content for name, content in asdict(family).items() if content or name == "takes_over_offsets"}


def _log_document(log: CoordinatorLogFacts) -> dict[str, Any]:
    return {
        "loaded": log.loaded,
        "ignores_unknown_keys": log.ignores_unknown_keys,
        "ignores_unknown_values": log.ignores_unknown_values,
        **({"stalls_at_unknown_end": True} if log.stalls_at_unknown_end else {}),
        **({"unknown_key": log.unknown_key} if log.unknown_key else {}),
        **({"deleted_while_pending": log.deleted_while_pending} if log.deleted_while_pending else {}),
        **({"group_families": [_family_document(one) for one in log.group_families]} if log.group_families else {}),
        "records": [_record_document(record) for record in log.records],
    }


def _record_document(record: RecordTypeFacts) -> dict[str, Any]:
    document: dict[str, Any] = {
        "key_version": record.key_version,
        "name": record.name,
        "reads": [record.reads.min, record.reads.max],
        "flexible_from": record.flexible_from,
        "writes": list(record.writes),
        "unknown_value": record.unknown_value,
    }
    if record.written_from:
        levels = sorted(record.written_from.items())
        document["written_from"] = {str(version): {needed.feature: needed.level} for version, needed in levels}
    if record.refuses:
        document["refuses"] = dict(sorted(record.refuses.items()))
    if record.rules:
        document["rules"] = [_rule_document(rule) for rule in record.rules]
    return document


def _rule_document(rule: FieldRule) -> dict[str, Any]:
    numbers = {"least": rule.least, "most": rule.most} if rule.kind is RuleKind.BETWEEN else {}
    return {"field": rule.field, "kind": str(rule.kind), **numbers, "refusal": rule.refusal}


def manifest_document(messages: Mapping[str, Message], libs: Path) -> dict[str, Any]:
    """Return the sources of a release's message definitions."""
    names = sorted({message.jar for message in messages.values()})
    return {
        "method": "common/message/<name>.json of the jar, without comments and `about`",
        "jars": {name: jars.sha256(libs / name) for name in names},
        "messages": {name: message.jar for name, message in messages.items()},
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


def write(release: Release, libs: Path, include: Path) -> ReleaseFacts:
    """Derive one release and write its files below `include`."""
    reference = include / "releases" / f"{INTOLERANT_REFERENCE}.json"
    facts = derive(release, libs, None if release == INTOLERANT_REFERENCE else load_facts(reference))
    _write(include / "releases" / f"{release}.json", facts_document(facts, libs))
    messages = jars.coordinator_messages(libs)
    schemas = include / "schemas" / "kafka"
    for name, message in messages.items():
        _write(schemas / str(release) / f"{name}.json", message.definition)
    manifest = schemas / "manifest.json"
    document = json.loads(manifest.read_text()) if manifest.exists() else {}
    document[str(release)] = manifest_document(messages, libs)
    _write(manifest, dict(sorted(document.items())))
    return facts


def _write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pretty(document) + "\n")


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    settings = Settings.from_environment()
    cache = ReleaseCache(settings.cache, settings.include)
    try:
        releases = [Release.parse(text) for text in arguments]
        releases.sort(key=lambda release: release != INTOLERANT_REFERENCE)  # the others are compared with it
        for release in releases:
            facts = write(release, cache.libs(release), settings.include)
            ranges = ", ".join(f"{name} {feature.supported}" for name, feature in facts.features.items())
            print(f"{release}: {facts.coordinator_class}, {ranges}")
    except RolloutError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
