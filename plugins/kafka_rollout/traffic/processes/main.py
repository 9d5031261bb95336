"""Main of a background process of a run: test traffic, or the group monitor.

It outlives the task that starts it. Its credentials come through the standard input; its settings, stop requests and
result go through the database.

The group monitor describes a cluster's groups about once a second, through every stop of a node. It only reads. What it
has seen goes to the database every ten seconds and at the end.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from threading import Event

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.system.signals import end_event
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.groups.monitor import MonitoredGroups
from kafka_rollout.kafka.client.groups import groups_of_broker
from kafka_rollout.kafka.client.requests import ClusterConnections
from kafka_rollout.kafka.client.security.carried_security import CarriedSecurity
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.kafka.client.security.credential_files import remove_stale_files
from kafka_rollout.model.groups import DescribedGroup
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess, BackgroundState
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.store.leases import SqlChangeLock
from kafka_rollout.run.store.opening import database_of
from kafka_rollout.traffic.processes import traffic_process
from kafka_rollout.traffic.processes.of_run import Heartbeat

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_LOAD = 0.2  # at most this share of the time is spent on queries: many groups are described less often
_TIMEOUT_S = 3.0
_REPORT_EVERY_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description="A background process of a run. Credentials: standard input.")
    for option in ("--cluster", "--run", "--instance"):
        parser.add_argument(option, required=True)
    parser.add_argument("--kind", type=BackgroundKind, choices=list(BackgroundKind), required=True)
    parser.add_argument("--bootstrap-servers", default="", help="where the test traffic sends its credentials")
    parser.add_argument("--drain", action="store_true", help="produce nothing: read to the end and compare")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    stop = end_event()
    try:
        settings = Settings.from_environment()
        remove_stale_files(settings.home)
        security = CarriedSecurity.from_json(sys.stdin.read()).unpack()
        database = database_of(settings)
        record = SqlBackground(database)
        key = BackgroundKey(cluster=arguments.cluster, run_id=arguments.run, kind=arguments.kind)
        process = record.read(key)
        if process is None or process.instance != arguments.instance:
            print("Another process replaced this one.", file=sys.stderr)
            return 0
        unlocked_s = process.settings["unlocked_s"]
        heartbeat = Heartbeat(record, SqlChangeLock(database), process, stop, unlocked_s=unlocked_s)
        heartbeat.start()
        try:
            if arguments.kind is BackgroundKind.TRAFFIC:
                servers = arguments.bootstrap_servers
                traffic_process.run(process, servers, security, heartbeat, stop, drain_only=arguments.drain)
            else:
                _monitor_groups(process, security, heartbeat, stop, settings)
        except Exception as error:
            heartbeat.finish(BackgroundState.FAILED, error=str(error))
            raise
    except RolloutError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _monitor_groups(
    process: BackgroundProcess, security: ClientSecurity, heartbeat: Heartbeat, stop: Event, settings: Settings
) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
