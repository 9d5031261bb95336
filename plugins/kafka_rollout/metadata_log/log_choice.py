"""The choice of the metadata log for an offline downgrade, the use of its snapshot, and the point of no return.

A committed record is in the logs of a majority of voters. So among the logs of any majority, the most advanced log (the
highest epoch of its last record, then the highest end offset) contains all committed records. This is Raft's election
rule. The snapshot's epoch is higher than every epoch that these nodes know. A majority voted for each leader and stored
its epoch (quorum-state) first. So no log that was not compared can be ahead of the snapshot. A node with an old log
replaces it by the snapshot (KafkaMetadataLog.truncateToLatestSnapshot).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.metadata_log.losses import Loss
from kafka_rollout.model.state import majority
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Release

EPOCHS_ABOVE = 1_000_000
"""Distance of the snapshot's epoch from the highest known epoch.

Nodes that start with old logs during an installation cannot reach it by elections, so the two histories never share an
epoch. Before pre-vote (KIP-996, Kafka 4.0) a controller that runs alone begins a new epoch every few seconds.
"""

OFFSETS_BEYOND = 1_000
"""Distance of the end offset of a live downgrade's snapshot from the longest log.

A running broker fetches a snapshot only if its own log ends before it. A broker can have records that no stopped
controller has, if the active controller lost them with its disk.
"""


INTERRUPTED = "its last batch is not whole"
"""In the reason why the log of a node is not read that can have been killed during a write."""
START_ONCE = (
    "If its node was killed, or its host lost its power, start the node once on its release: the start removes the "
    "batch. Stop it again, then repeat the step."
)


class UnreadableLogError(UserError):
    """A node's directory contains no metadata log, or a damaged one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLog:
    """The metadata log of a stopped node."""

    node_id: int
    epoch: int
    """Of its last record."""
    end_offset: int
    """Of its last record."""
    known_epoch: int
    """The newest epoch in its quorum-state, with the leader and the vote of this epoch; -1 for none."""
    voters: frozenset[int]
    """The quorum in this log; empty if the log has no voters."""
    newest_epoch: int = 0
    """The highest of its batches and of its leader-epoch-checkpoint."""
    leader_id: int = -1
    voted_id: int = -1
    snapshots: frozenset[str] = frozenset()
    """File names, also of those that are not complete."""
    directory_id: str = ""
    """Of the directory of the log (meta.properties), in Kafka's text form; "" without one."""
    voter_directories: Mapping[int, str] = field(default_factory=dict)
    """Voter → its directory, of a dynamic quorum (KIP-853)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenLog:
    """The log that contains the committed records."""

    node_id: int
    end_offset: int
    epoch: int
    snapshot_epoch: int
    """Epoch of the snapshot that replaces it."""
    voters: tuple[int, ...]
    read: tuple[int, ...]
    """The nodes whose logs were compared."""
    not_read: tuple[str, ...]
    """Node id → reason why its log was not compared."""
    snapshot_offset: int | None = None
    """End offset in the snapshot's name if running brokers fetch it; None: the end of the log."""

    @property
    def snapshot(self) -> str:
        offset = self.end_offset if self.snapshot_offset is None else self.snapshot_offset
        return f"{offset:020}-{self.snapshot_epoch:010}.checkpoint"


def choose_log(
    logs: Sequence[NodeLog], voters: Collection[int], not_read: Mapping[int, str], *, live: bool = False
) -> ChosenLog:
    """Return the log to continue from. `voters`: the quorum as last observed; `not_read`: nodes without a readable log.

    `live`: the brokers run, and their logs are in `logs` too. The snapshot then ends beyond every log.

    Raises RefusedError unless `logs` contains a majority of `voters` and of the voters in the chosen log. A directory
    that is not that of the voter with its id has an observer's log (`find_voting`).
    """
    read, counted = {log.node_id for log in logs}, find_voting(logs)
    others = {
        node_id: f"node {node_id}: its directory is another one than that of the voter" for node_id in read - counted
    }
    _refuse_minority(frozenset(voters), counted, {**others, **not_read})
    voting = [log for log in logs if log.node_id in counted and log.node_id in {*voters, *log.voters}]
    best = max(voting, key=lambda log: (log.epoch, log.end_offset, -log.node_id))
    if best.voters:
        _refuse_minority(best.voters, counted, {**others, **not_read})
    return ChosenLog(
        node_id=best.node_id,
        end_offset=best.end_offset,
        epoch=best.epoch,
        snapshot_epoch=EPOCHS_ABOVE + max(max(log.epoch, log.known_epoch) for log in logs),
        voters=tuple(sorted(best.voters or voters)),
        read=tuple(sorted(read)),
        not_read=tuple(not_read[node_id] for node_id in sorted(not_read)),
        snapshot_offset=OFFSETS_BEYOND + max(log.end_offset for log in logs) if live else None,
    )


def find_voting(logs: Iterable[NodeLog]) -> frozenset[int]:
    """Return the nodes whose log is that of the voter with their id, by the most advanced of these logs.

    In a dynamic quorum a voter is a node id and a directory id (ReplicaKey, VoterSet.isVoter). A node that was
    formatted again observes with its new directory: a record can be committed without it. All nodes of a static quorum
    count, and brokers, which are no voters.
    """
    known = list(logs)
    newest = max(known, key=lambda log: (log.epoch, log.end_offset), default=None)
    directories = {} if newest is None else newest.voter_directories
    return frozenset(log.node_id for log in known if directories.get(log.node_id, log.directory_id) == log.directory_id)


