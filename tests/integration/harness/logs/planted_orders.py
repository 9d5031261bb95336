"""Logs in which it matters what lies before a group's record, as the cleaner can leave them, and some as it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.integration.harness.logs.planted_logs import (
    BEHIND,
    COMMITTED,
    EMPTY_GROUP,
    TRANSACTIONAL,
    PlantedLog,
    Record,
    batch,
    key,
    log_of,
    value,
)
from tools.coordinator_traffic import CONSUMER_OFFSETS

_LOG = CONSUMER_OFFSETS
_TYPES: Mapping[str, int] = {
    "consumer group": 3,
    "its member": 5,
    "its assignment epoch": 6,
    "its target": 7,
    "its assignment": 8,
    "share group": 11,
    "share member": 10,
    "share assignment": 14,
    "streams group": 17,
    "streams member": 19,
    "streams assignment": 22,
}
_OF_MEMBERS = frozenset({5, 7, 8, 10, 14, 19, 22})
_ORDERS: Mapping[str, Sequence[str]] = {
    "a streams group behind an offset": ("offset", "streams group"),
    "a streams group's tombstone behind an offset": ("offset", "no streams group"),
    "a streams group behind an offset that was removed": ("offset", "no offset", "streams group"),
    "a streams group behind an offset of a transaction": ("pending offset", "streams group"),
    "a streams group before its offset": ("streams group", "offset", "streams member"),
    "a streams group behind a deleted classic one": ("offset", "classic group", "no classic group", "streams group"),
    "a streams member behind its assignment": ("streams group", "streams assignment", "streams member"),
    "a share group behind an offset": ("offset", "share member", "share group"),
    "a share group": ("share member", "share group", "share assignment"),
    "a share assignment without its group": ("share assignment", "share member"),
    "a consumer group behind an offset": ("offset", "its member", "consumer group"),
    "a consumer group behind a classic one": ("classic group", "its member"),
    "a consumer group behind a deleted classic one": ("classic group", "no classic group", "its member"),
    "a consumer group before a streams group": ("consumer group", "streams group"),
    "a consumer group's tombstone": ("no consumer group",),
    "a consumer group's tombstone behind an offset": ("offset", "no consumer group"),
    "a consumer group that goes": (
        *("its member", "consumer group", "its assignment epoch", "its target", "its assignment"),
        *("no its assignment", "no its target", "no its member", "no its assignment epoch", "no consumer group"),
    ),
    "a member that goes before its assignment": ("its member", "its assignment", "no its member"),
    "a member that goes before its target": ("its member", "its target", "no its assignment", "no its member"),
    "an assignment that goes before its targets": ("its member", "its target", "no its assignment epoch"),
    "a group that goes before its member": ("its member", "no its assignment epoch", "no consumer group"),
    "an assignment before its member": ("consumer group", "its assignment", "its member"),
    # KAFKA-21117 and apache/kafka 23220: an upgrade to the consumer protocol and back, while the cleaner runs. It has
    # removed the classic group's tombstone, or the consumer group's records before their tombstones.
    "a consumer group that became classic again, without the tombstone of its upgrade": (
        *("classic group", "its member", "consumer group", "its assignment epoch", "its target", "its assignment"),
        *("no its assignment", "no its target", "no its member", "no its assignment epoch", "no consumer group"),
        "classic group",
    ),
    "tombstones of a consumer group behind the classic group that it became": (
        *("classic group", "no its assignment", "no its target", "no its member"),
        *("no its assignment epoch", "no consumer group"),
    ),
    "a member that goes without its assignment's tombstone": (
        "its member",
        "no its target",
        "no its member",
    ),
}


def planted_orders() -> Iterator[PlantedLog]:
    for number, (name, written) in enumerate(_ORDERS.items()):
        group = f"order-{number:02}"
        commit = key(_LOG, 1, group=group, topic="t", partition=0)
        classic = key(_LOG, 2, group=group)
        held: dict[str, Record] = {
            "offset": (commit, COMMITTED),
            "no offset": (commit, None),
            "classic group": (classic, value(_LOG, 2, 3, **EMPTY_GROUP)),
            "no classic group": (classic, None),
        }
        for what, version in _TYPES.items():
            member = {"memberId": "m"} if version in _OF_MEMBERS else {}
            of_group = key(_LOG, version, groupId=group, **member)
            tasks = {"activeTasks": [{"subtopologyId": "s", "partitions": [0]}]} if version == 22 else {}
            held[what], held[f"no {what}"] = (of_group, value(_LOG, version, 0, **tasks)), (of_group, None)
        if written[0] == "pending offset":
            pending = batch(0, [(0, held["offset"])], attributes=TRANSACTIONAL, producer=7)
            data = pending + batch(1, list(enumerate([*(held[what] for what in written[1:]), BEHIND], 1)))
        else:
            data = log_of(*(held[what] for what in written), BEHIND)
        yield PlantedLog(name=name, topic=_LOG, data=data)
