"""Lines of a node's log become conclusions in one module, and are read for the steps by one."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tests.architecture.rooms import nodes_of
from tests.paths import ROOT

PLUGINS = ROOT / "plugins" / "kafka_rollout"
GRAMMAR, CONCLUDES = "base/log_lines.py", "model/node_log.py"
READS = "observation/node_logs.py"
_READING = frozenset({"log_tail", "process_log"})


def modules() -> dict[str, tuple[ast.AST, ...]]:
    """The nodes of all modules by their path."""
    return {path.relative_to(PLUGINS).as_posix(): nodes_of(path.read_text()) for path in PLUGINS.rglob("*.py")}


def test_one_module_uses_the_grammar_of_a_log() -> None:
    users = {
        name
        for name, nodes in modules().items()
        for node in nodes
        if (isinstance(node, ast.ImportFrom) and node.module == "kafka_rollout.base.log_lines")
        or (isinstance(node, ast.Import) and any("log_lines" in one.name for one in node.names))
    }
    assert users == {CONCLUDES}


def test_one_module_reads_the_logs_of_nodes() -> None:
    above = {name: nodes for name, nodes in modules().items() if not name.startswith(("nodes/runtimes/", "ports/"))}
    readers = {name for name, nodes in above.items() if _called(nodes) & _READING}
    assert readers == {READS}, f"call {READS} instead"


def test_no_other_module_knows_the_words_of_a_log() -> None:
    """The beginnings of the messages by which conclusions are made."""
    words = (
        "Error loading offsets",
        "Error loading transactions",
        "Finished loading",
        "Failed to load metadata from",
        "Registered signal handlers",
        "Unable to register",
        "Completed request:",
        "Initialized topic-based RLMM",
        "Encountered metadata",
        "Broker configuration does not support",
        "Multiple log directories",
    )
    found = {
        (name, node.value)
        for name, nodes in modules().items()
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
        if any(word in node.value for word in words)
    }
    assert {name for name, _ in found} == {CONCLUDES}


def _called(nodes: Iterable[ast.AST]) -> set[str]:
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    return {called.attr for called in calls if isinstance(called, ast.Attribute)}


def test_the_rules_apply() -> None:
    assert GRAMMAR in modules()
    assert _called(modules()[READS]) >= _READING


def test_the_module_that_concludes_touches_nothing() -> None:
    allowed = ("kafka_rollout.base.", "kafka_rollout.model.", "collections", "dataclasses", "__future__")
    imported = {node.module or "" for node in modules()[CONCLUDES] if isinstance(node, ast.ImportFrom)}
    assert [name for name in imported if not name.startswith(allowed)] == []
