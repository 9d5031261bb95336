"""However small the tables, whatever the order and cut of the chunks: the rows merge to the same."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.scan.coordinator_log import RECORDS_PER_BATCH, make_batches
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.formats.coordinator_records import classify
from kafka_rollout.formats.documents.definitions import load_schemas
from kafka_rollout.formats.log_types import Codec
from kafka_rollout.formats.record_batch import batches, payload, records
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout_spark.decode import whole_batches, worker_rows
from kafka_rollout_spark.kernel import compiled, tables
from kafka_rollout_spark.kernel.hashing import hashes, hashes_of_name
from kafka_rollout_spark.kernel.programs import FACTORS, PRIME, DecodingSpec, HashNumbers
from kafka_rollout_spark.merge import newest
from kafka_rollout_spark.merge.newest import reduce_entries
from kafka_rollout_spark.rows import MERGE_BY, LogBytes, RowKind
from kafka_rollout_spark.scan import make_spec
from tests.paths import FIXTURES
from tests.unit.formats.test_record_batch import encode

LOGS = sorted(FIXTURES.glob("coordinator-logs-*/*.fetch"))
OFFSETS = "__consumer_offsets"


def deep(*, live: bool = False, buckets: int = 1) -> DecodingSpec:
    include = Settings.from_environment().include
    catalogue = load_catalogue(include)
    logs = [OFFSETS, "__transaction_state", "__share_group_state"]
    schemas, releases = load_schemas(include), list(catalogue)
    return make_spec(catalogue, schemas, releases, logs, live=live, buckets=buckets)


def log_of(file: Path) -> tuple[str, int]:
    topic, _, partition = file.stem.rpartition("-")
    return topic, int(partition)


def chunks(files: Sequence[Path]) -> Iterator[LogBytes]:
    for number, file in enumerate(files):
        topic, partition = log_of(file)
        data = memoryview(file.read_bytes())
        yield LogBytes(topic=topic, partition=partition + 100 * number, data=data, file=str(file))


def merged(found: Iterator[pa.RecordBatch]) -> Counter[Any]:
    """Counts by what rows are merged by, and `live` in the same way; of states the newest."""
    sums: Counter[Any] = Counter()
    for batch in found:
        for row in batch.to_pylist():
            key = (row["kind"], *(row[name] for name in MERGE_BY))
            if row["kind"] == RowKind.STATE:
                sums[key] = max(sums[key], row["last_offset"])
            elif row["kind"] != RowKind.ENTRIES:
                sums[(*key, "count")] += row["count"] or 0
                sums[(*key, "live")] += row["live"] or 0
    return sums


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {
        "_NAME_SLOTS": 8,
        "NAME_BYTES": 1 << 15,
        "_STATE_SLOTS": 4,
        "STATE_BYTES": 300,
        "_PRODUCER_SLOTS": 4,
    }.items():
        monkeypatch.setattr(tables, name, size)
    for name, size in {"_FIRST_KEY_SLOTS": 128, "_MOST_KEY_SLOTS": 128}.items():
        monkeypatch.setattr(tables, name, size)
    monkeypatch.setattr(newest, "_FIRST_SLOTS", 128)


def test_tables_that_are_full_all_the_time_lose_nothing(request: pytest.FixtureRequest) -> None:
    spec = deep(live=True, buckets=3)
    large = merged(reduce_entries(worker_rows(chunks(LOGS), spec)))
    request.getfixturevalue("small_tables")
    found = list(worker_rows(chunks(LOGS), spec))
    assert sum(batch["kind"][0].as_py() == RowKind.STATE for batch in found if len(batch)) > 60
    assert merged(reduce_entries(iter(found))) == large


def test_more_classes_than_fit_are_counted_in_turns() -> None:
    versions = [(key, value) for key in range(-40, 40) for value in range(-30, 40)]
    content = [(struct.pack(">h", key), struct.pack(">h", value)) for key, value in versions]
    assert len(content) > 2 * tables.MOST_CLASSES
    data = encode(content) + encode(content, base_offset=len(content), codec=Codec.ZSTD)
    for spec in (DecodingSpec(), deep(), DecodingSpec(live=True, buckets=2)):
        found: Counter[Any] = Counter()
        for batch in worker_rows(iter([LogBytes(topic=OFFSETS, partition=0, data=memoryview(data), file="f")]), spec):
            for row in batch.to_pylist():
                if row["kind"] == RowKind.CLASS:
                    found[row["key_version"], row["value_version"]] += row["count"]
        assert found == Counter(dict.fromkeys(versions, 2))


def newest_by_wire(data: bytes) -> Counter[Any]:
    """(key version, value version) of the newest record of each key."""
    newest = {}
    for batch in batches(data):
        held = payload(batch)
        for span in () if batch.is_control else records(batch, held):
            if span.key_length >= 0:
                key = held[span.key_at : span.key_at + span.key_length]
                newest[key] = classify(held, span)
    return Counter(newest.values())


@pytest.mark.parametrize("buckets", [1, 5])
@pytest.mark.parametrize("file", LOGS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_newest_of_each_key_are_found_in_real_logs(file: Path, buckets: int) -> None:
    found: Counter[Any] = Counter()
    for batch in reduce_entries(worker_rows(chunks([file]), DecodingSpec(live=True, buckets=buckets))):
        for row in batch.to_pylist():
            if row["kind"] == RowKind.CLASS:
                found[row["key_version"], row["value_version"]] += row["live"] or 0
    assert +found == newest_by_wire(file.read_bytes())


@pytest.mark.parametrize("small", [False, True])
def test_the_newest_are_found_whatever_the_order_of_the_parts(small: bool, request: pytest.FixtureRequest) -> None:
    if small:
        request.getfixturevalue("small_tables")
    different = 30
    made = make_batches((Codec.NONE, Codec.LZ4), different)
    parts = [b"".join(bytes(next(made)) for _ in range(20)) for _ in range(4)]
    spec = deep(live=True, buckets=4)
    found: list[pa.RecordBatch] = []
    for part in parts:
        chunk = LogBytes(topic=OFFSETS, partition=0, data=memoryview(part), file="f")
        found += worker_rows(iter([chunk]), spec)
    of_entries = sum(len(batch) and batch["kind"][0].as_py() == RowKind.ENTRIES for batch in found)
    assert (of_entries > 200) is small  # a table of 76 keys is emptied all the time
    random.Random(3).shuffle(found)
    sums: Counter[Any] = Counter()
    for batch in reduce_entries(iter(found)):
        for row in batch.to_pylist():
            if row["kind"] == RowKind.CLASS:
                sums[row["key_version"], row["value_version"]] += row["live"] or 0
    per_batch = {(1, 3): RECORDS_PER_BATCH - 2, (1, None): 1, (2, 3): 1}
    assert sums == Counter({versions: count * different for versions, count in per_batch.items()})


def in_sevens(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 7], "little") for at in range(0, len(data), 7)]


@compiled
def hashes_of_key(at: int, size: int, first: int, second: int, hash_numbers: int) -> tuple[Any, Any]:
    return hashes(at, size, first, second, hash_numbers)


def key_hashes(key: bytes, name_hashes: tuple[int, int], hash_numbers: HashNumbers) -> tuple[int, int]:
    data, table = np.frombuffer(key or b"?", dtype=np.uint8), hash_numbers.table()
    one, other = hashes_of_key(data.ctypes.data, len(key), *name_hashes, table.ctypes.data)
    return int(one), int(other)


def test_keys_that_have_one_hash_in_common_are_two() -> None:
    # By the first hash's factors (15 + 0)·(b + 0) + (a + 0)·(0 + 15) tells a and b from a + 1 and b − 1 no more.
    factors = [0] * (2 * FACTORS)
    factors[2 * 3], factors[2 * 3 + 1] = 15, 7
    hash_numbers = HashNumbers(factors=tuple(factors))
    keys = [a.to_bytes(7, "little") + b.to_bytes(7, "little") for a, b in ((700, 900), (701, 899))]
    (first, second), (other_first, other_second) = (key_hashes(key, (1, 1), hash_numbers) for key in keys)
    assert first == other_first
    assert second != other_second
    spec = DecodingSpec(live=True, hash_numbers=hash_numbers)
    chunk = LogBytes(topic=OFFSETS, partition=0, data=memoryview(encode([(key, b"\0\3") for key in keys])), file="f")
    sums = merged(reduce_entries(worker_rows(iter([chunk]), spec)))
    assert sum(count for key, count in sums.items() if key[0] == RowKind.CLASS and key[-1] == "live") == 2


@given(key=st.binary(max_size=300) | st.binary(min_size=205, max_size=230), large=st.booleans())
def test_a_hash_is_what_the_proof_speaks_of(key: bytes, large: bool) -> None:
    """The sum of products, or the polynomial of a name and a long key."""
    hash_numbers = HashNumbers(points=(PRIME - 1,) * 2, factors=(PRIME - 1,) * 2 * FACTORS) if large else HashNumbers()
    name = b"__consumer_offsets-7"
    data, table = np.frombuffer(name, dtype=np.uint8), hash_numbers.table()
    name_hashes = hashes_of_name(data.ctypes.data, len(name), table.ctypes.data)
    found = key_hashes(key, name_hashes, hash_numbers)
    for hashed, of_name, point, factors in zip(
        found, name_hashes, hash_numbers.points, (hash_numbers.factors[::2], hash_numbers.factors[1::2]), strict=True
    ):
        polynomial = 0
        for number in (len(name) + 1, *in_sevens(name)):
            polynomial = (polynomial * point + number) % PRIME
        assert (of_name - 1 - polynomial) % PRIME == 0
        expected = int(of_name)
        if len(key) > 217:
            for number in (len(key) + 1, *in_sevens(key)):
                expected = expected * point + number
        else:
            *others, last = in_sevens(key) or [0]
            numbers = [len(key) + 1, last, *others, 0]
            for at in range(0, len(numbers) - 1, 2):
                expected += (numbers[at] + factors[at]) * (numbers[at + 1] + factors[at + 1])
        assert (hashed - 1 - expected) % PRIME == 0
        assert 0 < hashed < 2**62


@given(key=st.binary(max_size=240), other=st.binary(max_size=240), cut=st.integers(0, 240))
def test_other_keys_and_other_logs_have_other_hashes(key: bytes, other: bytes, cut: int) -> None:
    hash_numbers = HashNumbers()
    pairs = {(name, data) for name in (1, 2) for data in (key, other, key[:cut], key + b"\0", b"\0" + key)}
    hashed = [key_hashes(data, (name, name), hash_numbers) for name, data in pairs]
    assert len(set(hashed)) == len({one for one, _ in hashed}) == len({two for _, two in hashed}) == len(pairs)


def test_owners_of_what_cannot_be_loaded_tell_how_many_are_the_newest() -> None:
    commit = b"\x00\x01\x00\x01%b\x00\x01t\x00\x00\x00\x00"
    keys = [commit % group for group in (b"a", b"b", b"a", b"a")]
    content = [(key, struct.pack(">h", 9) + b"?") for key in keys]
    content += [(commit % b"b", None), (b"\x00\x01\x00\x01a\x00\x01u\x00\x00\x00\x00", struct.pack(">h", 9))]
    chunk = LogBytes(topic=OFFSETS, partition=0, data=memoryview(encode(content)), file="f")
    found = list(reduce_entries(worker_rows(iter([chunk]), deep(live=True))))
    of_owner = [row for batch in found for row in batch.to_pylist() if row["kind"] == RowKind.OWNER]
    names = {row["name_hash"]: row["name"] for row in of_owner if row["name"]}
    counts, lives = Counter[str](), Counter[str]()
    for row in of_owner:
        counts[names[row["name_hash"]]] += row["count"]
        lives[names[row["name_hash"]]] += row["live"] or 0
    assert counts == Counter(a=4, b=1)
    assert lives == Counter(a=2, b=0)


def test_offsets_far_apart_are_no_different() -> None:
    keys = [(b"\x00\x01key%d" % number, b"\x00\x03") for number in range(3)]
    data = b"".join(encode(keys, base_offset=base) for base in (0, 1 << 31, 1 << 33, 1 << 40))
    chunk = LogBytes(topic=OFFSETS, partition=0, data=memoryview(data), file="f")
    sums = merged(reduce_entries(worker_rows(iter([chunk]), DecodingSpec(live=True))))
    (live,) = (count for key, count in sums.items() if key[0] == RowKind.CLASS and key[-1] == "live")
    assert live == len(keys)


def test_sources_cut_their_chunks_at_whole_batches() -> None:
    one, two = encode([(b"k", b"v")]), encode([(b"k", b"v")] * 9, base_offset=1)
    both = memoryview(one + two)
    assert [whole_batches(both[:end]) for end in (0, 11, len(one) - 1, len(one), len(both) - 1, len(both))] == [
        *(0, 0, 0),
        *(len(one), len(one), len(both)),
    ]
    assert whole_batches(memoryview(one + bytes(100))) == len(one)
