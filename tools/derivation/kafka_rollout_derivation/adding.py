"""Adds a release to the catalogue: its jars are resolved, its facts derived, verified and written.

The files appear together: they are written to a temporary folder, read back, and then moved, the facts last. A release
is in the catalogue when its facts are. They are JSON: the same facts give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_rollout.base.errors import FatalError, RefusedError, UserError
from kafka_rollout.base.system.files import sha256_of
from kafka_rollout.base.system.own_folders import new_own_folder, remove_own_folder
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.formats.coordinator_records import VERSION_BYTES
from kafka_rollout.formats.documents.definitions import COORDINATOR_MESSAGES, DEFINITIONS, METADATA_RECORDS
from kafka_rollout.formats.layouts import MessageSchema, SchemaError
from kafka_rollout.formats.messages import MessageFormatError, decode
from kafka_rollout.metadata_log.classes import known_releases as metadata_log_facts
from kafka_rollout.metadata_log.record_types import MetadataLogFacts
from kafka_rollout.releases.documents.catalogue import (
    INTOLERANT_REFERENCE,
    file_form,
    load_catalogue,
    load_facts,
    release_files,
)
from kafka_rollout.releases.facts import Catalogue, Release, ReleaseFacts
from kafka_rollout.releases.jars.cache import LOCKS, ReleaseCache, exclusive
from kafka_rollout.releases.jvm.jvm import Jvm, run_jvm
from kafka_rollout_derivation import jars
from kafka_rollout_derivation.coordinators.loaders import serialized
from kafka_rollout_derivation.facts import derive_facts
from kafka_rollout_derivation.jars import Message, coordinator_messages, metadata_messages
from kafka_rollout_derivation.resolve import resolve_release

Say = Callable[[str], None]
_UNSUPPORTED = "Nothing was written. Report the release; it needs a newer version of this tool."


@dataclass(frozen=True, slots=True)
class DerivedRelease:
    facts: ReleaseFacts
    files: dict[str, str]
    """Path below a folder of the catalogue → content, the facts last."""


def add_release(settings: Settings, release: Release, say: Say, *, repository: str = "") -> ReleaseFacts:
    """Add one release to the folder of added releases (Settings.added_releases), or derive it again there.

    Raises UserError for a release of the project's own catalogue or one that does not exist, TransientError if the jar
    repository does not respond, and FatalError if the jars, the folder or the derived facts are wrong. Then nothing is
    written; downloaded jars stay in the cache.
    """
    folder = settings.added_releases
    if release in release_files(settings.include) and settings.include != folder:
        raise UserError(
            f"Kafka {release} is part of the catalogue already.",
            remedy=f"No action needed. `kafka-rollout-derive check {release}` derives its facts again.",
        )
    cache = ReleaseCache.from_settings(settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / ".lock", f"Kafka {release}"):
            say("resolving its jars")
            lock, libs = resolve_release(cache, release, say, repository=repository)
            derived = derive_release(settings, release, libs, say)
            _write(folder, {f"{LOCKS}/{release}.json": pretty({"sha256": lock}) + "\n", **derived.files}, derived.facts)
    except OSError as error:
        raise FatalError(
            f"Kafka {release} could not be written: {error.filename or folder}: {error.strerror}.",
            remedy="Check the space and the permissions of this folder, then repeat the command.",
        ) from error
    return derived.facts


def check_release(settings: Settings, release: Release, say: Say) -> list[str]:
    """Derive a release of the catalogue again; return the files of the catalogue that differ."""
    folder = next((one for one in settings.catalogue_folders if release in release_files(one)), None)
    if folder is None:
        load_catalogue(*settings.catalogue_folders).get(release)
        raise AssertionError(f"{release} is in no folder of the catalogue")
    say("verifying its jars")
    libs = ReleaseCache.from_settings(settings).libs(release)
    derived = derive_release(settings, release, libs, say)
    return [name for name, text in derived.files.items() if _content(folder / name) != text]


def _content(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def derive_release(settings: Settings, release: Release, libs: Path, say: Say = lambda text: None) -> DerivedRelease:
    """Derive and verify one release from the folder of its jars. Writes nothing."""
    others = _others(settings, release)
    messages, of_metadata_log = coordinator_messages(libs), metadata_messages(libs)
    with run_jvm(libs) as jvm:
        intolerant = None if release == INTOLERANT_REFERENCE else others.get(INTOLERANT_REFERENCE)
        facts, metadata_facts = derive_facts(release, jvm, messages, intolerant, say)
        say("verifying the definitions with the release's own classes")
        logs = [*facts.coordinator_logs.values(), *filter(None, [facts.new_group_coordinator])]
        names = sorted({record.name for log in logs for record in log.records})
        used = [messages[f"{name}{part}"] for name in names for part in ("Key", "Value")]
        used += of_metadata_log.values() if metadata_facts else ()
        _verify_definitions(jvm, used)
    _verify_levels(facts, others)
    files = {
        f"{DEFINITIONS}/{definition_file(one.name, one.definition)}.json": pretty(one.definition) + "\n"
        for one in (*messages.values(), *of_metadata_log.values())
    }
    files[f"{COORDINATOR_MESSAGES}/{release}.json"] = pretty(messages_document(messages, libs)) + "\n"
    if metadata_facts:
        references = {str(kind): definition_file(one.name, one.definition) for kind, one in of_metadata_log.items()}
        files[f"{METADATA_RECORDS}/{release}.json"] = pretty(references) + "\n"
        files[f"{metadata_log_facts.FACTS}/{release}.json"] = pretty(metadata_document(metadata_facts, libs)) + "\n"
    files[f"releases/{release}.json"] = pretty(facts_document(facts, libs)) + "\n"
    return DerivedRelease(facts, files)


def _others(settings: Settings, release: Release) -> Catalogue:
    files = release_files(*settings.catalogue_folders)
    return Catalogue({one: load_facts(path) for one, path in files.items() if one != release})


def _write(folder: Path, files: dict[str, str], facts: ReleaseFacts) -> None:
    """Move the files into the folder after they were written and read back."""
    for stale in folder.glob(".new-*"):  # of a killed command; this process has the lock
        with suppress(RefusedError):
            remove_own_folder(stale)
    new = folder / f".new-{secrets.token_hex(4)}"
    with new_own_folder(new), ExitStack() as stack:
        stack.callback(remove_own_folder, new)
        for path, text in files.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            (new / path).write_text(text)
        if load_facts(new / "releases" / f"{facts.release}.json") != facts:
            raise FatalError(
                f"The written facts of Kafka {facts.release} are not those that were derived.",
                remedy="Nothing was changed. Repeat the command.",
            )
        for path in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(new / path, folder / path)


def _verify_definitions(jvm: Jvm, messages: Iterable[Message]) -> None:
    """Decode a message of each version that the release wrote, by its definition.

    Raises FatalError for a definition that does not describe all bytes of its message.
    """
    for message in messages:
        for version in message.valid_versions:
            data = serialized(jvm, message, version)
            try:
                layout = MessageSchema.parse(json.dumps(message.definition)).layout(version)
                end = decode(layout, data, VERSION_BYTES).end
            except (SchemaError, MessageFormatError) as error:
                raise _wrong(message, version, str(error)) from error
            if end != len(data):
                raise _wrong(message, version, f"{len(data) - end} bytes are left over")


def _wrong(message: Message, version: int, problem: str) -> FatalError:
    return FatalError(
        f"The definition of {message.name} does not describe what the release writes at version {version}: {problem}.",
        remedy=_UNSUPPORTED,
    )


def _verify_levels(facts: ReleaseFacts, others: Catalogue) -> None:
    """Raises FatalError if a level of metadata.version is a different one in another release of the catalogue."""
    for other in others.releases.values():
        known = {one.level: one for one in other.metadata_versions}
        for level in facts.metadata_versions:
            if level.level in known and known[level.level] != level and other.release != facts.release:
                raise FatalError(
                    f"metadata.version {level.level} is {level.name} in Kafka {facts.release}, but "
                    f"{known[level.level].name} in {other.release}.",
                    remedy=_UNSUPPORTED,
                )


TOOL = "kafka-rollout-derive, version 8"
_DIGITS = 12  # of the SHA-256 in the name of a definition


def facts_document(facts: ReleaseFacts, libs: Path) -> dict[str, Any]:
    """Return the JSON form of a release's facts, which releases/documents/catalogue.py reads."""
    return {"release": str(facts.release), "derived_from": _source(jars.kafka_jars(libs)), **file_form(facts)}


