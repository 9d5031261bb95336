"""One property limits min.insync.replicas to the number of replicas, as Kafka does: conditions read no other value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import PACKAGE, nodes_of

SETTING = "min_insync_replicas"
# The property itself, and the findings about the setting of a topic.
READERS = {"model/state.py", "planning/findings/cluster_state.py"}


def reads(source: str) -> Iterator[int]:
    """Yield the line of each place that reads the setting of a partition."""
    for node in nodes_of(source):
        if isinstance(node, ast.Attribute) and node.attr == SETTING and isinstance(node.ctx, ast.Load):
            yield node.lineno


def test_only_the_state_and_its_findings_read_the_setting_itself() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py")) if any(reads(path.read_text()))}
    assert found == READERS, "use PartitionState.min_isr"


@pytest.mark.parametrize("text", ["len(p.isr) < p.min_insync_replicas", "f(one.min_insync_replicas)"])
def test_each_way_to_read_it_is_found(text: str) -> None:
    assert list(reads(text)) == [1]
