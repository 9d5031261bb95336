"""Time is handed in: rooms take it from their ports, and no test changes it under everyone's feet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import BELOW_WIRING, OUTSIDE, PACKAGE, nodes_of
from tests.paths import ROOT

ROOMS = sorted(
    path
    for room in BELOW_WIRING
    for path in (PACKAGE / room).rglob("*.py")
    if not any(path.is_relative_to(PACKAGE / folder) for folder in OUTSIDE)
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
_PATCHES = {"setattr", "patch", "object"}
_A_TIME = re.compile(r"(^|\.)(time|datetime|asyncio)(\.|$)|(^|\.)_?[A-Z][A-Z_]*_S$")


def patched_times(source: str) -> Iterator[str]:
    """What a test patches of clocks and of constants in seconds, as `line: name`."""
    for node in nodes_of(source):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PATCHES):
            continue
        for word in node.args[:2]:
            name = word.value if isinstance(word, ast.Constant) else ast.unparse(word)
            if isinstance(name, str) and _A_TIME.search(name):
                yield f"{node.lineno}: {name}"


def test_no_test_patches_a_clock_or_a_constant_in_seconds() -> None:
    assert [f"{path}:{found}" for path in TESTS for found in patched_times(path.read_text())] == []


def test_rooms_take_the_time_from_their_ports() -> None:
    importing = re.compile(r"^\s*(import time|from time import)\b", re.MULTILINE)
    assert [path for path in ROOMS if importing.search(path.read_text())] == []


@pytest.mark.parametrize(
    "patch",
    [
        'monkeypatch.setattr("time.sleep", print)',
        'monkeypatch.setattr(time, "sleep", print)',
        'monkeypatch.setattr("kafka_rollout.roll.node.time.monotonic", print)',
        'monkeypatch.setattr(node, "_POLL_S", 0)',
        'monkeypatch.setattr("kafka_rollout.gates.gate.GONE_S", 0)',
        'mock.patch("time.time")',
        'mock.patch.object(module.time, "sleep")',
    ],
)
def test_each_way_to_patch_the_time_is_found(patch: str) -> None:
    assert list(patched_times(patch))


def test_other_patches_are_left_alone() -> None:
    assert not list(patched_times('monkeypatch.setattr(cli, "list_clusters", broken)'))