def metadata_document(facts: MetadataLogFacts, libs: Path) -> dict[str, Any]:
    """Return the JSON form of the facts about the metadata log, which metadata_log/classes/known_releases.py reads."""
    of_metadata = [jar for jar in jars.kafka_jars(libs) if jar.name.startswith(("kafka-metadata", "kafka-raft"))]
    return {
        "release": str(facts.release),
        "derived_from": _source(of_metadata),
        "starts_from_snapshot": facts.starts_from_snapshot,
        "records": [file_form(record) for _, record in sorted(facts.records.items())],
    }


def _source(of: Iterable[Path]) -> dict[str, Any]:
    return {"tool": TOOL, "jars": {jar.name: sha256_of(jar) for jar in of}}


def definition_file(name: str, definition: Mapping[str, Any]) -> str:
    """Return the name of a definition's file without its suffix: equal definitions of all releases share one file."""
    return f"{name}-{hashlib.sha256(pretty(definition).encode()).hexdigest()[:_DIGITS]}"


def messages_document(messages: Mapping[str, Message], libs: Path) -> dict[str, Any]:
    """Return the definitions of a release's coordinator records, by reference, and their jars."""
    names = sorted({message.jar for message in messages.values()})
    return {
        "jars": {name: sha256_of(libs / name) for name in names},
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
