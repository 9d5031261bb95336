"""Where the steps that stop all controllers ask the cluster: an error of a question must not end their handlers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tests.architecture.rooms import by_function, parsed

# Function → why an error of its question leaves every controller running.
ASKS = {
    "lowering/active_controller.py:ask_active": "an error is an answer",
    "lowering/active_controller.py:find_active": "an error is an answer",
    "lowering/live.py:_lower": "before the first stop",
    "lowering/ordered_start.py:_watch": "a broker whose question fails does not serve",
    "lowering/outage_facts.py:estimate_outage": "for the approval",
}


def places(source: str) -> Iterator[tuple[str, int]]:
    """Yield the outermost function and the line of each use of the client of the brokers and controllers."""
    for top in parsed(source).body:
        for function in top.body if isinstance(top, ast.ClassDef) else [top]:
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr == "admin":
                    yield getattr(function, "name", ""), node.lineno


def test_each_question_of_a_step_that_stops_all_controllers_is_known() -> None:
    seen = by_function(("lowering",), places).keys()
    assert seen - ASKS.keys() == set(), "ask through lowering/active_controller.py, or say why an error is harmless"
    assert ASKS.keys() - seen == set(), "no such question"


def test_a_question_is_found() -> None:
    assert list(places("class A:\n    def f(self):\n        return ports.admin.quorum()")) == [("f", 3)]


def test_each_stop_of_all_controllers_checks_first_that_they_can_start_together() -> None:
    """`recheck` does it for these plans until OfflineStopping is recorded (tests/unit/preparation)."""
    stops = {
        name.partition(":")[0] for name in by_function(("lowering", "roll", "procedure"), _calls("OfflineStopping"))
    }
    checks = {name.partition(":")[0] for name in by_function(("lowering",), _calls("refuse_new_blockers"))}
    assert stops == checks == {"lowering/live.py", "lowering/offline.py"}


def _calls(called: str) -> Callable[[str], Iterator[tuple[str, int]]]:
    def find(source: str) -> Iterator[tuple[str, int]]:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == called:
                yield called, node.lineno

    return find
