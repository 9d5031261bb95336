"""Files in folders that another user can change, such as a node's home, are opened to write by one function."""

from __future__ import annotations

import re

import pytest

from tests.architecture.rooms import PACKAGE

ROOMS = ("nodes", "metadata_log", "base/system", "rehearsal")
WRITES = re.compile(r"""os\.open\(|\.open\(\s*["'][wax+]|(?<![.\w])open\([^)]*["'][wax]b?["']|\.write_(text|bytes)\(""")
# Each creates a file that was not there (O_EXCL), writes into a folder that this process has just made, or only reads.
OTHERS = {
    "base/system/own_folders.py",
    "base/system/files.py",
    "metadata_log/changes/places.py",
    "metadata_log/changes/trimmer.py",
    "metadata_log/classes/authentication.py",
    "metadata_log/classes/kafka_classes.py",
    "metadata_log/classes/replay.py",
    "nodes/metadata_places.py",
    "rehearsal/machine/node_files.py",
    "rehearsal/machine/sandbox.py",
}


def test_no_other_module_opens_a_file_of_others_to_write() -> None:
    paths = [path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")]
    assert {str(path.relative_to(PACKAGE)) for path in paths if WRITES.search(path.read_text())} == OTHERS


@pytest.mark.parametrize(
    "line", ['path.open("w")', 'path.open("ab")', 'open(path, "w")', "os.open(path, flags)", 'path.write_text("x")']
)
def test_each_other_way_is_seen(line: str) -> None:
    assert WRITES.search(line)


@pytest.mark.parametrize("line", ['path.open("rb")', "open_below(home, name, flags=flags)", "os.fdopen(it, 'wb')"])
def test_readers_are_left_alone(line: str) -> None:
    assert not WRITES.search(line)
