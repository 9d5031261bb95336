"""Whether a leader was elected on the snapshot of a live downgrade, decided from files that can no longer change.

S is the snapshot's epoch. It is higher than every epoch known before the installation. Invariants, for a quorum that
elects by majority (Raft; KafkaRaftClient 4.3.1):

1. A leader of an epoch above S was elected by a majority of the voters, and each of them stored the epoch in its
   quorum-state before it answered (QuorumState.durableTransitionTo). So the quorum-states of any majority that is
   stopped show each leader until now, and no later leader is elected while this majority stays stopped. Hosts that
   cannot be read are a minority: their nodes can run, with either log, but they cannot elect a leader alone.
2. A broker gets the snapshot only from an elected leader. So if none was elected, no broker has it, also no broker
   whose host cannot be read. Brokers are read last: their files confirm the answer, and can only add reasons.
3. If the snapshot is on a majority of the voters, no node with an old log can be elected: each majority has a voter
   whose log is newer, and it does not vote for an older log. So nodes can be started, whatever the others have.
4. The old logs are used again only if a majority is stopped and shows no leader. Each of these controllers first stores
   an epoch above S and above every epoch that is known, without a vote. So each later leader with an old log has an
   epoch above S, and its first committed record makes the old log newer than the snapshot. A controller that is reached
   later with the snapshot cannot win an election against it. If this controller wins before that record, its log is the
   only history: nothing was committed to the old logs since the snapshot was written.
5. If neither 3 nor 4 applies, too few hosts respond. Nothing that could be started would be a majority. The
   controllers wait for the next call.

The votes of failed elections do not count again: a vote for the log that a node had before would otherwise be given to
the node's other log, without the comparison of logs (UnattachedState.canGrantVote). The new epoch in 4 prevents that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from kafka_rollout.metadata_log.log_choice import ChosenLog, NodeLog
from kafka_rollout.model.state import majority


class SnapshotUse(StrEnum):
    """UNKNOWN: not enough controllers could be read, or one of them voted for a controller that could not be read."""

    UNUSED = "unused"
    USED = "used"
    UNKNOWN = "unknown"


def decide_snapshot_use(
    chosen: ChosenLog, voters: Collection[int], controllers: Mapping[int, NodeLog], brokers: Iterable[NodeLog]
) -> SnapshotUse:
    """Decide whether a leader was elected on the snapshot of the chosen log.

    `voters`: of the quorum before the first stop. `controllers`: the logs of stopped controllers, read after their
    stop; `brokers`: the logs of brokers, read after them.
    """
    epoch = chosen.snapshot_epoch
    if any(_has_leader(log, epoch) for log in controllers.values()):
        return SnapshotUse.USED
    if any(_has_leader(log, epoch) or _has_snapshot(log, chosen) for log in brokers):
        return SnapshotUse.USED
    if not (has_majority(voters, controllers) and has_majority(chosen.voters, controllers)):
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


def _has_snapshot(log: NodeLog, chosen: ChosenLog) -> bool:
    """Kafka writes a snapshot that it fetches to a file with the same beginning of its name, and renames it."""
    return any(name.startswith(chosen.snapshot.removesuffix(".checkpoint")) for name in log.snapshots)
