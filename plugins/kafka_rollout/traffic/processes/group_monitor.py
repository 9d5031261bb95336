"""The group monitor: describes a cluster's groups about once a second during a run, through every stop of a node.

It only reads. It stops when a worker requests it, when its run has not held the cluster's lock for two minutes, and
when the shell that started it is gone. What it has seen goes to the database every ten seconds and at the end.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import psutil

from kafka_rollout.base.errors import FatalError, RolloutError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.groups.monitor import MonitoredGroups
from kafka_rollout.kafka.client.groups import groups_of_broker
from kafka_rollout.kafka.client.requests import ClusterConnections
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.groups import DescribedGroup
from kafka_rollout.run.background import BackgroundProcess, BackgroundState
from kafka_rollout.traffic.processes.control import Control, Life, host_name
from kafka_rollout.traffic.processes.heartbeat import Heartbeat

log = logging.getLogger(__name__)

UNLOCKED_S = 120.0  # a run acquires the lock within this time after the monitor starts
_EVERY_S = 1.0
_LOAD = 0.2  # at most this share of the time is spent on queries: many groups are described less often
_TIMEOUT_S = 3.0
_REPORT_EVERY_S = 10.0
_END_S = 20.0


def start_group_monitor(
    control: Control,
    *,
    folder: Path,
    security: ClientSecurity | None,
    only_with: int | None = None,
    unlocked_s: float = UNLOCKED_S,
) -> BackgroundProcess:
    """Start the monitor unless it runs.

    `only_with`: process id on this host that the monitor must not outlive; a monitor that already runs belongs to an
    earlier process and is replaced. `unlocked_s`: the monitor ends when its run has not held the cluster's lock for
    this many seconds.
    """
    found, life = control.find()
    if found is not None and life is Life.ALIVE and (only_with is not None or found.stop_requested):
        stop_group_monitor(control)
        found, life = control.find()
    if found is not None and life is Life.ALIVE:
        return found
    settings = {"leased": True, "unlocked_s": unlocked_s, "only_with": only_with}
    return control.start(found, folder=folder, settings=settings, security=security)


def stop_group_monitor(control: Control) -> dict[str, Any] | None:
    """Stop the monitor; what it has seen, None without one.

    The key `incomplete` has a sentence if the monitor did not report its end.
    """
    control.record.request_stop(control.key.cluster, control.key.run_id, control.key.kind)
    try:
        process = control.wait_for_end(_END_S)
    except FatalError as error:
        log.warning("%s", error)
        process = control.record.read(control.key)
        if process is not None and process.host == host_name():
            with suppress(psutil.Error):
                psutil.Process(process.pid).kill()
    if process is None or process.result is None:
        return None
    if process.state is BackgroundState.STOPPED:
        return dict(process.result)
    return {**process.result, "incomplete": process.sentence}


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
