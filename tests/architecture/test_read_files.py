"""A file that others name or can replace is read by one function: to open a FIFO waits, and a device has no end."""

from __future__ import annotations

import re

import pytest

from tests.architecture.rooms import PACKAGE

READS = re.compile(r"""\.read_(text|bytes)\(|\.open\((\s*["']r|encoding|\))|(?<![.\w])open\([^)]*["']r""")
# Each reads a file that the tool has made itself, in a folder of its own, or that belongs to its installation or to the
# kernel.
OTHERS = {
    "base/system/own_folders.py",
    "cli/app.py",
    "cli/commands/scans.py",
    "coordinator_logs/spark/submit.py",
    "metadata_log/changes/trimmer.py",
    "nodes/metadata_places.py",
    "rehearsal/machine/local.py",
    "rehearsal/machine/sandbox.py",
    "releases/documents/catalogue.py",
    "releases/jars/cache.py",
    "releases/jvm/java.py",
    "run/store/artifacts.py",
    "traffic/processes/of_run.py",
    "traffic/processes/traffic.py",
    "client/security/carried_security.py",
    "wiring/rehearsal.py",
}


def test_no_other_module_opens_a_file_to_read() -> None:
    paths = PACKAGE.rglob("*.py")
    assert {str(path.relative_to(PACKAGE)) for path in paths if READS.search(path.read_text())} == OTHERS


@pytest.mark.parametrize(
    "line", ["path.read_text()", "path.read_bytes()", 'path.open("rb")', "path.open()", 'open(path, "r")']
)
def test_each_other_way_is_seen(line: str) -> None:
    assert READS.search(line)


@pytest.mark.parametrize("line", ["read_regular(path)", "os.fdopen(open_regular(path))", 'path.open("wb")'])
def test_the_function_and_writers_are_left_alone(line: str) -> None:
    assert not READS.search(line)


JSON = re.compile(r"json\.loads?\(")
# Documents that the tool has written itself.
OWN_DOCUMENTS = {"client/security/carried_security.py", "notifications/store/sent.py"}


def test_a_json_text_of_others_is_read_by_one_function() -> None:
    """json raises RecursionError for one that is nested deeply."""
    rooms = ("clusters", "client", "formats", "gates", "metadata_log", "model", "nodes", "notifications")
    paths = [path for room in rooms for path in (PACKAGE / room).rglob("*.py")]
    assert {str(path.relative_to(PACKAGE)) for path in paths if JSON.search(path.read_text())} == OWN_DOCUMENTS
