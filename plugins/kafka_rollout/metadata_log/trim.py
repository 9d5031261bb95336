"""Trim: remove a metadata log before a snapshot, as Kafka's own deletion does. Plan and leader epochs.

The remaining log begins at the batch that contains the snapshot's end offset (nearly always at this offset). So a
starting node of any release loads the snapshot and then everything after it. After every action Kafka can start from
the log: the cut segment is created next to its source, then the old segments are deleted, oldest first. Undo uses the
reverse order.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.errors import UserError
from kafka_rollout.formats.checkpoint_files import Epochs

_OF_SEGMENT = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)")
_CHECKPOINT = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_KIND_ORDER = ("log", "index", "timeindex", "txnindex", "snapshot", "checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimPlan:
    """The plan of a trim."""

    snapshot: str
    old_start_offset: int
    start_offset: int
    """The first offset afterwards."""
    end_offset: int
    source: str | None
    """The segment to cut at byte `position`; `position` is None if a segment already begins at `start_offset`."""
    position: int
    removed: tuple[str, ...]
    """The files to delete, in this order."""

    @property
    def segment(self) -> str:
        """File name of the log's first segment afterwards."""
        return f"{self.start_offset:020}.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimResult:
    """The result of a trim."""

    plan: TrimPlan | None = None
    """None if there was nothing to do."""
    backup: Path | None = None
    """Directory of the copies."""
    sentence: str


def plan_trim(names: Collection[str], snapshot: str, *, cut: tuple[str, int, int], end_offset: int) -> TrimPlan | None:
    """Return the plan; None if the log already begins at the snapshot. `names`: file names in the folder of the log.

    `cut`: the segment with the snapshot's end offset, the position of the batch with this offset, and the batch's base
    offset. Raises UserError if the snapshot ends in the first batch of the log, because there is nothing before it.
    """
    source, position, start = cut
    segments = sorted(name for name in names if name.endswith(".log") and _OF_SEGMENT.fullmatch(name))
    old_start = int(segments[0].removesuffix(".log"))
    if start == old_start:
        if start == 0:
            raise UserError(
                f"Snapshot {snapshot} ends in the first batch of the log, so there is no log before it to remove.",
                remedy="Wait for a later snapshot.",
            )
        return None
    begins = f"{start:020}.log" == source
    removed = [
        name
        for name in names
        if ((match := _OF_SEGMENT.fullmatch(name)) and int(match[1]) < start)
        or (_CHECKPOINT.fullmatch(name) and name < snapshot)
    ]
    return TrimPlan(
        snapshot=snapshot,
        old_start_offset=old_start,
        start_offset=start,
        end_offset=end_offset,
        source=None if begins else source,
        position=0 if begins else position,
        removed=tuple(sorted(removed, key=_removal_order)),
    )


def _removal_order(name: str) -> tuple[bool, str, int]:
    """Return the sort key: oldest segment first, the .log file of each first, because Kafka removes orphaned indexes
    itself.
    """
    stem, _, kind = name.partition(".")
    return kind == "checkpoint", stem, _KIND_ORDER.index(kind)


def cut_epochs(epochs: Epochs, start_offset: int) -> Epochs:
    """Return the epochs after the trim: the epoch at `start_offset` begins there
    (LeaderEpochFileCache.truncateFromStart).
    """
    before = [epoch for epoch, start in epochs if start <= start_offset]
    after = [(epoch, start) for epoch, start in epochs if start > start_offset]
    return (*((epoch, start_offset) for epoch in before[-1:]), *after)


def joined_epochs(old: Epochs, now: Epochs) -> Epochs:
    """Return the epochs of the backup and the epochs that were added since."""
    known = {epoch for epoch, _ in old}
    return (*old, *((epoch, start) for epoch, start in now if epoch not in known))
