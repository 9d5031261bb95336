"""What is checked of each node's host before a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_rollout.domain.model.cluster.host_state import DirectoryFormat
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.steps.planning.hosts import config_problems
from tests.fakes.cluster import FakeCluster
from tests.fakes.kafka_classes import FakeClasses
from tests.fakes.ports import fake_bench

R431 = Release(4, 3, 1)


@pytest.mark.parametrize("formats", [{"/data": DirectoryFormat()}, None])
def test_directories_are_checked_with_the_format_that_the_runtime_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, formats: dict[str, DirectoryFormat] | None
) -> None:
    """A path of the configuration names another directory on this machine than on the host of the node."""
    checked: list[object] = []

    def record(classes: FakeClasses, release: Release, config: object, found: object) -> tuple[str, ...]:
        checked.append(found)
        return ()

    monkeypatch.setattr(FakeClasses, "config_problems", record)
    cluster = FakeCluster(R431)
    cluster.formats = formats
    ports = fake_bench(cluster, tmp_path)
    config_problems(ports, (R431,), {ports.cluster.nodes[0].node_id: {}})
    assert checked == [formats]
