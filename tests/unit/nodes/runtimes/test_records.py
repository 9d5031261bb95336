"""The records in the home folder of the SSH user: hosts can share it, and it can be closed to this user."""

from __future__ import annotations

from dataclasses import replace

from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.releases.facts import Release
from tests.fakes.clock import FakeClock
from tests.fakes.host import CONFIGURATION, FakeHost

RELEASE = Release(4, 2, 1)


def node(node_id: int) -> NodeSpec:
    service = ServiceSpec(host=f"kafka-{node_id}")
    return NodeSpec(node_id=node_id, name=f"kafka-{node_id}", roles=frozenset({Role.BROKER}), service=service)


def runtime_on(host: FakeHost, name: str = "far") -> SshServiceRuntime:
    clock = FakeClock()
    cluster = ClusterSpec(name=name, runtime="ssh_service", nodes=(node(1), node(2)))
    return SshServiceRuntime(cluster, host, Release.parse, sleep=clock.sleep, monotonic=clock.monotonic)


def test_nodes_of_hosts_with_one_home_have_records_of_their_own() -> None:
    host = FakeHost(files={CONFIGURATION: ""})
    runtime = runtime_on(host)
    runtime.start(node(2))
    assert [start.pid for start in runtime.starts(node(2))] == [50]
    assert runtime.starts(node(1)) == ()
    assert runtime_on(host, "near").starts(node(2)) == ()


def test_a_home_that_cannot_be_written_is_found_before_the_first_stop() -> None:
    host = FakeHost()
    assert runtime_on(host).host(node(1), [RELEASE]).unknown == ()
    host = replace(host, home_is_writable=False)
    (unknown,) = runtime_on(host).host(node(1), [RELEASE]).unknown
    assert unknown == "a home folder of the SSH user that it can write, for .kafka-rollout"
