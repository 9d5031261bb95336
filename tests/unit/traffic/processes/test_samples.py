"""Samples of the test traffic: from the clients' windows into the journal, and the series of a run in progress."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.run.traffic import MOST_LEADERSHIPS, Leadership, thin_out
from kafka_rollout.traffic.processes import main
from kafka_rollout.traffic.processes import traffic as processes
from kafka_rollout.traffic.processes.traffic import (
    RECORDS_PER_TRANSACTION,
    Client,
    RefusedJournal,
    Replication,
    Samples,
    compare_journals,
    place_replicas,
    plain_producer,
    read_samples,
    statistics,
    transactional_producer,
)
from tests.fakes.clock import FakeClock

PARTITION = ("t", 0)


def client(name: str) -> Client:
    return Client(name, lambda client: None)


def message(offset: int, latency_s: float | None) -> Any:
    return SimpleNamespace(
        topic=lambda: "t", partition=lambda: 0, offset=lambda: offset, latency=lambda: latency_s, error=lambda: None
    )


def test_a_sample_has_what_the_clients_experienced_since_the_one_before(tmp_path: Path) -> None:
    producer, fast, slow = client("p"), client("f"), client("s")
    samples = Samples(tmp_path, "1")
    for offset, latency_s in ((4, 0.010), (5, 0.030), (6, None)):
        producer.acknowledged(message(offset, latency_s))
        producer.count += 1
    fast.reached[PARTITION], slow.reached[PARTITION] = 7, 5
    slow.window.failed = 2
    samples.take([producer], [fast, slow], None)
    samples.take([producer], [fast], 3)
    first, second = read_samples(tmp_path)
    assert (first.acknowledged, first.failed, first.latency_ms, first.worst_latency_ms) == (3, 2, 20.0, 30.0)
    assert (first.lag, first.under_replicated) == (2, None)
    assert (second.acknowledged, second.failed, second.latency_ms, second.lag) == (0, 0, None, 0)
    assert second.under_replicated == 3
    assert second.at == pytest.approx(first.at + first.seconds, abs=0.01)
    assert samples.series == (first, second)
    assert Samples(tmp_path, "2").series == (first, second)


def test_the_time_without_a_sign_of_life_grows_while_nothing_is_acknowledged() -> None:
    now = [100.0]
    producer = Client("p", lambda client: None, clock=lambda: now[0])
    producer.sign_of_life()
    silent = []
    for step in (2.0, 3.0):
        now[0] += step
        silent.append(producer.take_window().silent_s)
    producer.sign_of_life()
    assert [*silent, producer.take_window().silent_s, producer.take_window().silent_s] == [2.0, 5.0, 5.0, 0.0]


def test_a_line_that_a_kill_cut_is_no_sample(tmp_path: Path) -> None:
    (tmp_path / "samples-1.tsv").write_text("1.0\t1.0\t4\t0\tnull\tnull\t0.1\tnull\t0\t2\n2.0\t1.0\t4")
    assert [(one.acknowledged, one.committed) for one in read_samples(tmp_path)] == [(4, 2)]


def test_a_sample_counts_each_producer_that_runs(tmp_path: Path) -> None:
    plain, transactional = client("producer-plain"), client("producer-transactional")
    samples = Samples(tmp_path, "1")
    plain.count = 4
    samples.take([plain], [], None)
    transactional.count = 5
    samples.take([plain, transactional], [], None)
    plain.count += 3
    samples.take([plain, transactional], [], None)
    assert [dict(one.of_producers) for one in samples.series] == [
        {"producer-plain": 4},
        {"producer-plain": 0, "producer-transactional": 5},
        {"producer-plain": 3, "producer-transactional": 0},
    ]


class Refusing:
    """A producer whose transactions the coordinator aborts instead of committing them."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.aborted = 0

    def commit_transaction(self, timeout_s: float) -> None:
        problem = SimpleNamespace(retriable=lambda: False, txn_requires_abort=lambda: True)
        raise KafkaException(problem)

    def abort_transaction(self, timeout_s: float) -> None:
        self.aborted += 1

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: None


def test_a_transaction_that_is_aborted_instead_of_committed_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "Producer", Refusing)
    producer = transactional_producer(tmp_path, {}, "1", rate=1000.0)
    rounds = iter([False] * 15 + [True])
    producer.stop = cast(Event, SimpleNamespace(is_set=lambda: next(rounds), wait=lambda seconds: None))
    producer.body(producer)
    outcomes = (tmp_path / "transactions-1.tsv").read_text().split()[1::2]
    assert (outcomes, producer.count) == (["aborted"] * 15, 0)


