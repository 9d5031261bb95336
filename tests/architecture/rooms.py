"""The rooms of the product as their folders and docstrings show them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterable
from functools import cache

from tests.paths import ROOT

PACKAGE = ROOT / "plugins" / "kafka_rollout"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
ORDER = [room for floor in CONTRACTS[0]["layers"] for room in floor.split(" | ")]  # the highest room first
BELOW_WIRING = ORDER[ORDER.index("wiring") + 1 :]
_OUTSIDE = re.compile(r"^Outside: (.+)\.$", re.MULTILINE)
_NAME = re.compile(r"^- `([\w.]+)`: \S", re.MULTILINE)


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a source, which nobody changes: most of these tests walk over the same files."""
    return ast.parse(source)


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """All nodes of the tree of a source, as `ast.walk` finds them."""
    return tuple(ast.walk(parsed(source)))


def outer_functions(source: str) -> list[ast.FunctionDef]:
    """The functions and methods of a module, without those inside of functions."""
    body = parsed(source).body
    inner = [one for node in body if isinstance(node, ast.ClassDef) for one in node.body]
    return [one for one in (*body, *inner) if isinstance(one, ast.FunctionDef)]


def name_of(node: ast.expr) -> str:
    """The last name of an expression such as `name` or `module.name`; empty for others."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def folders() -> list[str]:
    """All folders of all rooms with modules: `base`, `base/system`, …"""
    found = {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")}
    return sorted(found - {"."})


def by_function(rooms: Iterable[str], find: Callable[[str], Iterable[tuple[str, int]]]) -> dict[str, list[int]]:
    """`file:function` → lines, of what `find` finds in the sources of some rooms: outermost function and line."""
    found: dict[str, list[int]] = {}
    for room in rooms:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            for function, line in find(path.read_text()):
                found.setdefault(f"{path.relative_to(PACKAGE)}:{function}", []).append(line)
    return found


def docstring(folder: str) -> str:
    """The docstring of a folder's `__init__.py`; empty without one."""
    file = PACKAGE / folder / "__init__.py"
    return (ast.get_docstring(parsed(file.read_text())) if file.exists() else None) or ""


def reached(text: str) -> str:
    """What a folder with this docstring touches outside; empty if nothing."""
    found = _OUTSIDE.search(text)
    return found.group(1) if found else ""


def row_of(room: str) -> tuple[str, str, str]:
    """Room, subject and folders that touch the outside, for the table of docs/architecture.md."""
    first = docstring(room).partition("\n")[0].removesuffix(".")
    inside = [folder for folder in folders() if folder.startswith(f"{room}/") and reached(docstring(folder))]
    cells = [f"`{folder.partition('/')[2]}`: {reached(docstring(folder))}" for folder in inside]
    cells = [f"all: {whole}"] if (whole := reached(docstring(room))) else cells
    return f"`{room}`", first[:1].lower() + first[1:], "; ".join(cells)


def names_to_begin_with(text: str) -> list[str]:
    return _NAME.findall(text)


def modules_below(these: Iterable[str]) -> tuple[str, ...]:
    """The beginnings of the names of all modules in these folders."""
    return tuple(f"kafka_rollout.{folder.replace('/', '.')}." for folder in these)


# Folders that touch the outside: files, sockets, processes, JVMs and databases. Everything else in a room below
# `wiring` is pure or works through ports, and the rooms above may open all.
OUTSIDE = tuple(folder for folder in folders() if folder.split("/")[0] in BELOW_WIRING and reached(docstring(folder)))
