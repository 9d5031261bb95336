"""Folders between two renames of the log cleaner, read by this tool and loaded by Kafka's own UnifiedLog."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from kafka_rollout.base.errors import UserError
from kafka_rollout.coordinator_logs.reading.directories import find_logs
from kafka_rollout.formats.checkpoint_files import START_OFFSETS, parse_epochs
from kafka_rollout.formats.log_files import can_parse_file
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import Jvm, run_jvm
from tests.unit.coordinator_logs.reading.test_directories import OFFSETS, TOPICS, real_batches, write_log

pytestmark = pytest.mark.jvm

LOG = "org.apache.kafka.storage.internals.log"
BOUNDS = (20, 20, 20)  # batches in each segment


@pytest.fixture(scope="module")
def jvm(release_cache: ReleaseCache) -> Iterator[Jvm]:
    with run_jvm(release_cache.libs(Release(4, 3, 1))) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    held = real_batches() * 5
    groups = [held[:20], held[20:40], held[40:60]]
    return write_log(tmp_path / "data" / f"{OFFSETS}-0", groups)[0]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.log*"))


def load(jvm: Jvm, folder: Path, recorded: int = 0) -> tuple[int, int, int]:
    """(start, end, bytes of all segments) of the log that Kafka loads from the folder, which it changes.

    `recorded`: the offset of the log in the broker's log-start-offset-checkpoint.
    """
    packages, static = jvm.packages, jvm.static
    scheduler = static("org.apache.kafka.server.util.KafkaScheduler")(1)
    log = static(f"{LOG}.UnifiedLog").create(
        packages.java.io.File(str(folder)),
        static(f"{LOG}.LogConfig")(packages.java.util.HashMap()),
        recorded,
        0,
        scheduler,
        static("org.apache.kafka.storage.log.metrics.BrokerTopicStats")(),
        static("org.apache.kafka.common.utils.Time").SYSTEM,
        900_000,
        static(f"{LOG}.ProducerStateManagerConfig")(86_400_000, False),
        600_000,
        static(f"{LOG}.LogDirFailureChannel")(1),
        False,
        packages.java.util.Optional.empty(),
    )
    found = log.logStartOffset(), log.logEndOffset(), sum(segment.size() for segment in jvm.iterate(_segments(log)))
    log.close()
    return found


def _segments(log: object) -> object:
    return log.logSegments().iterator()  # type: ignore[attr-defined]


def nothing(folder: Path) -> None:
    """A log without any file of the cleaner."""


def swap_of_the_first(folder: Path) -> None:
    """The old first segment is marked for deletion, and its successor is not renamed yet."""
    first = folder / f"{0:020}.log"
    shutil.copy(first, folder / f"{0:020}.log.deleted")
    data = b"".join(real_batches()[:10])
    first.unlink()
    (folder / f"{0:020}.log.swap").write_bytes(data)


def swap_beside_the_old(folder: Path) -> None:
    """The successor of the first two segments is complete, and they are not marked for deletion yet."""
    first, second, _ = sorted(folder.glob("*.log"))
    (folder / f"{0:020}.log.swap").write_bytes(first.read_bytes() + second.read_bytes())


def swap_of_a_split(folder: Path) -> None:
    """A `.swap` at or after a `.cleaned`: the split did not end."""
    (folder / f"{0:020}.log.cleaned").write_bytes(b"not complete")
    (folder / f"{0:020}.log.swap").write_bytes(real_batches()[0])


def allocated(folder: Path) -> None:
    with sorted(folder.glob("*.log"))[-1].open("ab") as file:
        file.write(bytes(1 << 20))


STATES = (nothing, swap_of_the_first, swap_beside_the_old, swap_of_a_split, allocated)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_the_log_is_the_one_that_kafka_loads(jvm: Jvm, folder: Path, state: Callable[[Path], None]) -> None:
    state(folder)
    before = names(folder)
    found = find_logs([folder.parent], TOPICS)
    ((log, segments),) = found.segments.items()
    assert found.damage == ()
    assert names(folder) == before, "it only reads"
    seen = (log.start, log.end, sum(segment.size for segment in segments))
    assert load(jvm, folder) == seen


NAMES = ("dump.log", "x.index", "x.timeindex", "x.txnindex", "copy.snapshot", "a.log.swap", "b.log.cleaned")


@pytest.mark.parametrize("name", [*NAMES, "dump.txt", "dump.log.bak", "dump.log.deleted", "old.checkpoint"])
def test_the_files_that_kafka_refuses_in_the_folder_of_a_partition_are_known(jvm: Jvm, folder: Path, name: str) -> None:
    (folder / name).touch()
    assert can_parse_file(folder.name, name) is (name not in NAMES)
    with pytest.raises(Py4JJavaError) if name in NAMES else nullcontext():
        load(jvm, folder)


@pytest.mark.parametrize("recorded", [1, 1000], ids=["before the first segment", "in the first segment"])
def test_a_start_offset_that_was_written_before_retention_is_read_as_kafka_reads_it(
    jvm: Jvm, folder: Path, recorded: int
) -> None:
    """Kafka writes the checkpoint once a minute, so retention can have removed segments after it."""
    first, second, *_ = sorted(folder.glob("*.log"))
    first.unlink()
    offset = min(recorded, int(second.stem) + 1)
    (folder.parent / START_OFFSETS).write_text(f"0\n1\n{OFFSETS} 0 {offset}\n")
    found = find_logs([folder.parent], TOPICS)
    ((log, segments),) = found.segments.items()
    assert found.damage == ()
    assert ("can be a minute old" in found.copies[0].why) == (offset < int(second.stem))
    assert load(jvm, folder, offset) == (log.start, log.end, sum(segment.size for segment in segments))


@pytest.mark.parametrize("text", ["0\n2\n1 0\n", "\0" * 30, "0\n1\n", "1\n1\n0 0\n", "0\n1\n1 0\n", "", "0\n"])
def test_a_checkpoint_of_epochs_is_refused_where_kafka_refuses_it(jvm: Jvm, tmp_path: Path, text: str) -> None:
    path = tmp_path / "topic-0" / "leader-epoch-checkpoint"
    path.parent.mkdir()
    path.write_text(text)
    packages = jvm.packages
    checkpoint = jvm.static("org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile")(
        packages.java.io.File(str(path)), jvm.static(f"{LOG}.LogDirFailureChannel")(1)
    )
    try:
        expected = [(one.epoch(), one.startOffset()) for one in jvm.iterate(checkpoint.read().iterator())]
    except Exception:
        with pytest.raises(UserError, match="is damaged"):
            parse_epochs(text, path)
    else:
        assert list(parse_epochs(text, path)) == expected
