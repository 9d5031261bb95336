"""The metadata quorum: voters that are caught up, whether a voter can be stopped, nodes missing in the inventory."""

from __future__ import annotations

from kafka_rollout.domain.model.state import ClusterState, QuorumState, ReplicaState
from kafka_rollout.domain.model.topology import ClusterSpec

# A running quorum always shows some lag. The active controller appends at least one no-op record every 500 ms
# (metadata.max.idle.interval.ms), and followers fetch it a moment later.
LAG_RECORDS = 20
CAUGHT_UP_MS = 5_000


def check_caught_up(quorum: QuorumState, replica_id: int, observed_at: float) -> tuple[bool, str]:
    """Return whether a voter or observer is caught up with the leader, and the evidence.

    `observed_at`: epoch seconds.
    """
    if quorum.leader_id < 0:
        return False, "the quorum has no leader"
    if replica_id == quorum.leader_id:
        return True, f"node {replica_id} leads the quorum"
    lag = quorum.lag(replica_id)
    if lag is None:
        return False, f"quorum leader {quorum.leader_id} does not report the log end offset of node {replica_id}"
    if lag <= LAG_RECORDS:
        return True, f"{lag} records behind the leader"
    behind_ms = _behind_ms(quorum, replica_id, observed_at)
    if behind_ms is not None and behind_ms <= CAUGHT_UP_MS:
        return True, f"{lag} records behind the leader, caught up {behind_ms} ms ago"
    if replica_id in {r.replica_id for r in quorum.voters} & {r.replica_id for r in quorum.observers}:
        return False, (
            f"voter {replica_id} is {lag} records behind the leader, and another directory of node "
            f"{replica_id} is an observer: remove the old voter and add the new one (kafka-metadata-quorum.sh "
            "remove-controller, add-controller)"
        )
    return False, f"{lag} records behind the leader"


def _behind_ms(quorum: QuorumState, replica_id: int, observed_at: float) -> int | None:
    replicas = {r.replica_id: r for r in (*quorum.observers, *quorum.voters)}
    replica: ReplicaState | None = replicas.get(replica_id)
    if replica is None or replica.last_caught_up_ms is None or replica.last_caught_up_ms < 0:
        return None
    # The leader's own timestamp is the current time of the clock that wrote the followers' timestamps.
    leader = replicas.get(quorum.leader_id)
    now_ms = leader.last_caught_up_ms if leader and leader.last_caught_up_ms else int(observed_at * 1000)
    return max(0, now_ms - replica.last_caught_up_ms)


def majority(voters: int) -> int:
    return voters // 2 + 1


def check_spare_voters(quorum: QuorumState, without: int, observed_at: float) -> tuple[bool, str]:
    """Return whether the caught-up voters without node `without` are a majority of all voters, and the evidence."""
    others = [v.replica_id for v in quorum.voters if v.replica_id != without]
    well = sorted(i for i in others if check_caught_up(quorum, i, observed_at)[0])
    needed = majority(len(quorum.voters))
    told = f"voters {', '.join(map(str, well)) or 'none'} are caught up, {needed} of {len(quorum.voters)} are needed"
    return len(well) >= needed, told


def find_unlisted_brokers(cluster: ClusterSpec, state: ClusterState) -> frozenset[int]:
    """Return the registered brokers, fenced brokers included, that the inventory does not list."""
    registered = state.registered.brokers | (state.registered.fenced or frozenset())
    return registered - {node.node_id for node in cluster.brokers}


def find_unlisted_controllers(cluster: ClusterSpec, state: ClusterState) -> frozenset[int]:
    """Return the registered controllers (KIP-919) and the voters of the quorum that the inventory does not list."""
    voters = {voter.replica_id for voter in state.quorum.voters} if state.quorum else set()
    registered = (state.registered.controllers or frozenset()) | voters
    return registered - {node.node_id for node in cluster.controllers}
