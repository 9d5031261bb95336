"""Main of a background process of a run: test traffic or the group monitor.

It outlives the task that starts it. Its credentials come through the standard input; its settings, stop requests and
result go through the database.
"""

from __future__ import annotations

import argparse
import logging
import sys

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.system.signals import end_event
from kafka_rollout.kafka.client.security.carried_security import CarriedSecurity
from kafka_rollout.kafka.client.security.credential_files import remove_stale_files
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundState
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.store.leases import SqlChangeLock
from kafka_rollout.run.store.opening import database_of
from kafka_rollout.traffic.processes import group_monitor, traffic_process
from kafka_rollout.traffic.processes.heartbeat import Heartbeat


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
                group_monitor.run(process, security, heartbeat, stop, settings)
        except Exception as error:
            heartbeat.finish(BackgroundState.FAILED, error=str(error))
            raise
    except RolloutError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
