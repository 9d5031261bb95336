"""Names of the folders and files in log directories, and which of them are a log after a start of Kafka.

Source: org.apache.kafka.storage.internals.log (LogFileUtils, LogLoader.load; before 3.5 kafka.log.LogLoader). The log
cleaner writes `.cleaned`, renames it to `.swap` when it is complete, renames the old segments to `.deleted`, and then
`.swap` to its final name. So between two renames a `.swap` replaces the segments that begin in its range, and
`.cleaned` and `.deleted` are never part of the log. A `.swap` at or after a `.cleaned` is of a split that did not end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.formats.checkpoint_files import LEADER_EPOCHS
from kafka_rollout.model.log_directories import LogDirectory
from kafka_rollout.releases.facts import Release

DELETED = ".deleted"
SWAP = ".swap"
CLEANED = ".cleaned"
OFFSET_DIGITS = 20
_OFFSET = re.compile(r"([0-9]{20})\.")
SEGMENT = re.compile(r"([0-9]{20})\.log")
_SWAP_SEGMENT = re.compile(r"([0-9]{20})\.log\.swap")
MAYBE_SEGMENT = re.compile(r"([0-9]{20})\.log(?:\.swap)?")
"""Names that can be segments; `segment_names` decides."""


def base_offset(name: str) -> int:
    """Return the offset in the name of a segment, an index or a `.swap` of one."""
    return int(name[:OFFSET_DIGITS])


def segment_names(names: Iterable[str], end_of: Callable[[str], int]) -> tuple[str, ...]:
    """Return the files that are the segments of the log, in the order of their offsets.

    `end_of`: the offset after the last record of a `.swap` file; its base offset if it has no records.
    """
    names = list(names)
    cleaned = [base_offset(name) for name in names if name.endswith(CLEANED) and _OFFSET.match(name)]
    swaps = [
        name
        for name in names
        if _SWAP_SEGMENT.fullmatch(name) and base_offset(name) < min(cleaned, default=base_offset(name) + 1)
    ]
    segments = [name for name in names if SEGMENT.fullmatch(name)]
    if swaps:
        first, end = min(map(base_offset, swaps)), max(map(end_of, swaps))
        kept = {base_offset(name) for name in swaps}
        segments = [name for name in segments if not first <= base_offset(name) < end and base_offset(name) not in kept]
    return tuple(sorted((*segments, *swaps), key=base_offset))


STRAY_SINCE, CACHE_SINCE = Release(3, 6, 1), Release(3, 5, 0)
"""The first releases that start with `orders-0.<id>-stray`, a replica that the cluster has no longer, and with `CACHE`.
"""
CACHE = "remote-log-index-cache"
_MOST_INT, _MOST_LONG = 2**31 - 1, 2**63 - 1
_NUMBER = re.compile(r"[+-]?[0-9]+")
_NAMED_BY_OFFSET = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", SWAP, CLEANED)
_CHECKPOINTS = (".checkpoint", ".checkpoint.part", ".checkpoint.deleted")
ORDINARY_FILE = (
    f"(00[0123456789]{{18}}([.]log|[.]index|[.]timeindex|[.]txnindex|[.]snapshot)|{LEADER_EPOCHS}|partition[.]metadata)"
)
"""Names of files that every start parses in each folder: nearly all, as an extended regular expression (POSIX). The
digits are no range, because a range of characters depends on the locale."""


def log_directory(listed: Iterable[tuple[str, str, bool]]) -> LogDirectory:
    """`listed`: folders, and the regular files in them, as (folder, file, is_readable); file of a folder: empty."""
    folders, refused, unreadable = set[str](), set[str](), set[str]()
    for folder, file, is_readable in listed:
        if not file:
            folders.add(folder)
        elif not can_parse_file(folder, file):
            refused.add(f"{folder}/{file}")
        if not is_readable:
            unreadable.add(f"{folder}/{file}".rstrip("/"))
    return LogDirectory(folders=frozenset(folders), refused=frozenset(refused), unreadable=frozenset(unreadable))


def parse_folder(name: str, release: Release) -> tuple[str, int] | None:
    """Return topic and partition of a folder in log.dirs. None: a broker of the release does not start with it.

    Source: UnifiedLog.parseTopicPartitionName (LocalLog before 4.0), which LogManager.loadLogs asks about each folder.
    """
    endings = ("-delete", "-future", *(("-stray",) if release >= STRAY_SINCE else ()))
    ending = next((one for one in endings if name.endswith(one)), "")
    if ending and re.fullmatch(rf"\S+-\S+\.\S+{ending}", name, re.ASCII) is None:
        return None
    topic, _, partition = (name.rpartition(".")[0] if ending else name).rpartition("-")
    return (topic, int(partition)) if topic and _is_number(partition, _MOST_INT) else None


def can_parse_file(folder: str, name: str) -> bool:
    """Return whether a start parses the name of a regular file in a folder that it loads.

    Source: LogLoader and ProducerStateManager (offset before the first dot); in the metadata log also Snapshots.parse.
    """
    if folder == METADATA_LOG and name.endswith(_CHECKPOINTS):
        return _is_number(name[:20], _MOST_LONG) and _is_number(name[21:31], _MOST_INT)
    return not name.endswith(_NAMED_BY_OFFSET) or _is_number(name.partition(".")[0], _MOST_LONG)


def _is_number(text: str, most: int) -> bool:
    return _NUMBER.fullmatch(text) is not None and -most - 1 <= int(text) <= most
