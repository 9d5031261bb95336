"""Which groups 3.x fails at, beside its own code, written down once more."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_rollout.formats.coordinator_records import KindCounts
from kafka_rollout.formats.group_replay import PendingCommits
from kafka_rollout.formats.log_types import Codec
from tests.unit.formats.test_record_batch import encode

END = 2**62
ALL = frozenset({b"g", b"h"})

# Producer (None: no transaction), and a record ("offset" or "group", the group, partition, whether it has a value), a
# marker's kind, or a control batch that the cleaner emptied.
Written = tuple[int | None, tuple[str, str, int, bool] | str]

some_records = st.tuples(
    st.sampled_from(["offset", "offset", "group"]), st.sampled_from(["g", "h"]), st.integers(0, 1), st.booleans()
)
some_logs = st.lists(
    st.one_of(
        st.tuples(st.none() | st.integers(0, 2), some_records),
        st.tuples(st.integers(0, 2), st.sampled_from(["commit", "abort", "emptied"])),
    ),
    max_size=14,
)
PENDING: Written = (1, ("offset", "g", 0, True))
DELETED: Written = (None, ("group", "g", 0, False))
OTHER: Written = (None, ("offset", "g", 1, True))
OTHER_REMOVED: Written = (None, ("offset", "g", 1, False))


def bytes_of(written: Sequence[Written], *, codec: Codec = Codec.NONE) -> bytes:
    data = b""
    for offset, (producer, what) in enumerate(written):
        if isinstance(what, str):
            held: list[tuple[bytes | None, bytes | None]] = [(struct.pack(">hh", 0, what == "commit"), bytes(6))]
        else:
            kind, group, partition, has_value = what
            key = struct.pack(">hh", 2 if kind == "group" else partition, len(group)) + group.encode()
            if kind == "offset":
                key += struct.pack(">h1si", 1, b"t", partition)
            held = [(key, b"\0\3" if has_value else None)]
        if what == "emptied":
            held = []
        one_codec = Codec.NONE if isinstance(what, str) else codec
        data += encode(
            held,
            base_offset=offset,
            control=isinstance(what, str),
            transactional=producer is not None,
            producer_id=-1 if producer is None else producer,
            codec=one_codec,
        )
    return data


def refused_by_the_release(written: Sequence[Written]) -> set[bytes]:
    """GroupMetadataManager.doLoadGroupsAndOffsets, 3.4.0, by the names that it has there."""
    loaded_offsets: set[tuple[str, int]] = set()
    pending_offsets: dict[int, set[tuple[str, int]]] = {}
    loaded_groups: set[str] = set()
    removed_groups: set[str] = set()
    for producer, what in written:
        if isinstance(what, str):
            assert producer is not None
            if what != "emptied":
                if what == "commit":
                    loaded_offsets |= pending_offsets.get(producer, set())
                pending_offsets.pop(producer, None)
            continue
        kind, group, partition, has_value = what
        if kind == "offset":
            held = loaded_offsets if producer is None else pending_offsets.setdefault(producer, set())
            held.add((group, partition)) if has_value else held.discard((group, partition))
        elif has_value:
            removed_groups.discard(group)
            loaded_groups.add(group)
        else:
            loaded_groups.discard(group)
            removed_groups.add(group)
    empty_group_offsets = {group for group, _ in loaded_offsets} - loaded_groups
    pending_empty = {group for offsets in pending_offsets.values() for group, _ in offsets} - loaded_groups
    cache = loaded_groups | empty_group_offsets | pending_empty
    return {group.encode() for group in removed_groups if group in cache and group not in empty_group_offsets}


def commits_of(data: bytes, groups: frozenset[bytes] | None, start: int = 0) -> PendingCommits:
    commits = PendingCommits(groups=groups)
    commits.add(data, start=start, end=END)
    return commits


@given(some_logs)
@example([DELETED, PENDING])
@example([PENDING, DELETED, (1, "emptied")])
@example([OTHER, PENDING, DELETED])
@example([OTHER, PENDING, DELETED, OTHER_REMOVED])
def test_groups_are_refused_as_the_release_refuses_them_and_since_when(written: list[Written]) -> None:
    refused = commits_of(bytes_of(written), ALL).refused()
    assert refused.keys() == refused_by_the_release(written)
    for group, (offset, _) in refused.items():
        assert group not in refused_by_the_release(written[:offset])
        assert all(group in refused_by_the_release(written[:end]) for end in range(offset + 1, len(written) + 1))


@given(some_logs)
def test_whatever_is_refused_is_a_suspect(written: list[Written]) -> None:
    assert refused_by_the_release(written) <= commits_of(bytes_of(written, codec=Codec.LZ4), None).suspects()


@pytest.mark.parametrize("cut", range(1, 4))
def test_the_last_that_makes_it_so_leaves_a_doubt(cut: int) -> None:
    """A tail of any length, the removal of the group's only other offset alone included."""
    tail = commits_of(bytes_of([OTHER, PENDING, DELETED, OTHER_REMOVED]), None, start=cut)
    assert tail.doubtful(frozenset()) == {b"g"}
    assert (b"g" in tail.doubtful({b"g"})) is (cut < 3)


@given(some_logs, st.data())
def test_whatever_a_tail_does_to_a_group_makes_it_doubtful(written: list[Written], data: st.DataObject) -> None:
    """A group that was not refused before and is now, was touched by the tail; one that was alive is doubtful only if
    the tail deletes it."""
    cut = data.draw(st.integers(0, len(written)))
    tail = commits_of(bytes_of(written), None, start=cut)
    alive = {
        what[1].encode()
        for number, (_, what) in enumerate(written[:cut])
        if not isinstance(what, str)
        and what[0] == "group"
        and what[3]
        and not _deleted_later(written[number:cut], what)
    }
    new = refused_by_the_release(written) - refused_by_the_release(written[:cut])
    assert new <= tail.doubtful(alive)


def _deleted_later(written: Sequence[Written], what: tuple[str, str, int, bool]) -> bool:
    return any(not isinstance(later, str) and later[:2] == ("group", what[1]) and not later[3] for _, later in written)


@given(some_logs, st.sampled_from([None, ALL]))
def test_it_is_the_same_beside_the_counting_of_classes(written: list[Written], groups: frozenset[bytes] | None) -> None:
    data, beside = bytes_of(written), PendingCommits(groups=groups)
    KindCounts().add(data, start=0, end=END, on_record=beside.add_record, on_batch=beside.begin)
    alone = commits_of(data, groups)
    assert (beside.suspects(), beside.refused()) == (alone.suspects(), alone.refused())


def test_the_producers_that_are_waited_for_are_named() -> None:
    written: list[Written] = [DELETED, PENDING, (2, PENDING[1]), (0, PENDING[1]), (0, "abort")]
    assert commits_of(bytes_of(written), ALL).refused() == {b"g": (1, (1, 2))}


def test_what_cannot_be_read_is_passed_over() -> None:
    data = bytearray(bytes_of([DELETED, PENDING, (2, PENDING[1])]))
    data[len(bytes_of([DELETED])) + 40] ^= 1  # in the second batch's header
    assert commits_of(bytes(data) + b"no batch begins here", ALL).refused() == {b"g": (2, (2,))}
