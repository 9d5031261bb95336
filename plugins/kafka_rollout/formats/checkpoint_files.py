"""Checkpoint files of Kafka: version, number of entries, one entry in each line.

Read as strictly as org.apache.kafka.server.common.CheckpointFile (kafka.server.checkpoints.CheckpointFile before 3.5):
a broker stops with an error at any other text. An empty file, and one with the version alone, have no entries.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.outside_text import MOST_INT32, parse_number

LEADER_EPOCHS = "leader-epoch-checkpoint"
Epochs = Sequence[tuple[int, int]]
"""(leader epoch, its start offset), ascending: the content of the file (LeaderEpochCheckpointFile)."""
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS, RECOVERY_POINTS = "replication-offset-checkpoint", "recovery-point-offset-checkpoint"
_VERSION = "0"  # of all these files
_SHOWN = 40
_SPACES = re.compile(r"[ \t\x0b\f]+")


def parse_epochs(text: str, file: object = LEADER_EPOCHS) -> Epochs:
    """Read leader-epoch-checkpoint. Raises UserError, which names `file`, for a text that Kafka refuses."""
    found = []
    for line, words in _entries(text, file):
        epoch, start = (parse_number(words[0], MOST_INT32), parse_number(words[1])) if len(words) == 2 else (None, None)
        if epoch is None or start is None:
            raise _damaged(file, f"{line[:_SHOWN]!r} is not an epoch and its start offset")
        found.append((epoch, start))
    return tuple(found)


def write_epochs(epochs: Epochs) -> str:
    return f"{_VERSION}\n{len(epochs)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in epochs)


def parse_offsets(text: str, file: object = START_OFFSETS) -> dict[tuple[str, int], int]:
    """Read a file of offsets, such as log-start-offset-checkpoint: (topic, partition) → offset. Raises UserError as
    `parse_epochs` does."""
    found = {}
    for line, words in _entries(text, file):
        partition, offset = (
            (parse_number(words[1], MOST_INT32), parse_number(words[2])) if len(words) == 3 else (None, None)
        )
        if partition is None or offset is None:
            raise _damaged(file, f"{line[:_SHOWN]!r} is not a topic, a partition and an offset that Kafka writes there")
        found[words[0], partition] = offset
    return found


def _entries(text: str, file: object) -> Iterator[tuple[str, list[str]]]:
    """Yield each line of an entry with its words."""
    lines = [line.rstrip("\n") for line in io.StringIO(text, newline=None)]  # lines as Java's BufferedReader has them
    if lines and lines[0] != _VERSION:
        raise _damaged(file, f"its version is {lines[0][:_SHOWN]!r}, not {_VERSION}")
    if len(lines) < 2:
        return
    count, entries = parse_number(lines[1], MOST_INT32), lines[2:]
    if count is None:
        raise _damaged(file, f"{lines[1][:_SHOWN]!r} is not the number of its entries")
    if count != len(entries):
        raise _damaged(file, f"it should have {count} entries, and has {len(entries)}")
    for line in entries:
        yield line, _SPACES.split(line.rstrip(" \t\x0b\f"))


def _damaged(file: object, why: str) -> UserError:
    return UserError(
        f"{file} is damaged: {why}. A node of Kafka stops at it.",
        remedy="Copy the log again, or use the log of another node.",
    )
