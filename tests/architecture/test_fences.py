"""Every change of a cluster is behind the fence of its lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.lock import calls_of, fence_cluster_ports
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.ports import cluster as ports
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import fake_ports

# Port of a cluster → its protocols: the port, its queries, its changes.
CHANGING = {
    "admin": (ports.ClusterAdmin, ports.ClusterQueries, ports.ClusterChanges),
    "runtime": (ports.NodeRuntime, ports.NodeQueries, ports.NodeChanges),
    "metadata_logs": (ports.MetadataLogs, ports.MetadataLogQueries, ports.MetadataLogChanges),
}
UNFENCED = {"close", "elect_preferred_leaders"}  # of the cluster's admin API; the protocol says why
READING = {"metrics", "classes", "logs", "outside"}
OF_THE_TOOL = {"run_id", "cluster", "catalogue", "rehearsals", "run", "lock", "clock", "confirm_approval", "racks"}


class Recording:
    """A port that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self.calls.append(name)


def test_every_port_of_a_cluster_is_known_as_changing_or_not() -> None:
    assert {field.name for field in fields(ClusterPorts)} == CHANGING.keys() | READING | OF_THE_TOOL


@pytest.mark.parametrize("name", CHANGING)
def test_a_changing_port_declares_its_calls_as_queries_or_changes(name: str) -> None:
    port, queries, changes = CHANGING[name]
    assert get_type_hints(ClusterPorts)[name] is port
    assert calls_of(port) <= UNFENCED
    assert calls_of(changes)
    assert not calls_of(queries) & calls_of(changes)


CALLS = [
    (name, call) for name in CHANGING for call in sorted(calls_of(CHANGING[name][2]))
]  # workers collect in one order


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_a_change_by_a_process_that_does_not_act_is_refused(name: str, call: str, tmp_path: Path) -> None:
    bench = fake_ports(FakeCluster(), tmp_path)
    port = Recording()
    replaced: Mapping[str, Any] = {name: port}
    fenced = fence_cluster_ports(ClusterPorts(**{f.name: getattr(bench, f.name) for f in fields(bench)} | replaced))
    with pytest.raises(RefusedError, match="does not hold the lock of cluster fake for an action"):
        getattr(getattr(fenced, name), call)()
    assert port.calls == []
    bench.lock.acquire("fake", "run-1", "a test", for_s=600)
    with bench.lock.acting("fake", "run-1", "a test"):
        getattr(getattr(fenced, name), call)()
    assert port.calls == [call]


def test_a_request_that_only_validates_is_not_fenced(tmp_path: Path) -> None:
    assert fake_ports(FakeCluster(), tmp_path).admin.update_features({}, validate_only=True) == ()
