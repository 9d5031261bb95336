"""Every change of a cluster is behind the fence of its lock."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from kafka_rollout.base.errors import LockHeldError, RefusedError
from kafka_rollout.control.lock import calls_of, fence_cluster_ports
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.state import ProcessState
from kafka_rollout.model.topology import NodeSpec
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
READING = {"metrics", "classes", "logs", "outside", "traffic"}
OF_THE_TOOL = {"run_id", "cluster", "catalogue", "rehearsals", "run", "lock", "clock", "confirm_approval"}
MEMORY = {"racks", "start_readings", "claimed"}


class Recording:
    """A port that records its calls. `found`: the claims that the hosts have."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.found = Claims()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            return {"process": ProcessState(pid=1, claims=self.found), "claim": self.found}.get(name)

        return call


def test_every_port_of_a_cluster_is_known_as_changing_or_not() -> None:
    assert {field.name for field in fields(ClusterPorts)} == CHANGING.keys() | READING | OF_THE_TOOL | MEMORY


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
    fenced = _fenced(bench, **{name: port})
    with pytest.raises(RefusedError, match="does not hold the lock of cluster fake for an action"):
        getattr(getattr(fenced, name), call)()
    assert port.calls == []
    bench.lock.acquire("fake", "run-1", "a test", for_s=600)
    with bench.lock.acting("fake", "run-1", "a test"):
        getattr(getattr(fenced, name), call)(*_arguments(name, fenced))
    assert port.calls[-1] == call
    # Alone, a change of a node has a claim before it, and a stop has read those of all nodes.
    assert ("claim" in port.calls[:-1]) == (name == "runtime" and call not in BEFORE_CLAIM)
    assert port.calls.count("process") == (6 if call == "stop" else 0)


CLAIM = Claim(cluster_id="", node_id=12, run_id="theirs", nonce="ab" * 16, at=1.0, database="theirs.db")
BEFORE_CLAIM = {"bring", "claim", "end_claims"}  # a running node can keep what they do


@pytest.mark.parametrize(("name", "call"), [one for one in CALLS if one[1] not in BEFORE_CLAIM])
def test_no_change_is_made_while_a_run_of_another_database_changes_a_node(name: str, call: str, tmp_path: Path) -> None:
    bench, port = fake_ports(FakeCluster(), tmp_path), Recording()
    runtime = port if name == "runtime" else Recording()
    runtime.found = Claims(open=(CLAIM,))
    fenced = _fenced(bench, **{"runtime": runtime, name: port})
    bench.lock.acquire("fake", "run-1", "a test", for_s=600)
    with (
        bench.lock.acting("fake", "run-1", "a test"),
        pytest.raises(LockHeldError, match=r"Run theirs of another database \(theirs\.db\) has claimed node 12"),
    ):
        getattr(getattr(fenced, name), call)(*_arguments(name, fenced))
    assert call not in port.calls


def _fenced(bench: ClusterPorts, **replaced: Any) -> ClusterPorts:
    return fence_cluster_ports(ClusterPorts(**{f.name: getattr(bench, f.name) for f in fields(bench)} | replaced))


def _arguments(name: str, ports: ClusterPorts) -> tuple[NodeSpec, ...]:
    return () if name == "admin" else (ports.cluster.brokers[0],)


def test_a_request_that_only_validates_is_not_fenced(tmp_path: Path) -> None:
    assert fake_ports(FakeCluster(), tmp_path).admin.update_features({}, validate_only=True) == ()
