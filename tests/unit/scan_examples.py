"""Scans for the tests of what shows them: a small one, and one with all that can be in a scan."""

from __future__ import annotations

import random

from kafka_rollout.coordinator_logs.contents import (
    GroupCount,
    GroupInventory,
    GroupSummary,
    TransactionalIdSummary,
)
from kafka_rollout.coordinator_logs.scan import (
    BrokenRecords,
    Damage,
    LogCopy,
    LogSize,
    OwnerRecords,
    ScanResult,
    TaggedFields,
)
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.releases.facts import Catalogue, Release

OFFSETS, TRANSACTIONS, SHARE_STATE = "__consumer_offsets", "__transaction_state", "__share_group_state"
HOSTILE = "\"><script>alert('x')</script>\u202ereversed"
GROUPS = 1_000
PARTITIONS = 50


def records(
    topic: str, partition: int, key: int, value: int | None, count: int, *, live: int | None, first: int = 10
) -> RecordKind:
    return RecordKind(
        topic=topic,
        partition=partition,
        key_version=key,
        value_version=value,
        count=count,
        first_offset=first,
        live=live,
    )


def size(topic: str, partition: int, number: int) -> LogSize:
    return LogSize(
        topic=topic,
        partition=partition,
        records=number,
        batches=number // 3,
        control_batches=0,
        log_bytes=number * 120,
        first_timestamp=1_700_000_000_000,
        last_timestamp=1_700_086_400_000,
    )


def small_scan(catalogue: Catalogue, *, at: float, consumer_groups: bool = True) -> ScanResult:
    """One partition, one classic group; with `consumer_groups` also a live one of the newer protocol."""
    classes = [records(OFFSETS, 0, 1, 3, 40, live=4, first=0)]
    if consumer_groups:
        classes.append(records(OFFSETS, 0, 3, 0, 5, live=1))
    group = GroupSummary(name="billing", type="classic", state="Stable", members=2, partition=0)
    logs = (LogRange(topic=OFFSETS, partition=0, start=0, end=50),)
    return ScanResult(
        cluster="orders",
        scanned_at=at,
        logs=logs,
        classes=tuple(classes),
        verdicts=evaluate_records(catalogue, classes, list(catalogue), partitions=[(OFFSETS, 0)]),
        sizes=(size(OFFSETS, 0, sum(found.count for found in classes)),),
        inventory=GroupInventory(
            groups=(group,), group_counts=(GroupCount(type="classic", state="Stable", groups=1, members=2),)
        ),
    )


