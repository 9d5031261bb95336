"""Members of one group in threads, what they did, and whether that was right."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

from dynamic_protocol_consumer import DynamicProtocolConsumer
from dynamic_protocol_consumer.coordinator import KeptJoins
from dynamic_protocol_consumer.protocols import RebalanceProtocol
from tests import waiting

DEADLINE_S = 180.0  # a machine that is busy with much else takes its time; nobody waits longer than he has to
_POLL_MS = 1000
SETTINGS: dict[str, Any] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 200,
    # Members leave by saying so. One that is starved of the processor for a while shall not be taken for dead.
    "session_timeout_ms": 60_000,
    "max_poll_interval_ms": 120_000,
    "fetch_max_wait_ms": 100,
    "metrics_enabled": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    at: float
    member: str
    what: str  # assigned, revoked, lost, committed
    partition: tuple[str, int]
    offset: int = -1


@dataclass(slots=True)
class Journal:
    """Everything that members of a group did, in the order in which it was over."""

    events: list[Event] = field(default_factory=list)
    processed: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))

    def note(self, member: str, what: str, partitions: Iterable[tuple[str, int]]) -> None:
        self.events += [
            Event(at=time.monotonic(), member=member, what=what, partition=(topic, number))
            for topic, number in partitions
        ]

    def note_commit(self, member: str, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.events += [
            Event(at=time.monotonic(), member=member, what="committed", partition=tuple(p), offset=o.offset)
            for p, o in offsets.items()
        ]

    def since(self, at: float, what: str) -> list[Event]:
        return [event for event in self.events if event.at >= at and event.what == what]

    def committed_by_two_owners(self) -> list[tuple[Event, str]]:
        """Commits that were accepted after another member had got the partition, and commits that went backwards.

        Who got it last is its owner: one that lost it in a short circuit hears of that later.
        """
        holders: dict[tuple[str, int], list[str]] = defaultdict(list)
        last: dict[tuple[str, int], Event] = {}
        wrong: list[tuple[Event, str]] = []
        for event in self.events:
            held = holders[event.partition]
            if event.what == "assigned":
                held.append(event.member)
            elif event.what in ("revoked", "lost"):
                holders[event.partition] = [member for member in held if member != event.member]
            else:
                if held and held[-1] != event.member:
                    wrong.append((event, held[-1]))
                before = last.get(event.partition)
                if before is not None and before.offset > event.offset:
                    wrong.append((event, before.member))
                last[event.partition] = event
        return wrong


class CommittingListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Commits as partitions are taken away. It knows nothing of lost partitions: the default hands them to revoked."""

    def __init__(self, worker: Worker, *, commits: bool) -> None:
        self.worker = worker
        self.commits = commits

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.worker.journal.note(self.worker.name, "assigned", assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.worker.on_revoke(len(revoked))
        try:
            if self.commits and revoked:
                self.worker.commit(revoked)
        finally:
            self.worker.forget(revoked)
            self.worker.journal.note(self.worker.name, "revoked", revoked)


class OldConsumer(KafkaConsumer):  # type: ignore[misc]
    """kafka-python's; its coordinator alone forgets joins on a slow machine, and then no group settles."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self._coordinator.__class__ = KeptJoins


class Worker(threading.Thread):
    """One member: polls, processes, commits what it processed, until it is stopped."""

    def __init__(
        self,
        name: str,
        journal: Journal,
        make: Callable[[], KafkaConsumer],
        topic: str,
        *,
        commits_on_revoke: bool,
        on_revoke: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.journal = journal
        self.on_revoke = on_revoke
        self.failures: list[BaseException] = []
        self.paused = threading.Event()
        self._is_to_hold, self._holds = threading.Event(), threading.Event()
        self._ending = threading.Event()
        self._pending: dict[TopicPartition, OffsetAndMetadata] = {}
        self.consumer = make()
        self.consumer.subscribe([topic], listener=CommittingListener(self, commits=commits_on_revoke))
        self.start()

    @property
    def protocol(self) -> RebalanceProtocol:
        return getattr(self.consumer, "rebalance_protocol", RebalanceProtocol.EAGER)

    @property
    def owned(self) -> frozenset[tuple[str, int]]:
        return frozenset(tuple(partition) for partition in self.consumer.assignment())

    def hold_commits(self) -> None:
        """From the return on, what it processes stays without a commit. A commit that had begun is over then."""
        self._holds.clear()
        self._is_to_hold.set()
        wait_until(self._holds.is_set, f"{self.name} holds its commits")

    def commit_again(self) -> None:
        self._is_to_hold.clear()

    def has_pending(self, partitions: Iterable[tuple[str, int]]) -> bool:
        """Whether it has processed, and not committed, records of each of these."""
        return all(TopicPartition(*partition) in self._pending for partition in partitions)

    def run(self) -> None:
        while not self._ending.is_set():
            if self.paused.is_set():
                time.sleep(0.02)
                continue
            try:
                for partition, records in self.consumer.poll(timeout_ms=_POLL_MS).items():
                    self.journal.processed[tuple(partition)].update(record.offset for record in records)
                    self._pending[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
                if self._is_to_hold.is_set():
                    self._holds.set()
                else:
                    self.commit(self.consumer.assignment())
            except RebalanceInProgressError:
                continue  # a join outlasts the poll: what is pending is committed after it
            except KafkaError as error:
                self.failures.append(error)
        self.consumer.close(autocommit=False)

    def commit(self, partitions: Iterable[TopicPartition]) -> None:
        offsets = {partition: self._pending[partition] for partition in partitions if partition in self._pending}
        if offsets:
            self.consumer.commit(offsets)
            self.journal.note_commit(self.name, offsets)
            self.forget(offsets)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._pending.pop(partition, None)

    def stop(self) -> None:
        self.paused.clear()
        self._ending.set()
        self.join(DEADLINE_S)
        assert not self.is_alive(), f"{self.name} does not end"


@dataclass(slots=True, kw_only=True)
class LiveGroup:
    """A group on real brokers: members by name, a topic that is written to all the time."""

    servers: str
    topic: str
    partitions: int
    journal: Journal = field(default_factory=Journal)
    workers: dict[str, Worker] = field(default_factory=dict)
    produced: list[int] = field(default_factory=list)
    on_revoke: Callable[[int], None] = lambda _: None
    overrides: dict[str, Any] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _producing: threading.Thread = field(default_factory=threading.Thread)
    _admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.servers})
        self._admin.create_topics([NewTopic(self.topic, self.partitions, 1)])[self.topic].result(DEADLINE_S)
        # The controller answers before the broker has heard of it, and a member that subscribes before that may not
        # look again for minutes.
        wait_until(lambda: len(self._described_topic()) == self.partitions, f"{self.topic} is there")

    def _described_topic(self) -> Mapping[int, object]:
        return self._admin.list_topics(self.topic, timeout=DEADLINE_S).topics[self.topic].partitions

    @property
    def settings(self) -> dict[str, Any]:
        return {**SETTINGS, **self.overrides, "bootstrap_servers": self.servers, "group_id": self.topic}

    def old(self, name: str) -> Worker:
        """A member that only has kafka-python's range assignor."""
        return self._start(name, OldConsumer, commits=False, assignors=(RangePartitionAssignor,))

    def new(self, name: str, *assignors: Any) -> Worker:
        return self._start(name, DynamicProtocolConsumer, commits=True, assignors=assignors)

    def _start(self, name: str, kind: Any, *, commits: bool, assignors: tuple[Any, ...]) -> Worker:
        settings = {**self.settings, "client_id": name}
        if assignors:
            settings["partition_assignment_strategy"] = assignors
        self.workers[name] = Worker(
            name,
            self.journal,
            lambda: kind(**settings),
            self.topic,
            commits_on_revoke=commits,
            on_revoke=self.on_revoke,
        )
        return self.workers[name]

    def stop(self, name: str) -> None:
        self.workers.pop(name).stop()

    def all(self) -> frozenset[tuple[str, int]]:
        return frozenset((self.topic, number) for number in range(self.partitions))

    def wait_settled(self, *, others: Callable[[], Iterable[tuple[str, int]]] = list, hold_s: float = 0.6) -> None:
        """Each partition has one owner among the workers (and `others`), each worker one, and it stays so."""
        since, deadline = time.monotonic(), time.monotonic() + DEADLINE_S
        seen: list[Any] = []
        while time.monotonic() - since < hold_s:
            owned = {name: worker.owned for name, worker in self.workers.items()}
            now = [*owned.values(), frozenset(others())]
            whole = sorted(partition for each in now for partition in each) == sorted(self.all())
            generations = {worker.consumer.group_metadata().generation_id for worker in self.workers.values()}
            if not whole or now != seen or len(generations) != 1 or not all(owned.values()):
                since, seen = time.monotonic(), now
            dead = [name for name, worker in self.workers.items() if not worker.is_alive()]
            assert not dead, f"{dead} ended by themselves"
            assert time.monotonic() < deadline, f"the group does not settle: {now}, {generations}"
            time.sleep(0.02)

    def wait_protocol(self, protocol: RebalanceProtocol) -> None:
        wait_until(
            lambda: all(
                worker.protocol is protocol
                for worker in self.workers.values()
                if isinstance(worker.consumer, DynamicProtocolConsumer)
            ),
            f"all are {protocol.name}",
        )

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        while not self._stop.is_set():
            for number in range(self.partitions):
                producer.produce(self.topic, b"x", partition=number)
            producer.flush(DEADLINE_S)
            self.produced.append(self.partitions)
            time.sleep(0.03)

    @property
    def described(self) -> dict[str, frozenset[tuple[str, int]]]:
        """What each member has by the coordinator's word, by client id; nothing while the coordinator is loading."""
        try:
            members = self._admin.describe_consumer_groups([self.topic])[self.topic].result(DEADLINE_S).members
        except KafkaException:
            return {}
        return {
            member.client_id: frozenset((each.topic, each.partition) for each in member.assignment.topic_partitions)
            for member in members
        }

    def foreign(self) -> frozenset[tuple[str, int]]:
        """What members have that are no workers of this group here."""
        return frozenset().union(*(theirs for name, theirs in self.described.items() if name not in self.workers))

    def finish_writing(self) -> None:
        self._stop.set()
        self._producing.join(DEADLINE_S)

    def finish(self) -> None:
        """Stop writing; every record written must be processed and committed, by one owner at a time."""
        self.finish_writing()
        each = len(self.produced)
        member = next(iter(self.workers.values())).consumer
        wait_until(
            lambda: all(member.committed(TopicPartition(*partition)) == each for partition in self.all()),
            "everything is committed",
        )
        assert {partition: self.journal.processed[partition] for partition in self.all()} == {
            partition: set(range(each)) for partition in self.all()
        }
        wrong = self.journal.committed_by_two_owners()
        assert not wrong, wrong

    def __enter__(self) -> LiveGroup:
        self._producing = threading.Thread(target=self.produce, daemon=True)
        self._producing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for name in list(self.workers):
            self.stop(name)


def wait_until(holds: Callable[[], Any], what: str, *, within_s: float = DEADLINE_S) -> None:
    waiting.wait_until(holds, within_s, every_s=0.02, said=what)