def test_failed_requests_are_counted_once_although_librdkafka_reports_totals() -> None:
    producer = client("p")
    report = statistics(producer)["stats_cb"]
    for txerrs, timeouts in ((1, 0), (1, 2), (1, 2)):
        report(json.dumps({"brokers": {"a": {"txerrs": txerrs}, "b": {"req_timeouts": timeouts}}}))
    assert producer.take_window().failed == 3
    statistics(producer)["stats_cb"](json.dumps({"brokers": {"a": {"rxerrs": 1}}}))  # created again
    assert producer.take_window().failed == 1


def reported(**leaders: int) -> str:
    """Statistics of librdkafka with these leaders of the partitions p0, p1, …"""
    partitions = {name.removeprefix("p"): {"leader": leader} for name, leader in leaders.items()}
    return json.dumps({"topics": {"t": {"topic": "t", "partitions": {**partitions, "-1": {"leader": -1}}}}})


def test_a_record_is_an_acknowledgement_of_the_leader_that_stayed_the_same() -> None:
    now = [100.0]
    producer = Client("p", lambda client: None, clock=lambda: now[0], wall_clock=lambda: 1_000.0 + now[0])
    report = statistics(producer)["stats_cb"]

    def after(seconds: float, acknowledged: int, **leaders: int) -> list[tuple[int, float, float]]:
        for offset in range(acknowledged):
            producer.acknowledged(message(offset, None))
        now[0] += seconds
        report(reported(**leaders))
        return [(one.broker, one.since - 1_100, one.until - 1_100) for one in producer.leaderships]

    assert after(1, 3, p0=1, p1=2) == [], "the leader before is unknown"
    assert after(1, 3, p0=1, p1=2) == [(1, 1, 1)], "not before the call before"
    assert after(1, 0, p0=1, p1=2) == [(1, 1, 1)]
    assert after(4, 2, p0=1, p1=2) == [(1, 1, 3)]
    assert after(1, 3, p0=2, p1=2) == [(1, 1, 3)], "of broker 1 or 2"
    assert after(1, 3, p0=2, p1=2) == [(1, 1, 3), (2, 8, 8)]
    assert after(6, 3, p0=2, p1=2) == [(1, 1, 3), (2, 8, 8)], "it can have led and lost it in between"
    assert after(1, 3, p0=2, p1=1) == [(1, 1, 3), (2, 8, 8), (2, 15, 15)], "and have been restarted"
    assert after(30, 0, p0=-1, p1=1)[3:] == []
    assert after(1, 3, p0=-1, p1=1)[3:] == [], "no leader acknowledged it"
    assert after(1, 3, p0=1, p1=2)[3:] == []
    assert after(1, 3, p0=1, p1=2)[3:] == [(1, 48, 48)], "it had no partition"


def test_leaderships_are_reported_with_those_of_a_killed_process(tmp_path: Path) -> None:
    plain, transactional = client("producer-plain"), client("producer-transactional")
    samples = Samples(tmp_path, "1")
    plain.leaderships.append(Leadership(plain.name, 1, 10.5, 20.25))
    samples.seen([plain])
    plain.leaderships[0] = first = Leadership(plain.name, 1, 10.5, 30.0)
    transactional.leaderships.append(second := Leadership(transactional.name, 2, 20.0, 20.0))
    assert samples.seen([plain, transactional]).leaderships == (first, second)
    later = client("producer-plain")
    later.leaderships.append(third := Leadership(plain.name, 1, 40.0, 50.0))
    assert Samples(tmp_path, "2").seen([later]).leaderships == (first, second, third)
    (tmp_path / "log.tsv").touch()
    assert compare_journals(tmp_path, lambda positions: {}, {}).leaderships == (first, second, third)


def test_leaderships_of_a_client_that_stalls_again_and_again_are_bounded() -> None:
    now = [100.0]
    producer = client("producer-plain")
    producer.clock = producer.wall_clock = lambda: now[0]
    for stall in range(200):
        for seconds in (1.0, 1.0, 1.0, 60.0):  # the last one is late
            producer.acknowledged(message(stall, None))
            now[0] += seconds
            producer.note_leaders({PARTITION: 7})
    found = producer.leaderships
    assert len(found) == MOST_LEADERSHIPS
    assert found[0].since < 105
    assert found[-1].until > now[0] - 70
    assert max(after.since - before.until for before, after in pairwise(found)) < (now[0] - 100) / 4, "all of the time"
    assert len(thin_out([*found, *(one._replace(producer="other") for one in found)])) == 2 * MOST_LEADERSHIPS


