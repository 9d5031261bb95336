"""Events of a run's record: the offline downgrade and its undo."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.metadata_log.log_choice import ChosenLog
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineEvent(Event):
    """An event of a downgrade by a snapshot, offline or live. Its kind starts with `offline-` or `live-`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineStopping(OfflineEvent, kind="offline-stopping"):
    """Recorded before the first stop. `voters`: of the quorum; `unwritable`: topic-partitions that were below their
    min.insync.replicas already."""

    voters: tuple[int, ...]
    unwritable: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLogChosen(OfflineEvent, kind="offline-chosen"):
    log: ChosenLog


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSnapshotWritten(OfflineEvent, kind="offline-snapshot"):
    """`file`: its name; `from_level`, `to_level`: of metadata.version; `lost`: a sentence per loss.

    `host`: the machine that holds the file; empty in an event of an earlier version.
    """

    file: str
    from_level: int
    to_level: int
    records: int
    proved_by: tuple[Release, ...]
    lost: tuple[str, ...]
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineInstalled(OfflineEvent, kind="offline-installed"):
    """The snapshot is installed on a node. `had_log` False: the node's directory held no log and was left as it was."""

    node_id: int
    sentence: str
    had_log: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLeftBehind(OfflineEvent, kind="offline-left-behind"):
    """The cluster works without this node: its log was lost, or its host did not respond."""

    node_id: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineUnreached(OfflineEvent, kind="offline-unreached"):
    """The host of this node did not respond when the snapshot was installed. The node is not started without it."""

    node_id: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineNoReturn(OfflineEvent, kind="offline-no-return"):
    """Recorded before the first broker starts: from here on there is no undo."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineUndoing(OfflineEvent, kind="offline-undoing"):
    """`epoch`: above every epoch that the controllers knew; 0 in an event of an earlier version."""

    sentence: str
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRestored(OfflineEvent, kind="offline-put-back"):
    """A node's metadata log was restored from its backup."""

    node_id: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineUndone(OfflineEvent, kind="offline-undone"):
    """`nodes`: those whose metadata logs were restored."""

    nodes: tuple[int, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLowered(OfflineEvent, kind="live-lowered"):
    """The controllers serve at the lower level. `without_controller_s`: at most, without an active controller."""

    without_controller_s: float
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFailed(OfflineEvent, kind="live-failed"):
    """The level was not lowered, and the controllers run on their old logs again. `sentence`: with the reason."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveKept(OfflineEvent, kind="live-kept"):
    """The undo of a live downgrade ended before it was done, because a leader was elected on the snapshot."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineWritable(OfflineEvent, kind="offline-writable"):
    """Every partition has a leader and its min.insync.replicas again."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineServed(OfflineEvent, kind="offline-served"):
    """Every broker serves requests again. `unserved_at`: epoch seconds of the last check that failed; 0 for none."""

    unserved_at: float
    sentence: str
