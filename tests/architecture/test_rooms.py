"""The `__init__.py` of a room or folder says what it holds, what it touches outside, and what to read first."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.rooms import ORDER, OUTSIDE, PACKAGE, docstring, folders, names_to_begin_with, parsed, reached

_MOST_NAMES = 10


def defined(file: str) -> set[str]:
    """The names that a module of the package defines at its top."""
    names: set[str] = set()
    for node in parsed((PACKAGE / file).read_text()).body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign():
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


@pytest.mark.parametrize("folder", folders())
def test_a_folder_says_what_it_holds_or_what_it_touches_outside(folder: str) -> None:
    text = docstring(folder)
    assert text, f"{folder}/__init__.py needs a docstring. If the folder touches the outside: `Outside: WHAT.`"
    assert text.count("Outside:") == bool(reached(text)), "The line is `Outside: WHAT.`"


def test_a_folder_of_a_room_that_touches_the_outside_does_not_say_so_again() -> None:
    assert [folder for folder in OUTSIDE if any(folder.startswith(f"{other}/") for other in OUTSIDE)] == []


@pytest.mark.parametrize("room", ORDER)
def test_the_door_of_a_room_names_at_most_ten_things_that_exist(room: str) -> None:
    names = names_to_begin_with(docstring(room))
    assert docstring(room).count("\n- ") == len(names)
    assert "\nBegin with:\n- `" in docstring(room)
    assert 0 < len(names) <= _MOST_NAMES
    for name in names:
        module, _, thing = name.rpartition(".")
        assert thing in defined(f"{room}/{module.replace('.', '/')}.py"), name


@pytest.mark.parametrize("room", ORDER)
def test_the_door_of_a_room_is_a_text(room: str) -> None:
    """It imports nothing (docs/decisions/structure-of-the-code.md)."""
    (only,) = parsed((PACKAGE / room / "__init__.py").read_text()).body
    assert isinstance(only, ast.Expr)
