"""What is done in an approver's name passes one check: is the name an approver's, and does a shell only claim it?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.rooms import PACKAGE, name_of, nodes_of, parsed

CHECKS = {"refuse_answer", "refuse_claimed_name"}
# Events that an answer makes, and the call that ends the lock of another run.
ACTS = {"Approval", "TakenOver", "PauseAsked", "ResumeAsked", "StopAsked", "break_", "take_over_claims"}
CLASSES_BY_NAME = {"CONTROLS"}


def unchecked(source: str) -> Iterator[str]:
    """Functions that act in the name of an approver without the check."""
    if not any(name in source for name in ACTS | CLASSES_BY_NAME):
        return
    for function in nodes_of(source):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = {name_of(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
            looked_up = {name_of(node.value) for node in ast.walk(function) if isinstance(node, ast.Subscript)}
            looked_up |= {
                name_of(node.func.value)
                for node in ast.walk(function)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            }
            if (calls & ACTS or looked_up & CLASSES_BY_NAME) and not calls & CHECKS:
                yield function.name


def test_every_answer_is_checked_in_the_function_that_records_it() -> None:
    found = {str(path.relative_to(PACKAGE)): list(unchecked(path.read_text())) for path in PACKAGE.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "call", ["Approval(by=by)", "lock.break_(name, by)", "CONTROLS[action](by=by)", "TakenOver(by)"]
)
def test_an_answer_without_the_check_is_seen(call: str) -> None:
    assert list(unchecked(f"def f():\n    return {call}")) == ["f"]
    assert not list(unchecked(f"def f():\n    refuse_answer(cluster, by, user)\n    return {call}"))


def test_both_checks_are_in_one_module() -> None:
    source = (Path(PACKAGE) / "control" / "approval.py").read_text()
    assert {node.name for node in parsed(source).body if isinstance(node, ast.FunctionDef)} >= CHECKS


def callers(of: str) -> set[str]:
    """Modules that call a function or a method of this name."""
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in nodes_of(path.read_text())
        if isinstance(node, ast.Call) and name_of(node.func) == of
    }


def test_an_acceptance_counts_only_where_it_is_proved() -> None:
    assert callers("find_acceptances") == {"control/approval.py"}, "call accepted_doubts instead"


def test_what_opens_the_ports_of_a_run_in_airflow_can_compare_its_approvals() -> None:
    """A trigger is a process of its own: a gate that passes there proves what it rests on there."""
    opens = {
        path.relative_to(PACKAGE).as_posix()
        for path in (PACKAGE / "airflow").rglob("*.py")
        for node in nodes_of(path.read_text())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "open"
    }
    proving = {"airflow/common/base.py", "airflow/gates/trigger_ports.py"}
    assert opens == proving, "use cluster_ports in a task, trigger_ports in a trigger"
    for name in proving:
        assert "confirm_approval=" in (PACKAGE / name).read_text()
