"""Records of groups are judged for the group coordinator of the releases ahead, in a catalogue configured with it.

3.8 and 3.9 have two. The port requires the planned one of its callers, and results carry it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable

import pytest

from kafka_rollout.coordinator_logs.spark.submit import scan_command
from kafka_rollout.ports.cluster import CoordinatorLogs
from tests.architecture.rooms import PACKAGE, nodes_of

JUDGES = {"evaluate_records", "facts_of_order", "unloadable_groups"}
# Function that judges → who configured its catalogue.
CONFIGURED = {
    "groups/group_records.py:_loads": "conversion_conditions",
    "groups/reading/live.py:read_groups": "group_records",
    "groups/reading/live.py:records": "group_records",
}


def judges(source: str) -> set[str]:
    """Return the functions that judge records without a catalogue that they configure themselves."""
    found = set()
    for function in nodes_of(source):
        if not isinstance(function, ast.FunctionDef) or function.name in JUDGES:
            continue
        called = {ast.unparse(one.func).rpartition(".")[2] for one in ast.walk(function) if isinstance(one, ast.Call)}
        if called & JUDGES and not called & {"configured", "_configured"}:
            found.add(function.name)
    return found


def test_who_judges_records_configures_the_catalogue() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in judges(path.read_text())
    }
    assert found == CONFIGURED.keys()


@pytest.mark.parametrize(
    ("function", "parameter"),
    [
        (CoordinatorLogs.scan_small, "planned"),
        (CoordinatorLogs.scan_new_records, "planned"),
        (CoordinatorLogs.group_records, "planned"),
        (scan_command, "new_group_coordinator"),
    ],
)
def test_who_reads_records_names_the_group_coordinator(function: Callable[..., object], parameter: str) -> None:
    assert inspect.signature(function).parameters[parameter].default is inspect.Parameter.empty


def test_a_judge_with_the_catalogue_of_the_ports_is_found() -> None:
    assert judges("def check(ports): return evaluate_records(ports.catalogue, ())") == {"check"}
