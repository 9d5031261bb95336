"""Every inventory of a cluster is read where its groups and transactional ids are proved to be complete."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import PACKAGE, nodes_of

# The port's own adapter, and the one reader, which asks the coordinators before and after.
READERS = {"client/admin.py", "rehearsal/result.py"}


def readings(source: str) -> Iterator[int]:
    """Yield the line of each place that uses the port's `inventory`."""
    for node in nodes_of(source):
        if isinstance(node, ast.Attribute) and node.attr == "inventory" and _is_admin(node.value):
            yield node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            yield from (node.lineno for one in node.args if isinstance(one, ast.Constant) and one.value == "inventory")


def _is_admin(value: ast.expr) -> bool:
    named = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return named.endswith("admin")


def test_only_one_place_reads_an_inventory() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if any(readings(path.read_text()))}
    assert found <= READERS, "use read_inventory of rehearsal/result.py"


@pytest.mark.parametrize(
    "text", ["ports.admin.inventory()", "f(admin.inventory)", "self.admin.inventory()", "getattr(a, 'inventory')()"]
)
def test_each_way_to_read_one_is_found(text: str) -> None:
    assert list(readings(text)) == [1]
