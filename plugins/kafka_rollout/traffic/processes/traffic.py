"""Clients of the test traffic: a plain and a transactional producer, a group of the classic protocol and, if the
cluster offers it, one of the consumer protocol. Samples: what the clients experienced in each second. Journals of both:
one append-only text file per writer, in the folder of a traffic period.

Each runs in its own thread until its stop event is set, and writes acknowledgements or records into its journal. A
client that fails is created again and continues, because its interruption is measured.

Lines are tab-separated. `acknowledged-*.tsv`: topic, partition, offset, record id, transaction or `-`.
`transactions-*.tsv`: transaction, outcome (a later line for the same transaction wins).
`refused-*.tsv`: topic, partition, epoch seconds, error.
`consumed-<group>.tsv` and `log.tsv`: topic, partition, offset, record id. `gaps-*.tsv`: client, longest gap in seconds.
`samples-*.tsv`: the fields of a `TrafficSample` as JSON values. `leaderships-*.tsv`, whole: those of a `Leadership`.
The last line is dropped if its writer was killed in the middle of it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import ceil
from pathlib import Path
from statistics import mean
from threading import Event, Lock, Thread
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.system.clock import SystemClock
from kafka_rollout.base.system.files import write_whole
from kafka_rollout.features.rules import ends_consumer_groups, ends_transactional_producers
from kafka_rollout.run.traffic import (
    PLAIN_PRODUCER,
    SILENCE_S,
    TRANSACTIONAL_PRODUCER,
    Leadership,
    TrafficSample,
    TrafficSeries,
    TrafficVerdict,
    TransactionOutcome,
    condense,
    thin_out,
)
from kafka_rollout.traffic.traffic_check import (
    CONSUMER_GROUP,
    LOG,
    UNKNOWN_OFFSET,
    Position,
    ReadMarks,
    RefusedRecord,
    TrafficRecord,
    compare,
)

log = logging.getLogger(__name__)

_Place = tuple[str, int, int]

NO_TRANSACTION = "-"
PLAIN_TOPIC = "kafka-rollout-traffic-plain"
TRANSACTIONAL_TOPIC = "kafka-rollout-traffic-transactional"
TOPICS = (PLAIN_TOPIC, TRANSACTIONAL_TOPIC)
PARTITIONS = 6  # of each topic, or one for each broker
RECORDS_PER_TRANSACTION = 5
CYCLE_SECONDS = 10.0  # in which each partition gets a record: more partitions than the rate has time for raise the rate
ABORT_EVERY = 10  # transactions, one of which is aborted; a consumer must not deliver its records
FLUSH_SECONDS = 0.2
DELIVERY_TIMEOUT_MS = 15 * 60_000
STALLED_SECONDS = 90.0
LOG_FILE = f"{LOG}.tsv"
_BYTES_A_PASS = 64 * 1024**2  # of the journals of acknowledged records: about 800,000 of them, in 200 MB of memory
TRANSACTION_TIMEOUT_MS = 30_000  # an open transaction delays the consumers until it is aborted
UNASSIGNED_SECONDS = 30.0  # the only member of its group is without partitions only while it joins
_EVERY_S = 1.0
_LOAD = 0.1  # at most this share of the time is spent on metadata requests: a large cluster is asked less often
_TIMEOUT_S = 5.0
_OLD_S = 30.0
_CLOCK = SystemClock()


@dataclass(slots=True)
class SampleWindow:
    """What a client experienced since the last sample."""

    latency_s: list[float] = field(default_factory=list)
    """Of each acknowledged record."""
    failed: int = 0
    silent_s: float = 0.0


@dataclass(slots=True)
class Client:
    """One thread of traffic; `count` of records acknowledged or consumed, for the progress line."""

    name: str
    body: Callable[[Client], None]
    stop: Event = field(default_factory=Event)
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    longest_s: float = 0.0
    """The longest time between two acknowledgements or records."""
    count: int = 0
    read_to: dict[tuple[str, int], int] = field(default_factory=dict)
    """The offset at which a consumer last reached the end, by (topic, partition)."""
    reached: dict[tuple[str, int], int] = field(default_factory=dict)
    """The offset after the last record that was acknowledged or consumed, or at which a consumer last reached the end.
    """
    window: SampleWindow = field(default_factory=SampleWindow)
    longest_of_partition_s: float = 0.0
    """The longest time of a producer between two acknowledgements in one partition: the others hide it."""
    leaderships: list[Leadership] = field(default_factory=list)
    _last: float | None = None
    _last_of: dict[tuple[str, int], float] = field(default_factory=dict)
    _leaders: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The leader by (topic, partition), when it was last noted."""
    _leaders_at: float = 0.0
    _unassigned: set[tuple[str, int]] = field(default_factory=set)
    """Partitions in which a record was acknowledged since then."""
    _leading: dict[int, int] = field(default_factory=dict)
    """Broker that has led a partition all the time since its last leadership → index of the leadership."""
    _thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                self.body(self)
            except Exception as error:  # a full disk, too: without its thread the rest of the run has no traffic
                log.warning("%s: %s; created again", self.name, error.args[0] if error.args else error)
                self.window.failed += 1
                self.stop.wait(0.5)

    def sign_of_life(self) -> None:
        """Note an acknowledgement or a record."""
        gap = self.silent_s
        self.longest_s, self._last = max(self.longest_s, gap), self.clock()
        self.window.silent_s = max(self.window.silent_s, gap)

    @property
    def silent_s(self) -> float:
        return 0.0 if self._last is None else self.clock() - self._last

    def acknowledged(self, message: Message) -> None:
        """Note the latency and the offset of an acknowledged record."""
        if (latency_s := message.latency()) is not None:
            self.window.latency_s.append(latency_s)
        topic, partition, offset = cast(_Place, (message.topic(), message.partition(), _offset(message)))
        self.reached[topic, partition] = max(offset + 1, self.reached.get((topic, partition), 0))
        self._unassigned.add((topic, partition))
        now = self.clock()
        gap = now - self._last_of.get((topic, partition), now)
        self._last_of[topic, partition], self.longest_of_partition_s = now, max(self.longest_of_partition_s, gap)

    def note_leaders(self, leaders: Mapping[tuple[str, int], int]) -> None:
        """Note what was acknowledged since the last call for the leaders, to which the client sends.

        Not for one that has changed since, and for none after more than SILENCE_S: it can have changed twice. The
        leadership of a broker ends when it leads no partition, as when it stops.
        """
        acknowledged, self._unassigned = self._unassigned, set()
        before, self._leaders = self._leaders, leaders
        passed_s = self.clock() - self._leaders_at
        self._leaders_at += passed_s
        is_late, at = passed_s > SILENCE_S, self.wall_clock() - passed_s
        leading = set() if is_late else {*leaders.values()}
        self._leading = {broker: index for broker, index in self._leading.items() if broker in leading}
        for place in () if is_late else acknowledged:
            if (broker := leaders.get(place, _NO_LEADER)) == before.get(place) and broker != _NO_LEADER:
                if (index := self._leading.get(broker)) is not None:
                    self.leaderships[index] = self.leaderships[index]._replace(until=at)
                else:
                    self._leading[broker] = len(self.leaderships)
                    self.leaderships.append(Leadership(self.name, broker, at, at))
        if len(kept := thin_out(self.leaderships)) < len(self.leaderships):
            last = {one.broker: index for index, one in enumerate(kept)}
            self.leaderships, self._leading = [*kept], {broker: last[broker] for broker in self._leading}

    def take_window(self) -> SampleWindow:
        """Return the window, with the time without a sign of life until now, and begin a new one."""
        window, self.window = self.window, SampleWindow()
        window.silent_s = max(window.silent_s, self.silent_s)
        return window

    def join(self, timeout_s: float) -> None:
        """End the client. A silence of a producer that lasts until now counts."""
        if self._last_of:
            self.longest_s = max(self.longest_s, self.silent_s)
            silent = self.clock() - min(self._last_of.values())
            self.longest_of_partition_s = max(self.longest_of_partition_s, silent)
        self.stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)


