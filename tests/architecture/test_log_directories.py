"""One module reads the settings that name the log directories of a node, so that each directory has one spelling."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from kafka_rollout.model.log_directories import DIRECTORY_KEYS
from tests.architecture.rooms import PACKAGE, nodes_of

READS = "model/log_directories.py"


def values_taken(source: str) -> Iterator[str]:
    """Yield each expression that takes the value of such a setting: `config["log.dirs"]`, `config.get(key)` in a loop
    over the settings."""
    nodes = nodes_of(source)
    keys = {
        one.target.id
        for one in nodes
        if isinstance(one, ast.For | ast.comprehension)
        and isinstance(one.target, ast.Name)
        and "DIRECTORY_KEYS" in ast.unparse(one.iter)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            taken = [part for part in ast.walk(node.func.value) if isinstance(part, ast.Call | ast.Subscript)]
            yield from (ast.unparse(node) for part in taken if _key(part) in keys)
        if _key(node) in DIRECTORY_KEYS:
            yield ast.unparse(node)


def _key(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key: ast.expr | None = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        key = node.args[0]
    else:
        return ""
    return str(key.value) if isinstance(key, ast.Constant) else key.id if isinstance(key, ast.Name) else ""


def test_one_module_reads_the_settings_of_log_directories() -> None:
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    found = {name: list(values_taken(path.read_text())) for name, path in paths.items() if name != READS}
    assert {name: texts for name, texts in found.items() if texts} == {}, f"use {READS}"


@pytest.mark.parametrize(
    "text",
    [
        'config["log.dirs"]',
        'config.get("metadata.log.dir", "").strip()',
        '{**DEFAULTS, **config}["log.dir"]',
        '[name for key in DIRECTORY_KEYS for name in config.get(key, "").split(",")]',
    ],
)
def test_each_way_to_take_a_value_is_found(text: str) -> None:
    assert list(values_taken(text))


@pytest.mark.parametrize(
    "text",
    ['config["log.dirs"] = copy', '{"log.dirs": copy}', "config.get(name)", "named_directories(config, 'log.dirs')"],
)
def test_other_uses_are_left_alone(text: str) -> None:
    assert not list(values_taken(text))
