"""The `__init__.py` of a room or folder says what it holds and what it touches outside."""

from __future__ import annotations

import re

import pytest

from tests.architecture.rooms import (
    ORDER,
    OUTSIDE,
    docstring,
    folders,
    reached,
)
from tests.paths import ROOT

_LINKS = re.compile(r" \((?:\[[^]]*\]\([^)]*\)(?:, )?)+\)")


def rows_of_rooms() -> list[tuple[str, ...]]:
    """Room, subject and folders of the table in docs/architecture.md, without links."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    lines = page.partition("\n## Rooms\n")[2].partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    return [tuple(cell.strip() for cell in _LINKS.sub("", row).strip("|").split("|")) for row in rows]


def row_of(room: str) -> tuple[str, str, str]:
    """The row that the tree gives."""
    first = docstring(room).partition("\n")[0].removesuffix(".")
    inside = [folder for folder in folders() if folder.startswith(f"{room}/") and reached(docstring(folder))]
    cells = [f"`{folder.partition('/')[2]}`: {reached(docstring(folder))}" for folder in inside]
    cells = [f"all: {whole}"] if (whole := reached(docstring(room))) else cells
    return f"`{room}`", first[:1].lower() + first[1:], "; ".join(cells)


@pytest.mark.parametrize("folder", folders())
def test_a_folder_says_what_it_holds_or_what_it_touches_outside(folder: str) -> None:
    text = docstring(folder)
    assert text, f"{folder}/__init__.py needs a docstring. If the folder touches the outside: `Outside: WHAT.`"
    assert text.count("Outside:") == bool(reached(text)), "The line is `Outside: WHAT.`"


def test_a_folder_of_a_room_that_touches_the_outside_does_not_say_so_again() -> None:
    assert [folder for folder in OUTSIDE if any(folder.startswith(f"{other}/") for other in OUTSIDE)] == []


def test_the_table_of_the_rooms_is_what_the_tree_says() -> None:
    assert rows_of_rooms() == [row_of(room) for room in reversed(ORDER)]
