"""What a run brings into server.properties can be taken out again without a change of any other byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kafka_rollout.base.errors import UserError
from kafka_rollout.formats.files.server_properties import (
    directory_formats,
    directory_ids,
    local_format,
    parse,
    restore_properties,
    set_properties,
    to_content,
)
from kafka_rollout.model.host_state import DirectoryFormat, DirectoryIdentity

CONTENT = b"""\
# The orders cluster
node.id=1
log.dirs = /data/a,\\
           /data/b
advertised.listeners: PLAINTEXT://host:9092

log.message.format.version=3.0
"""
LATIN = b"# gr\xfc\xdfe\r\nssl.keystore.password=p\xe4ss\r\nnode.id=1\r\n# see page 4\x0clog.dirs=/old/place\r\n"


def test_values_are_read_as_java_reads_them() -> None:
    assert parse(CONTENT) == {
        "node.id": "1",
        "log.dirs": "/data/a,/data/b",
        "advertised.listeners": "PLAINTEXT://host:9092",
        "log.message.format.version": "3.0",
    }
    assert parse(b"a\\ b=\\u0041\\n\n! no\nempty\n") == {"a b": "A\n", "empty": ""}
    assert parse(b"a=1\\") == parse(b"a=1\\\n") == parse(b"a=1\\\r\n") == {"a": "1"}
    assert parse(b"\\\n# comment\n\xa0a\xa0=\xa01\x0b\rb\t\x0c 2\\\r\n \x0c3") == {"\xa0a\xa0": "\xa01\x0b", "b": "23"}


def test_a_file_that_java_refuses_is_refused() -> None:
    with pytest.raises(UserError, match=r"has \\u without four hexadecimal digits"):
        parse(b"ssl.keystore.location=C:\\users\\kafka\n")


def test_bytes_that_are_not_ascii_and_line_ends_stay() -> None:
    assert parse(LATIN) == {"ssl.keystore.password": "p\xe4ss", "node.id": "1"}
    changed = set_properties(LATIN, "4.3.1", {"num.io.threads": "8", "node.id": "2"})
    assert changed.startswith(LATIN.replace(b"node.id", b"#kafka-rollout-out: node.id"))
    assert parse(changed) == {"ssl.keystore.password": "p\xe4ss", "node.id": "2", "num.io.threads": "8"}
    assert changed.count(b"\n") == changed.count(b"\r\n")
    assert restore_properties(changed) == LATIN


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_part_of_a_comment_never_becomes_a_line(character: str) -> None:
    content = f"# disabled{character}authorizer.class.name=\nnode.id=1\n".encode()
    changed = set_properties(content, "4.3.1", {"num.io.threads": "8"})
    assert parse(changed) == {"node.id": "1", "num.io.threads": "8"}
    assert restore_properties(changed) == content


def test_characters_that_iso_8859_1_does_not_have_are_escaped() -> None:
    lines = {"a": "\u20ac \U0001f600 \xe4", "b": "\f \t x"}
    assert to_content(lines) == b"a=\\u20ac \\ud83d\\ude00 \xe4\nb=\\f \\t x\n"
    assert parse(to_content(lines)) == lines


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00\\ud83d", "a\\uDE00b", "\\ud83d\\n\\ude00"])
def test_half_of_a_character_is_refused_because_no_other_text_can_have_it(half: str) -> None:
    with pytest.raises(UserError, match=r"has \\u(d83d|de00), which is half of a character, without its other half"):
        parse(f"node.id=1\nlog.dirs={half}\n".encode())


@pytest.mark.parametrize("content", [b"\\", b"\\\n", b" \\\r", b"\\\n\\"])
def test_a_backslash_alone_at_the_end_is_an_empty_name_as_in_java(content: bytes) -> None:
    assert parse(b"a=1\n" + content) == {"a": "1", "": ""}
    assert parse(content.rstrip(b"\r\n") + b"\r\n") == {}
    assert parse(content + b"\na=1") == {"a": "1"}


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("added", [{"x": "y"}, {"x": None}, {"a": "2"}])
def test_a_line_after_one_that_was_taken_out_with_a_last_backslash_stays_a_line(
    end: bytes, added: dict[str, str | None]
) -> None:
    changed = set_properties(b"b=3\na=1\\" + end, "4.3.1", {"a": None, **added})
    assert restore_properties(changed) == b"b=3\na=1\\" + end
    separate = b"" if changed.endswith((b"\n", b"\r")) else b"\n"
    appended = changed + separate + b"# of the operator\nc=4\n"
    assert parse(restore_properties(appended)) == {"b": "3", "a": "1", "c": "4"}


def test_lines_are_changed_added_and_taken_out_but_stay_readable() -> None:
    changed = set_properties(CONTENT, "4.3.1", {"log.message.format.version": None, "log.dirs": "/data/c", "x": "y"})
    assert parse(changed) == {
        "node.id": "1",
        "log.dirs": "/data/c",
        "advertised.listeners": "PLAINTEXT://host:9092",
        "x": "y",
    }
    assert b"# The orders cluster\n" in changed
    assert b"#kafka-rollout-out: log.message.format.version=3.0\n" in changed


def test_bringing_in_twice_is_bringing_in_once() -> None:
    lines = {"log.message.format.version": None, "x": "y"}
    once = set_properties(CONTENT, "4.3.1", lines)
    assert set_properties(once, "4.3.1", lines) == once


def test_a_restored_file_keeps_the_later_edits_of_an_operator() -> None:
    changed = set_properties(CONTENT, "4.3.1", {"log.message.format.version": None, "x": "y"})
    edited = changed.replace(b"node.id=1", b"node.id=1\nnum.io.threads=9")
    assert restore_properties(edited) == CONTENT.replace(b"node.id=1", b"node.id=1\nnum.io.threads=9")
    appended = set_properties(b"a=1", "4.3.1", {"x": "y"}) + b"b=2\n"
    assert restore_properties(appended) == b"a=1\nb=2\n"
    without_end = changed.replace(b"# kafka-rollout: end\n", b"") + b"b=2\n"
    assert parse(restore_properties(without_end))["b"] == "2"


keys = st.text("abc.", min_size=1, max_size=4)
values = st.text("xyz =:#!\\\t\f\r\n\xe4\u20ac", max_size=6)
changes = st.dictionaries(keys, st.one_of(st.none(), values), min_size=1)
# Arbitrary bytes, and bytes that often have a meaning in a properties file.
contents = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from([b"a", b"b", b".", b"=", b" ", b"\\", b"\n", b"\r", b"\x0c", b"#", b"\xe4"])).map(
        b"".join
    ),
)


@given(contents, changes)
@example(b"a=b\\", {"x": "y"})
@example(b"a=b\\\r", {"x": "y"})
@example(b"a=b\\\r\n\\\n", {"x": "y"})
@example(b"a", {"a": "y"})
def test_any_change_reads_as_requested_and_restores_every_byte(content: bytes, lines: dict[str, str | None]) -> None:
    try:
        before = parse(content)
    except UserError:
        assume(False)
    changed = set_properties(content, "4.3.1", lines)
    wanted = {key: value for key, value in {**before, **lines}.items() if value is not None}
    if before.get("") == "" and "" not in parse(changed):  # a backslash that is the last line no longer
        del wanted[""]
    assert parse(changed) == wanted
    assert restore_properties(changed) == content
    assert set_properties(changed, "4.3.1", lines) == changed


def test_directories_are_named_by_the_id_that_each_was_formatted_with(tmp_path: Path) -> None:
    for name, formatted in (("one", "directory.id=first\n"), ("two", "directory.id=second\n"), ("old", "version=1\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(formatted)
    config = {"log.dirs": f"{tmp_path}/one, {tmp_path}/old,{tmp_path}/gone", "metadata.log.dir": f"{tmp_path}/two"}
    assert directory_ids(config) == {"first": f"{tmp_path}/one", "second": f"{tmp_path}/two"}
    assert directory_ids({}) == {}


def test_a_directory_that_cannot_be_read_is_not_an_unformatted_one(tmp_path: Path) -> None:
    (tmp_path / "formatted").mkdir()
    (tmp_path / "formatted" / "meta.properties").write_bytes(b"node.id=1\n")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert local_format(tmp_path / "formatted") == DirectoryFormat(meta=b"node.id=1\n")
    assert local_format(tmp_path / "new") == DirectoryFormat()
    assert local_format(tmp_path / "loop").problem == "Too many levels of symbolic links"


def test_a_directory_is_identified_by_what_its_meta_properties_says(tmp_path: Path) -> None:
    for name, meta in (("a", "cluster.id=abc\ndirectory.id=one\n"), ("b", "cluster.id=abc\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(meta)
    config = {"log.dirs": f"{tmp_path}/a,{tmp_path}/new", "metadata.log.dir": f"{tmp_path}/b"}
    found = directory_formats(config, local_format)
    assert found is not None
    assert [one.identity for one in found.values()] == [
        DirectoryIdentity(path=f"{tmp_path}/a", cluster_id="abc", directory_id="one"),
        None,
        DirectoryIdentity(path=f"{tmp_path}/b", cluster_id="abc", is_of_metadata=True),
    ]
