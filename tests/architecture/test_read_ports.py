"""A function that takes `ReadPorts` only observes: no call that it can reach changes the cluster or the history.

mypy refuses what the types below do not declare, so a signature says whether a function can change anything.
"""

from __future__ import annotations

import ast
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from kafka_rollout.control.lock import calls_of
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts
from kafka_rollout.ports.cluster import ClusterAdmin, ClusterChanges, MetadataLogChanges, NodeChanges
from kafka_rollout.run.ports import RunStore
from tests.architecture.rooms import BELOW_WIRING, PACKAGE, nodes_of

ACTING = frozenset[str]().union(
    *map(calls_of, (ClusterChanges, ClusterAdmin, NodeChanges, MetadataLogChanges, RunStore))
)
ONLY_TO_ACT = {"lock", "rehearsals", "traffic", "confirm_approval"}
READ = {name: value for name, value in vars(ReadPorts).items() if isinstance(value, property)}


def type_of(name: str) -> Any:
    """The type that a reader sees of a port."""
    return get_type_hints(READ[name].fget)["return"]


@pytest.mark.parametrize("name", READ)
def test_ports_to_read_declare_no_acting_call(name: str) -> None:
    assert not {call for call in ACTING if hasattr(type_of(name), call)}


def test_the_acting_calls_are_those_of_the_ports_to_act() -> None:
    assert {"stop", "update_features", "elect_preferred_leaders", "record", "attach"} <= ACTING
    assert {field.name for field in fields(ClusterPorts)} - READ.keys() == ONLY_TO_ACT


def test_no_step_makes_acting_ports_of_reading_ones() -> None:
    casts = [
        str(path.relative_to(PACKAGE))
        for room in BELOW_WIRING
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for node in nodes_of(path.read_text())
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "cast" and "Ports" in ast.unparse(node.args[0])
    ]
    assert casts == []
