"""Findings about hosts, from what the runtime reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.domain.model.state import HostState
from kafka_rollout.domain.planning.host_problems import host_problems
from tests.unit.domain.builders import R431, SEPARATE

HEALTHY = HostState(
    name="kafka-4",
    unit="kafka.service",
    symlink="/opt/kafka",
    folders={R431: "/opt/kafka_2.13-4.3.1"},
    releases=frozenset({R431}),
    symlink_can_switch=True,
    stop_timeout_s=300.0,
    free_bytes=10**9,
)


def test_a_host_that_is_ready_and_a_node_without_a_host_give_no_finding() -> None:
    assert host_problems(SEPARATE, {4: HEALTHY, 5: replace(HEALTHY, stop_timeout_s=None)}, [R431]) == ()


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ({"releases": frozenset()}, "RELEASE-NOT-ON-HOST", "there is no /opt/kafka_2.13-4.3.1/libs"),
        ({"symlink_can_switch": False}, "SYMLINK-IS-NO-LINK", "/opt/kafka on host kafka-4 is not a symbolic link"),
        ({"stop_timeout_s": 5.0}, "STOP-TIMEOUT-SHORT", "5 s after a stop was requested (TimeoutStopSec)"),
        ({"denied": ("(root) NOPASSWD: /usr/bin/x",)}, "HOST-RIGHT-MISSING", "refuses 1 of the commands"),
        ({"free_bytes": 4096}, "HOST-DISK-FULL", "has 4096 bytes left"),
    ],
)
def test_each_obstacle_blocks_before_anything_is_stopped(change: dict[str, object], code: str, says: str) -> None:
    (found,) = host_problems(SEPARATE, {4: replace(HEALTHY, **change)}, [R431])
    assert (found.code, found.severity.value) == (code, "blocker")
    assert found.subject.startswith("node 4")
    assert says in found.sentence
