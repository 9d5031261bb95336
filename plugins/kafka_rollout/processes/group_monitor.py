"""Main of the group monitor, a process that outlives the task that starts it."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from kafka_rollout.adapters.background.group_monitor import GroupWatcher
from kafka_rollout.adapters.system.signals import end_event
from kafka_rollout.domain.model.errors import RolloutError
from kafka_rollout.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description="Watches a cluster's groups during a run; reads only.")
    parser.add_argument("--folder", type=Path, required=True, help="the watch's folder, with settings.json in it")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = end_event()
    try:
        GroupWatcher(arguments.folder, Settings.from_environment()).run(stop)
    except RolloutError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
