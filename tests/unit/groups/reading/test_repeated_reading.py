"""A gate that waits reads on in the log of groups, and reads it from the start again after a while."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.fetch import FetchedBytes, Replicas, UnreadReplica
from kafka_rollout.coordinator_logs.contents import GroupInventory, GroupSummary
from kafka_rollout.formats.cleaning import CleaningConfig
from kafka_rollout.formats.log_types import LogRange, ReplicaRange, UnreadableOffsetError
from kafka_rollout.formats.record_batch import batches
from kafka_rollout.groups.group_records import GroupRecords
from kafka_rollout.groups.reading import live
from kafka_rollout.groups.reading.live import LiveCoordinatorLogs
from tests.fakes.clock import FakeClock
from tests.fakes.cluster import make_spec
from tests.integration.harness.logs.planted_logs import GOOD, batch
from tests.unit.groups.reading.test_live import CATALOGUE, OFFSETS, SETTINGS, UNKNOWN, FakeSource, damaged, scan_to

BROKERS = (1, 2, 3)
EVERY_S = 10.0  # a check of the gate of the groups


class Polled(FakeSource):
    """Three replicas of one partition, whose batches are fetched one by one."""

    data = b""
    leader = 1
    unread: tuple[UnreadReplica, ...] = ()
    problem = ""
    fetched: list[tuple[int, int]] = []  # noqa: RUF012 - broker, bytes; each test sets it

    def replicas(self, topics: list[str]) -> Replicas:
        end = max(one.last_offset for one in batches(self.data)) + 1
        order = (self.leader, *(one for one in BROKERS if one != self.leader))
        of = [ReplicaRange(topic=OFFSETS, partition=0, start=0, end=end, copy=n, broker=b) for n, b in enumerate(order)]
        return Replicas(ranges=tuple(of), unread=self.unread)

    def read(self, what: LogRange) -> Iterator[FetchedBytes]:
        assert isinstance(what, ReplicaRange)
        for one in batches(self.data):
            if one.last_offset < what.start or one.base_offset >= what.end:
                continue
            if self.problem:
                raise TransientError(self.problem)
            data = bytes(self.data[one.position : one.position + one.size])
            self.fetched.append((what.broker, len(data)))
            start, end = max(what.start, one.base_offset), one.last_offset + 1
            yield FetchedBytes(topic=OFFSETS, partition=0, fetch_offset=start, end=end, data=data)

    def cleaning(self, topics: list[str]) -> dict[str, CleaningConfig]:
        return {}

    def starts_new_group_coordinator(self) -> bool:
        return False


def written(number: int, *, record: tuple[bytes, bytes | None] = GOOD) -> bytes:
    return batch(10 * number, [(10 * number + at, record) for at in range(10)])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> LiveCoordinatorLogs:
    monkeypatch.setattr(live, "FetchSource", Polled)
    for name, value in {"data": b"".join(map(written, range(200))), "fetched": [], "unread": (), "problem": ""}.items():
        monkeypatch.setattr(Polled, name, value)
    return LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS, monotonic=clock.monotonic)


def check(logs: LiveCoordinatorLogs, *, incremental: bool = True) -> GroupRecords:
    return logs.group_records(planned=False, by_spark=True, incremental=incremental)


def found(records: GroupRecords) -> object:
    return records.classes, records.broken, records.newest, records.alive, records.damage, records.offsets


def append(number: int, *, record: tuple[bytes, bytes | None] = GOOD) -> None:
    Polled.data += written(number, record=record)


def test_thirty_checks_fetch_a_fifth_of_what_each_reading_from_the_start_fetches_and_find_the_same(
    monkeypatch: pytest.MonkeyPatch, logs: LiveCoordinatorLogs, clock: FakeClock
) -> None:
    amounts: dict[bool, tuple[int, int]] = {}
    whole: list[bool] = []
    for incremental in (False, True):
        monkeypatch.setattr(Polled, "data", b"".join(map(written, range(200))))
        monkeypatch.setattr(Polled, "fetched", [])
        for number in range(200, 230):
            records = check(logs, incremental=incremental)
            whole += [records.is_whole] if incremental else []
            append(number, record=UNKNOWN if number == 210 else GOOD)
            clock.sleep(EVERY_S)
        amounts[incremental] = len(Polled.fetched), sum(size for _, size in Polled.fetched)
        last = check(logs, incremental=incremental)
        if not incremental:
            expected = found(last)
    assert found(last) == expected
    assert (whole.count(True), len(whole)) == (5, 30), "the first one, and one for each minute"
    (requests, size), (requests_now, size_now) = amounts[False], amounts[True]
    assert requests_now * 5 < requests
    assert size_now * 5 < size


def test_what_was_added_is_read_from_the_leader_alone(logs: LiveCoordinatorLogs) -> None:
    assert check(logs).is_whole
    Polled.fetched.clear()
    assert not check(logs).is_whole
    assert Polled.fetched == []
    append(200, record=UNKNOWN)
    records = check(logs)
    assert [broker for broker, _ in Polled.fetched] == [1]
    (unknown,) = [one for one in records.classes if one.key_version == 99]
    assert (unknown.count, unknown.first_offset, unknown.replicas) == (10, 2000, ()), "followers get the same records"


def test_another_leader_is_read_on(monkeypatch: pytest.MonkeyPatch, logs: LiveCoordinatorLogs) -> None:
    check(logs)
    Polled.fetched.clear()
    monkeypatch.setattr(Polled, "leader", 2)
    append(200)
    assert not check(logs).is_whole
    assert [broker for broker, _ in Polled.fetched] == [2]


def test_what_the_cleaner_removes_shows_the_next_reading_from_the_start(
    monkeypatch: pytest.MonkeyPatch, logs: LiveCoordinatorLogs, clock: FakeClock
) -> None:
    append(200, record=UNKNOWN)
    append(201)
    assert 99 in {one.key_version for one in check(logs).classes}
    monkeypatch.setattr(Polled, "data", b"".join(map(written, [*range(200), 201])))
    assert 99 in {one.key_version for one in check(logs).classes}, "it counts until the log is read again"
    clock.sleep(61)
    records = check(logs)
    assert records.is_whole
    assert 99 not in {one.key_version for one in records.classes}


def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Polled, "data", b"".join(map(written, range(100))))


def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Polled, "unread", (UnreadReplica(topic=OFFSETS, partition=0, broker=4),))


def broken_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Polled, "data", damaged(Polled.data + written(200), 200))


@pytest.mark.parametrize("change", [fewer, unread])
def test_a_log_that_is_another_one_is_read_from_the_start(
    monkeypatch: pytest.MonkeyPatch, logs: LiveCoordinatorLogs, change: object
) -> None:
    check(logs)
    assert callable(change)
    change(monkeypatch)
    records = check(logs)
    assert records.is_whole
    assert found(records) == found(check(logs, incremental=False))


def test_a_part_that_could_not_be_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch, logs: LiveCoordinatorLogs
) -> None:
    check(logs)
    broken_tail(monkeypatch)
    assert check(logs).damage
    monkeypatch.setattr(Polled, "data", b"".join(map(written, range(201))))
    records = check(logs)
    assert (records.is_whole, records.damage) == (True, ())


def test_an_offset_that_a_broker_cannot_read_is_damage_and_no_error(
    monkeypatch: pytest.MonkeyPatch, logs: LiveCoordinatorLogs
) -> None:
    check(logs)
    append(200)
    readable = Polled.read

    def read(source: Polled, what: LogRange) -> Iterator[FetchedBytes]:
        for fetched in readable(source, what):
            if fetched.fetch_offset >= 2000:
                raise UnreadableOffsetError("CORRUPT_MESSAGE", offset=fetched.fetch_offset)
            yield fetched

    monkeypatch.setattr(Polled, "read", read)
    records = check(logs)
    assert {(one.position, one.offsets) for one in records.damage} == {(2000, 10)}


def test_a_failed_check_leaves_nothing_to_read_on_from(
    monkeypatch: pytest.MonkeyPatch, logs: LiveCoordinatorLogs
) -> None:
    check(logs)
    append(200)
    with monkeypatch.context() as patched:
        patched.setattr(Polled, "problem", "no leader")
        with pytest.raises(TransientError, match="no leader"):
            check(logs)
    records = check(logs)
    assert records.is_whole
    assert sum(one.count for one in records.classes) == 2010, "no record counts twice"


def test_the_result_of_spark_counts_for_five_times_as_long_as_the_scan_took(
    monkeypatch: pytest.MonkeyPatch, logs: LiveCoordinatorLogs, clock: FakeClock
) -> None:
    group = GroupSummary(name="billing", type="consumer", state="Stable", members=1, partition=0)
    scans: list[float] = []

    def scan_command(*_: object, **__: object) -> object:
        scans.append(clock.monotonic())
        clock.sleep(60)
        return 0, replace(scan_to(3), inventory=GroupInventory(groups=(group,)))

    monkeypatch.setattr("kafka_rollout.coordinator_logs.spark.submit.scan_command", scan_command)
    long = replace(logs, longest=10)
    wholes = []
    for _ in range(29):
        records = check(long)
        assert records.alive_of(["consumer"]) == {"billing"}
        wholes.append(records.is_whole)
        clock.sleep(EVERY_S)
    assert (len(scans), wholes) == (1, [True] + 28 * [False])
    assert check(long, incremental=False).is_whole
    assert len(scans) == 2
    clock.sleep(310)
    assert check(long).is_whole
