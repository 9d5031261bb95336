"""The short tail of a coordinator log, decoded in this process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from kafka.record import MemoryRecordsBuilder

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.client.fetch import FetchedBytes, Replicas, UnreadReplica
from kafka_rollout.coordinator_logs.contents import GroupInventory, GroupSummary
from kafka_rollout.coordinator_logs.findings import path_findings
from kafka_rollout.coordinator_logs.reading.partitions import facts_of_order, out_of_order
from kafka_rollout.coordinator_logs.remedies import find_remedies
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.cleaning import CleaningConfig
from kafka_rollout.formats.log_types import LogRange, ReplicaRange, UnreadableOffsetError
from kafka_rollout.formats.record_batch import batches
from kafka_rollout.gates.gate import GateCondition
from kafka_rollout.groups.group_records import conversion_conditions
from kafka_rollout.groups.reading import live as coordinator_logs
from kafka_rollout.groups.reading.live import LiveCoordinatorLogs
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from tests.fakes.cluster import make_spec
from tests.integration.harness.logs.planted_logs import (
    GOOD,
    TRANSACTIONAL,
    PlantedLog,
    batch,
    cut,
    deleted_while_pending,
)
from tests.integration.harness.logs.planted_logs import GROUP as GROUP_KEY
from tests.integration.harness.logs.planted_orders import planted_orders
from tools.demo.folder import PROJECT_ROOT

OFFSETS = "__consumer_offsets"
INCLUDE = PROJECT_ROOT / "include"
CATALOGUE = load_catalogue(INCLUDE)
OLD, NEW = Release(3, 4, 1), Release(4, 3, 1)
SETTINGS = Settings(clusters=Path("x"), home=Path("x"), cache=Path("x"), include=INCLUDE)

GROUP = b"\x00\x01g"
COMMIT_KEY = b"\x00\x01" + GROUP + b"\x00\x01t" + bytes(4)
COMMIT = b"\x00\x03" + bytes(8) + b"\xff\xff\xff\xff" + b"\x00\x00" + bytes(8)


class FakeSource:
    """FetchSource of one partition whose records are `held`, one batch."""

    held: tuple[tuple[bytes, bytes | None], ...] = ()

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> FakeSource:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ranges(self, topics: list[str]) -> tuple[LogRange, ...]:
        assert OFFSETS in topics
        return (LogRange(topic=OFFSETS, partition=0, start=0, end=len(self.held)),)

    def replicas(self, topics: list[str]) -> Replicas:
        return Replicas(ranges=tuple(ReplicaRange(**asdict(log), broker=1) for log in self.ranges(topics)))

    def read(self, what: LogRange) -> Iterable[FetchedBytes]:
        if what.start == what.end:
            return []
        builder = MemoryRecordsBuilder(magic=2, compression_type=1, batch_size=1 << 20)
        for key, value in self.held:
            builder.append(timestamp=1, key=key, value=value)
        builder.close()
        data = bytes(builder.buffer())
        return [
            FetchedBytes(topic=what.topic, partition=what.partition, fetch_offset=what.start, end=what.end, data=data)
        ]


def scan_to(end: int) -> ScanResult:
    logs = (LogRange(topic=OFFSETS, partition=0, start=0, end=end),)
    verdicts = evaluate_records(CATALOGUE, (), [OLD, NEW], partitions=[(OFFSETS, 0)])
    return ScanResult(cluster="fake", scanned_at=1.0, logs=logs, classes=(), verdicts=verdicts)


def carried_on(
    monkeypatch: pytest.MonkeyPatch,
    *held: tuple[bytes, bytes | None],
    since: int,
    before: ScanResult | None = None,
    complete: bool = False,
    **kw: Any,
) -> ScanResult:
    monkeypatch.setattr(FakeSource, "held", held)
    monkeypatch.setattr(coordinator_logs, "FetchSource", FakeSource)
    logs = LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS, **kw)
    return logs.scan_new_records(before or scan_to(since), planned=None, complete=complete)


def test_only_what_came_since_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = carried_on(monkeypatch, *[(COMMIT_KEY, COMMIT)] * 5, (COMMIT_KEY, None), since=2)
    assert {(c.key_version, c.value_version): (c.count, c.first_offset) for c in scan.classes} == {
        (1, 3): (3, 2),
        (1, None): (1, 5),
    }
    assert scan.broken == ()
    assert set(scan.standing.values()) == {LoadVerdict.LOADS}
    assert scan.logs[0].end == 6


@pytest.mark.parametrize(
    ("record", "part"),
    [((COMMIT_KEY, COMMIT[:-1]), "value"), ((COMMIT_KEY[:-1], COMMIT), "key"), ((COMMIT_KEY[:-1], None), "key")],
)
def test_a_record_that_does_not_parse_fails_every_release_that_reads_it(
    monkeypatch: pytest.MonkeyPatch, record: tuple[bytes, bytes | None], part: str
) -> None:
    scan = carried_on(monkeypatch, (COMMIT_KEY, COMMIT), record, record, since=1)
    assert {(b.part, b.first_offset, b.count) for b in scan.broken} == {(part, 1, 2)}
    assert {release for broken in scan.broken for release in broken.releases} == {OLD, NEW}
    assert {v.first_failure.offset for v in scan.verdicts if v.first_failure} == {1}


def test_a_record_of_an_unknown_type_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = carried_on(monkeypatch, (b"\x00\x63", b"\x00\x00"), since=0)
    assert (scan.broken, set(scan.standing.values())) == ((), {LoadVerdict.LOADS_IGNORING})


@pytest.mark.parametrize(("since", "short", "complete"), [(0, 2, False), (9, 200, False), (3, 200, True)])
def test_many_new_records_and_a_replaced_or_cleaned_log_are_scanned_completely(
    monkeypatch: pytest.MonkeyPatch, since: int, short: int, complete: bool
) -> None:
    """More than `short` came, the log ends before the scan did, or the cleaner was there. What came while Spark ran is
    read on here."""
    asked: list[tuple[Release, ...]] = []

    def scan_command(*_: Any, releases: tuple[Release, ...], **__: Any) -> tuple[int, ScanResult]:
        asked.append(releases)
        return 0, replace(scan_to(3), scanned_at=2.0)

    monkeypatch.setattr("kafka_rollout.coordinator_logs.spark.submit.scan_command", scan_command)
    scan = carried_on(monkeypatch, *[(COMMIT_KEY, COMMIT)] * 4, since=since, short=short, complete=complete)
    assert asked == [(OLD, NEW)]
    assert [(c.count, c.first_offset) for c in scan.classes] == [(1, 3)]


def test_a_log_that_came_after_a_scan_which_found_none_is_judged_for_every_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = ScanResult(cluster="fake", scanned_at=1.0, logs=(), classes=(), verdicts=())
    scan = carried_on(monkeypatch, (COMMIT_KEY, COMMIT), since=0, before=nothing)
    assert scan.standing == dict.fromkeys(CATALOGUE, LoadVerdict.LOADS)


class Compacted(FakeSource):
    """Most of its offsets are gone."""

    def ranges(self, topics: list[str]) -> tuple[LogRange, ...]:
        return (LogRange(topic=OFFSETS, partition=0, start=0, end=10**9),)

    def cleaning(self, topics: list[str]) -> dict[str, CleaningConfig]:
        return {}


def of_groups(monkeypatch: pytest.MonkeyPatch, *held: tuple[bytes, bytes | None], longest: int) -> LiveCoordinatorLogs:
    monkeypatch.setattr(FakeSource, "held", held)
    monkeypatch.setattr(coordinator_logs, "FetchSource", Compacted)
    return LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS, longest=longest)


def test_how_long_a_log_of_groups_is_counts_by_its_records_and_not_by_its_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = of_groups(monkeypatch, *[(COMMIT_KEY, COMMIT)] * 2, longest=2).group_records(planned=False)
    assert (records.offsets, sum(found.count for found in records.classes)) == (10**9, 2)
    with pytest.raises(RefusedError, match="more than 2 records"):
        of_groups(monkeypatch, *[(COMMIT_KEY, COMMIT)] * 3, longest=2).group_records(planned=False)


def test_what_a_release_does_not_parse_of_a_group_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share group of 4.0's preview: later releases know its type and its version, and read on behind its end."""
    of_preview = (b"\x00\x0b\x00\x01g", b"\x00\x00" + bytes(4) + b"\x00")
    (broken,) = of_groups(monkeypatch, of_preview, longest=2).group_records(planned=False).broken
    assert (broken.key_version, broken.part, broken.first_offset) == (11, "value", 0)
    assert broken.releases == tuple(release for release in CATALOGUE if release >= Release(4, 1, 0))


