"""The committed catalogue says what was measured on real brokers, and a broken one says where it is broken."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.releases.documents.catalogue import load_catalogue, load_facts
from kafka_rollout.releases.facts import Catalogue, CoordinatorClass, Release, VersionRange
from kafka_rollout_derivation.adding import definition_file, pretty
from kafka_rollout_derivation.facts import coordinator_class
from kafka_rollout_derivation.jars import Message, parse_definition
from tests.releases import NEWEST
from tools.demo.folder import PROJECT_ROOT

INCLUDE = PROJECT_ROOT / "include"
DEFINITIONS = INCLUDE / "schemas" / "definitions"


def messages(one: Release | str) -> dict[str, Any]:
    """Message → its jar and the name of its definition."""
    document: dict[str, Any] = json.loads((INCLUDE / "schemas" / "kafka" / f"{one}.json").read_text())
    return document["messages"]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue(INCLUDE)


def release(text: str) -> Release:
    return Release.parse(text)


def test_it_knows_the_releases_that_can_be_fetched(catalogue: Catalogue) -> None:
    locked = {path.stem for path in (INCLUDE / "releases" / "jars").glob("*.json")} - {"agents"}
    assert {str(one) for one in catalogue} == locked


def test_the_newest_release_is_the_one_that_tests_name_and_the_makefile_downloads(catalogue: Catalogue) -> None:
    assert max(catalogue) == release(NEWEST)
    assert f"NEWEST := {NEWEST}" in (PROJECT_ROOT / "Makefile").read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("3.9.1", set()),
        ("4.0.1", {"eligible.leader.replicas.version"}),
        ("4.1.1", {"share.version"}),
        ("4.3.1", set()),
        (NEWEST, set()),
    ],
)
def test_a_level_that_is_not_a_default_of_its_release_is_known(
    catalogue: Catalogue, name: str, below: set[str]
) -> None:
    features = catalogue.get(release(name)).features
    assert {one for one, facts in features.items() if facts.default_level < facts.latest_production} == below
    assert all(facts.default_level <= facts.latest_production for facts in features.values())


def test_defaults_of_settings_are_those_of_kip_1030(catalogue: Catalogue) -> None:
    old, new = (catalogue.get(release(name)) for name in ("3.9.1", "4.0.1"))
    changed = {
        name: (old.config_defaults.get(name), new.config_defaults.get(name))
        for name in ("log.message.timestamp.after.max.ms", "num.recovery.threads.per.data.dir", "log.retention.ms")
    }
    assert changed == {
        "log.message.timestamp.after.max.ms": ("9223372036854775807", "3600000"),
        "num.recovery.threads.per.data.dir": ("1", "2"),
        "log.retention.ms": (None, None),
    }
    assert all(catalogue.get(one).config_defaults.keys() < catalogue.get(one).config_names for one in catalogue)


def test_features_are_those_that_a_running_4_3_1_advertised(catalogue: Catalogue) -> None:
    supported = {name: str(feature.supported) for name, feature in catalogue.get(release("4.3.1")).features.items()}
    assert supported == {
        "metadata.version": "7-30",
        "group.version": "0-1",
        "transaction.version": "0-2",
        "kraft.version": "0-1",
        "share.version": "0-1",
        "streams.version": "0-1",
        "eligible.leader.replicas.version": "0-1",
    }


def test_a_running_3_4_0_advertised_metadata_version_alone(catalogue: Catalogue) -> None:
    facts = catalogue.get(release("3.4.0"))
    assert {name: str(feature.supported) for name, feature in facts.features.items()} == {"metadata.version": "1-8"}
    assert facts.metadata_version_name(8) == "3.4-IV0"


def test_metadata_changed_at_the_levels_whose_downgrade_4_3_1_refuses(catalogue: Catalogue) -> None:
    levels = catalogue.get(release("4.3.1")).metadata_versions
    assert [level.level for level in levels if level.changed and level.level >= 8] == [8, 11, 13, 14, 15, 17, 23, 30]


def test_a_feature_names_the_levels_it_needs(catalogue: Catalogue) -> None:
    feature = catalogue.get(release("4.3.1")).features["eligible.leader.replicas.version"]
    assert feature.dependencies == {1: {"metadata.version": 23}}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("3.3.2", CoordinatorClass.INTOLERANT),
        ("3.4.0", CoordinatorClass.INTOLERANT),
        ("3.4.1", CoordinatorClass.TOLERANT),
        ("3.7.2", CoordinatorClass.TOLERANT),
        ("3.9.1", CoordinatorClass.TOLERANT),
        ("4.0.1", CoordinatorClass.EMITTING),
        ("4.3.1", CoordinatorClass.EMITTING),
    ],
)
def test_coordinator_classes_are_those_of_kip_915(catalogue: Catalogue, name: str, expected: CoordinatorClass) -> None:
    assert catalogue.get(release(name)).coordinator_class is expected


def test_offset_commits_are_written_flexible_since_4_1(catalogue: Catalogue) -> None:
    newest = {}
    for name in ("3.9.1", "4.0.1", "4.1.1", "4.3.1"):
        record = catalogue.get(release(name)).coordinator_logs["__consumer_offsets"].record(1)
        assert record is not None
        assert record.flexible_from == 4
        newest[name] = record.writes[-1]
    assert newest == {"3.9.1": 3, "4.0.1": 3, "4.1.1": 4, "4.3.1": 4}


def test_3_4_0_reads_no_flexible_value(catalogue: Catalogue) -> None:
    for log in catalogue.get(release("3.4.0")).coordinator_logs.values():
        assert not log.ignores_unknown_keys
        for record in log.records:
            assert record.flexible_from is None


def test_groups_of_a_feature_that_is_not_advertised_are_never_written(catalogue: Catalogue) -> None:
    facts = catalogue.get(release("4.1.1"))
    assert "streams.version" not in facts.features
    records = facts.coordinator_logs["__consumer_offsets"].records
    assert all(not record.writes for record in records if record.name.startswith("StreamsGroup"))
    assert any(record.writes for record in records if record.name.startswith("ShareGroup"))


def test_java_metrics_and_logging(catalogue: Catalogue) -> None:
    old, new = catalogue.get(release("3.4.0")), catalogue.get(release("4.3.1"))
    assert (old.java_minimum, old.logging, old.has_current_metadata_version_metric) == (8, "reload4j", False)
    assert (new.java_minimum, new.logging, new.has_current_metadata_version_metric) == (17, "log4j2", True)
    assert not old.has_snapshot_emitter_metrics
    assert new.has_snapshot_emitter_metrics
    assert "log.message.format.version" in old.config_names - new.config_names


def test_every_record_has_its_definitions_and_they_reach_as_far_as_the_release_reads(catalogue: Catalogue) -> None:
    for one in catalogue:
        for log in catalogue.get(one).coordinator_logs.values():
            for record in log.records:
                key, value = (messages(one)[f"{record.name}{part}"]["definition"] for part in ("Key", "Value"))
                assert (DEFINITIONS / f"{key}.json").is_file()
                definition = json.loads((DEFINITIONS / f"{value}.json").read_text())
                valid = Message(record.name, "", definition).valid_versions
                assert record.reads == VersionRange(valid[0], valid[-1]), (one, record.name)


def test_every_definition_is_stored_once_under_its_own_hash_and_is_used() -> None:
    stored = {path.stem: json.loads(path.read_text()) for path in DEFINITIONS.glob("*.json")}
    for name, definition in stored.items():
        assert definition_file(name.rpartition("-")[0], definition) == name
    used = {
        one["definition"]
        for path in (INCLUDE / "schemas" / "kafka").glob("*.json")
        for one in messages(path.stem).values()
    }
    for path in (INCLUDE / "schemas" / "metadata").glob("*.json"):
        used |= set(json.loads(path.read_text()).values())
    assert used == stored.keys()


def test_every_definition_comes_from_a_locked_jar() -> None:
    for path in (INCLUDE / "schemas" / "kafka").glob("*.json"):
        entry = json.loads(path.read_text())
        locked = set(json.loads((INCLUDE / "releases" / "jars" / path.name).read_text())["sha256"].values())
        assert set(entry["jars"].values()) <= locked
        assert {one["jar"] for one in entry["messages"].values()} == set(entry["jars"])


def broken(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    path = folder / "3.4.0.json"
    document = json.loads((INCLUDE / "releases" / "3.4.0.json").read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda facts: facts.pop("java_minimum"), "java_minimum: Field required"),
        (lambda facts: facts.update(surprise=1), "surprise: Unexpected keyword"),
        (lambda facts: facts["features"]["metadata.version"].pop("supported"), "features.metadata.version.supported: "),
        (lambda facts: facts["metadata_versions"][0].update(surprise=1), "metadata_versions.0.surprise: Unexpected"),
        (lambda facts: facts.pop("derived_from"), "the file: 'derived_from'"),
        (lambda facts: facts.update(java_minimum=7), "java_minimum: 7 is below 8"),
        (lambda facts: facts["features"].pop("metadata.version"), "features: metadata.version is missing"),
        (
            lambda facts: facts["features"]["metadata.version"].update(supported=[8, 1]),
            "features.metadata.version.supported: 8 is above 1",
        ),
        (lambda facts: facts.update(coordinator_class="lenient"), "coordinator_class: Input should be"),
        (lambda facts: facts.update(release="3.4.1"), "contains release 3.4.1"),
    ],
)
def test_a_broken_file_is_named_with_the_place(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], where: str
) -> None:
    path = broken(tmp_path, change)
    with pytest.raises(UserError) as caught:
        load_facts(path)
    assert str(path) in caught.value.sentence
    assert where in caught.value.sentence
    assert "kafka-rollout-derive add" in caught.value.remedy


def test_facts_that_an_older_version_of_the_tool_did_not_derive_are_gaps(tmp_path: Path) -> None:
    def as_before(document: dict[str, Any]) -> None:
        document.pop("config_defaults")
        for feature in document["features"].values():
            feature.pop("default_level")

    facts = load_facts(broken(tmp_path, as_before))
    assert facts.gaps.keys() == {"config_defaults", "feature_defaults"}
    assert facts.features["metadata.version"].default_level == 0
    assert not load_facts(broken(tmp_path, lambda document: None)).gaps


def test_a_file_that_is_no_json_and_an_empty_catalogue_are_told(tmp_path: Path) -> None:
    (tmp_path / "releases").mkdir()
    with pytest.raises(UserError, match="contains no release"):
        load_catalogue(tmp_path)
    (tmp_path / "releases" / "3.4.0.json").write_text("{")
    with pytest.raises(UserError, match=r"3\.4\.0\.json is invalid"):
        load_catalogue(tmp_path)


def test_a_file_is_read_again_when_it_was_changed_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "4.3.1.json"
    text = (INCLUDE / "releases" / "4.3.1.json").read_text()
    path.write_text(text)
    facts = load_facts(path)
    assert load_facts(path) is facts
    path.write_text(text.replace('"java_minimum": 17', '"java_minimum": 21'))
    assert load_facts(path).java_minimum == 21
    before = path.stat()
    (tmp_path / "draft").write_text(text)
    (tmp_path / "draft").replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a copy that keeps the time
    assert load_facts(path) == facts
    path.write_text("{")
    with pytest.raises(UserError, match="is invalid"):
        load_facts(path)
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        load_facts(path)


def test_the_jars_folder_beside_the_facts_is_no_release(tmp_path: Path) -> None:
    shutil.copytree(INCLUDE / "releases", tmp_path / "releases")
    assert len(list(load_catalogue(tmp_path))) == len(list((tmp_path / "releases").glob("*.json")))


def test_a_release_that_ignores_keys_but_writes_unknown_values_is_emitting(catalogue: Catalogue) -> None:
    old = catalogue.get(release("3.4.0")).coordinator_logs
    assert coordinator_class(catalogue.get(release("3.4.1")).coordinator_logs, old) is CoordinatorClass.TOLERANT
    assert coordinator_class(catalogue.get(release("4.0.1")).coordinator_logs, old) is CoordinatorClass.EMITTING


def test_comments_of_a_definition_go_and_slashes_in_texts_stay() -> None:
    text = '// licence\n{ "name": "X", // a name\n "about": "see http://x//y", "fields": [] }'
    assert parse_definition(text) == {"name": "X", "about": "see http://x//y", "fields": []}


def test_pretty_is_the_same_document(catalogue: Catalogue) -> None:
    document = json.loads((INCLUDE / "releases" / "4.3.1.json").read_text())
    assert json.loads(pretty(document)) == document
    assert max(map(len, pretty(document).splitlines())) < 200
