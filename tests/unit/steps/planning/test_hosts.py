"""What is checked of each node's host before a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.domain.model.cluster.host_state import DirectoryFormat
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.steps.planning.hosts import config_problems
from tests.fakes.cluster import FakeCluster
from tests.fakes.kafka_classes import FakeClasses
from tests.fakes.ports import fake_bench

R431 = Release(4, 3, 1)


FORMAT = DirectoryFormat(meta=b"version=1", bootstrap=b"records", has_metadata_log=True)


@pytest.mark.parametrize(
    ("formats", "down", "expected"),
    [
        pytest.param({"/data": FORMAT}, False, {"/data": FORMAT}, id="upgrade"),
        pytest.param({"/data": FORMAT}, True, {"/data": replace(FORMAT, bootstrap=None)}, id="downgrade"),
        pytest.param(None, False, None, id="unknown"),
        pytest.param(None, True, None, id="unknown-downgrade"),
    ],
)
def test_directories_are_checked_with_the_format_that_the_runtime_reads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    formats: dict[str, DirectoryFormat] | None,
    down: bool,
    expected: dict[str, DirectoryFormat] | None,
) -> None:
    """A path of the configuration names another directory on this machine than on the host of the node.

    A downgrade lowers bootstrap.checkpoint itself.
    """
    checked: list[object] = []

    def record(classes: FakeClasses, release: Release, config: object, found: object) -> tuple[str, ...]:
        checked.append(found)
        return ()

    monkeypatch.setattr(FakeClasses, "config_problems", record)
    cluster = FakeCluster(R431)
    cluster.formats = formats
    ports = fake_bench(cluster, tmp_path)
    config_problems(ports, (R431,), {ports.cluster.nodes[0].node_id: {}}, down=down)
    assert checked == [expected]