@pytest.mark.parametrize("brokers", [1, 2, 3, 4, 6, 7, 12, 30, 300])
@pytest.mark.parametrize("racks", [0, 1, 2, 3, 5])
def test_each_broker_is_the_preferred_leader_of_a_partition(brokers: int, racks: int) -> None:
    copies, rack_of = min(3, brokers), {broker: f"r{broker % racks}" if racks else None for broker in range(brokers)}
    placed = place_replicas(rack_of, copies)
    assert {replicas[0] for replicas in placed} == {*range(brokers)}
    assert len(placed) == max(6, brokers)
    for replicas in placed:
        assert len(replicas) == len({*replicas}) == copies
        assert len({rack_of[broker] for broker in replicas}) == min(copies, len({*rack_of.values()}))
    replicas_of = Counter(broker for replicas in placed for broker in replicas)
    if racks < 2 or brokers % racks == 0:
        assert max(replicas_of.values()) - min(replicas_of.values()) <= 3, "none has many more than the others"


@pytest.mark.parametrize(
    ("racks", "batches"),
    [
        ({}, [range(1, 6), range(6, 11), range(11, 16), range(16, 21), range(21, 26), range(26, 31)]),
        ({one: f"r{one % 2}" for one in range(31)}, [range(at, 31, 6) for at in range(1, 7)]),
    ],
    ids=["without racks", "two racks"],
)
def test_no_partition_splits_a_planned_batch(racks: dict[int, str], batches: list[range]) -> None:
    placed = place_replicas({broker: racks.get(broker) for broker in range(31)}, 3, batches)
    assert {replicas[0] for replicas in placed} == {*range(31)}
    assert not [(batch, replicas) for batch in batches for replicas in placed if len({*batch} & {*replicas}) > 1]
    assert all(len({*replicas}) == 3 for replicas in placed)


class FakeAdmin:
    """A cluster of four brokers that has both topics of a failed run, led by broker 1 and 2."""

    def __init__(self, settings: Any) -> None:
        self.added: list[Any] = []

    def describe_cluster(self, **_: Any) -> Any:
        nodes = [SimpleNamespace(id=broker, rack=None) for broker in (1, 2, 3)]
        return SimpleNamespace(result=lambda: SimpleNamespace(nodes=nodes))

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Any]:
        def fail() -> None:
            raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))

        return {topic.topic: SimpleNamespace(result=fail) for topic in topics}

    def list_topics(self, topic: str, **_: Any) -> Any:
        partitions = {number: SimpleNamespace(replicas=[1 + number % 2, 3, 4]) for number in range(6)}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})

    def create_partitions(self, more: list[Any], **_: Any) -> dict[str, Any]:
        self.added += more
        return {one.topic: SimpleNamespace(result=lambda: None) for one in more}


