"""A public class has a name of its own, so that a name says which class it is, and "open symbol" finds one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.rooms import PACKAGE, parsed
from tests.paths import ROOT

PRODUCT = (
    PACKAGE,
    ROOT / "spark_jobs" / "kafka_rollout_spark",
    ROOT / "consumer" / "dynamic_protocol_consumer",
    ROOT / "tools" / "derivation",
    ROOT / "dags",
)
_NO_TYPES = {"TypeVar", "ParamSpec", "NewType"}  # of one module alone, though without an underscore


def public_types(source: str) -> Iterator[str]:
    """Names of the classes and type aliases that a module defines: `Plan`, `NodeConfigs = Mapping[…]`."""
    for node in parsed(source).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not _is_variable(value):
                pass
            case _:
                continue
        if name[0].isupper() and any(letter.islower() for letter in name):
            yield name


def _is_variable(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _NO_TYPES


def double_names(modules: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Name → the modules that define it, of those that several define. `modules`: file, source."""
    found = defaultdict(list)
    for file, source in modules:
        for name in public_types(source):
            found[name].append(file)
    return {name: files for name, files in found.items() if len(files) > 1}


def _modules(roots: tuple[Path, ...] = PRODUCT) -> Iterator[tuple[str, str]]:
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


def test_a_public_class_exists_once() -> None:
    assert double_names(_modules()) == {}


def test_a_class_and_an_alias_with_one_name_are_double() -> None:
    one = "class Plan: ...\nclass _Own: ...\nLIMIT = 1\nAnswer = TypeVar('Answer')\n"
    other = "Plan = Mapping[str, str]\nclass _Own: ...\nLIMIT = 2\nAnswer = TypeVar('Answer')\n"
    assert double_names(iter([("one", one), ("other", other)])) == {"Plan": ["one", "other"]}
