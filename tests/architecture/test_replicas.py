"""A verdict about the contents of a log comes from all replicas: FetchSource.ranges knows the leaders alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.rooms import PACKAGE
from tools.demo.folder import PROJECT_ROOT

LEADERS_ALONE = frozenset({"ranges", "partitions"})
"""Methods of FetchSource that say nothing about followers."""


def calls_of_leaders(source: str) -> Iterator[int]:
    """Yield the lines that call such a method of something named `source` or made by FetchSource(...)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEADERS_ALONE:
            yield node.lineno


def test_the_walk_finds_a_call() -> None:
    assert list(calls_of_leaders("with FetchSource(servers) as source:\n    logs = source.ranges(topics)")) == [2]


def test_no_reader_of_coordinator_logs_believes_the_leaders_alone() -> None:
    found = {
        str(path.relative_to(root))
        for root in (PACKAGE, PROJECT_ROOT / "spark_jobs")
        for path in sorted(root.rglob("*.py"))
        if "FetchSource" in (text := path.read_text()) and any(calls_of_leaders(text))
    }
    assert found == {"client/fetch.py"}, "use FetchSource.replicas"