@pytest.mark.parametrize("left_out", [0, 1])
def test_spark_reads_what_is_too_long_and_says_if_it_does_not_name_all_groups(
    monkeypatch: pytest.MonkeyPatch, left_out: int
) -> None:
    group = GroupSummary(name="billing", type="consumer", state="Stable", members=1, partition=0)
    inventory = GroupInventory(groups=(group,), groups_left_out=left_out)
    scan = replace(scan_to(3), inventory=inventory)
    monkeypatch.setattr("kafka_rollout.coordinator_logs.spark.submit.scan_command", lambda *_, **__: (0, scan))
    logs = of_groups(monkeypatch, (COMMIT_KEY, COMMIT), longest=0)
    if left_out:
        with pytest.raises(RefusedError, match="does not list 1 groups"):
            logs.group_records(planned=False, by_spark=True)
    else:
        assert logs.group_records(planned=False, by_spark=True).alive_of(["consumer"]) == {"billing"}


class Written(FakeSource):
    """Of a log as it lies in a segment."""

    data = b""

    def ranges(self, topics: list[str]) -> tuple[LogRange, ...]:
        return (LogRange(topic=OFFSETS, partition=0, start=0, end=end_of(self.data)),)

    def read(self, what: LogRange) -> Iterable[FetchedBytes]:
        return [FetchedBytes(topic=OFFSETS, partition=0, fetch_offset=what.start, end=what.end, data=self.data)]

    def cleaning(self, topics: list[str]) -> dict[str, CleaningConfig]:
        return {}


