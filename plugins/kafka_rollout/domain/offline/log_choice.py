"""The offline downgrade: which stopped node's metadata log is the cluster's, and until when it can be undone. Pure.

A committed record is in the logs of a majority of voters. Of the logs of any majority the one that is furthest (the
highest epoch of its last record, then the highest end) therefore holds all committed records: Raft's rule of who may
be elected. The snapshot's epoch is above every epoch that any of these nodes knows: a leader was voted for by a
majority, which wrote its epoch down (quorum-state) before. So no log that was left out can be ahead of the snapshot,
and a node that still has the old log gives it up for it (KafkaMetadataLog.truncateToLatestSnapshot).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka_rollout.domain.metadata_log.losses import Loss
from kafka_rollout.domain.model.errors import RefusedError, UserError
from kafka_rollout.domain.model.quorum import majority
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.model.wording import few, nodes

EPOCHS_ABOVE = 100
"""How far the snapshot's epoch is above any that a node knows: further than nodes that are started with their old logs
in the middle of an installation get by elections, so that the two histories never meet in one epoch."""


class UnreadableLogError(UserError):
    """A node's directory holds no metadata log, or a damaged one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLog:
    """A stopped node's metadata log. `epoch` and `end_offset`: of its last record; `known_epoch`: the newest epoch that
    the node has heard of (quorum-state); `voters`: the quorum by this log, empty where it does not say.
    """

    node_id: int
    epoch: int
    end_offset: int
    known_epoch: int
    voters: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenLog:
    """The log with the committed prefix. `snapshot_epoch`: of the snapshot that takes its place; `read`: the nodes
    whose logs were compared; `not_read`: why those of the others were not, each a sentence.
    """

    node_id: int
    end_offset: int
    epoch: int
    snapshot_epoch: int
    voters: tuple[int, ...]
    read: tuple[int, ...]
    not_read: tuple[str, ...]

    @property
    def snapshot(self) -> str:
        """The snapshot's file name."""
        return f"{self.end_offset:020}-{self.snapshot_epoch:010}.checkpoint"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ChosenLog:
        lists = {name: tuple(data[name]) for name in ("voters", "read", "not_read")}
        return cls(**{**{name: data[name] for name in cls.__slots__}, **lists})


def choose_log(logs: Sequence[NodeLog], voters: Collection[int], not_read: Mapping[int, str]) -> ChosenLog:
    """The log to go on from. `voters`: the quorum as it was last seen; `not_read`: nodes without a readable log.

    Raises RefusedError unless a majority of these voters and of those that the chosen log names is among `logs`.
    """
    read = {log.node_id for log in logs}
    _refuse_minority(frozenset(voters), read, not_read)
    voting = [log for log in logs if log.node_id in voters or log.node_id in log.voters]
    best = max(voting, key=lambda log: (log.epoch, log.end_offset, -log.node_id))
    if best.voters:
        _refuse_minority(best.voters, read, not_read)
    return ChosenLog(
        node_id=best.node_id,
        end_offset=best.end_offset,
        epoch=best.epoch,
        snapshot_epoch=EPOCHS_ABOVE + max(max(log.epoch, log.known_epoch) for log in logs),
        voters=tuple(sorted(best.voters or voters)),
        read=tuple(sorted(read)),
        not_read=tuple(not_read[node_id] for node_id in sorted(not_read)),
    )


def _refuse_minority(quorum: Collection[int], read: Collection[int], not_read: Mapping[int, str]) -> None:
    at_hand = sorted(set(quorum) & set(read))
    if len(at_hand) >= majority(len(quorum)):
        return
    missing = [not_read.get(i, f"node {i}: no log was given") for i in sorted(set(quorum) - set(read))]
    raise RefusedError(
        f"The metadata logs of {len(at_hand)} of the {len(quorum)} voters are at hand, and {majority(len(quorum))} are "
        f"needed to be sure of every committed record; missing: {few(missing)}.",
        remedy="Bring the directories of the other voters back. Nothing was changed.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSnapshot:
    """`losses`: what the image lost on the way to its levels; `records` in it, control records not counted.
    `features`: those that were to be lowered, by name; `proved_by`: releases whose classes loaded it.
    """

    path: Path
    from_level: int
    to_level: int
    features: Mapping[str, int]
    kraft_version: int
    records: int
    proved_by: tuple[Release, ...]
    losses: tuple[Loss, ...]


def no_return(cluster: ClusterSpec) -> str:
    """From when on the downgrade cannot be undone."""
    combined = [node.node_id for node in cluster.nodes if node.is_controller and node.is_broker]
    if combined:
        are = "is a broker" if len(combined) == 1 else "are brokers"
        first = f"the controllers start on the new level, for {nodes(combined)} {are} as well"
    else:
        first = "the first broker starts on the new level; controllers alone may run on it and be taken back"
    return (
        f"It can be undone from the backups until {first}. From then on clients write records, and topics and leaders "
        "change, which the old metadata knows nothing of."
    )
