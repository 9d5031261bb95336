"""Stopped brokers are started in the order of their in-sync replicas, unless the others serve (ordered_start).

A broker that is unfenced before the members of an ISR can become an unclean leader, and acknowledged records are lost.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.rooms import PACKAGE, outer_functions

# Function that starts a node → why no order is needed, or who keeps it.
STARTS = {
    "lowering/live.py": "controllers that are no brokers; every broker runs",
    "lowering/offline.py:_start": "called by start_in_order for brokers",
    "lowering/offline.py:_start_on_source": "called by start_in_order for brokers",
    "observation/node_starts.py": "called by the others",
    "lowering/offline.py:install_late": "a controller that did not fetch the snapshot, while the others serve",
    "procedure/rehearsal.py": "copies of nodes, which no client of the cluster reaches",
    "roll/node.py": "its gate needs another in-sync replica",
}
ORDERED = {"lowering/offline.py:start_brokers", "lowering/offline.py:undo_offline"}


def starters() -> Iterator[str]:
    """Yield the functions with a call `….starts.start(…)` or `….runtime.start(…)`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        for function in outer_functions(path.read_text()):
            if any(
                isinstance(one, ast.Call)
                and isinstance(one.func, ast.Attribute)
                and one.func.attr == "start"
                and ast.unparse(one.func.value).endswith(("starts", "runtime"))
                for one in ast.walk(function)
            ):
                yield f"{name}:{function.name}"


def users_of_order() -> set[str]:
    path = PACKAGE / "lowering" / "offline.py"
    return {
        f"lowering/offline.py:{function.name}"
        for function in outer_functions(path.read_text())
        if "start_in_order(" in ast.unparse(function)
    }


def test_each_start_of_a_node_keeps_the_order_or_needs_none() -> None:
    found = set(starters())
    assert found
    assert {one for one in found if one not in STARTS and one.partition(":")[0] not in STARTS} == set()
    assert {one for one in STARTS if not any(name.startswith(one) for name in found)} == set()


def test_the_brokers_of_an_offline_downgrade_and_of_its_undo_start_in_order() -> None:
    assert users_of_order() == ORDERED
