"""The group monitor: describes a cluster's groups about once a second during a run, through every stop of a node.

It only reads. It stops when a worker requests it, when its run has not held the cluster's lock for two minutes, and
when the shell that started it is gone. What it has seen goes to the database every ten seconds and at the end.
"""

from __future__ import annotations

import logging
import time
from threading import Event

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.groups.monitor import MonitoredGroups
from kafka_rollout.kafka.client.groups import groups_of_broker
from kafka_rollout.kafka.client.requests import ClusterConnections
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.groups import DescribedGroup
from kafka_rollout.run.background import BackgroundProcess, BackgroundState
from kafka_rollout.traffic.processes.heartbeat import Heartbeat

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_LOAD = 0.2  # at most this share of the time is spent on queries: many groups are described less often
_TIMEOUT_S = 3.0
_REPORT_EVERY_S = 10.0


def run(
    process: BackgroundProcess, security: ClientSecurity, heartbeat: Heartbeat, stop: Event, settings: Settings
) -> None:
    """The body of the process."""
    cluster = get_cluster(process.key.cluster, settings)
    connections = ClusterConnections(cluster, security, timeout_s=_TIMEOUT_S)
    watch = MonitoredGroups()
    silent: set[int] = set()
    reported, pause_s = time.monotonic(), 0.0
    while not stop.wait(pause_s):
        began = time.monotonic()
        watch.add(_describe(connections, silent), began)
        if began - reported > _REPORT_EVERY_S:
            heartbeat.beat(watch.to_dict())
            reported = began
        took = time.monotonic() - began
        pause_s = max(_EVERY_S - took, took * (1 / _LOAD - 1), 0.0)
    connections.close()
    heartbeat.finish(BackgroundState.STOPPED, result=watch.to_dict())


def _describe(connections: ClusterConnections, silent: set[int]) -> list[DescribedGroup]:
    """The groups of all brokers that respond. `silent`: the other brokers, each logged once."""
    found: list[DescribedGroup] = []
    for broker in connections.brokers:
        try:
            found += groups_of_broker(connections, broker)
            silent.discard(broker.node_id)
        except RolloutError as error:
            if broker.node_id not in silent:
                log.info("%s", error)
            silent.add(broker.node_id)
    return found
