"""Which nodes an offline downgrade of a fake cluster changes at the same time, while the cluster is down."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from tests.fakes.cluster import R431, FakeCluster, make_spec
from tests.fakes.metadata_logs import FakeMetadataLogs
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.integration.harness.faults.without_live import stage_no_live
from tests.unit.lowering.test_offline import FORWARD, approved, go, releases, take_back

HOSTS = {1: "host-a", 2: "host-a", 3: "host-b", 11: "host-b", 12: "host-c", 13: "host-c"}
TOGETHER_S, OVERLAP_S = 10.0, 0.2


class Busy:
    """Counts the nodes that are changed at the same time, on all hosts and on one."""

    def __init__(self) -> None:
        self.most, self.most_on_a_host = 0, 0
        self._now: Counter[str] = Counter()
        self._changing = threading.Lock()

    @contextmanager
    def on(self, host: str) -> Iterator[None]:
        with self._changing:
            self._now[host] += 1
            self.most = max(self.most, self._now.total())
            self.most_on_a_host = max(self.most_on_a_host, self._now[host])
        time.sleep(OVERLAP_S)
        yield
        with self._changing:
            self._now[host] -= 1

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def counted(port: Any, node: NodeSpec, *given: Any, **options: Any) -> Any:
            with self.on(HOSTS[node.node_id]):
                return act(port, node, *given, **options)

        return counted


@pytest.fixture
def world() -> FakeCluster:
    spec = make_spec()
    nodes = tuple(replace(node, service=ServiceSpec(host=HOSTS[node.node_id])) for node in spec.nodes)
    return FakeCluster(R431, spec=replace(spec, nodes=nodes))


@pytest.fixture
def ports(world: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    stage_no_live(monkeypatch)
    return fake_ports(world, tmp_path)


def test_the_snapshot_is_installed_on_all_nodes_at_once(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, all_of_them, install = approved(ports), threading.Barrier(len(HOSTS)), FakeMetadataLogs.install

    def together(logs: Any, node: NodeSpec, *given: Any, **options: Any) -> str:
        all_of_them.wait(TOGETHER_S)
        return install(logs, node, *given, **options)

    monkeypatch.setattr(FakeMetadataLogs, "install", together)
    go(ports, plan)
    assert releases(world) == {"4.2.1"}


@pytest.mark.parametrize("back", [False, True], ids=["forward", "undone"])
def test_nodes_of_one_host_which_can_share_the_link_to_their_release_get_it_one_after_the_other(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch, *, back: bool
) -> None:
    plan, busy = approved(ports), Busy()
    go(ports, plan, FORWARD[:5] if back else FORWARD[:4])
    monkeypatch.setattr(FakeRuntime, "install", busy.around(FakeRuntime.install))
    if back:
        take_back(ports, plan)
    else:
        go(ports, plan, FORWARD[4:])
    assert busy.most > busy.most_on_a_host == 1
    assert releases(world) == ({"4.3.1"} if back else {"4.2.1"})


def test_a_release_is_brought_to_a_host_once_at_a_time(
    world: FakeCluster, ports: ClusterPorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes of one host would unpack into one folder, and remove each other's draft."""
    plan, busy = approved(ports), Busy()
    monkeypatch.setattr(FakeRuntime, "bring", busy.around(FakeRuntime.bring))
    go(ports, plan)
    assert busy.most > busy.most_on_a_host == 1
    assert releases(world) == {"4.2.1"}
