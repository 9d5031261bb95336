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
class OfflineSentence(OfflineEvent):
    """An event with its result as a sentence."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineNodeEvent(OfflineSentence):
    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineStopping(OfflineSentence, kind="offline-stopping"):
    """Recorded before the first stop. `voters`: of the quorum; `unwritable`: topic-partitions that were below their
    min.insync.replicas already."""

    voters: tuple[int, ...]
    unwritable: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLogChosen(OfflineEvent, kind="offline-chosen"):
    """The metadata log from which the snapshot is written."""

    log: ChosenLog


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSnapshotWritten(OfflineEvent, kind="offline-snapshot"):
    """The snapshot at the lower level was written.

    `file`: its name; `from_level`, `to_level`: of metadata.version; `lost`: a sentence per loss; `host`: the machine
    that holds the file; empty in an event of an earlier version.
    """

    file: str
    from_level: int
    to_level: int
    records: int
    proved_by: tuple[Release, ...]
    lost: tuple[str, ...]
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineInstalled(OfflineNodeEvent, kind="offline-installed"):
    """The snapshot is installed on a node. `had_log` False: the node's directory held no log and was left as it was."""

    had_log: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLeftBehind(OfflineNodeEvent, kind="offline-left-behind"):
    """The cluster works without this node: its log was lost, or its host did not respond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineUnreached(OfflineNodeEvent, kind="offline-unreached"):
    """The host of this node did not respond when the snapshot was installed. The node is not started without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineNoReturn(OfflineSentence, kind="offline-no-return"):
    """Recorded before the first broker starts: from here on there is no undo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineUndoing(OfflineSentence, kind="offline-undoing"):
    """Recorded before an undo. `epoch`: above every epoch of the controllers; 0 in an event of an earlier version."""

    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRestored(OfflineNodeEvent, kind="offline-put-back"):
    """A node's metadata log was restored from its backup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineUndone(OfflineSentence, kind="offline-undone"):
    """The undo is done. `nodes`: those whose metadata logs were restored."""

    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLowered(OfflineSentence, kind="live-lowered"):
    """The controllers serve at the lower level. `without_controller_s`: at most, without an active controller."""

    without_controller_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFailed(OfflineSentence, kind="live-failed"):
    """The level was not lowered, and the controllers run on their old logs again. `sentence`: with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveKept(OfflineSentence, kind="live-kept"):
    """The undo of a live downgrade ended before it was done, because a leader was elected on the snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineWritable(OfflineSentence, kind="offline-writable"):
    """Every partition has a leader and its min.insync.replicas again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineServed(OfflineSentence, kind="offline-served"):
    """Every broker serves requests again. `unserved_at`: epoch seconds of the last check that failed; 0 for none."""

    unserved_at: float
