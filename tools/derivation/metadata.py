"""Derive from the jars which records of the metadata log each release reads.

    python -m tools.derivation.metadata 3.9.1 4.3.1

writes include/releases/metadata/<release>.json (facts) and include/schemas/metadata/<release>.json (definitions of
the records, without comments). The same jars give the same bytes.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from kafka_rollout.adapters.releases.cache import ReleaseCache
from kafka_rollout.adapters.releases.jvm import Jvm, run_jvm
from kafka_rollout.domain.model.errors import RolloutError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.settings import Settings
from tools.derivation.class_files import calls
from tools.derivation.jars import classes_named, kafka_jars, parse_definition, sha256, without_about
from tools.derive_catalogue import pretty

TOOL = "tools/derivation/metadata.py, version 1"
_TYPES = "org.apache.kafka.common.metadata.MetadataRecordType"
_CONTROLLER = "org.apache.kafka.controller.QuorumController"
_DELTA = "org.apache.kafka.image.MetadataDelta"
_NESTED_CLASSES = 60


def facts_document(release: Release, libs: Path) -> dict[str, Any]:
    with run_jvm(libs) as jvm:
        types = list(jvm.static(_TYPES).values())
        controller, broker = (_handled(jvm, name, types) for name in (_CONTROLLER, _DELTA))
        records = [
            {
                "type": kind.id(),
                "name": definition_name(kind.name()),
                "reads": [kind.lowestSupportedVersion(), kind.highestSupportedVersion()],
                "controller": kind.id() in controller,
                "broker": kind.id() in broker,
            }
            for kind in sorted(types, key=lambda one: int(one.id()))
        ]
    jars = {jar.name: sha256(jar) for jar in kafka_jars(libs) if jar.name.startswith(("kafka-metadata", "kafka-raft"))}
    return {
        "release": str(release),
        "derived_from": {"tool": TOOL, "jars": jars},
        "starts_from_snapshot": starts_from_snapshot(libs),
        "records": records,
    }


def definition_name(constant: str) -> str:
    """`NO_OP_RECORD` → `NoOpRecord`."""
    return "".join(part.capitalize() for part in constant.split("_"))


def definitions(libs: Path) -> dict[str, Any]:
    """Return the message definition of every record type, by its apiKey."""
    found = {}
    for jar in kafka_jars(libs):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if re.fullmatch(r"common/metadata/\w+\.json", entry):
                    definition = without_about(parse_definition(archive.read(entry).decode()))
                    found[definition["apiKey"]] = definition
    return {str(key): found[key] for key in sorted(found)}


def starts_from_snapshot(libs: Path) -> bool:
    """Return whether a listener at offset 0 gets the newest snapshot although the log also begins there.

    KafkaRaftClient.updateListenersProgress asks for the snapshot once if it only bridges a gap, and more than once if
    it also checks for one.
    """
    (code,) = classes_named(libs, r"org/apache/kafka/raft/KafkaRaftClient\.class")
    methods = calls(code, frozenset({"latestSnapshot"}))
    asked = sum(called.total() for name, called in methods if "updateListenersProgress" in name)
    if not asked:
        raise AssertionError(f"KafkaRaftClient of {libs} does not ask for a snapshot in updateListenersProgress")
    return asked > 1


def _handled(jvm: Jvm, name: str, types: list[Any]) -> set[int]:
    """Return the record types of the cases in a class's switch over MetadataRecordType, from javac's table."""
    table = f"$SwitchMap${_TYPES.replace('.', '$')}"
    for number in range(1, _NESTED_CLASSES):
        java = jvm.find_class(f"{name}${number}")
        if java is None:
            continue
        for field in java.getDeclaredFields():
            if field.getName() == table:
                field.setAccessible(True)
                cases = list(field.get(None))
                return {int(kind.id()) for kind in types if cases[kind.ordinal()]}
    raise AssertionError(f"{name} has no switch over {_TYPES}")


def write(release: Release, libs: Path, include: Path) -> None:
    for folder, document in (
        (include / "releases" / "metadata", facts_document(release, libs)),
        (include / "schemas" / "metadata", definitions(libs)),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{release}.json").write_text(pretty(document) + "\n")


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    settings = Settings.from_environment()
    cache = ReleaseCache(settings.cache, settings.include)
    try:
        for text in arguments:
            release = Release.parse(text)
            write(release, cache.libs(release), settings.include)
            print(f"{release}: written")
    except RolloutError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
