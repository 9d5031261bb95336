"""Trim: cut a metadata log's prefix below a snapshot, as Kafka's own cleaning would leave it. The plan, and the epochs.

What is left begins at the batch that holds the snapshot's end offset (nearly always the offset itself), so that a
starting node of any release loads the snapshot and then everything after it. Whatever is done happens in an order in
which every state on the way is a log that Kafka can start from: the cut segment appears beside the one that it was cut
from, then the old segments go from the oldest on. Undoing goes the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka_rollout.domain.model.errors import UserError

LEADER_EPOCHS = "leader-epoch-checkpoint"
_OF_SEGMENT = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)")
_CHECKPOINT = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_KIND_ORDER = ("log", "index", "timeindex", "txnindex", "snapshot", "checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimPlan:
    """`start_offset`: where the log begins afterwards. `source` is cut at byte `position`, None where a segment begins
    at `start_offset` already. `removed`: names of the files that go, in the order in which they go.
    """

    snapshot: str
    old_start_offset: int
    start_offset: int
    end_offset: int
    source: str | None
    position: int
    removed: tuple[str, ...]

    @property
    def segment(self) -> str:
        """The log's first segment afterwards."""
        return f"{self.start_offset:020}.log"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrimPlan:
        return cls(**{**data, "removed": tuple(data["removed"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimResult:
    """`plan` is None where there was nothing to do; `backup`: where the copies are."""

    plan: TrimPlan | None
    backup: Path | None
    sentence: str


def plan_trim(names: Collection[str], snapshot: str, *, cut: tuple[str, int, int], end_offset: int) -> TrimPlan | None:
    """None where the log begins at the snapshot already. `names`: of the files in the log's folder; `cut`: the segment
    with the snapshot's end offset, the position of the batch that holds it, and that batch's base offset.

    Raises UserError where the snapshot ends in the log's first batch, below which there is nothing to cut.
    """
    source, position, start = cut
    segments = sorted(name for name in names if name.endswith(".log") and _OF_SEGMENT.fullmatch(name))
    old_start = int(segments[0].removesuffix(".log"))
    if start == old_start:
        if start == 0:
            raise UserError(
                f"The snapshot {snapshot} ends in the first batch of the log: there is nothing to cut below it.",
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
    """The oldest segment first, of each its log first: indexes without a log are removed by Kafka itself."""
    stem, _, kind = name.partition(".")
    return kind == "checkpoint", stem, _KIND_ORDER.index(kind)


Epochs = Sequence[tuple[int, int]]
"""(leader epoch, its start offset), ascending: what leader-epoch-checkpoint holds."""


def parse_epochs(text: str) -> Epochs:
    return tuple((int(epoch), int(start)) for epoch, start in (line.split() for line in text.splitlines()[2:]))


def write_epochs(epochs: Epochs) -> str:
    return f"0\n{len(epochs)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in epochs)


def cut_epochs(epochs: Epochs, start_offset: int) -> Epochs:
    """LeaderEpochFileCache.truncateFromStart: the epoch that the log now begins in begins with it."""
    before = [epoch for epoch, start in epochs if start <= start_offset]
    after = [(epoch, start) for epoch, start in epochs if start > start_offset]
    return (*((epoch, start_offset) for epoch in before[-1:]), *after)


def joined_epochs(old: Epochs, now: Epochs) -> Epochs:
    """The old beginnings, and the epochs that have come since."""
    known = {epoch for epoch, _ in old}
    return (*old, *((epoch, start) for epoch, start in now if epoch not in known))
