"""Main of the test traffic, a process that outlives the task that starts it."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from confluent_kafka import KafkaException

from kafka_rollout.adapters.background.traffic_process import Ledger
from kafka_rollout.adapters.system.signals import end_event
from kafka_rollout.domain.model.errors import RolloutError


def main() -> int:
    parser = argparse.ArgumentParser(description="Live traffic with a ledger: acknowledged against consumed.")
    parser.add_argument("--folder", type=Path, required=True, help="the ledger's folder, with settings.json in it")
    parser.add_argument("--drain", action="store_true", help="produce nothing: read to the end and compare")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    stop = end_event()
    try:
        ledger = Ledger(arguments.folder)
        if not arguments.drain:
            ledger.run(stop)
        ledger.drain()
        verdict = ledger.finish()
    except (RolloutError, KafkaException) as error:
        print(error, file=sys.stderr)
        return 1
    for discrepancy in verdict.discrepancies:
        print(discrepancy.sentence)
    return 0 if verdict.ok else 3


if __name__ == "__main__":
    sys.exit(main())
