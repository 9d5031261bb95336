"""Tiered storage on local brokers: Kafka's own LocalTieredStorage, from its released jar of tests."""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.releases.jars.cache import ReleaseCache

LOCKS = Path(__file__).parent / "locks"
METADATA_PARTITIONS = "rlmm.config.remote.log.metadata.topic.num.partitions"


def tiered_config(cache: ReleaseCache, folder: Path) -> dict[str, str]:
    """Return the configuration of a cluster of one node; `folder`: the remote storage."""
    (jar,) = ReleaseCache(cache.cache, LOCKS).jars("tiered-3.9.1").glob("*.jar")
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "rsm.config.dir": str(folder),
        METADATA_PARTITIONS: "2",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    }
