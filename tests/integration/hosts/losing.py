"""Losing the host of a node of a test bed, and how soon the others serve without it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.model.topology import NodeSpec
from tests.integration.hosts.test_faults_over_ssh import WORKER, unit
from tests.waiting import wait_until
from tools.testbed.bed import Bed
from tools.testbed.hosts import Host

Loss = Callable[[Host], AbstractContextManager[None]]

_SERVES_WITHIN_S = 30.0
_AT_MOST_S = 90.0


def host_of(bed: Bed, node_id: int) -> Host:
    return bed.hosts[[node.node_id for node in bed.spec.nodes].index(node_id)]


def enable_units(bed: Bed) -> None:
    """As operators do it: a host that boots starts its node, on the release and the log that it finds."""
    for host in bed.hosts:
        host.run("systemctl", "enable", "kafka.service")


@contextmanager
def cut(host: Host) -> Iterator[None]:
    """No packet of this machine reaches the host; its node continues."""
    with host.dropping(f"ip saddr {WORKER}"):
        yield


@contextmanager
def rebooted(host: Host) -> Iterator[None]:
    boot = threading.Thread(target=host.reboot)
    boot.start()
    yield
    boot.join()


def all_run(bed: Bed, nodes: Iterable[NodeSpec]) -> bool:
    return all(unit(host_of(bed, node.node_id), "active")() for node in nodes)


def wait_for_leader_without(bed: Bed, lost: int, moment: str) -> None:
    """Wait until the controllers without the lost node run and have a leader; fail if that takes too long.

    The limit is 30 s on a machine that keeps up. Six hosts start their JVMs on the processors of this one, so it grows
    with the load per processor.
    """
    nodes = tuple(node for node in bed.spec.nodes if node.node_id != lost)
    others, began = replace(bed.spec, nodes=nodes), time.monotonic()

    def serve() -> bool:
        try:
            with KafkaAdmin(others) as admin:
                has_leader = admin.quorum().leader_id >= 0  # brokers also reach a leader that is cut from here
        except RolloutError:
            return False
        return has_leader and all_run(bed, others.controllers)

    wait_until(serve, 2 * _AT_MOST_S)
    took, load = time.monotonic() - began, os.getloadavg()[0] / (os.cpu_count() or 1)
    limit = min(_SERVES_WITHIN_S * max(1.0, load), _AT_MOST_S)
    print(f"{lost} lost {moment}: leader after {took:.1f} s (limit {limit:.0f} s at load {load:.1f} per processor)")
    assert took <= limit
