"""An idempotent producer with acks=all, independent of the tool's test traffic, and a reader of everything it wrote."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "faults-records"
PARTITIONS = 6
RATE = 60.0  # records per second
_DELIVERY_S = 900.0  # longer than every fault
_FLUSH_S = 180.0
_READ_S = 180.0
Place = tuple[int, int]  # partition, offset; a repeated request is acknowledged without an offset: negative


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ids of records. `doubled`: with their places; `moved`: stored at another place than acknowledged."""

    acknowledged: int
    stored: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    moved: tuple[str, ...]


def compare(acknowledged: Mapping[str, Place], stored: Mapping[str, list[Place]]) -> Comparison:
    """Compare acknowledged with stored records. A record without an acknowledgement may be stored, but once only."""
    return Comparison(
        acknowledged=len(acknowledged),
        stored=sum(len(places) for places in stored.values()),
        lost=tuple(sorted(name for name in acknowledged if name not in stored)),
        # The reader may get the same offset twice when a leader moves.
        doubled=tuple(sorted(f"{name} ({_places(places)})" for name, places in stored.items() if len(set(places)) > 1)),
        moved=tuple(
            sorted(
                name
                for name, place in acknowledged.items()
                if name in stored and place[1] >= 0 and place not in stored[name]
            )
        ),
    )


def _places(places: Collection[Place]) -> str:
    return ", ".join(f"partition {partition} offset {offset}" for partition, offset in sorted(set(places)))


@dataclass(slots=True)
class Traffic:
    """A producer in a thread of its own. A producer with a fatal error is replaced; its records keep their ids."""

    servers: str
    acknowledged: dict[str, Place] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    waited_s: float = 0.0  # the longest, since `begin_period`
    _sent: dict[str, float] = field(default_factory=dict)
    _end: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def create_topic(self) -> None:
        """Without a min.insync.replicas of its own: the brokers' files have it."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)], operation_timeout=30)[TOPIC].result(60)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="independent producer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def begin_period(self) -> None:
        with self._lock:
            self.waited_s = 0.0

    def wait_until_acknowledged(self, within_s: float = _FLUSH_S) -> bool:
        """Wait until every record that was sent before this call has an answer."""
        with self._lock:
            before = set(self._sent)
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with self._lock:
                if not before & self._sent.keys():
                    return True
            time.sleep(0.2)
        return False

    def compare(self) -> Comparison:
        """Read everything to the present end, and compare what had been acknowledged before."""
        with self._lock:
            known = dict(self.acknowledged)
        return compare(known, read_all(self.servers))

    def _run(self) -> None:
        number = 0
        while not self._end.is_set():
            producer = Producer(
                {
                    "bootstrap.servers": self.servers,
                    "client.id": "faults-producer",
                    "acks": "all",
                    "enable.idempotence": True,
                    # More of them may store a record twice when a leader moves (confluentinc/librdkafka 4953).
                    "max.in.flight.requests.per.connection": 1,
                    "message.timeout.ms": int(_DELIVERY_S * 1000),
                    "reconnect.backoff.max.ms": 2000,
                    "topic.metadata.refresh.interval.ms": 10000,
                    "socket.timeout.ms": 15000,
                    "log_level": 0,
                }
            )
            fatal = False
            while not (fatal or self._end.is_set()):
                number += 1
                name = f"{number:09d}"
                with self._lock:
                    self._sent[name] = time.monotonic()
                try:
                    producer.produce(TOPIC, key=name, value=b"x" * 100, on_delivery=self._delivered)
                except (BufferError, KafkaException) as error:
                    with self._lock:
                        self._sent.pop(name, None)
                    fatal = isinstance(error, KafkaException) and error.args[0].fatal()
                    if fatal:
                        self.failed[str(error.args[0].name())] += 1
                producer.poll(0)
                self._end.wait(1 / RATE)
            producer.flush(2)
            with self._lock:
                self._sent.clear()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        key = message.key() or b""
        name = key.decode() if isinstance(key, bytes) else str(key)
        with self._lock:
            sent = self._sent.pop(name, None)
            if sent is not None:
                self.waited_s = max(self.waited_s, time.monotonic() - sent)
            if error is None:
                offset = message.offset()
                self.acknowledged[name] = (message.partition() or 0, -1 if offset is None else offset)
            else:
                self.failed[str(error.name())] += 1


def read_all(servers: str) -> dict[str, list[Place]]:
    """Every record of the topic: id → its places. Raises TimeoutError if the ends cannot be reached."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "faults-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    deadline = time.monotonic() + _READ_S
    stored: dict[str, list[Place]] = {}
    try:
        ends = {number: _end(consumer, number, deadline) for number in range(PARTITIONS)}
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in ends])
        reached = dict.fromkeys(ends, 0)
        while any(reached[number] < end for number, end in ends.items()):
            if time.monotonic() > deadline:
                behind = ", ".join(f"{TOPIC}-{number} {reached[number]} of {end}" for number, end in ends.items())
                raise TimeoutError(f"The records could not be read to the end: {behind}.")
            for message in consumer.consume(2000, timeout=1):
                if message.error() is not None:
                    continue
                number, offset = message.partition() or 0, message.offset() or 0
                key = message.key() or b""
                stored.setdefault(key.decode() if isinstance(key, bytes) else str(key), []).append((number, offset))
                reached[number] = offset + 1
    finally:
        consumer.close()
    return stored


def _end(consumer: Consumer, number: int, deadline: float) -> int:
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=10)[1])
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"The end of {TOPIC}-{number} could not be read: {error.args[0]}.") from None
            time.sleep(0.5)
