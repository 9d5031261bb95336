"""What is true of the whole cluster is read from a broker whose metadata is current (find_current_brokers).

A broker that is cut off from the controllers answers with its last metadata: it does not know the brokers, levels,
groups and settings that are newer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import PACKAGE, nodes_of, parsed

# Methods of KafkaAdmin that use every connection → why an old answer does no harm.
ANY_BROKER = {
    "__init__": "opens them",
    "close": "closes them",
    "cluster_id": "it never changes",
    "missing_rights": "a right that is missing on one node is missing",
    "features": "of this node",
    "_target": "of this node",
    "node_config": "of this node",
    "settings_in_use": "of this node",
    "coordinators": "of this node",
    "_moving_directories": "of this node",
    "_read_min_isr": "each broker, of itself",
    "quorum": "forwarded to the active controller",
    "set_default_config": "forwarded to the active controller",
    "elect_preferred_leaders": "forwarded to the active controller",
    "unregister_broker": "forwarded to the active controller",
    "update_features": "forwarded to the active controller",
    "_registered_controllers": "asks controllers",
    "_controllers_leader_first": "asks controllers",
    "_describe_cluster": "its caller names the nodes",
    "_through": "finds the current brokers",
    "_live_brokers": "its caller names the nodes; the others are addresses",
}


def users_of_all_connections(source: str) -> Iterator[str]:
    """Yield the methods of KafkaAdmin that use the connections to all nodes."""
    (admin,) = (one for one in parsed(source).body if isinstance(one, ast.ClassDef) and one.name == "KafkaAdmin")
    for method in admin.body:
        if isinstance(method, ast.FunctionDef) and any(
            isinstance(one, ast.Attribute) and one.attr == "_nodes" for one in ast.walk(method)
        ):
            yield method.name


def first_brokers(source: str) -> Iterator[int]:
    """Yield the lines that take the first broker of a list, whatever it knows."""
    for node in nodes_of(source):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and node.slice.value == 0
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "brokers"
        ):
            yield node.lineno


def test_only_these_methods_may_ask_any_broker() -> None:
    assert set(users_of_all_connections((PACKAGE / "client" / "admin.py").read_text())) <= ANY_BROKER.keys()


def test_nothing_believes_the_first_broker_of_the_inventory() -> None:
    assert [(path.name, line) for path in PACKAGE.rglob("*.py") for line in first_brokers(path.read_text())] == []


@pytest.mark.parametrize("line", ["ports.admin.features(ports.cluster.brokers[0])", "x = cluster.brokers[0].name"])
def test_a_first_broker_is_found(line: str) -> None:
    assert list(first_brokers(line)) == [1]


def test_a_method_that_asks_all_is_found() -> None:
    source = "class KafkaAdmin:\n    def groups(self): return list_groups(self._nodes, ())\n"
    assert list(users_of_all_connections(source)) == ["groups"]
