"""The definitions in the repository are complete: every record type of the catalogue has its key and its value."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.formats.documents.definitions import Schemas, load_schemas
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.paths import INCLUDE

OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"


@pytest.fixture(scope="module")
def schemas() -> Schemas:
    return load_schemas(INCLUDE)


def test_every_record_type_of_the_catalogue_has_definitions_of_the_versions_it_reads(schemas: Schemas) -> None:
    for release, facts in load_catalogue(INCLUDE).releases.items():
        for topic, log in facts.coordinator_logs.items():
            for record in log.records:
                found = schemas.layouts(release, topic, record.key_version)
                assert found is not None
                assert found.name == record.name
                assert found.value.valid_versions == record.reads, (release, record)
                flexible = found.value.flexible_versions
                assert (None if flexible is None else flexible.min) == record.flexible_from, (release, record)


def test_a_key_of_the_same_type_has_the_same_layout_before_and_after_keys_lost_their_versions(schemas: Schemas) -> None:
    old, new = (schemas.layouts(Release.parse(text), OFFSETS, 1) for text in ("4.0.1", "4.3.1"))
    assert old is not None
    assert new is not None
    assert (old.key.version, new.key.version) == (1, 0)
    assert old.key.struct == new.key.struct


def test_a_release_has_nothing_for_keys_and_logs_that_it_does_not_know(schemas: Schemas) -> None:
    old = Release.parse("3.4.1")
    assert schemas.layouts(old, OFFSETS, 3) is None
    assert schemas.layouts(old, SHARES, 0) is None
    assert schemas.layouts(old, TRANSACTIONS, 0) is not None


def test_a_missing_and_a_broken_definition_are_named(tmp_path: Path) -> None:
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    named = json.loads((include / "schemas" / "kafka" / "4.3.1.json").read_text())["messages"]["GroupMetadataValue"]
    path = include / "schemas" / "definitions" / f"{named['definition']}.json"
    path.write_text("{}")
    with pytest.raises(UserError, match=r"GroupMetadataValue-\w+\.json: The message definition is not one of Kafka's"):
        load_schemas(include)
    path.unlink()
    with pytest.raises(UserError, match=r"GroupMetadataValue-\w+\.json cannot be read"):
        load_schemas(include)
