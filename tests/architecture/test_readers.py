"""Readers of a run take its state from `RunView`, and derive none from events themselves."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import PACKAGE, parsed

READERS = (
    "console",
    "report",
    "notifications",
    "airflow/views",
    "airflow/common/metrics.py",
    "airflow/operators/notifications.py",
    "airflow/operators/services.py",
    "cli/status_screen.py",
    "cli/show.py",
    "procedure/progress.py",
    "procedure/step_lines.py",
    "run/batch_progress.py",
    "run/estimates.py",
    "run/metrics.py",
    "run/node_status.py",
)
EXCEPTIONS = {
    ("procedure/progress.py", "events"): "the lines of a run are those of its events, one by one",
    (
        "report/builders.py",
        "cover_node_steps",
    ): "the step that ends the traffic records it",
    ("run/batch_progress.py", "batches_of"): "the batches are those of the plan, which the view does not have",
}
_SELECTS = {"events_of", "newest", "has"}
_EVENTS = "kafka_rollout.run.events"
_PROJECTIONS = "kafka_rollout.run.projections."


def modules() -> Iterator[tuple[str, ast.Module]]:
    for reader in READERS:
        path = PACKAGE / reader
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        assert found, reader
        for one in found:
            yield str(one.relative_to(PACKAGE)), parsed(one.read_text())


def names_used(tree: ast.Module) -> Iterator[str]:
    """Yield the functions that select or fold events, and `events` for a loop over a history."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == _EVENTS:
            yield from _SELECTS & {one.name for one in node.names}
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PROJECTIONS):
            yield from (one.name for one in node.names if folds(str(node.module), one.name))
    views = {id(loop) for call in ast.walk(tree) if makes_view(call) for loop in ast.walk(call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension) and id(node) not in views and reads_history(node.iter):
            yield "events"


def folds(module: str, name: str) -> bool:
    found = getattr(importlib.import_module(module), name)
    return inspect.isfunction(found) and "events" in inspect.signature(found).parameters


def makes_view(node: ast.AST) -> bool:
    """Return whether this is `RunView.of(…)`, whose argument can leave events out."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "RunView.of"


def reads_history(node: ast.expr) -> bool:
    """Return whether a loop goes over `events`, `….events` or `….events()`, also in reverse, in part or numbered."""
    match node:
        case ast.Call(func=ast.Name(id="reversed" | "enumerate" | "list" | "tuple"), args=[first, *_]):
            return reads_history(first)
        case ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(attr="events") as inner, args=[]):
            return reads_history(inner)
        case ast.Attribute(attr="events") | ast.Name(id="events"):
            return True
    return False


def test_readers_derive_no_state_from_events() -> None:
    used = {(path, name) for path, tree in modules() for name in names_used(tree)}
    assert used - EXCEPTIONS.keys() == set(), "take it from RunView (run/view.py), or add it there"
    assert EXCEPTIONS.keys() - used == set(), "an exception that nothing needs"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from kafka_rollout.run.events import Event, newest", {"newest"}),
        ("from kafka_rollout.run.projections.nodes import last_act_at", {"last_act_at"}),
        ("from kafka_rollout.run.projections.runs import RunEnd, QUIET_S", set()),
        ("last = next(one for one in reversed(view.events) if one)", {"events"}),
        ("for event in run.events():\n    pass", {"events"}),
        ("lines = [line for line in Progress().lines(plan, view.events)]", set()),
        ("view = RunView.of(event for event in store.events() if event.at)", set()),
    ],
)
def test_the_rule_finds_a_reader_that_folds_events(text: str, found: set[str]) -> None:
    assert set(names_used(parsed(text))) == found
