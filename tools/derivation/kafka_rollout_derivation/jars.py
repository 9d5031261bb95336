"""Contents of a release's jars without a JVM: message definitions, and class files (JVMS, chapter 4)."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from kafka_rollout_derivation.gaps import NotDerivedError

# Jars whose common/message/ holds coordinator records; kafka_2.13 until the coordinators got separate modules.
_COORDINATOR_JARS = (
    "kafka-group-coordinator-",
    "kafka-transaction-coordinator-",
    "kafka-share-coordinator-",
    "kafka_2.13-",
)
_METADATA = "org.apache.kafka.common.metadata"
_CLASS_FILE_OF_JAVA_0 = 44  # major version of class files: 52 is Java 8, 61 is Java 17
_UTF8, _LONG, _DOUBLE, _CLASS, _METHOD, _INTERFACE_METHOD, _NAME_AND_TYPE = 1, 5, 6, 7, 10, 11, 12
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_INVOKES = (0xB6, 0xB7, 0xB8, 0xB9)  # virtual, special, static, interface
_OLDEST_BUILD = date(2011, 1, 1)  # reproducible archives have a constant date, such as 1980 or 1985
_GET_SUBJECT = ("javax/security/auth/Subject", "getSubject")
_LAST_JAVA_WITH_SUBJECT = 22


@dataclass(frozen=True, slots=True)
class Message:
    """A message definition of the release: `definition` without comments and `about` sentences."""

    name: str
    jar: str
    definition: Mapping[str, Any]
    java_class: str = ""
    """The generated class with its package, which differs by release."""

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
    return sorted(path for path in libs.glob("*.jar") if re.match(r"kafka[-_]", path.name))


def coordinator_messages(libs: Path) -> dict[str, Message]:
    """Return the definitions of the coordinators' keys and values, by name."""
    of_coordinators = [jar for jar in kafka_jars(libs) if jar.name.startswith(_COORDINATOR_JARS)]
    generated: dict[str, str] = {}
    for jar in of_coordinators:
        with zipfile.ZipFile(jar) as archive:
            found = (re.fullmatch(r"(.*/generated/(\w+))\.class", entry) for entry in archive.namelist())
            generated |= {match[2]: match[1].replace("/", ".") for match in found if match}
    messages = {
        name: Message(name, jar.name, definition, generated.get(name, ""))
        for jar, name, definition in definitions(of_coordinators, r"common/message/(\w+(?:Key|Value))\.json")
    }
    return dict(sorted(messages.items()))


def metadata_messages(libs: Path) -> dict[int, Message]:
    """Return the definition of every record type, by its apiKey."""
    found = {}
    for jar, _, definition in definitions(kafka_jars(libs), r"common/metadata/(\w+)\.json"):
        name = str(definition["name"])
        found[int(definition["apiKey"])] = Message(name, jar.name, definition, f"{_METADATA}.{name}")
    return {key: found[key] for key in sorted(found)}


def definitions(jars: Iterable[Path], pattern: str) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Yield jar, name and definition, without comments and `about`, of the entries that match. Group 1 is the name."""
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if match := re.fullmatch(pattern, entry):
                    yield jar, match[1], _without_about(parse_definition(archive.read(entry).decode()))


def parse_definition(text: str) -> dict[str, Any]:
    """Parse Kafka's message JSON, which has comments on separate lines or after a value."""
    without = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda match: match[1] or "", text)
    definition: dict[str, Any] = json.loads(without)
    return definition


def _without_about(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_about(inner) for key, inner in value.items() if key != "about"}
    if isinstance(value, list):
        return [_without_about(inner) for inner in value]
    return value


def oldest_requests(libs: Path) -> dict[str, int]:
    """Return the oldest version of each request of clients, by API, as the definitions have it; only if above 0."""
    oldest = {
        api: int(str(definition["validVersions"]).partition("-")[0])
        for _, api, definition in definitions(libs.glob("kafka-clients-*.jar"), r"common/message/(\w+)Request\.json")
        if "broker" in definition.get("listeners", ())
    }
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


