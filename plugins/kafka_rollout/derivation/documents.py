"""The files of one release in the catalogue, as JSON. The same facts give the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kafka_rollout.derivation import jars
from kafka_rollout.derivation.jars import Message
from kafka_rollout.metadata_log.records import MetadataLogFacts
from kafka_rollout.releases.facts import (
    CoordinatorLogFacts,
    FeatureFacts,
    FieldRule,
    GroupFamilyFacts,
    RecordTypeFacts,
    ReleaseFacts,
    RuleKind,
)

TOOL = "kafka-rollout catalogue add, version 7"
_DIGITS = 12  # of the SHA-256 in the name of a definition


def facts_document(facts: ReleaseFacts, libs: Path) -> dict[str, Any]:
    """Return the JSON form of a release's facts, which releases/documents/catalogue.py reads."""
    return {
        "release": str(facts.release),
        "derived_from": {"tool": TOOL, "jars": {jar.name: jars.sha256(jar) for jar in jars.kafka_jars(libs)}},
        "coordinator_class": str(facts.coordinator_class),
        "java_minimum": facts.java_minimum,
        "logging": facts.logging,
        "has_current_metadata_version_metric": facts.has_current_metadata_version_metric,
        "has_snapshot_emitter_metrics": facts.has_snapshot_emitter_metrics,
        **({} if facts.lossy_downgrade_level is None else {"lossy_downgrade_level": facts.lossy_downgrade_level}),
        **({"gaps": dict(facts.gaps)} if facts.gaps else {}),
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
        "oldest_requests": dict(facts.oldest_requests),
        "config_resources": sorted(facts.config_resources),
        "config_names": sorted(facts.config_names),
        "config_defaults": dict(sorted(facts.config_defaults.items())),
    }


def _feature_document(feature: FeatureFacts) -> dict[str, Any]:
    return {
        "supported": [feature.supported.min, feature.supported.max],
        "latest_production": feature.latest_production,
        "default_level": feature.default_level,
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


def metadata_document(facts: MetadataLogFacts, libs: Path) -> dict[str, Any]:
    """Return the JSON form of the facts about the metadata log, which metadata_log/classes/known_releases.py reads."""
    of_metadata = [jar for jar in jars.kafka_jars(libs) if jar.name.startswith(("kafka-metadata", "kafka-raft"))]
    return {
        "release": str(facts.release),
        "derived_from": {"tool": TOOL, "jars": {jar.name: jars.sha256(jar) for jar in of_metadata}},
        "starts_from_snapshot": facts.starts_from_snapshot,
        "records": [
            {
                "type": kind,
                "name": record.name,
                "reads": [record.reads.min, record.reads.max],
                "controller": record.controller,
                "broker": record.broker,
            }
            for kind, record in sorted(facts.records.items())
        ],
    }


def definition_file(name: str, definition: Mapping[str, Any]) -> str:
    """Return the name of a definition's file without its suffix: equal definitions of all releases share one file."""
    return f"{name}-{hashlib.sha256(pretty(definition).encode()).hexdigest()[:_DIGITS]}"


def messages_document(messages: Mapping[str, Message], libs: Path) -> dict[str, Any]:
    """Return the definitions of a release's coordinator records, by reference, and their jars."""
    names = sorted({message.jar for message in messages.values()})
    return {
        "jars": {name: jars.sha256(libs / name) for name in names},
        "messages": {
            name: {"jar": message.jar, "definition": definition_file(name, message.definition)}
            for name, message in messages.items()
        },
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