def test_a_broker_that_leads_nothing_in_the_topics_of_a_failed_run_gets_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 4 is down, so nothing can be placed on it."""
    admin = FakeAdmin({})
    monkeypatch.setattr(main, "AdminClient", lambda settings: admin)
    settings = {"group": "g", "lowered": {}, "brokers": [1, 2, 3, 4], "together": []}
    process: Any = SimpleNamespace(settings=settings, folder=str(tmp_path))
    traffic = main.Traffic(process, "127.0.0.1:1", ClientSecurity())
    counts = traffic.create_topics()
    assert counts == dict.fromkeys(processes.TOPICS, 7)
    assert {one.topic for one in admin.added} == {*processes.TOPICS}
    assert [one.new_total_count for one in admin.added] == [7, 7]
    assert [list(one.replica_assignment) for one in admin.added] == [[[3, 1, 2]]] * 2

    class Reader:
        """A broker that shows the added partition when it is asked for the third time."""

        asked = 0

        def list_topics(self, topic: str, **_: Any) -> Any:
            self.asked += topic == processes.TOPICS[0]
            shown = SimpleNamespace(error=None, partitions=range(6 if self.asked < 3 else 7))
            return SimpleNamespace(topics={topic: shown})

        def close(self) -> None: ...

    reader: Any = Reader()
    listed = processes.list_places(reader, counts, clock=FakeClock())
    monkeypatch.setattr(main.Traffic, "_reader", lambda self: reader)
    assert traffic._count_partitions(counts) == 7 == len(listed) / 2, "the producers write to all of them"
    with pytest.raises(TransientError, match="are not listed"):
        processes.list_places(reader, dict.fromkeys(processes.TOPICS, 8), clock=FakeClock())


def test_racks_of_different_sizes_are_used_as_far_as_they_go() -> None:
    placed = place_replicas({1: "a", 2: "a", 3: "a", 4: "a", 5: "b", 6: None}, 3)
    assert [sorted(replicas)[-2:] for replicas in placed] == [[5, 6]] * 6


@pytest.mark.parametrize("partitions", [4, 40, 700])
@pytest.mark.parametrize(
    ("produce", "rate", "records"), [(plain_producer, 30.0, 1), (transactional_producer, 3.0, RECORDS_PER_TRANSACTION)]
)
def test_each_partition_gets_a_record_in_ten_seconds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    partitions: int,
    produce: Callable[[Path, dict[str, Any], str, float, int], Client],
    rate: float,
    records: int,
) -> None:
    """And no more records are sent than at the usual rate, or than that needs."""
    sent, waited = list[int](), list[float]()

    class Sending(Refusing):
        def produce(self, topic: str, value: bytes, key: str, partition: int, **options: Any) -> None:
            sent.append(partition)

        def commit_transaction(self, timeout_s: float) -> None: ...

    monkeypatch.setattr(processes, "Producer", Sending)
    producer = produce(tmp_path, {}, "1", rate, partitions)
    producer.stop = cast(Event, SimpleNamespace(is_set=lambda: sum(waited) > 10.0, wait=waited.append))
    producer.body(producer)
    assert {*sent} == {*range(partitions)}
    assert len(sent) == pytest.approx(max(10 * rate * records, partitions), rel=0.1)


@pytest.mark.parametrize(
    ("code", "plain", "transactional"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True, True),
        (KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, True, True),
        (KafkaError.INVALID_RECORD, True, True),
        (KafkaError._MSG_TIMED_OUT, False, False),  # librdkafka sent it again until then: an outage
        (KafkaError._PURGE_QUEUE, False, False),  # of an aborted transaction
        (KafkaError.INVALID_PRODUCER_EPOCH, True, False),  # its coordinator aborted the transaction
    ],
)
def test_only_what_a_broker_refuses_for_good_is_a_refused_record(
    tmp_path: Path, code: int, *, plain: bool, transactional: bool
) -> None:
    for name, in_transactions in (("plain", False), ("transactional", True)):
        producer = client(name)
        refused = RefusedJournal(tmp_path / f"refused-{name}-1.tsv", in_transactions=in_transactions)
        refused.note(producer, KafkaError(code), message(0, None))
        assert producer.window.failed == 1
    (tmp_path / "log.tsv").touch()
    verdict = compare_journals(tmp_path, lambda positions: {}, {})
    sentences = [one.sentence for one in verdict.failures if one.kind == "refused"]
    number = plain + transactional
    assert len(sentences) == bool(number)
    assert all(f"refused {number} record" in one and f"t-0: {KafkaError(code).name()}." in one for one in sentences)


def test_the_partitions_that_lack_a_replica_are_counted_and_an_old_count_is_unknown() -> None:
    stop, now = Event(), [100.0]
    partitions = {at: SimpleNamespace(replicas=[1, 2], isrs=[1, 2][: at + 1]) for at in range(2)}

    def list_topics(timeout: float) -> Any:
        stop.set()
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions=partitions)})

    replication = Replication(SimpleNamespace(list_topics=list_topics), stop, clock=lambda: now[0])
    assert replication.under_replicated is None
    replication._repeat()
    assert replication.under_replicated == 1
    now[0] += 31
    assert replication.under_replicated is None


@pytest.mark.parametrize(("produce", "rate"), [(plain_producer, 100.0), (transactional_producer, 20.0)])
def test_librdkafka_reports_the_leaders_to_which_a_producer_sends(
    tmp_path: Path, produce: Callable[[Path, dict[str, Any], str, float, int], Client], rate: float
) -> None:
    """Against the brokers that librdkafka has for tests."""
    mock = {"test.mock.num.brokers": 3, "bootstrap.servers": "none", "log_level": 3}
    producer = produce(tmp_path, mock, "1", rate, 4)
    producer.start()
    try:
        for _ in range(300):
            time.sleep(0.1)
            if producer.leaderships:
                break
    finally:
        producer.stop.set()
        producer.join(30)
    assert producer.leaderships
    assert {one.broker for one in producer.leaderships} <= {1, 2, 3}
