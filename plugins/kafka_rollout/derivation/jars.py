"""Contents of a release's jars without a JVM: message definitions, class file versions, hashes."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Jars whose common/message/ holds coordinator records; kafka_2.13 until the coordinators got separate modules.
_COORDINATOR_JARS = (
    "kafka-group-coordinator-",
    "kafka-transaction-coordinator-",
    "kafka-share-coordinator-",
    "kafka_2.13-",
)
_CLASS_FILE_OF_JAVA_0 = 44  # major version of class files: 52 is Java 8, 61 is Java 17


@dataclass(frozen=True, slots=True)
class Message:
    """A message definition of the release: `definition` without comments and `about` sentences.

    `java_class`: the generated class with its package, which differs by release.
    """

    name: str
    jar: str
    definition: Mapping[str, Any]
    java_class: str = ""

    @property
    def valid_versions(self) -> range:
        low, _, high = str(self.definition["validVersions"]).partition("-")
        return range(int(low), int(high or low) + 1)

    @property
    def flexible_from(self) -> int | None:
        text = str(self.definition["flexibleVersions"])
        return None if text == "none" else int(text.rstrip("+").partition("-")[0])


def key_versions(key: Message) -> range:
    """Since 4.1 a key's version is its record type (`apiKey`) and its own fields stay at version 0."""
    if "apiKey" in key.definition:
        return range(key.definition["apiKey"], key.definition["apiKey"] + 1)
    return key.valid_versions


def kafka_jars(libs: Path) -> list[Path]:
    """Return the jars of Kafka itself."""
    return sorted(path for path in libs.glob("*.jar") if re.match(r"kafka[-_]", path.name))


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def coordinator_messages(libs: Path) -> dict[str, Message]:
    """Return the definitions of the coordinators' keys and values, by name."""
    messages = {}
    for jar in kafka_jars(libs):
        if not jar.name.startswith(_COORDINATOR_JARS):
            continue
        with zipfile.ZipFile(jar) as archive:
            generated = {
                match[1]: entry.removesuffix(".class").replace("/", ".")
                for entry in archive.namelist()
                if (match := re.fullmatch(r".*/generated/(\w+)\.class", entry))
            }
            for entry in archive.namelist():
                match = re.fullmatch(r"common/message/(\w+(?:Key|Value))\.json", entry)
                if match:
                    definition = without_about(parse_definition(archive.read(entry).decode()))
                    name = match[1]
                    messages[name] = Message(name, jar.name, definition, generated.get(name, ""))
    return dict(sorted(messages.items()))


def parse_definition(text: str) -> dict[str, Any]:
    """Parse Kafka's message JSON, which has comments on separate lines or after a value."""
    without = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda match: match[1] or "", text)
    definition: dict[str, Any] = json.loads(without)
    return definition


def without_about(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_about(inner) for key, inner in value.items() if key != "about"}
    if isinstance(value, list):
        return [without_about(inner) for inner in value]
    return value


def oldest_requests(libs: Path) -> dict[str, int]:
    """Return the oldest version of each request of clients, by API, as the definitions have it; only if above 0."""
    oldest = {}
    for jar in libs.glob("kafka-clients-*.jar"):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if match := re.fullmatch(r"common/message/(\w+)Request\.json", entry):
                    definition = parse_definition(archive.read(entry).decode())
                    if "broker" in definition.get("listeners", ()):
                        oldest[match[1]] = int(str(definition["validVersions"]).partition("-")[0])
    return {api: version for api, version in sorted(oldest.items()) if version > 0}


def java_minimum(libs: Path) -> int:
    """Return the feature version of the oldest Java that loads every class of Kafka's own jars."""
    newest = 0
    for jar in kafka_jars(libs):
        with zipfile.ZipFile(jar) as archive:
            for entry in _classes(archive):
                with archive.open(entry) as file:
                    newest = max(newest, struct.unpack(">HH", file.read(8)[4:])[1])
    return newest - _CLASS_FILE_OF_JAVA_0


def classes_named(libs: Path, pattern: str) -> list[bytes]:
    """Return the class files of Kafka's own jars whose entry matches."""
    found = []
    for jar in kafka_jars(libs):
        with zipfile.ZipFile(jar) as archive:
            found += [archive.read(entry) for entry in _classes(archive) if re.fullmatch(pattern, entry)]
    return found


def _classes(archive: zipfile.ZipFile) -> Iterator[str]:
    # META-INF/versions contains classes for newer Java versions, which an older Java does not load.
    return (name for name in archive.namelist() if name.endswith(".class") and not name.startswith("META-INF/"))