def built_at(libs: Path) -> date:
    """Return the day of the newest entry of Kafka's own jars: the day on which the release was built."""
    newest = _OLDEST_BUILD
    for jar in kafka_jars(libs):
        with zipfile.ZipFile(jar) as archive:
            newest = max(newest, *(date(*entry.date_time[:3]) for entry in archive.infolist()))
    if newest == _OLDEST_BUILD:
        raise NotDerivedError("The entries of its jars have no date.")
    return newest


def java_maximum_with_sasl(libs: Path) -> int | None:
    """Return the feature version of the newest Java in which a node can log in with SASL; None without a limit.

    From Java 23 on `Subject.getSubject` throws UnsupportedOperationException (JDK-8296244, JEP 486). Releases with
    SecurityManagerCompatibility (KIP-1006) call it by reflection, and only if this Java has nothing else.
    """
    code = classes_named(libs, r"org/apache/kafka/common/security/.*CallbackHandler\.class")
    if not code:
        raise NotDerivedError("The jars have no callback handler of SASL.")
    return _LAST_JAVA_WITH_SUBJECT if any(_GET_SUBJECT in referenced_methods(one) for one in code) else None


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


def calls(class_file: bytes, wanted: frozenset[str]) -> Iterator[tuple[str, Counter[str]]]:
    """Return for each method with code its name and its number of calls of methods with the `wanted` names.

    Operands of other instructions can have the same bytes as a call and are counted too. So use rarely called names.
    """
    reader = _Reader(class_file)
    reader.read(8)
    texts, references, names, _ = _constants(reader)
    called = {index: texts[names[at]] for index, (_, at) in references.items() if texts[names[at]] in wanted}
    reader.read(6)
    reader.read(2 * reader.u2())
    for _ in range(reader.u2()):  # fields
        reader.read(6)
        list(reader.attributes())
    for _ in range(reader.u2()):
        reader.read(2)
        method = texts[reader.u2()]
        reader.read(2)
        for name, body in reader.attributes():
            if texts[name] == "Code":
                yield method, _count_calls(body, called)


def referenced_methods(class_file: bytes) -> frozenset[tuple[str, str]]:
    """Return class and name of each method that the class can call, as in `java/lang/String`, `length`."""
    reader = _Reader(class_file)
    reader.read(8)
    texts, references, names, classes = _constants(reader)
    return frozenset((texts[classes[of]], texts[names[at]]) for of, at in references.values())


def _count_calls(body: bytes, called: dict[int, str]) -> Counter[str]:
    code = body[8 : 8 + int.from_bytes(body[4:8], "big")]  # after it: exceptions, line numbers
    places = (at for at in range(len(code) - 2) if code[at] in _INVOKES)
    indexes = (int.from_bytes(code[at + 1 : at + 3], "big") for at in places)
    return Counter(called[index] for index in indexes if index in called)


def _constants(
    reader: _Reader,
) -> tuple[dict[int, str], dict[int, tuple[int, int]], dict[int, int], dict[int, int]]:
    """Return the texts; the indexes of class, and of name and type, of method references; the index of the name of
    names and types, and of classes.
    """
    texts: dict[int, str] = {}
    references: dict[int, tuple[int, int]] = {}
    names: dict[int, int] = {}
    classes: dict[int, int] = {}
    index, count = 1, reader.u2()
    while index < count:
        kind = reader.read(1)[0]
        if kind == _UTF8:
            texts[index] = reader.read(reader.u2()).decode(errors="replace")
        else:
            body = reader.read(_SIZES[kind])
            if kind in (_METHOD, _INTERFACE_METHOD):
                references[index] = int.from_bytes(body[:2], "big"), int.from_bytes(body[2:], "big")
            elif kind == _NAME_AND_TYPE:
                names[index] = int.from_bytes(body[:2], "big")
            elif kind == _CLASS:
                classes[index] = int.from_bytes(body, "big")
        index += 2 if kind in (_LONG, _DOUBLE) else 1
    return texts, references, names, classes


class _Reader(io.BytesIO):
    def u2(self) -> int:
        return int.from_bytes(self.read(2), "big")

    def attributes(self) -> Iterator[tuple[int, bytes]]:
        """Return the index of the name, and the content."""
        for _ in range(self.u2()):
            name, size = struct.unpack(">HI", self.read(6))
            yield name, self.read(size)