def end_of(data: bytes) -> int:
    return max(batch.last_offset for batch in batches(data)) + 1


def scanned_in_two(
    monkeypatch: pytest.MonkeyPatch, logs: LiveCoordinatorLogs, data: bytes, nothing: ScanResult
) -> Iterator[ScanResult]:
    """A scan of the log to each of its offsets, carried on to its end."""
    for since in range(1, end_of(data)):
        monkeypatch.setattr(Written, "data", cut(data, since))
        before = logs.scan_new_records(nothing, planned=None)
        monkeypatch.setattr(Written, "data", data)
        yield logs.scan_new_records(before, planned=None)


@pytest.mark.parametrize("log", list(deleted_while_pending()), ids=lambda log: log.name)
def test_a_group_that_is_deleted_in_an_open_transaction_is_found_wherever_the_scan_ended(
    monkeypatch: pytest.MonkeyPatch, log: PlantedLog
) -> None:
    monkeypatch.setattr(Written, "data", log.data)
    monkeypatch.setattr(coordinator_logs, "FetchSource", Written)
    logs = LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS)
    nothing = ScanResult(cluster="fake", scanned_at=1.0, logs=(), classes=(), verdicts=scan_to(0).verdicts)
    whole = logs.scan_new_records(nothing, planned=None)
    refused = LoadVerdict.FAILS if log.name.startswith("refused") else LoadVerdict.LOADS
    assert whole.standing == {OLD: refused, NEW: LoadVerdict.LOADS}
    for together in scanned_in_two(monkeypatch, logs, log.data, nothing):
        assert together.verdicts == whole.verdicts
        assert together.deleted_while_pending == whole.deleted_while_pending
        assert {found.part for found in together.broken} == {found.part for found in whole.broken}


