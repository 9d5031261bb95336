"""Whether a node has the newest metadata, as the leader of the quorum reports it."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_rollout.model.state import NodeState, QuorumState, majority
from kafka_rollout.model.topology import ClusterSpec

# A running quorum always shows some lag. The active controller appends at least one no-op record every 500 ms
# (metadata.max.idle.interval.ms), and followers fetch it a moment later.
LAG_RECORDS = 20
CAUGHT_UP_MS = 5_000


def check_caught_up(quorum: QuorumState, replica_id: int) -> tuple[bool, str]:
    """Return whether a voter or observer is caught up with the leader in offset and in time, and the evidence.

    Few missing records prove nothing without the time: with metadata.max.idle.interval.ms=0 an idle cluster writes
    none for hours. All times are the leader's. An unknown time is not caught up; every KRaft release from 3.3 on
    reports them (KIP-836).
    """
    if quorum.leader_id < 0:
        return False, "the quorum has no leader"
    if replica_id == quorum.leader_id:
        return True, f"node {replica_id} leads the quorum"
    lag, replica = quorum.lag(replica_id), quorum.replica(replica_id)
    if lag is None or replica is None:
        return False, f"quorum leader {quorum.leader_id} does not report the log end offset of node {replica_id}"
    behind = f"{lag} records behind the leader"
    behind_ms = quorum.since_ms(replica.last_caught_up_ms)
    if lag > LAG_RECORDS and (behind_ms is None or behind_ms > CAUGHT_UP_MS):
        if replica_id in quorum.replaced_voters:
            action = (
                "it replaces the old voter itself (controller.quorum.auto.join.enable), so do not change the voters"
                if replica_id in quorum.joins_itself
                else "remove the old voter and add the new one (kafka-metadata-quorum.sh remove-controller, "
                "add-controller)"
            )
            return False, (
                f"voter {replica_id} is {behind}, and another directory of node {replica_id} is an observer: {action}"
            )
        return False, behind
    fetched_ms = quorum.since_ms(replica.last_fetch_ms)
    if fetched_ms is None:
        return False, f"{behind}, but quorum leader {quorum.leader_id} does not report when it fetched last"
    if fetched_ms > quorum.fetch_limit_ms:
        return False, f"{behind}, but its last fetch was {fetched_ms} ms ago (limit: {quorum.fetch_limit_ms} ms)"
    if lag > LAG_RECORDS:
        return True, f"{behind}, caught up {behind_ms} ms ago"
    return True, f"{behind}, last fetch {fetched_ms} ms ago"


def check_current(quorum: QuorumState, node_id: int, seen: NodeState | None) -> tuple[bool, str]:
    """Return whether a broker has fetched and applied the newest metadata, and the evidence.

    The epoch in ApiVersions is the offset of the broker's metadata image (KRaftMetadataCache.features, 3.3 to 4.4).
    `seen`: the node, queried after the quorum; None or without features: only what it fetched is checked.
    """
    caught_up, evidence = check_caught_up(quorum, node_id)
    if not caught_up or seen is None or seen.features is None:
        return caught_up, evidence
    applied, committed = seen.features.epoch, quorum.high_watermark
    if applied is None:
        return False, "it reports no epoch of its metadata"
    if applied < committed - LAG_RECORDS:
        return False, f"it has applied its metadata up to offset {applied}, and {committed} is committed"
    return True, f"{evidence}, applied up to offset {applied}"


def find_current_brokers(
    cluster: ClusterSpec, quorum: QuorumState | None, seen: Mapping[int, NodeState]
) -> tuple[int, ...]:
    """Return the brokers of the inventory whose metadata is current; empty if the quorum does not show it."""
    if quorum is None:
        return ()
    ids = (node.node_id for node in cluster.brokers)
    return tuple(node_id for node_id in ids if check_current(quorum, node_id, seen.get(node_id))[0])


def check_spare_voters(quorum: QuorumState, without: int) -> tuple[bool, str]:
    """Return whether the caught-up voters without node `without` are a majority of all voters, and the evidence."""
    others = [v.replica_id for v in quorum.voters if v.replica_id != without]
    well = sorted(i for i in others if check_caught_up(quorum, i)[0])
    needed = majority(len(quorum.voters))
    told = f"voters {', '.join(map(str, well)) or 'none'} are caught up, {needed} of {len(quorum.voters)} are needed"
    return len(well) >= needed, told
