"""The fake metadata logs of fast tests have the calls of the real ones, and both those of the port."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.metadata_log.changes.places import LocalPlaces
from kafka_rollout.metadata_log.log_choice import UnreadableLogError
from kafka_rollout.metadata_log.node_logs.directories import DirectoryMetadataLogs
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.ports.cluster import MetadataLogs
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.fakes.cluster import FakeCluster
from tests.fakes.metadata_logs import FakeMetadataLogs

# The port is made of a protocol of queries and one of changes.
PROTOCOLS = [kind for kind in MetadataLogs.__mro__ if kind.__module__ == MetadataLogs.__module__]
CALLS = sorted({name for kind in PROTOCOLS for name in vars(kind) if not name.startswith("_")})


def result_of(call: Callable[..., Any]) -> str:
    """The name of the result's type; a generator that is a context manager is annotated as an Iterator."""
    result = str(inspect.signature(call).return_annotation)
    is_context = hasattr(call, "__wrapped__") or result.startswith("AbstractContextManager[")
    return "AbstractContextManager" if is_context else result


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [DirectoryMetadataLogs, FakeMetadataLogs])
def test_each_call_of_the_port_is_there_with_the_same_parameters_and_result(kind: type, call: str) -> None:
    ours, port = getattr(kind, call), getattr(MetadataLogs, call)
    assert inspect.signature(ours).parameters == inspect.signature(port).parameters
    assert result_of(ours) == result_of(port)


@pytest.mark.parametrize(
    "ask",
    [
        lambda logs, node: logs.node_log(node, cluster_id="c"),
        lambda logs, node: logs.refuse_used(node, "x.checkpoint", cluster_id="c"),
        lambda logs, node: logs.undo_install(node, "x.checkpoint", cluster_id="c"),
    ],
)
def test_a_lost_disk_is_told_from_a_wrong_one(tmp_path: Path, ask: Callable[[MetadataLogs, NodeSpec], Any]) -> None:
    settings, world = Settings.from_environment(), FakeCluster()
    world.no_log = {1}
    real = DirectoryMetadataLogs(
        ReleaseCache.from_settings(settings), LocalPlaces(lambda node: tmp_path / str(node.node_id))
    )
    for logs in (real, FakeMetadataLogs(world)):
        with pytest.raises(UnreadableLogError):
            ask(logs, world.spec.node(1))
