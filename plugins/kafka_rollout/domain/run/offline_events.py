"""Events of a run's record: the offline downgrade and its undo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.offline.log_choice import ChosenLog
from kafka_rollout.domain.run.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineEvent(Event):
    """An event of an offline downgrade. Its kind starts with `offline-`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineStopping(OfflineEvent):
    """Recorded before the first stop. `voters`: of the quorum; `unwritable`: topic-partitions that were below their
    min.insync.replicas already."""

    kind: ClassVar[str] = "offline-stopping"

    voters: tuple[int, ...]
    unwritable: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLogChosen(OfflineEvent):
    kind: ClassVar[str] = "offline-chosen"

    log: ChosenLog


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSnapshotWritten(OfflineEvent):
    """`file`: its name; `from_level`, `to_level`: of metadata.version; `lost`: a sentence per loss."""

    kind: ClassVar[str] = "offline-snapshot"

    file: str
    from_level: int
    to_level: int
    records: int
    proved_by: tuple[Release, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineInstalled(OfflineEvent):
    """The snapshot is installed on a node. `had_log` False: the node's directory held no log and was left as it was."""

    kind: ClassVar[str] = "offline-installed"

    node_id: int
    sentence: str
    had_log: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLeftBehind(OfflineEvent):
    """The quorum works without this controller, which lost its log."""

    kind: ClassVar[str] = "offline-left-behind"

    node_id: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineNoReturn(OfflineEvent):
    """Recorded before the first broker starts: from here on there is no undo."""

    kind: ClassVar[str] = "offline-no-return"

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineUndoing(OfflineEvent):
    kind: ClassVar[str] = "offline-undoing"

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRestored(OfflineEvent):
    """A node's metadata log was restored from its backup."""

    kind: ClassVar[str] = "offline-put-back"

    node_id: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineUndone(OfflineEvent):
    """`nodes`: those whose metadata logs were restored."""

    kind: ClassVar[str] = "offline-undone"

    nodes: tuple[int, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineWritable(OfflineEvent):
    """Every partition has a leader and its min.insync.replicas again."""

    kind: ClassVar[str] = "offline-writable"

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineServed(OfflineEvent):
    """Every broker serves requests again. `unserved_at`: epoch seconds of the last check that failed; 0 for none."""

    kind: ClassVar[str] = "offline-served"

    unserved_at: float
    sentence: str
