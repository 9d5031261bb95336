"""What tests and benchmarks replace by its name exists, also in those that run seldom."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from tests.architecture.rooms import nodes_of
from tests.paths import ROOT, TESTS

_OURS = ("kafka_rollout", "kafka_rollout_spark", "tools", "tests")
_DOTTED = re.compile(r"kafka_rollout(\.\w+)+")
_MISSING = object()


@cache
def find(name: str) -> Any:
    """Return the module or object with a dotted name, or _MISSING."""
    if not name:
        return _MISSING
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        parent, _, attribute = name.rpartition(".")
        return getattr(find(parent), attribute, _MISSING)


def imported(source: str) -> dict[str, str]:
    """Return local name → dotted name of what a file imports of this project, also inside of functions."""
    names: dict[str, str] = {}
    for node in nodes_of(source):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_OURS):
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            names |= {one.asname: one.name for one in node.names if one.asname and one.name.startswith(_OURS)}
    return names


def missing(source: str) -> Iterator[str]:
    """Yield dotted names in texts, and names in `setattr(module, "name", …)` or `patch.object`, that do not exist."""
    names = imported(source)
    for node in nodes_of(source):
        match node:
            case ast.Constant(value=str(text)) if _DOTTED.fullmatch(text) and find(text) is _MISSING:
                yield text
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "object"),
                args=[ast.Name(id=local), ast.Constant(value=str(name)), *_],
            ) if isinstance(replaced := find(names.get(local, "")), ModuleType | type) and not hasattr(replaced, name):
                yield f"{names[local]}.{name}"


@pytest.mark.airflow
def test_what_is_replaced_by_its_name_exists() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in (TESTS, ROOT / "bench")
        for path in sorted(folder.rglob("*.py"))
        for name in missing(path.read_text())
    }
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        'monkeypatch.setattr("kafka_rollout.run.view.RunViews", None)',
        'from kafka_rollout.run import view\nmonkeypatch.setattr(view, "RunViews", None)',
        'from kafka_rollout.run.view import RunView\npatch.setattr(RunView, "off", None)',
        'from kafka_rollout.run import view\nmock.patch.object(view, "RunViews", None)',
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str) -> None:
    assert len(list(missing(text))) == 1
    exists = text.replace("RunViews", "RunView").replace('"off"', '"of"')
    assert not list(missing(exists))
