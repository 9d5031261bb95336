"""Time of a rehearsal of an upgrade from 3.9.1 to 4.3.1, from start to exit.

    python -m bench.rehearsal [--only small|large]

small: three combined nodes with 100 partitions. large: three controllers and three brokers with 10,000 partitions of
three replicas. Both with the rollback. The cluster runs on the same machine. Its followers fetch every 5 s instead of
every 0.5 s, because an idle cluster of this size would else use a third of two cores. Writes
bench/results/rehearsal.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster
from tools.demo.local_nodes import Layout

RESULTS = PROJECT_ROOT / "bench" / "results" / "rehearsal.json"
_SOURCE, _TARGET = "3.9.1", "4.3.1"
_OF_TOPIC = 100  # partitions
_S = 300.0
_QUIET = {"replica.fetch.wait.max.ms": "5000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """`goal_s`: seconds on two idle cores."""

    layout: Layout
    partitions: int
    heap: str
    goal_s: float


SIZES = {
    "small": Size(layout="combined", partitions=100, heap="320m", goal_s=90.0),
    "large": Size(layout="separate", partitions=10_000, heap="768m", goal_s=300.0),
}


def wait_for_replicas(folder: Path, replicas: int) -> None:
    """Wait until the brokers have created the folders of all replicas: with 10,000 partitions, this takes a while."""
    deadline = time.monotonic() + _S
    while (found := sum(path.is_dir() for path in folder.rglob("topic-*"))) < replicas:
        if time.monotonic() > deadline:
            raise SystemExit(f"{replicas - found} replicas have no folder after {_S:.0f} s. Use an idle machine")
        time.sleep(1.0)


def measure(size: Size, folder: Path) -> dict[str, Any]:
    """Start a cluster, fill it with topics and rehearse its upgrade."""
    settings = Settings.from_environment()
    cache = ReleaseCache(settings.cache, settings.include)
    cluster = LocalCluster.create(
        folder, "bench", Release.parse(_SOURCE), cache=cache, layout=size.layout, heap=size.heap, extra_config=_QUIET
    )
    try:
        admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers, "log_level": 0})
        for number in range(size.partitions // _OF_TOPIC):
            name = f"topic-{number}"
            admin.create_topics([NewTopic(name, _OF_TOPIC, 3)], operation_timeout=_S)[name].result(_S)
        wait_for_replicas(folder, size.partitions * 3)
        command = Path(sys.executable).with_name("kafka-rollout")
        began = time.monotonic()
        done = subprocess.run(
            [str(command), "rehearse", "--cluster", "bench", "--to", _TARGET, "--json"],
            env={
                **os.environ,
                "KAFKA_ROLLOUT_CLUSTERS": str(cluster.inventory_path.parent),
                "KAFKA_ROLLOUT_HOME": str(folder / "home"),
            },
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        took = time.monotonic() - began
        result = json.loads(done.stdout) if done.stdout else {}
        return {
            "seconds": round(took, 1),
            "goal_s": size.goal_s,
            "outcome": result.get("outcome", f"exit {done.returncode}"),
            "estimate": result.get("estimate", ""),
            "phases": {phase["name"]: phase["seconds"] for phase in result.get("phases", ())},
            "load": os.getloadavg()[0],
        }
    finally:
        cluster.delete()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted(SIZES))
    only = parser.parse_args().only
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, size in SIZES.items():
        if only in (None, name):
            with tempfile.TemporaryDirectory(prefix="kafka-rollout-bench-") as folder:
                found[name] = measure(size, Path(folder))
            print(f"{name}: {json.dumps(found[name])}", flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
