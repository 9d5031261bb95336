"""The file leader-epoch-checkpoint of a log (LeaderEpochCheckpointFile): version, number of entries, entries."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.outside_text import MOST_INT32, parse_number

LEADER_EPOCHS = "leader-epoch-checkpoint"
Epochs = Sequence[tuple[int, int]]
"""(leader epoch, its start offset), ascending: the content of the file."""


def parse_epochs(text: str, file: object = LEADER_EPOCHS) -> Epochs:
    """Raises UserError, which names `file`, for text that is not a checkpoint of leader epochs."""
    found = []
    for line in text.splitlines()[2:]:
        words = line.split()
        epoch, start = (parse_number(words[0], MOST_INT32), parse_number(words[1])) if len(words) == 2 else (None, None)
        if epoch is None or start is None:
            raise UserError(
                f"{file} is damaged: {line[:40]!r} is not an epoch and its start offset.",
                remedy="Copy the log again, or use the log of another node.",
            )
        found.append((epoch, start))
    return tuple(found)


def write_epochs(epochs: Epochs) -> str:
    return f"0\n{len(epochs)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in epochs)
