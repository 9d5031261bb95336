"""Each principle of docs/architecture.md has its place in the code and its test."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.principles import PRINCIPLES, Principle
from tests.architecture.rooms import PACKAGE, parsed
from tests.paths import ROOT


@pytest.mark.parametrize("principle", PRINCIPLES, ids=lambda one: one.holds[:60])
def test_the_places_and_tests_of_a_principle_exist(principle: Principle) -> None:
    for place in principle.places:
        path, _, name = place.partition(":")
        tree = parsed((PACKAGE / path).read_text())
        assert not name or name in _names(tree), place
    for test in principle.tests:
        path, _, name = test.partition("::")
        tests = [one for one in _names(parsed((ROOT / "tests" / path).read_text())) if one.startswith("test_")]
        assert tests, test
        assert not name or name in tests, test


def _names(tree: ast.Module) -> set[str]:
    found = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)}
    for one in tree.body:
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found
