"""Each time limit contains those inside it, and no other module has one of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kafka_rollout.base import time_limits as limits
from kafka_rollout.procedure.step import CHANGES, CHANGES_LOGS
from tests.paths import ROOT

OWNER = Path(limits.__file__)
NAMES = {name for name in vars(limits) if name.endswith("_S")}


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (limits.CHANGE_WITHIN_S, limits.RENEW_EVERY_S),  # a lease is renewed before a change can be late
        (limits.KILL_S, limits.STOP_S),
        (limits.WITHOUT_QUORUM_S, limits.STOP_S),
        (limits.STOP_S + limits.KILL_S, limits.STOP_UNDER_WAY_S),
        (limits.STOP_UNDER_WAY_S, limits.LEASE_OF_STOP_S),
        (2 * limits.RENEW_EVERY_S + limits.CHANGE_WITHIN_S, limits.LEASE_S),  # one lost renewal ends no run
        (limits.SAFE_AGAIN_WITHIN_S + limits.STOP_S + limits.KILL_S, limits.REPLACEMENT_S),
        (limits.REPLACEMENT_S, CHANGES.timeout_s + 1),
        (limits.LOGS_OF_NODE_S, limits.LEASE_OF_LOGS_S),
        (2 * limits.LOGS_OF_NODE_S, CHANGES_LOGS.timeout_s),
    ],
)
def test_a_limit_contains_those_inside_it(inner: float, outer: float) -> None:
    assert inner < outer


def test_a_limit_has_one_definition() -> None:
    again = [
        f"{path.relative_to(ROOT)}: {target.id}"
        for path in (ROOT / "plugins").rglob("*.py")
        if path != OWNER
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        and re.sub("^_", "", target.id) in NAMES
        and not (target.id == "_STOP_S" and path.parent.name == "jvm")  # of a JVM
    ]
    assert again == []
