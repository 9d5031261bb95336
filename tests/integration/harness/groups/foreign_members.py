"""Members of a group through other clients than ours: librdkafka's, and the console consumer of a release."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from kafka_rollout.releases.jvm.java import java_binary
from tests.integration.harness.groups.members import DEADLINE_S, LiveGroup

_CLASSIC: Mapping[str, Any] = {"heartbeat.interval.ms": 200, "session.timeout.ms": 60_000}
_NEW_PROTOCOL: Mapping[str, Any] = {"group.protocol": "consumer"}


class ConfluentMember(threading.Thread):
    """A member through librdkafka that commits what it processed. `strategy` None: of the new protocol (KIP-848)."""

    def __init__(self, group: LiveGroup, name: str, strategy: str | None) -> None:
        super().__init__(name=name, daemon=True)
        self.group = group
        self._ending = threading.Event()
        self.consumer = Consumer(
            {
                "bootstrap.servers": group.servers,
                "group.id": group.topic,
                "client.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **(_NEW_PROTOCOL if strategy is None else {**_CLASSIC, "partition.assignment.strategy": strategy}),
            }
        )
        self.consumer.subscribe([group.topic], on_assign=self._note("assigned"), on_revoke=self._note("revoked"))
        self.start()

    def _note(self, what: str) -> Callable[[Consumer, list[Any]], None]:
        return lambda _, partitions: self.group.journal.note(
            self.name, what, [(each.topic, each.partition) for each in partitions]
        )

    def run(self) -> None:
        while not self._ending.is_set():
            messages = [each for each in self.consumer.consume(100, 0.1) if not each.error()]
            for message in messages:
                self.group.journal.processed[(message.topic(), message.partition())].add(message.offset())
            if messages:
                self.consumer.commit(asynchronous=True)
        self.consumer.close()

    def stop(self) -> None:
        self._ending.set()
        self.join(DEADLINE_S)
        assert not self.is_alive(), f"{self.name} does not end"


class ConsoleConsumer:
    """The console consumer of a release, as a process; it commits by itself."""

    def __init__(self, group: LiveGroup, name: str, libs: Path, *properties: str) -> None:
        self.group = group
        settings = ("auto.offset.reset=earliest", "heartbeat.interval.ms=200", f"client.id={name}", *properties)
        self._process = subprocess.Popen(
            [
                *(str(java_binary()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*"),
                *("kafka.tools.ConsoleConsumer", "--bootstrap-server", group.servers, "--topic", group.topic),
                *("--group", group.topic, "--property", "print.partition=true", "--property", "print.offset=true"),
                *(part for setting in settings for part in ("--consumer-property", setting)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.match(r"Partition:(\d+)\tOffset:(\d+)", line):
                self.group.journal.processed[(self.group.topic, int(found[1]))].add(int(found[2]))

    def stop(self) -> None:
        """It commits and leaves as it is asked to end."""
        self._process.terminate()
        try:
            self._process.wait(DEADLINE_S)
        finally:
            self._process.kill()
        self._reader.join(DEADLINE_S)
