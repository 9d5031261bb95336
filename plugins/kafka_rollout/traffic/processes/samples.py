"""Samples of the test traffic: what its clients experienced in each second, and the partitions that lack a replica."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from threading import Event, Thread

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_rollout.run.traffic_series import TrafficSample, condense
from kafka_rollout.traffic.processes.journal import Journal
from kafka_rollout.traffic.processes.traffic import Client

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_LOAD = 0.1  # at most this share of the time is spent on metadata requests: a large cluster is asked less often
_TIMEOUT_S = 5.0
_OLD_S = 30.0


class Samples:
    """Takes one sample a call, into the journal and into `series`, which stays bounded.

    `earlier`: samples of a killed process of the same traffic period.
    """

    def __init__(self, path: Path, earlier: Iterable[TrafficSample]) -> None:
        self.series = condense(earlier)
        self._journal = Journal(path)
        self._acknowledged = 0
        self._at = time.time()

    def take(self, producers: Sequence[Client], consumers: Sequence[Client], under_replicated: int | None) -> None:
        now, acknowledged = time.time(), sum(client.count for client in producers)
        windows = [client.take_window() for client in producers]
        latencies = [1000 * seconds for window in windows for seconds in window.latency_s]
        sample = TrafficSample(
            at=round(self._at, 3),
            seconds=round(now - self._at, 3),
            acknowledged=acknowledged - self._acknowledged,
            failed=sum(window.failed for window in (*windows, *(client.take_window() for client in consumers))),
            latency_ms=round(mean(latencies), 1) if latencies else None,
            worst_latency_ms=round(max(latencies), 1) if latencies else None,
            silent_s=round(max(window.silent_s for window in windows), 2),
            under_replicated=under_replicated,
            lag=max((_lag(producers, client) for client in consumers), default=None),
        )
        self._at, self._acknowledged = now, acknowledged
        self._journal.write(*map(json.dumps, sample))
        self._journal.flush()
        self.series = condense((*self.series, sample))


def _lag(producers: Iterable[Client], consumer: Client) -> int:
    """Offsets between the last acknowledged and the last consumed record, over all partitions."""
    reached = dict(consumer.reached)
    ends = [end for producer in producers for end in dict(producer.reached).items()]
    return sum(max(0, end - reached.get(partition, 0)) for partition, end in ends)


class Replication:
    """Counts the partitions with a replica outside the ISR, in a thread of its own, by the metadata of any broker."""

    def __init__(self, admin: AdminClient, stop: Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._stop = stop
        self._counted: tuple[float, int] | None = None

    def start(self) -> None:
        Thread(target=self._repeat, name="replication", daemon=True).start()

    @property
    def under_replicated(self) -> int | None:
        """The newest count of partitions that the user of the test traffic can describe; None if it is old."""
        if self._counted is None or self._clock() - self._counted[0] > _OLD_S:
            return None
        return self._counted[1]

    def _repeat(self) -> None:
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            began = self._clock()
            try:
                topics = self._admin.list_topics(timeout=_TIMEOUT_S).topics.values()
                found = [partition for topic in topics for partition in topic.partitions.values()]
                self._counted = self._clock(), sum(len(one.isrs) < len(one.replicas) for one in found)
            except KafkaException as error:
                log.info("The partitions were not counted: %s", error.args[0])
            took = self._clock() - began
            pause_s = max(_EVERY_S - took, took * (1 / _LOAD - 1))
