"""One module knows which files of a partition's folder are its log, and one reads Kafka's checkpoint files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.rooms import nodes_of
from tests.paths import ROOT

KEPT = {
    "plugins/kafka_rollout/formats/log_files.py": (".swap", ".cleaned"),
    "plugins/kafka_rollout/formats/checkpoint_files.py": (
        "leader-epoch-checkpoint",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ),
}
"""Module → names that no other module writes: who reads such a file uses the module, and reads it as Kafka does."""


def literals(source: str) -> Iterator[str]:
    """The texts of a file that are not docstrings."""
    nodes = nodes_of(source)
    texts = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.value.replace("\\", "")


@pytest.mark.parametrize("module", KEPT)
def test_names_of_kafkas_files_are_written_in_one_module(module: str) -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("plugins", "spark_jobs")
        for path in Path(ROOT / folder).rglob("*.py")
        for text in literals(path.read_text())
        if any(name in text for name in KEPT[module])
    }
    assert found == {module}


def test_a_name_in_another_module_is_found() -> None:
    assert list(literals('"""Not .swap."""\nX = re.compile(r"[0-9]+\\.log\\.swap")\n')) == ["[0-9]+.log.swap"]
