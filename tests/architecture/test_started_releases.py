"""A start is on a release that the run knows: it installs it right before, or refuses what the host has instead."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.rooms import PACKAGE, outer_functions

_KNOWS = {"refuse_other_release", "_refuse_other_release", "install_release", "install"}


def starters(source: str) -> list[tuple[str, bool]]:
    """Return the functions that start a node, each with whether it knows the release."""
    found = []
    for node in outer_functions(source):
        calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
        starts = [
            one
            for one in calls
            if isinstance(one, ast.Attribute)
            and one.attr == "start"
            and ast.unparse(one.value).rpartition(".")[2] in {"starts", "runtime"}
        ]
        if starts:
            names = {one.id if isinstance(one, ast.Name) else getattr(one, "attr", "") for one in calls}
            found.append((node.name, bool(names & _KNOWS)))
    return found


def test_each_start_knows_its_release() -> None:
    seen = {
        (path.relative_to(PACKAGE).as_posix(), name): knows
        for path in PACKAGE.rglob("*.py")
        for name, knows in starters(path.read_text())
        if (path.name, name) != ("node_starts.py", "start")  # which the others call
    }
    assert len(seen) > 4, "the starts were not found"
    assert {place for place, knows in seen.items() if not knows} == set()


@pytest.mark.parametrize(("line", "knows"), [("", False), ("refuse_other_release(node, release, None)", True)])
def test_a_start_is_found(line: str, knows: bool) -> None:
    assert starters(f"def act(run):\n    {line or 'pass'}\n    starts.start(node)\n") == [("act", knows)]
