"""What a roll brings into server.properties can be taken back without touching anything else."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.adapters.system.server_properties import directory_ids, parse, restore_properties, set_properties

TEXT = """\
# The orders cluster
node.id=1
log.dirs = /data/a,\\
           /data/b
advertised.listeners: PLAINTEXT://host:9092

log.message.format.version=3.0
"""


def test_values_are_read_as_java_reads_them() -> None:
    assert parse(TEXT) == {
        "node.id": "1",
        "log.dirs": "/data/a,/data/b",
        "advertised.listeners": "PLAINTEXT://host:9092",
        "log.message.format.version": "3.0",
    }
    assert parse("a\\ b=\\u0041\\n\n! no\nempty\n") == {"a b": "A\n", "empty": ""}


def test_lines_are_changed_added_and_taken_out_but_stay_readable() -> None:
    changed = set_properties(TEXT, "4.3.1", {"log.message.format.version": None, "log.dirs": "/data/c", "x": "y"})
    assert parse(changed) == {
        "node.id": "1",
        "log.dirs": "/data/c",
        "advertised.listeners": "PLAINTEXT://host:9092",
        "x": "y",
    }
    assert "# The orders cluster\n" in changed
    assert "#kafka-rollout-out: log.message.format.version=3.0\n" in changed


def test_bringing_in_twice_is_bringing_in_once() -> None:
    lines = {"log.message.format.version": None, "x": "y"}
    once = set_properties(TEXT, "4.3.1", lines)
    assert set_properties(once, "4.3.1", lines) == once


def test_the_way_back_keeps_what_a_person_edited_meanwhile() -> None:
    changed = set_properties(TEXT, "4.3.1", {"log.message.format.version": None, "x": "y"})
    edited = changed.replace("node.id=1", "node.id=1\nnum.io.threads=9")
    assert restore_properties(edited) == TEXT.replace("node.id=1", "node.id=1\nnum.io.threads=9")


keys = st.text("abc.", min_size=1, max_size=4)
values = st.text("xyz =:#!\\\t", max_size=6)


@given(st.dictionaries(keys, values), st.dictionaries(keys, st.one_of(st.none(), values), min_size=1))
def test_any_change_reads_as_asked_and_goes_back(before: dict[str, str], lines: dict[str, str | None]) -> None:
    text = set_properties("", "1.0.0", before)
    start = "".join(line + "\n" for line in text.splitlines() if not line.startswith("#"))
    changed = set_properties(start, "4.3.1", lines)
    wanted = {key: value for key, value in {**before, **lines}.items() if value is not None}
    assert parse(changed) == wanted
    assert restore_properties(changed).strip() == start.strip()


def test_directories_are_named_by_the_id_that_each_was_formatted_with(tmp_path: Path) -> None:
    for name, formatted in (("one", "directory.id=first\n"), ("two", "directory.id=second\n"), ("old", "version=1\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(formatted)
    config = {"log.dirs": f"{tmp_path}/one, {tmp_path}/old,{tmp_path}/gone", "metadata.log.dir": f"{tmp_path}/two"}
    assert directory_ids(config) == {"first": f"{tmp_path}/one", "second": f"{tmp_path}/two"}
    assert directory_ids({}) == {}