def large_scan(catalogue: Catalogue, *, at: float = 1_763_697_600.0) -> ScanResult:
    """Fifty partitions, a thousand groups of all types, hostile and long names, broken records, damage, copies."""
    dice = random.Random(7)
    classes: list[RecordKind] = []
    for partition in range(PARTITIONS):
        if partition % 9 == 4:
            continue
        scale = dice.randint(1, 60)
        for key, value in (
            (1, 3),
            (1, 4),
            (1, None),
            (2, 3),
            (3, 0),
            (3, None),
            (5, 0),
            (7, 0),
            (8, 0),
            (11, 0),
            (17, 0),
        ):
            number = dice.randint(1, 90) * scale
            classes.append(records(OFFSETS, partition, key, value, number, live=number // (1 + partition % 5)))
    classes += [records(TRANSACTIONS, n, 0, n % 2, 300 + 40 * n, live=20) for n in range(10)]
    classes += [records(SHARE_STATE, n, n % 2, 0, 50 + 9 * n, live=10) for n in range(6)]
    classes.append(records(OFFSETS, 0, 99, 0, 3, live=1))
    broken = (
        BrokenRecords(
            topic=OFFSETS,
            partition=3,
            key_version=1,
            value_version=3,
            part="value",
            releases=tuple(catalogue),
            count=2,
            first_offset=77,
            reason="it ends within field metadata",
            live=1,
        ),
    )
    places = [(OFFSETS, n) for n in range(PARTITIONS)]
    places += [(TRANSACTIONS, n) for n in range(PARTITIONS)] + [(SHARE_STATE, n) for n in range(PARTITIONS)]
    totals = {place: sum(c.count for c in classes if (c.topic, c.partition) == place) for place in places}
    newest = max(catalogue)
    return ScanResult(
        cluster="orders",
        scanned_at=at,
        logs=tuple(LogRange(topic=topic, partition=n, start=0, end=totals[topic, n]) for topic, n in places),
        classes=tuple(classes),
        verdicts=evaluate_records(catalogue, classes, list(catalogue), broken=broken, partitions=places),
        sizes=tuple(size(topic, n, totals[topic, n]) for topic, n in places),
        broken=broken,
        tagged=(
            tag("topicId", 0, known_by=(newest,), key=1, value=4),
            tag(None, 9, known_by=(), key=3, value=0),
        ),
        owners=(*(owner(group, 3, 0) for group in names()[:60]), owner("billing", 1, 4)),
        owners_left_out=940,
        copies=tuple(copy(n, chosen=n % 2 == 0) for n in range(4)),
        damage=(
            Damage(
                topic=OFFSETS,
                partition=5,
                file="/copies/broker-2/__consumer_offsets-5/00000000000000000000.log",
                position=1_048_576,
                log_bytes=4_096,
                sentence="A batch of 512 bytes at offset 8123: the CRC does not match.",
            ),
        ),
        inventory=inventory(),
    )


def names() -> list[str]:
    return [HOSTILE, "long-" + "x" * 240, *(f"group-{number:04}" for number in range(1, GROUPS - 1))]


def inventory() -> GroupInventory:
    kinds = ("consumer", "classic", "share", "streams")
    groups = tuple(
        GroupSummary(
            name=name,
            type=kinds[number % 4],
            state="Stable" if number % 3 else "Empty",
            members=(GROUPS - number) // 40 if number % 3 else 0,
            partition=number % PARTITIONS,
            protocol="consumer",
            assignor="cooperative-sticky" if number % 4 == 1 else None,
            classic_members=1 if number % 12 == 6 else 0,
        )
        for number, name in enumerate(names())
    )
    ids = tuple(
        TransactionalIdSummary(
            name=f"payments-{number}", state="Ongoing", partition=number % 10, partitions=number % 4, updated_at=10**12
        )
        for number in range(30)
    )
    return GroupInventory(
        groups=groups,
        transactional_ids=ids,
        group_counts=(
            GroupCount(type="classic", state="Stable", groups=250, members=1200),
            GroupCount(type="consumer", state="Empty", groups=80, members=0),
            GroupCount(type="consumer", state="Stable", groups=170, members=900),
        ),
        transactional_id_counts={"Ongoing": 30},
        commits={f"topic-{number}": 1000 - number for number in range(40)},
    )


def tag(name: str | None, number: int, *, known_by: tuple[Release, ...], key: int, value: int) -> TaggedFields:
    return TaggedFields(
        topic=OFFSETS,
        partition=0,
        key_version=key,
        value_version=value,
        path="",
        tag=number,
        count=12,
        first_offset=4,
        name=name,
        known_by=known_by,
    )


def owner(name: str, key: int, value: int | None) -> OwnerRecords:
    return OwnerRecords(
        topic=OFFSETS,
        partition=0,
        owner="group",
        name=name,
        key_version=key,
        value_version=value,
        count=4,
        first_offset=10,
        live=2,
    )


def copy(number: int, *, chosen: bool) -> LogCopy:
    return LogCopy(
        topic=OFFSETS,
        partition=number // 2,
        directory=f"/copies/broker-{number % 2 + 1}/__consumer_offsets-{number // 2}",
        start=0,
        end=900 - number,
        log_bytes=120_000,
        chosen=chosen,
        why="It is the longest." if chosen else "Another is longer.",
    )
