"""Connect's workers and Kafka Streams applications of a release, started from its released jars."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.java import java_binary
from kafka_rollout.releases.jvm.jvm import OPTIONS, Jvm
from tests.integration.harness.groups.members import DEADLINE_S, wait_until

LOCKS = Path(__file__).parent / "locks"
_STRINGS = "org.apache.kafka.common.serialization.Serdes$StringSerde"


def application_libs(cache: ReleaseCache) -> Path:
    """Jars of kafka-streams, connect-runtime and connect-file 4.3.1, fetched as a release's are."""
    return ReleaseCache(cache.cache, LOCKS).jars("applications-4.3.1")


@dataclass(frozen=True, slots=True)
class ConnectWorker:
    """A distributed worker with its REST interface."""

    address: str
    folder: Path

    def add_sink(self, name: str, topic: str, **overrides: str) -> None:
        """A connector that writes a topic into a file; its consumers are the group connect-<name>. `overrides`: of the
        consumers' settings."""
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": "1",
            "topics": topic,
            "file": str(self.folder / f"{name}.txt"),
            **{f"consumer.override.{setting}": value for setting, value in overrides.items()},
        }
        wait_until(lambda: self._takes({"name": name, "config": config}), "the worker takes the connector")

    def _takes(self, connector: Any) -> bool:
        try:
            self._ask("/connectors", connector)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.CONFLICT:  # the workers rebalance
                return False
            raise
        return True

    def answers(self) -> bool:
        try:
            self._ask("/connectors")
        except OSError:
            return False
        return True

    def _ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - on loopback, made here
            return json.load(answer)


@contextmanager
def connect_worker(servers: str, libs: Path, folder: Path, port: int) -> Iterator[ConnectWorker]:
    strings = "org.apache.kafka.connect.storage.StringConverter"
    settings = {
        "bootstrap.servers": servers,
        "group.id": "workers",
        "key.converter": strings,
        "value.converter": strings,
        "plugin.discovery": "service_load",
        "listeners": f"http://127.0.0.1:{port}",
        "consumer.auto.offset.reset": "earliest",
        **{f"{kind}.storage.topic": f"workers-{kind}" for kind in ("offset", "config", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("offset", "config", "status")},
        **{f"{kind}.storage.partitions": "1" for kind in ("offset", "status")},
    }
    properties = folder / "worker.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    worker = ConnectWorker(f"http://127.0.0.1:{port}", folder)
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(str(java_binary()), *OPTIONS, "-cp", f"{libs}/*"),
                *("org.apache.kafka.connect.cli.ConnectDistributed", str(properties)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: process.poll() is not None or worker.answers(), "the worker answers")
        assert process.poll() is None, (folder / "worker.log").read_text()[-2000:]
        yield worker
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE_S)
        finally:
            process.kill()


@contextmanager
def streams_application(
    jvm: Jvm, servers: str, name: str, folder: Path, *, protocol: str, source: str, sink: str
) -> Iterator[Any]:
    """An application that copies a topic, with a group of its own name."""
    settings = {
        "application.id": name,
        "bootstrap.servers": servers,
        "group.protocol": protocol,
        "default.key.serde": _STRINGS,
        "default.value.serde": _STRINGS,
        "auto.offset.reset": "earliest",
        "state.dir": str(folder),
    }
    properties = jvm.packages.java.util.Properties()
    for key, value in settings.items():
        properties.put(key, value)
    builder = jvm.packages.org.apache.kafka.streams.StreamsBuilder()
    builder.stream(source).to(sink)
    application = jvm.packages.org.apache.kafka.streams.KafkaStreams(builder.build(), properties)
    application.start()
    try:
        yield application
    finally:
        application.close()