def place_replicas(
    racks: Mapping[int, str | None], copies: int, together: Iterable[Sequence[int]] = ()
) -> list[list[int]]:
    """Return the brokers of each partition of a topic, its preferred leader first. Each broker leads one.

    `racks`: of all brokers. As far as the brokers allow, replicas of a partition are in different batches (`together`),
    because a batch with two of them would have to be split, and in different racks.
    """
    batch_of = {**{broker: broker for broker in racks}, **{one: batch[0] for batch in together for one in batch}}
    of_racks: dict[str | None, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        of_racks[racks[broker]].append(broker)
    ring = [broker for row in zip_longest(*of_racks.values()) for broker in row if broker is not None]
    placed = []
    for number in range(max(PARTITIONS, len(ring))):
        at = number % len(ring)
        leader, *others = ring[at:] + ring[:at]
        replicas = [leader]
        while len(replicas) < copies:
            used = {racks[broker] for broker in replicas}
            stops = {batch_of[broker] for broker in replicas}
            replicas.append(min(others, key=lambda one: (one in replicas, batch_of[one] in stops, racks[one] in used)))
        placed.append(replicas)
    return placed


def list_places(
    reader: Consumer, counts: Mapping[str, int] | None = None, *, clock: Clock = _CLOCK
) -> list[TopicPartition]:
    """Return the partitions of the topics. `counts`: how many each topic has at least, by its name; default: one.

    Raises TransientError if a broker does not list them within 30 s: it applies each change after the controller.
    """
    least = dict.fromkeys(TOPICS, 1) | dict(counts or {})
    deadline = clock.monotonic() + _OLD_S
    while True:
        found = {topic: reader.list_topics(topic, timeout=20).topics[topic] for topic in TOPICS}
        if all(one.error is None and len(one.partitions) >= least[topic] for topic, one in found.items()):
            return [TopicPartition(topic, number) for topic, one in found.items() for number in sorted(one.partitions)]
        if clock.monotonic() > deadline:
            raise TransientError("The topics of the test traffic are not listed.")
        clock.sleep(1.0)


def plain_producer(
    folder: Path, security: Mapping[str, Any], session: str, rate: float, partitions: int = PARTITIONS
) -> Client:
    """An idempotent producer with acks=all; `rate` in records per second, at least. It writes to all partitions."""
    pause_s = 1 / max(rate, partitions / CYCLE_SECONDS)
    journal = Journal(folder / f"acknowledged-plain-{session}.tsv")
    refused = RefusedJournal(folder / f"refused-plain-{session}.tsv", in_transactions=False)

    def body(client: Client) -> None:
        settings = {**producer_settings(security), "client.id": "kafka-rollout-traffic-plain"}
        producer = Producer({**settings, **statistics(client)})
        number = int(time.time() * 1000)  # ids differ from those of the producer before

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.note(client, error, message)
            else:
                client.sign_of_life()
                client.acknowledged(message)
                client.count += 1
                key = message.key()
                journal.write(message.topic(), message.partition(), _offset(message), _text(key), NO_TRANSACTION)

        while not client.stop.is_set():
            number += 1
            record_id = f"p-{session}-{number}"
            try:
                producer.produce(PLAIN_TOPIC, b"x" * 64, record_id, number % partitions, on_delivery=delivered)
            except BufferError:  # nothing is acknowledged for some time: wait
                producer.poll(0.5)
            producer.poll(0)
            journal.flush()
            client.stop.wait(pause_s)
        producer.flush(30)
        journal.flush()

    return Client(PLAIN_PRODUCER, body)


def transactional_producer(
    folder: Path, security: Mapping[str, Any], session: str, rate: float, partitions: int = PARTITIONS
) -> Client:
    """Transactions of a few records each, one in ten aborted; `rate` in transactions per second. It writes to all
    partitions.
    """
    records = max(RECORDS_PER_TRANSACTION, ceil(partitions / rate / CYCLE_SECONDS))
    journal = Journal(folder / f"acknowledged-transactional-{session}.tsv")
    refused = RefusedJournal(folder / f"refused-transactional-{session}.tsv", in_transactions=True)
    outcomes = Journal(folder / f"transactions-{session}.tsv")

    def finish(producer: Producer, name: str, commit: bool) -> bool:
        """Commit or abort; repeats a call without an answer, which librdkafka makes safe. Return whether the
        coordinator committed.
        """
        deadline = time.monotonic() + TRANSACTION_TIMEOUT_MS / 1000
        while True:
            try:
                if commit:
                    producer.commit_transaction(10)
                else:
                    producer.abort_transaction(10)
            except KafkaException as error:
                problem = error.args[0]
                if problem.retriable() and time.monotonic() < deadline:
                    continue
                if problem.txn_requires_abort() and commit:
                    # The coordinator has not committed and will not, so the transaction is aborted.
                    commit = False
                    continue
                outcomes.write(name, TransactionOutcome.UNKNOWN.value)
                outcomes.flush()
                raise
            outcomes.write(name, (TransactionOutcome.COMMITTED if commit else TransactionOutcome.ABORTED).value)
            outcomes.flush()
            return commit

    def body(client: Client) -> None:
        producer = Producer(
            {
                **producer_settings(security),
                "client.id": "kafka-rollout-traffic-transactional",
                "transactional.id": f"kafka-rollout-traffic-{session}",
                # librdkafka wants no record to outlive its transaction.
                "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                **statistics(client),
            }
        )
        producer.init_transactions(60)
        number = int(time.time() * 1000)
        while not client.stop.is_set():
            number += 1
            name = f"t-{session}-{number}"

            def delivered(error: KafkaError | None, message: Message, name: str = name) -> None:
                if error is not None:
                    refused.note(client, error, message)
                else:
                    client.acknowledged(message)
                    key = _text(message.key())
                    journal.write(message.topic(), message.partition(), _offset(message), key, name)

            producer.begin_transaction()
            for index in range(records):
                key, partition = f"{name}-{index}", (number * records + index) % partitions
                producer.produce(TRANSACTIONAL_TOPIC, b"y" * 64, key, partition, on_delivery=delivered)
            commit = (number + number // 1_000) % ABORT_EVERY != 0  # shifted, or some partitions have aborted ones only
            if not commit:
                producer.flush(30)  # aborted records must be in the log; an abort would purge them from the queue
            client.count += records if finish(producer, name, commit) else 0
            client.sign_of_life()
            journal.flush()
            client.stop.wait(1 / rate)

    return Client(TRANSACTIONAL_PRODUCER, body)


def consumer(folder: Path, security: Mapping[str, Any], group: str, protocol: str) -> Client:
    """One member of a group over both topics; `protocol` is group.protocol: classic or consumer (KIP-848)."""
    journal = Journal(folder / f"consumed-{protocol}.tsv")

    def body(client: Client) -> None:
        settings = {
            **security,
            "group.id": f"{group}-{protocol}",
            "client.id": f"kafka-rollout-traffic-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # Committed offsets do not show that all was read: they stay before trailing aborted records and markers.
            "enable.partition.eof": True,
        }
        member = Consumer(settings)
        member.subscribe(list(TOPICS))
        committed_at = assigned_at = time.monotonic()
        try:
            while not client.stop.is_set():
                if member.assignment():
                    assigned_at = time.monotonic()
                elif time.monotonic() - assigned_at > UNASSIGNED_SECONDS:
                    # It joined before its broker had the metadata of the new topics. librdkafka does not refresh
                    # them, whatever its refresh interval (measured on 3.4.0: two minutes).
                    log.warning("%s has no partitions; created again", client.name)
                    return
                reached: dict[tuple[str, int], int] = {}
                for message in member.consume(500, FLUSH_SECONDS):
                    error = message.error()
                    # None only for errors without a position.
                    topic, partition, offset = cast(_Place, (message.topic(), message.partition(), message.offset()))
                    if error is None:
                        client.sign_of_life()
                        client.count += 1
                        reached[topic, partition] = offset + 1
                        journal.write(topic, partition, offset, _text(message.key()))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        client.read_to[topic, partition] = reached[topic, partition] = offset
                    elif error.fatal():
                        raise KafkaException(error)
                # The journal first: committed records are never read again, and a check copies what was reached.
                journal.flush()
                client.reached.update(reached)
                if time.monotonic() - committed_at > 1.0:
                    committed_at = time.monotonic()
                    try:
                        member.commit(asynchronous=True)
                    except KafkaException as error:
                        if error.args[0].code() != KafkaError._NO_OFFSET:
                            raise
        finally:
            journal.flush()
            member.close()

    return Client(f"consumer-{protocol}", body)


_NO_LEADER = -1
# Of each broker, since the client was created.
_FAILURES = ("txerrs", "rxerrs", "req_timeouts", "txretries", "disconnects")


def statistics(client: Client) -> dict[str, Any]:
    """Settings with which librdkafka reports failed requests and the leaders to which it sends, once a second."""
    known = 0

    def add(text: str) -> None:
        nonlocal known
        reported = json.loads(text)
        brokers = reported.get("brokers", {}).values()
        total = sum(broker.get(name, 0) for broker in brokers for name in _FAILURES)
        client.window.failed, known = client.window.failed + max(0, total - known), total
        client.note_leaders(
            {
                (topic, int(number)): partition["leader"]
                for topic, of_topic in reported.get("topics", {}).items()
                for number, partition in of_topic["partitions"].items()
            }
        )

    return {"statistics.interval.ms": 1000, "stats_cb": add}


# The transaction or its producer has ended otherwise, for example by its timeout. The check knows the outcome.
_OF_TRANSACTION = frozenset(
    {
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.PRODUCER_FENCED,
        KafkaError.TRANSACTION_ABORTABLE,
    }
)


def is_refused(error: KafkaError, *, in_transaction: bool) -> bool:
    """Return whether a broker refused a record for good, by the error of its delivery report.

    librdkafka sends a record again until its time is up, unless the broker answered with an error that it calls
    permanent (rd_kafka_handle_Produce_error). The codes of brokers are positive, those of the client negative.
    """
    return error.code() > 0 and not (in_transaction and error.code() in _OF_TRANSACTION)


def producer_settings(security: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **security,
        "acks": "all",
        "enable.idempotence": True,
        # One request at a time. With more, the leader of a new partition can reject the first batch and accept the
        # second. It answers the retry of the first with DUPLICATE_SEQUENCE_NUMBER, which librdkafka treats as an
        # acknowledgement: a record is lost without any roll (measured on 3.4.0).
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 5,
        # Longer than any outage, that of an offline downgrade included. When the request of a batch expires, librdkafka
        # takes the next producer epoch and sends the batch's remaining records again, also if the broker stored them.
        "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    }


def _offset(message: Message) -> int:
    """The offset of an acknowledged record, if the broker returned it."""
    offset = message.offset()
    return UNKNOWN_OFFSET if offset is None or offset < 0 else offset


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class Samples:
    """Takes one sample a call, into the journal and into `series`, which stays bounded. `session`: of the process.

    Those of a killed process of the same traffic period, in the same folder, are kept.
    """

    def __init__(self, folder: Path, session: str) -> None:
        self.series = condense(read_samples(folder))
        self._earlier = tuple(read_leaderships(folder))
        self._leaderships = folder / f"leaderships-{session}.tsv"
        self._journal = Journal(folder / f"samples-{session}.tsv")
        self._acknowledged = dict[str, int]()
        self._at = time.time()

    def take(self, producers: Sequence[Client], consumers: Sequence[Client], under_replicated: int | None) -> None:
        now, acknowledged = time.time(), {client.name: client.count for client in producers}
        since = {name: number - self._acknowledged.get(name, 0) for name, number in acknowledged.items()}
        windows = [client.take_window() for client in producers]
        latencies = [1000 * seconds for window in windows for seconds in window.latency_s]
        sample = TrafficSample(
            at=round(self._at, 3),
            seconds=round(now - self._at, 3),
            acknowledged=sum(since.values()),
            failed=sum(window.failed for window in (*windows, *(client.take_window() for client in consumers))),
            latency_ms=round(mean(latencies), 1) if latencies else None,
            worst_latency_ms=round(max(latencies), 1) if latencies else None,
            silent_s=round(max(window.silent_s for window in windows), 2),
            under_replicated=under_replicated,
            lag=max((_lag(producers, client) for client in consumers), default=None),
            committed=since.get(TRANSACTIONAL_PRODUCER),
        )
        self._at, self._acknowledged = now, acknowledged
        self._journal.write(*map(json.dumps, sample))
        self._journal.flush()
        self.series = condense((*self.series, sample))

    def seen(self, producers: Sequence[Client]) -> TrafficSeries:
        """Return the samples and leaderships so far, and write the leaderships."""
        own = [one for client in producers for one in tuple(client.leaderships)]
        lines = ("\t".join(map(str, one)) for one in own)
        write_whole(self._leaderships, "".join(f"{line}\n" for line in lines).encode())
        return TrafficSeries(series=self.series, leaderships=thin_out((*self._earlier, *own)))


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


class Journal:
    """Appends lines. After `flush` they survive a kill of this process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lines: list[str] = []
        self._lock = Lock()

    def write(self, *fields: object) -> None:
        with self._lock:
            self._lines.append("\t".join(str(field) for field in fields) + "\n")

    def flush(self) -> None:
        with self._lock:
            data, self._lines = "".join(self._lines).encode(), []
            while data:
                data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        self.flush()
        os.close(self._descriptor)


class RefusedJournal(Journal):
    """The journal of the records that brokers refused for good."""

    def __init__(self, path: Path, *, in_transactions: bool) -> None:
        super().__init__(path)
        self._in_transactions = in_transactions

    def note(self, client: Client, error: KafkaError, message: Message) -> None:
        """Note a record that was not delivered."""
        client.window.failed += 1
        if is_refused(error, in_transaction=self._in_transactions):
            self.write(message.topic(), message.partition(), round(time.time(), 3), error.name())
            self.flush()


def read_lines(path: Path, fields: int) -> Iterator[list[str]]:
    """The complete lines of a journal, split into fields."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            parts = line.rstrip("\n").split("\t")
            if line.endswith("\n") and len(parts) == fields:
                yield parts


@dataclass(frozen=True, slots=True)
class _Acknowledged:
    """The acknowledged records of a traffic period. Each iteration reads the journals."""

    folder: Path

    def __iter__(self) -> Iterator[TrafficRecord]:
        for path in sorted(self.folder.glob("acknowledged-*.tsv")):
            for topic, partition, offset, record_id, transaction in read_lines(path, 5):
                yield TrafficRecord(
                    Position(topic, int(partition), int(offset)),
                    record_id,
                    None if transaction == NO_TRANSACTION else transaction,
                )


def read_samples(folder: Path) -> Iterator[TrafficSample]:
    """The samples of one traffic period, those of killed processes included."""
    for path in sorted(folder.glob("samples-*.tsv")):
        for fields in read_lines(path, len(TrafficSample._fields)):
            yield TrafficSample(*map(json.loads, fields))


def read_leaderships(folder: Path) -> Iterator[Leadership]:
    """The leaderships of one traffic period, those of killed processes included."""
    for path in sorted(folder.glob("leaderships-*.tsv")):
        for producer, broker, since, until in read_lines(path, len(Leadership._fields)):
            yield Leadership(producer, int(broker), float(since), float(until))


@dataclass(frozen=True, slots=True)
class _Read:
    """The records of one reader. Each iteration reads its journal."""

    path: Path

    def __iter__(self) -> Iterator[TrafficRecord]:
        for topic, partition, offset, record_id in read_lines(self.path, 4):
            yield TrafficRecord(Position(topic, int(partition), int(offset)), record_id)


def compare_journals(
    folder: Path,
    read_marks: ReadMarks,
    lowered: Mapping[str, int],
    log_starts: Mapping[tuple[str, int], int] | None = None,
    say_compared: Callable[[int], None] = lambda _: None,
    *,
    period: int = 1,
) -> TrafficVerdict:
    """The result over all journals of one traffic period, those of killed processes included.

    `lowered`: levels that the run lowers. A client that they end has no journal if it never ran. `log_starts`: as
    `read_log` returns them. `say_compared` gets the number of acknowledged records so far. `period`: its number.
    """
    transactions: dict[str, TransactionOutcome] = {}
    for path in sorted(folder.glob("transactions-*.tsv")):
        for name, outcome in read_lines(path, 2):
            transactions[name] = TransactionOutcome(outcome)
    gaps: dict[str, float] = {}
    for path in sorted(folder.glob("gaps-*.tsv")):
        for client, seconds in read_lines(path, 2):
            gaps[client] = max(gaps.get(client, 0.0), float(seconds))
    read = {path.stem.removeprefix("consumed-"): _Read(path) for path in sorted(folder.glob("consumed-*.tsv"))}
    left_out = []
    if ends_transactional_producers(lowered) and not any(folder.glob("transactions-*.tsv")):
        left_out.append(TRANSACTIONAL_PRODUCER)
    if ends_consumer_groups(lowered) and "consumer" not in read:
        left_out.append(CONSUMER_GROUP)
    refused = [
        RefusedRecord(topic=topic, partition=int(partition), at=float(at), error=error)
        for path in sorted(folder.glob("refused-*.tsv"))
        for topic, partition, at, error in read_lines(path, 4)
    ]
    size = sum(path.stat().st_size for path in folder.glob("acknowledged-*.tsv"))
    return compare(
        _Acknowledged(folder),
        transactions,
        {**read, LOG: _Read(folder / LOG_FILE)},
        gaps,
        read_marks,
        left_out=left_out,
        series=read_samples(folder),
        leaderships=tuple(read_leaderships(folder)),
        log_starts=log_starts,
        refused=refused,
        passes=1 + size // _BYTES_A_PASS,
        say_compared=say_compared,
        period=period,
    )


def read_log(
    settings: Mapping[str, Any],
    folder: Path,
    say_read: Callable[[int], None],
    clock: Callable[[], float] = time.monotonic,
) -> dict[tuple[str, int], int]:
    """Read every committed record of the topics, from the start of the logs to their present ends, into `log.tsv`.

    Returns topic and partition → first offset. `settings`: of a consumer, which joins no group. A repeated call begins
    again. `say_read` gets the number of records so far. Raises TransientError if no further record comes for
    STALLED_SECONDS, or if the start of a log passes what was not read yet.
    """
    reader = Consumer(
        {
            **settings,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    path = folder / LOG_FILE
    path.unlink(missing_ok=True)
    journal, number = Journal(path), 0
    try:
        ranges = {(one.topic, one.partition): _offsets(reader, one) for one in list_places(reader)}
        left = {place: end for place, (start, end) in ranges.items() if start < end}
        reader.assign([TopicPartition(*place, ranges[place][0]) for place in left])
        moved_at = clock()
        while left:
            for message in reader.consume(1000, FLUSH_SECONDS):
                error = message.error()
                topic, partition, offset = cast(_Place, (message.topic(), message.partition(), message.offset()))
                if error is None:
                    number, moved_at = number + 1, clock()
                    journal.write(topic, partition, offset, _text(message.key()))
                    offset += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                        raise TransientError(f"{topic}-{partition} cannot be read at offset {offset}: {error}.")
                    continue
                if offset >= left.get((topic, partition), offset + 1):
                    del left[topic, partition]
            journal.flush()
            say_read(number)
            if left and clock() - moved_at > STALLED_SECONDS:
                behind = ", ".join(f"{topic}-{partition}" for topic, partition in left)
                raise TransientError(f"The log could not be read to the end of {behind}.")
        return {place: start for place, (start, _) in ranges.items()}
    finally:
        journal.close()
        reader.close()


def copy_journals(folder: Path, to: Path, *patterns: str) -> None:
    """Copy journals as they are now, while their writers go on. A last line in the middle of its write is no record
    yet."""
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        shutil.copyfile(path, to / path.name)


def remove_journals(folder: Path) -> None:
    for path in folder.glob("*.tsv"):
        path.unlink()


def _offsets(reader: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return the first offset of a log, and its present end."""
    start, end = reader.get_watermark_offsets(place, timeout=20, cached=False)
    return int(start), int(end)
