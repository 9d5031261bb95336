"""Every start of nodes passes `node_starts.starting`, in one block for all nodes that start together.

The operator's commands after a start can wait for the other nodes. One by one, each would take its whole time limit
while nodes are down.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import PACKAGE, parsed

STARTS = "observation/node_starts.py"
OTHERS = {"procedure/rehearsal.py": "copies of nodes, which have no commands of the operator"}
_BLOCKS = {"starting", "finish_starts"}
_REPEATED = (ast.For, ast.While, ast.comprehension, ast.Lambda)


def calls_of_runtime(source: str) -> bool:
    """Return whether a module calls `….runtime.start` or `….runtime.finish_start`."""
    return any(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr in {"start", "finish_start"}
        and ast.unparse(one.func.value).endswith("runtime")
        for one in ast.walk(parsed(source))
    )


def blocks(node: ast.AST, depth: int = 0, *, repeats: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield each use of a block of starts, with whether it is in a loop or in a function in another one, which can be
    called for one node after the other."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BLOCKS:
        yield node.func.id, repeats
    is_function = isinstance(node, ast.FunctionDef)
    inside = repeats or isinstance(node, _REPEATED) or (is_function and depth > 0)
    for child in ast.iter_child_nodes(node):
        yield from blocks(child, depth + is_function, repeats=inside)


def test_every_start_of_a_node_passes_one_place() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if calls_of_runtime(path.read_text())}
    assert found == {STARTS, *OTHERS}


def test_nodes_that_start_together_are_started_in_one_block() -> None:
    found = [
        (str(path.relative_to(PACKAGE)), repeats)
        for path in sorted(PACKAGE.rglob("*.py"))
        for _, repeats in blocks(parsed(path.read_text()))
    ]
    assert {path for path, _ in found} >= {"lowering/live.py", "lowering/offline.py", "roll/node.py"}
    assert [path for path, repeats in found if repeats] == []


@pytest.mark.parametrize(
    ("source", "repeats"),
    [
        ("def act(run):\n    with starting(run, nodes) as starts:\n        pass\n", False),
        (
            "def act(run):\n    for node in nodes:\n        with starting(run, [node]) as starts:\n            pass\n",
            True,
        ),
        ("def act(run):\n    on_each(lambda node: finish_starts(run, [node]), nodes)\n", True),
        ("def act(run):\n    def one(node):\n        with starting(run, [node]) as starts:\n            pass\n", True),
    ],
)
def test_a_block_for_each_node_is_found(source: str, repeats: bool) -> None:
    assert [found for _, found in blocks(parsed(source))] == [repeats]