def _refuse_minority(quorum: Collection[int], read: Collection[int], not_read: Mapping[int, str]) -> None:
    available = sorted(set(quorum) & set(read))
    if len(available) >= majority(len(quorum)):
        return
    missing = [not_read.get(i, f"node {i}: no log was found") for i in sorted(set(quorum) - set(read))]
    raise RefusedError(
        f"The metadata logs of {len(available)} of {len(quorum)} voters are available. {majority(len(quorum))} "
        f"are needed to find every committed record. Missing: {few(missing)}.",
        remedy=f"{START_ONCE} Restore the other directories. Nothing was changed."
        if any(INTERRUPTED in reason for reason in missing)
        else "Name or restore the directories of the other voters, then repeat the step. Nothing was changed.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSnapshot:
    """The snapshot of the offline downgrade."""

    path: Path
    from_level: int
    to_level: int
    features: Mapping[str, int]
    """The features to lower, by name."""
    kraft_version: int
    records: int
    """Number without control records."""
    proved_by: tuple[Release, ...]
    """Releases whose classes loaded the snapshot."""
    losses: tuple[Loss, ...]
    """Lost metadata."""


def describe_no_return(cluster: ClusterSpec) -> str:
    combined = [node.node_id for node in cluster.nodes if node.is_controller and node.is_broker]
    if combined:
        are = "is a broker" if len(combined) == 1 else "are brokers"
        first = f"the controllers start at the new level, because {nodes(combined)} {are} as well"
    else:
        first = "the first broker starts at the new level; if only controllers run at it, undo is still possible"
    return (
        f"The downgrade can be undone from the backups until {first}. After that, clients write records, and "
        "topics and leaders change. The old metadata does not contain these changes."
    )


class SnapshotUse(StrEnum):
    """UNKNOWN: not enough controllers could be read, or one of them voted for a controller that could not be read."""

    UNUSED = "unused"
    USED = "used"
    UNKNOWN = "unknown"


def decide_snapshot_use(
    chosen: ChosenLog, voters: Collection[int], controllers: Mapping[int, NodeLog], brokers: Iterable[NodeLog]
) -> SnapshotUse:
    """Decide whether a leader was elected on the snapshot of the chosen log, from files that can no longer change.

    `voters`: of the quorum before the first stop. `controllers`: the logs of stopped controllers, read after their
    stop; `brokers`: the logs of brokers, read after them.

    S is the snapshot's epoch. It is higher than every epoch known before the installation. Invariants, for a quorum
    that elects by majority (Raft; KafkaRaftClient 4.3.1):

    1. A leader of an epoch above S was elected by a majority of the voters, and each of them stored the epoch in its
       quorum-state before it answered (QuorumState.durableTransitionTo). So the quorum-states of any majority that is
       stopped show each leader until now, and no later leader is elected while this majority stays stopped. Hosts that
       cannot be read are a minority: their nodes can run, with either log, but they cannot elect a leader alone.
    2. A broker gets the snapshot only from an elected leader. So if none was elected, no broker has it, also no broker
       whose host cannot be read. Brokers are read last: their files confirm the answer, and can only add reasons.
    3. If the snapshot is on a majority of the voters, no node with an old log can be elected: each majority has a voter
       whose log is newer, and it does not vote for an older log. So nodes can be started, whatever the others have.
    4. The old logs are used again only if a majority is stopped and shows no leader. Each of these controllers first
       stores an epoch above S and above every epoch that is known, without a vote. So each later leader with an old log
       has an epoch above S, and its first committed record makes the old log newer than the snapshot. A controller that
       is reached later with the snapshot cannot win an election against it. If this controller wins before that record,
       its log is the only history: nothing was committed to the old logs since the snapshot was written.
    5. If neither 3 nor 4 applies, too few hosts respond. Nothing that could be started would be a majority. The
       controllers wait for the next call.

    The votes of failed elections do not count again: a vote for the log that a node had before would otherwise be given
    to the node's other log, without the comparison of logs (UnattachedState.canGrantVote). The new epoch in 4 prevents
    that.
    """
    epoch = chosen.snapshot_epoch
    if any(_has_leader(log, epoch) for log in controllers.values()):
        return SnapshotUse.USED
    if any(_has_leader(log, epoch) or has_snapshot(log, chosen) for log in brokers):
        return SnapshotUse.USED
    voting = find_voting(controllers.values())
    if not (has_majority(voters, voting) and has_majority(chosen.voters, voting)):
        return SnapshotUse.UNKNOWN
    votes = {log.voted_id for log in controllers.values() if log.known_epoch > epoch and log.voted_id >= 0}
    return SnapshotUse.UNKNOWN if votes - controllers.keys() else SnapshotUse.UNUSED


def epoch_after_return(chosen: ChosenLog, logs: Iterable[NodeLog]) -> int:
    """Return an epoch above the snapshot's and above every epoch in these logs, for invariant 4."""
    return 1 + max([chosen.snapshot_epoch, *(max(log.known_epoch, log.newest_epoch) for log in logs)])


def follows_snapshot(log: NodeLog, chosen: ChosenLog) -> bool:
    """Return whether a stopped node's log continues the snapshot: installed, or fetched from the leader."""
    return log.epoch >= chosen.snapshot_epoch


def has_majority(voters: Collection[int], of: Iterable[int]) -> bool:
    return len(set(voters) & set(of)) >= majority(len(set(voters)))


def _has_leader(log: NodeLog, epoch: int) -> bool:
    return log.newest_epoch > epoch or (log.known_epoch > epoch and log.leader_id >= 0)


def has_snapshot(log: NodeLog, chosen: ChosenLog) -> bool:
    """Kafka writes a snapshot that it fetches to a file with the same beginning of its name, and renames it."""
    return any(name.startswith(chosen.snapshot.removesuffix(".checkpoint")) for name in log.snapshots)
