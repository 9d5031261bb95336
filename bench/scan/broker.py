"""A cluster of one node with a given coordinator log: the segments are put into its log directory before it starts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.scan.coordinator_log import TOPIC
from kafka_rollout.base.errors import TransientError
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.demo.local_cluster import LocalCluster

_DEADLINE_S = 180.0
_LOADED = "Finished loading of metadata from {topic}-{partition} "
_TOPIC_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}  # prevents cleaning


@contextmanager
def broker_with(logs: Path, partitions: int, folder: Path, release: Release, cache: ReleaseCache) -> Iterator[str]:
    """Start the broker and yield its bootstrap servers when the coordinator has loaded all partitions.

    The segments are moved out of `logs`.
    """
    cluster = LocalCluster.create(
        folder,
        "bench-scan",
        release,
        cache=cache,
        layout="combined",
        size=1,
        heap="1g",
        extra_config={
            "offsets.topic.num.partitions": str(partitions),
            "offsets.retention.minutes": "2147483647",  # the commit timestamps are years old
        },
    )
    try:
        (node,) = cluster.spec.nodes
        home, servers = Path(str(node.directory)), cluster.spec.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        for made in admin.create_topics([NewTopic(TOPIC, partitions, 1, config=_TOPIC_CONFIG)]).values():
            made.result(_DEADLINE_S)
        cluster.runtime.stop(node, deadline_s=30)
        for partition in range(partitions):
            name = f"{TOPIC}-{partition}"
            target = home / "data" / "logs" / name
            for pattern in ("*.log", "*index", "*.snapshot"):
                for stale in target.glob(pattern):
                    stale.unlink()
            for path in (logs / name).iterdir():
                path.rename(target / path.name)
        server_log = home / "logs" / "server.log"
        before = server_log.stat().st_size
        cluster.runtime.start(node)
        cluster.wait_until_ready(within_s=_DEADLINE_S)
        _wait_until_loaded(server_log, before, partitions)
        yield servers
    finally:
        cluster.delete()


def _wait_until_loaded(server_log: Path, begin: int, partitions: int) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        with server_log.open(errors="replace") as file:
            file.seek(begin)
            lines = file.read()
        if all(_LOADED.format(topic=TOPIC, partition=partition) in lines for partition in range(partitions)):
            return
        if time.monotonic() > deadline:
            raise TransientError(f"The coordinator did not load {TOPIC}.", remedy=f"Read {server_log}.")
        time.sleep(0.5)
