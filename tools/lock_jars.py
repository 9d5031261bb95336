#!/usr/bin/env python3
"""Write include/releases/jars/<name>.json: the jars of a broker of a release, with their SHA-256.

    python tools/lock_jars.py 4.3.1 agents applications-4.3.1

It resolves each release with its dependencies. The release cache then downloads exactly the listed jars.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "plugins"))

from kafka_rollout.adapters.releases.ivy import Module, fetch  # noqa: E402
from kafka_rollout.domain.model.releases import Release  # noqa: E402

AGENTS = ("io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1", "org.jolokia:jolokia-agent-jvm:2.2.9:javaagent")
# kafka_2.13's own dependencies have no binding of SLF4J: a broker without one runs but logs nothing.
LOGGING = {
    3: ("org.slf4j:slf4j-reload4j:1.7.36", "ch.qos.reload4j:reload4j:1.2.25"),
    4: ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4", "org.apache.logging.log4j:log4j-core:2.25.4"),
}

APPLICATIONS = "applications-"  # for tests of groups: Kafka Streams and Connect of a release


def lock(name: str) -> None:
    folder_of_locks = ROOT / "include"
    if name == "agents":
        wanted: tuple[str, ...] = AGENTS
    elif name.startswith(APPLICATIONS):
        release = Release.parse(name.removeprefix(APPLICATIONS))
        modules_of_release = ("kafka-streams", "connect-runtime", "connect-file")
        wanted = (*(f"org.apache.kafka:{module}:{release}" for module in modules_of_release), *LOGGING[release.major])
        folder_of_locks = ROOT / "tests" / "integration" / "locks"
    else:
        release = Release.parse(name)
        wanted = (f"org.apache.kafka:kafka_2.13:{release}", *LOGGING[release.major])
    with tempfile.TemporaryDirectory() as folder:
        modules = fetch((Module.parse(text) for text in wanted), Path(folder), transitive=True)
        jars = {
            str(module): hashlib.sha256((Path(folder) / module.file).read_bytes()).hexdigest() for module in modules
        }
    target = folder_of_locks / "releases" / "jars" / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"sha256": jars}, indent=1) + "\n")
    print(f"{target.relative_to(ROOT)}: {len(jars)} jars")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        lock(argument)
