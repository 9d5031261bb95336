"""Two values of a setting are compared by one function, by the type of the setting: `0.50` and `0.5` are equal."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import BELOW_WIRING, PACKAGE, parsed

ROOMS = [room for room in BELOW_WIRING if room != "nodes"]  # whose files have one text
_VALUES = {"value", "default", "line", "old", "new", "before", "after"}
_NO_VALUES = {"len", "set", "type", "sorted"}
_OF = {"Setting", "ConfigChange", "ConfigDifference"}


def compared_values(source: str) -> Iterator[tuple[str, str]]:
    """Yield function and text of each comparison of two values, in a module that knows settings."""
    tree = parsed(source)
    if not any(isinstance(node, ast.Name) and node.id in _OF for node in ast.walk(tree)):
        return
    for function in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                sides = (node.left, node.comparators[0])
                if all(map(_can_be_value, sides)) and any(map(_is_value, sides)):
                    yield function.name, ast.unparse(node)


def _can_be_value(node: ast.expr) -> bool:
    return not isinstance(node, ast.Constant | ast.Set | ast.Tuple | ast.List) and not ast.unparse(node).isupper()


def _is_value(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):  # such as a function that makes texts alike
        return ast.unparse(node.func) not in _NO_VALUES and any(map(_is_value, node.args))
    if isinstance(node, ast.BoolOp):
        return any(map(_is_value, node.values))
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in _VALUES


def test_values_of_settings_are_compared_by_their_type() -> None:
    files = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    found = {str(path.relative_to(PACKAGE)): list(compared_values(path.read_text())) for path in files}
    assert {path: texts for path, texts in found.items() if texts} == {}, "use model.config_values.same_value"


@pytest.mark.parametrize(
    "text", ["setting.value != line", "old == new", "change.before == other.default", "f(line) != f(old or '')"]
)
def test_each_way_to_compare_texts_is_found(text: str) -> None:
    assert list(compared_values(f"def f(one: Setting):\n    return {text}\n"))


@pytest.mark.parametrize(
    "text", ["setting.value == HIDDEN", "same_value(old, new)", "one.name == other", "len(old) == size"]
)
def test_other_comparisons_are_left_alone(text: str) -> None:
    assert not list(compared_values(f"def f(one: Setting):\n    return {text}\n"))
