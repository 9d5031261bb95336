"""Which groups are looked at record by record; that the replay does what coordinators do is tried on their own code."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_rollout.formats.group_replay import FirstRecords, GroupRecord, GroupReplay, may_be_refused
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import CoordinatorLogFacts, Release
from tests.examples import examples
from tests.paths import INCLUDE

CATALOGUE = load_catalogue(INCLUDE).configured(new_group_coordinator=True)
FACTS: dict[Release, CoordinatorLogFacts] = {
    release: facts
    for release in CATALOGUE
    if (facts := CATALOGUE.get(release).coordinator_logs["__consumer_offsets"]).group_families
}
EMPTY, NOT_SIMPLE, EPOCHS = b"\0\3\0\0", b"\0\3\0\x08consumer", b"\0\0" + bytes(8)
KINDS = st.sampled_from([1, 1, 2, *range(3, 24)])
LOGS = st.lists(
    st.tuples(KINDS, st.sampled_from([None, EMPTY, NOT_SIMPLE])),
    max_size=12,
    unique_by=lambda record: (
        record[0],
        record[0] > 2 and record[1] is None,
    ),  # a classic group's key is not twice there
)


def records_of(log: list[tuple[int, bytes | None]]) -> list[GroupRecord]:
    return [
        GroupRecord(
            offset=offset,
            key_version=kind,
            group=b"g",
            member=b"m",
            value=EPOCHS if value is not None and kind > 2 else value,
        )
        for offset, (kind, value) in enumerate(log)
    ]


@pytest.mark.parametrize("release", FACTS, ids=str)
@given(log=LOGS)
@settings(max_examples=examples(400), deadline=None)
def test_a_group_of_one_member_that_is_refused_is_one_that_is_looked_at(
    release: Release, log: list[tuple[int, bytes | None]]
) -> None:
    firsts, replay = FirstRecords(), GroupReplay(FACTS[release])
    for record in records_of(log):
        replay.add(record)
        if record.key_version > 2:
            firsts.note(record.key_version, record.offset, is_tombstone=record.value is None)
        elif record.key_version == 1 and record.value is not None and firsts.committed is None:
            firsts.committed = record.offset
        elif record.key_version == 2:
            firsts.is_classic = record.value is not None
    if replay.refused:
        assert may_be_refused(FACTS[release].group_roles, firsts)


def test_groups_in_the_order_in_which_they_are_written_are_not_read_again() -> None:
    """But where rules are about members: these are looked at wherever there are some."""
    written = [(5, EPOCHS), (3, EPOCHS), (7, EPOCHS), (6, EPOCHS), (8, EPOCHS), (1, EPOCHS)]
    removed = [(8, None), (7, None), (5, None), (6, None), (3, None)]
    firsts = FirstRecords(committed=5)
    for record in records_of(written + removed):
        if record.key_version > 2:
            firsts.note(record.key_version, record.offset, is_tombstone=record.value is None)
    checked_at = {str(release) for release, facts in FACTS.items() if may_be_refused(facts.group_roles, firsts)}
    assert checked_at == {"3.8.0", "3.8.1", "3.9.0", "3.9.1", "3.9.2"}
