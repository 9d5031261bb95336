"""What a gate, a plan and finalizing expect of error counters comes from one function, which knows every cause."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.rooms import PACKAGE, by_function, name_of, parsed

MAKERS = {
    "preparation/metadata_errors.py:expected_of": "from the plan, its findings and the logs",
    "gates/counters.py:NONE_EXPECTED": "of processes of which no plan expects any",
}


def makes(source: str) -> Iterator[tuple[str, int]]:
    """Yield the outermost function, or the name that is assigned, and the line of each call of `ExpectedErrors`."""
    for top in parsed(source).body:
        name = getattr(top, "name", "") or (ast.unparse(top.targets[0]) if isinstance(top, ast.Assign) else "")
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and name_of(node.func).endswith("ExpectedErrors"):
                yield name, node.lineno


def test_one_function_says_which_errors_are_expected() -> None:
    rooms = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("__"))
    assert set(by_function(rooms, makes)) == set(MAKERS)


def test_the_check_itself_can_fail() -> None:
    assert list(makes("def f():\n    return counters.ExpectedErrors(settings=1)\n")) == [("f", 2)]