def test_a_group_that_the_scan_found_alive_is_not_read_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an application that commits its offsets in transactions leaves at the end of every tail."""
    read: list[LogRange] = []

    class Noting(Written):
        data = batch(0, [(0, (GROUP_KEY, None)), (1, GOOD)]) + batch(
            2, [(2, GOOD)], attributes=TRANSACTIONAL, producer=7
        )

        def read(self, what: LogRange) -> Iterable[FetchedBytes]:
            read.append(what)
            return super().read(what)

    monkeypatch.setattr(coordinator_logs, "FetchSource", Noting)
    logs = LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS)
    group = GroupSummary(name="g", type="classic", state="Stable", members=1, partition=0)
    for known, times in ((group, 1), (replace(group, type="consumer"), 2), (replace(group, offsets_only=True), 2)):
        read.clear()
        logs.scan_new_records(replace(scan_to(2), inventory=GroupInventory(groups=(known,))), planned=None)
        assert [what.start for what in read] == [2, 0][:times]


UNKNOWN = (b"\x00\x63", b"\x00\x00")
INTOLERANT = Release(3, 4, 0)


class TwoReplicas(FakeSource):
    """Two replicas with the same end: broker 1 leads, broker 2 follows. Each has what its own cleaner left."""

    of_brokers: dict[int, bytes] = {}  # noqa: RUF012 - each test sets it
    fetched: list[int] = []  # noqa: RUF012
    unread: tuple[UnreadReplica, ...] = ()

    def replicas(self, topics: list[str]) -> Replicas:
        end = end_of(self.of_brokers[1])
        ranges = [
            ReplicaRange(topic=OFFSETS, partition=0, start=0, end=end, copy=copy, broker=broker)
            for copy, broker in enumerate(self.of_brokers)
        ]
        return Replicas(ranges=tuple(ranges), unread=self.unread)

    def read(self, what: LogRange) -> Iterable[FetchedBytes]:
        assert isinstance(what, ReplicaRange)
        self.fetched.append(what.broker)
        data = self.of_brokers[what.broker]
        return [FetchedBytes(topic=OFFSETS, partition=0, fetch_offset=what.start, end=what.end, data=data)]

    def cleaning(self, topics: list[str]) -> dict[str, CleaningConfig]:
        return {}

    def starts_new_group_coordinator(self) -> bool:
        return False


@pytest.fixture
def two_replicas(monkeypatch: pytest.MonkeyPatch) -> LiveCoordinatorLogs:
    cleaned = batch(0, [(0, GOOD), (3, GOOD)])
    monkeypatch.setattr(TwoReplicas, "of_brokers", {1: cleaned, 2: batch(0, [(0, GOOD), (1, UNKNOWN), (3, GOOD)])})
    monkeypatch.setattr(TwoReplicas, "fetched", [])
    monkeypatch.setattr(TwoReplicas, "unread", ())
    monkeypatch.setattr(coordinator_logs, "FetchSource", TwoReplicas)
    return LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS)


def test_a_record_that_only_a_follower_has_stops_a_release(two_replicas: LiveCoordinatorLogs) -> None:
    """The follower becomes the leader in the roll: the worst replica is the verdict, and it is named."""
    scan = two_replicas.scan_small(planned=None)
    (verdict,) = scan.failing(INTOLERANT)
    assert (verdict.place, verdict.first_failure and verdict.first_failure.offset) == (f"{OFFSETS}-0 (broker 2)", 1)
    assert {found.count: found.replicas for found in scan.classes} == {2: (), 1: ("broker 2",)}
    assert (scan.records, scan.sizes[0].records, len(scan.logs)) == (3, 2, 1)
    (blocker,) = [found for found in path_findings(scan, NEW, (INTOLERANT,)) if found.code == "LOGS-NOT-LOADABLE"]
    assert f"{OFFSETS}-0 (broker 2) fails at offset 1" in blocker.sentence
    assert "Check the log cleaner of broker 2: log.cleaner.enable must not be false" in blocker.remedy
    (remedy,) = find_remedies(scan, CATALOGUE, [INTOLERANT])
    assert "Find out why the log cleaner of broker 2 is behind" in [step.title for step in remedy.steps]


def test_the_gate_of_the_groups_waits_for_the_cleaner_of_each_replica(
    monkeypatch: pytest.MonkeyPatch, two_replicas: LiveCoordinatorLogs
) -> None:
    def loads() -> GateCondition:
        records = two_replicas.group_records(planned=False)
        (condition,) = conversion_conditions((), records, (), catalogue=CATALOGUE, releases=[INTOLERANT])
        return condition

    assert not loads().is_met
    assert f"{OFFSETS}-0 (broker 2) at offset 1" in loads().evidence
    assert "Check the log cleaner of broker 2" in loads().evidence
    monkeypatch.setattr(TwoReplicas, "of_brokers", dict.fromkeys((1, 2), TwoReplicas.of_brokers[1]))
    assert loads().is_met
    monkeypatch.setattr(TwoReplicas, "unread", (UnreadReplica(topic=OFFSETS, partition=0, broker=3),))
    assert not loads().is_met
    assert f"{OFFSETS}-0 (broker 3): Broker 3 does not respond" in loads().evidence


def test_followers_are_read_after_a_scan_where_the_leader_has_a_gap(
    monkeypatch: pytest.MonkeyPatch, two_replicas: LiveCoordinatorLogs
) -> None:
    """With each offset the leader has all that a follower can have, so a replica that cannot be read hides nothing."""
    monkeypatch.setattr(TwoReplicas, "unread", (UnreadReplica(topic=OFFSETS, partition=0, broker=3),))
    before = replace(scan_to(3), verdicts=evaluate_records(CATALOGUE, (), [INTOLERANT], partitions=[(OFFSETS, 0)]))
    assert two_replicas.scan_new_records(before, planned=None).standing == {INTOLERANT: LoadVerdict.LOADS}
    assert TwoReplicas.fetched == [1]
    earlier = replace(before, logs=scan_to(1).logs)
    assert two_replicas.scan_new_records(earlier, planned=None).failing(INTOLERANT)[0].replicas == ("broker 2",)
    assert TwoReplicas.fetched == [1, 1, 2]
    monkeypatch.setattr(TwoReplicas, "of_brokers", dict.fromkeys((1, 2), TwoReplicas.of_brokers[1]))
    unknown = two_replicas.scan_new_records(earlier, planned=None)
    assert unknown.standing == {INTOLERANT: LoadVerdict.UNKNOWN}
    (blocker,) = path_findings(unknown, NEW, (INTOLERANT,))
    assert (blocker.code, blocker.sentence.partition(": ")[2]) == (
        "LOGS-UNREADABLE",
        f"1 replica could not be read, first {OFFSETS}-0 (broker 3): Broker 3 does not respond, or the log directory "
        "of the replica is offline.",
    )
    assert blocker.remedy.startswith("Start broker 3")


def test_a_group_that_is_out_of_order_in_one_replica_only_is_found(
    monkeypatch: pytest.MonkeyPatch, two_replicas: LiveCoordinatorLogs
) -> None:
    """The cleaner of the follower kept an old offset and removed the records before it."""
    log = next(log for log in BY_THE_CLEANER if log.name == "a streams group behind an offset")
    leader = batch(0, [(0, GOOD), (end_of(log.data) - 1, GOOD)])
    monkeypatch.setattr(TwoReplicas, "of_brokers", {1: leader, 2: log.data})
    (found,) = two_replicas.scan_small(planned=None).out_of_order
    assert found.replicas == ("broker 2",)
    (of_gate,) = [one for one in two_replicas.group_records(planned=False).broken if one.part == "order"]
    assert of_gate.replicas == ("broker 2",)


def damaged(data: bytes, number: int) -> bytes:
    """The log with another last byte in its batch `number`: a wrong CRC."""
    changed, of_batch = bytearray(data), list(batches(data))[number]
    changed[of_batch.position + of_batch.size - 1] ^= 1
    return bytes(changed)


def three_batches() -> bytes:
    return b"".join(batch(at, [(at, GOOD), (at + 1, GOOD)]) for at in (0, 2, 4))


class CutOff(Written):
    """No batch begins after the first one."""

    def read(self, what: LogRange) -> Iterator[FetchedBytes]:
        first = next(batches(self.data))
        yield FetchedBytes(topic=OFFSETS, partition=0, fetch_offset=what.start, end=2, data=first.data)
        raise UnreadableOffsetError("No complete record batch begins at offset 2.", offset=2)


@pytest.mark.parametrize(
    ("kind", "data", "unread"),
    [
        (Written, damaged(three_batches(), 1), range(2, 4)),
        (Written, three_batches()[:-30] + bytes(30), range(4, 6)),
        (CutOff, three_batches(), range(2, 6)),
    ],
    ids=["wrong CRC", "zeros at the end", "no batch"],
)
def test_a_tail_that_cannot_be_read_completely_is_unknown_with_the_amount_that_was_not_read(
    monkeypatch: pytest.MonkeyPatch, kind: type[Written], data: bytes, unread: range
) -> None:
    monkeypatch.setattr(Written, "data", data)
    monkeypatch.setattr(coordinator_logs, "FetchSource", kind)
    logs = LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS)
    scan = logs.scan_new_records(scan_to(0), planned=None)
    assert [(found.position, found.offsets, found.file) for found in scan.damage] == [(unread[0], len(unread), "")]
    assert scan.standing == {OLD: LoadVerdict.UNKNOWN, NEW: LoadVerdict.UNKNOWN}
    assert scan.records == 6 - len(unread)
    (finding,) = path_findings(scan, OLD, [NEW])
    assert finding.code == "LOGS-UNREADABLE"
    first = f"first {OFFSETS}-0 (broker 1) at offset {unread[0]}: "
    assert f"{len(unread)} of 6 offsets could not be read, {first}" in finding.sentence


def test_the_gate_of_the_groups_does_not_pass_on_a_log_that_it_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def conditions(data: bytes) -> list[tuple[bool, str]]:
        monkeypatch.setattr(Written, "data", data)
        records = logs.group_records(planned=False)
        found = conversion_conditions((), records, {"consumer"}, catalogue=CATALOGUE, releases=[OLD])
        return [(condition.is_met, condition.evidence) for condition in found]

    monkeypatch.setattr(coordinator_logs, "FetchSource", Written)
    logs = LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS)
    assert [holds for holds, _ in conditions(three_batches())] == [True, True, True]
    _, tombstones, loads = conditions(damaged(three_batches(), 1))
    assert (tombstones[0], loads[0]) == (False, False)
    assert (
        f"unknown for 1 partition, which could not be read completely, first {OFFSETS}-0 (broker 1) at offset 2"
        in loads[1]
    )
    assert loads[1] in tombstones[1]


BY_THE_CLEANER = [log for log in planted_orders() if "streams" in log.name or "share" in log.name]


@pytest.mark.parametrize("log", BY_THE_CLEANER, ids=lambda log: log.name)
def test_an_order_that_the_cleaner_can_leave_is_found_wherever_the_scan_ended(
    monkeypatch: pytest.MonkeyPatch, log: PlantedLog
) -> None:
    monkeypatch.setattr(Written, "data", log.data)
    monkeypatch.setattr(coordinator_logs, "FetchSource", Written)
    logs = LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS)
    releases = [OLD, Release(4, 1, 1), NEW]
    asked = evaluate_records(CATALOGUE, (), releases, partitions=[(OFFSETS, 0)])
    nothing = ScanResult(cluster="fake", scanned_at=1.0, logs=(), classes=(), verdicts=asked)
    whole = logs.scan_new_records(nothing, planned=None)
    group = f"order-{list(planted_orders()).index(log):02}".encode()
    facts = facts_of_order(CATALOGUE, releases)
    assert whole.out_of_order == out_of_order(0, {group}, [(log.data, 0, end_of(log.data))], facts)
    for together in scanned_in_two(monkeypatch, logs, log.data, nothing):
        assert together.verdicts == whole.verdicts
        assert together.out_of_order == whole.out_of_order
    records = logs.group_records(planned=False)
    (of_4_1,) = conversion_conditions((), records, (), catalogue=CATALOGUE, releases=[Release(4, 1, 1)])[:1]
    stopped = {release for found in whole.out_of_order for release in found.releases}
    assert of_4_1.is_met is (Release(4, 1, 1) not in stopped)
    if not of_4_1.is_met:
        assert "contradicts an earlier record" in of_4_1.evidence
        assert "delete the groups with incompatible record order, then: " in of_4_1.evidence


@pytest.mark.parametrize("log", list(deleted_while_pending()), ids=lambda log: log.name)
def test_the_gate_of_the_groups_finds_it_too(monkeypatch: pytest.MonkeyPatch, log: PlantedLog) -> None:
    monkeypatch.setattr(Written, "data", log.data)
    monkeypatch.setattr(coordinator_logs, "FetchSource", Written)
    records = LiveCoordinatorLogs(cluster=make_spec(), catalogue=CATALOGUE, settings=SETTINGS).group_records(
        planned=False
    )
    old, new = (
        conversion_conditions((), records, (), catalogue=CATALOGUE, releases=[release])[0] for release in (OLD, NEW)
    )
    assert (old.is_met, new.is_met) == (not log.name.startswith("refused"), True)
    if not old.is_met:
        assert re.search(r"Unexpected unload of active group deleted-p\d+ while loading partition \w+-0", old.evidence)
        assert "end the transactions that commit offsets for such groups" in old.evidence
