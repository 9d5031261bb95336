"""What the trigger forms show of a cluster, from a file that can be missing, old or damaged."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.last_seen import LastSeen, last_seen_text, read_last_seen, write_last_seen
from tests.fakes.cluster import R391, R431

NOON = 1764504000.0  # 2025-11-30T12:00:00Z
SEEN = LastSeen(at=NOON, releases={R391: 6}, unknown=0, metadata_version="3.9-IV0")
NOTHING = "The running release has not been seen yet."


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(clusters=tmp_path, home=tmp_path, cache=tmp_path, include=tmp_path)


def test_the_text_names_the_date_and_never_now(settings: Settings) -> None:
    assert last_seen_text("east", settings) == NOTHING
    write_last_seen("east", SEEN, settings)
    assert last_seen_text("east", settings) == (
        "Running when last seen, on 2025-11-30 (UTC): 3.9.1, metadata.version 3.9-IV0."
    )
    assert last_seen_text("west", settings) == NOTHING


def test_nodes_of_several_releases_are_counted() -> None:
    mixed = replace(SEEN, releases={R391: 2, R431: 1}, unknown=1, metadata_version="")
    assert mixed.text == (
        "Running when last seen, on 2025-11-30 (UTC): 4.3.1 (1 node), 3.9.1 (2 nodes), unknown (1 node)."
    )


def test_an_older_observation_replaces_no_newer_one(settings: Settings) -> None:
    write_last_seen("east", SEEN, settings)
    write_last_seen("east", replace(SEEN, at=NOON - 1, releases={R431: 6}), settings)
    assert read_last_seen("east", settings) == SEEN
    newer = replace(SEEN, at=NOON + 1, releases={R431: 6})
    write_last_seen("east", newer, settings)
    assert read_last_seen("east", settings) == newer


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"at": 1764504000}',
        '{"at": NaN, "releases": {"3.9.1": 6}, "unknown": 0, "metadata_version": ""}',
        '{"at": 1e300, "releases": {"3.9.1": 6}, "unknown": 0, "metadata_version": ""}',
        '{"at": 1, "releases": {}, "unknown": 6, "metadata_version": ""}',
        '{"at": 1, "releases": {"the newest": 6}, "unknown": 0, "metadata_version": ""}',
        '{"at": 1, "releases": {"3.9.1": 6}, "unknown": 0, "metadata_version": "</p> Run it now."}',
    ],
)
def test_a_damaged_file_is_not_seen_and_the_next_observation_repairs_it(content: str, settings: Settings) -> None:
    write_last_seen("east", SEEN, settings)
    (file,) = (settings.home / "last-seen").iterdir()
    file.write_text(content)
    assert last_seen_text("east", settings) == NOTHING
    write_last_seen("east", SEEN, settings)
    assert read_last_seen("east", settings) == SEEN


def test_a_file_that_cannot_be_read_or_written_fails_neither_a_parse_nor_a_run(settings: Settings) -> None:
    folder = settings.home / "last-seen"
    folder.mkdir()
    os.mkfifo(folder / "east.json")
    assert last_seen_text("east", settings) == NOTHING
    folder.rename(folder.with_name("other"))
    folder.write_text("a file in place of the folder")
    assert last_seen_text("east", settings) == NOTHING
    write_last_seen("east", SEEN, settings)
