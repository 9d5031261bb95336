#!/usr/bin/env python3
"""Write the lock of jars that are not a release of Kafka, with their SHA-256: <name>.json in releases/jars.

    python tools/lock_jars.py agents applications-4.3.1

`kafka-rollout-derive add` locks the jars of a release. The release cache downloads exactly the listed jars.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from kafka_rollout.releases.facts import Release
from kafka_rollout_derivation.resolve import LOGGING, resolve

ROOT = Path(__file__).resolve().parents[1]

AGENTS = (  # each contains its dependencies
    "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1",
    "org.jolokia:jolokia-agent-jvm:2.2.9:javaagent",
)
APPLICATIONS = "applications-"  # for tests of groups: Kafka Streams and Connect of a release


def lock(name: str) -> None:
    wanted: tuple[str, ...]
    if name == "agents":
        wanted, folder_of_locks = AGENTS, ROOT / "include"
    else:
        release = Release.parse(name.removeprefix(APPLICATIONS))
        modules = ("kafka-streams", "connect-runtime", "connect-file")
        wanted = (*(f"org.apache.kafka:{module}:{release}" for module in modules), *LOGGING[release.major])
        folder_of_locks = ROOT / "tests" / "integration" / "harness" / "groups" / "locks"
    with tempfile.TemporaryDirectory() as folder:
        jars = resolve(wanted, Path(folder), transitive=name != "agents")
    target = folder_of_locks / "releases" / "jars" / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"sha256": jars}, indent=1) + "\n")
    print(f"{target.relative_to(ROOT)}: {len(jars)} jars")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        lock(argument)
