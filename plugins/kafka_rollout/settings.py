"""Where things lie: the only reader of the process's environment.

| variable                 | what                                                      | default                  |
|--------------------------|-----------------------------------------------------------|--------------------------|
| KAFKA_ROLLOUT_CLUSTERS   | folder of the inventories (*.yaml)                        | include/clusters         |
| KAFKA_ROLLOUT_HOME       | runs/, private/, locks/: what runs leave behind           | ~/.kafka-rollout         |
| KAFKA_ROLLOUT_CACHE      | releases of Kafka and agents, shared by all               | ~/.cache/kafka-rollout   |
| KAFKA_ROLLOUT_SPARK_MASTER | where the scans run: local[N], spark://host:port        | local[2]                 |
| KAFKA_ROLLOUT_PORTS      | ports that local clusters and their Airflow take          | 20000-32767              |
| KAFKA_ROLLOUT_DEBUG      | 1: the command line shows the trace of an error           | sentences only           |
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

# plugins/kafka_rollout/settings.py → the project's root.
PROJECT_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`include` holds the catalogue (releases/) and the message definitions (schemas/)."""

    clusters: Path
    home: Path
    cache: Path
    include: Path
    spark_master: str = "local[2]"

    @classmethod
    def from_environment(cls) -> Settings:
        def path(variable: str, default: Path) -> Path:
            return Path(os.environ.get(variable) or default).expanduser().resolve()

        return cls(
            clusters=path("KAFKA_ROLLOUT_CLUSTERS", PROJECT_ROOT / "include" / "clusters"),
            home=path("KAFKA_ROLLOUT_HOME", Path("~/.kafka-rollout")),
            cache=path("KAFKA_ROLLOUT_CACHE", Path("~/.cache/kafka-rollout")),
            include=path("KAFKA_ROLLOUT_INCLUDE", PROJECT_ROOT / "include"),
            spark_master=os.environ.get("KAFKA_ROLLOUT_SPARK_MASTER") or "local[2]",
        )


def ports_wanted() -> str | None:
    return os.environ.get("KAFKA_ROLLOUT_PORTS")


def debug_wanted() -> bool:
    return os.environ.get("KAFKA_ROLLOUT_DEBUG") == "1"
