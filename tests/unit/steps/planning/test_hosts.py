"""What is checked of each node's host before a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.domain.model.releases import Release
from kafka_rollout.steps.planning.hosts import config_problems
from tests.fake_cluster import FakeCluster
from tests.fake_kafka_classes import FakeClasses
from tests.fakes import fake_bench

R431 = Release(4, 3, 1)


@pytest.mark.parametrize("is_local", [True, False])
def test_only_directories_of_this_machine_are_checked_by_kafkas_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_local: bool
) -> None:
    """On other hosts a path of the configuration names nothing here, although the runtime can read it there."""
    asked: list[bool] = []

    def record(classes: FakeClasses, *given: Any, with_directories: bool) -> tuple[str, ...]:
        asked.append(with_directories)
        return ()

    monkeypatch.setattr(FakeClasses, "config_problems", record)
    ports = fake_bench(FakeCluster(R431), tmp_path)
    node = replace(ports.cluster.nodes[0], directory="/nowhere/node" if is_local else None)
    ports = replace(ports, cluster=replace(ports.cluster, nodes=(node,)))
    assert ports.runtime.metadata_log_dir(node) is not None
    config_problems(ports, (R431,), {node.node_id: {}})
    assert asked == [is_local]
