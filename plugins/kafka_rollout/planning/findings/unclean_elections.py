"""Partitions without a leader for which controllers of a release elect a replica that is not in sync.

From 3.9.0 on, the active controller does so every unclean.leader.election.interval.ms, for topics with
unclean.leader.election.enable=true (ReplicationControlManager). Before, only a change of a broker or an operator made
it elect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.model.state import PartitionState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.model.unclean_elections import ENABLE, UncleanElections
from kafka_rollout.releases.facts import Catalogue, Release

INTERVAL = "unclean.leader.election.interval.ms"
UNCLEAN_ELECTION = FindingCode(
    "UNCLEAN-ELECTION",
    (BLOCKER, WARNING),
    "Controllers of a release of the plan elect an unclean leader by themselves, and records are lost. A warning if "
    "the running release does so too.",
    f"Start a broker of the ISR, or set {ENABLE}=false for the topic until one runs. Then plan again.",
)
UNCLEAN_IN_OUTAGE = FindingCode(
    "UNCLEAN-ELECTION-IN-OUTAGE",
    (BLOCKER,),
    "All nodes stop together, and no order of their starts lets the last in-sync replicas serve first: controllers "
    "elect unclean leaders, and acknowledged records are lost.",
    f"Set {ENABLE}=false for the topics until every node is back. Then plan again.",
)
UNCLEAN_CHECK = Check(
    "unclean-elections",
    "Partitions of which controllers elect an unclean leader by themselves",
    "upgrade.md#findings",
    (UNCLEAN_ELECTION, UNCLEAN_IN_OUTAGE),
    needs=(Need.TOPICS, Need.SETTINGS),
    examines=Examined.TOPICS,
)


def unclean_election_findings(
    catalogue: Catalogue,
    path: Sequence[Release],
    partitions: Sequence[PartitionState],
    elections: UncleanElections,
) -> Iterator[Finding]:
    """Yield a finding for each topic. `path`: of the plan, the running release first."""
    electing = _electing(catalogue, path)
    if not electing:
        return
    for topic, leaderless in sorted(_leaderless(partitions).items()):
        if elections.of(topic):
            numbers = few(one.partition for one in leaderless)
            yield UNCLEAN_ELECTION.found(
                f"topic {topic}",
                f"{count(len(leaderless), 'partition')} of {topic} ({numbers}) have no leader, and {ENABLE} is true. "
                f"The controllers of Kafka {electing[0]} elect a replica that is not in sync, every 5 minutes unless "
                f"{INTERVAL} is set: the records that only the ISR has are lost.",
                severity=WARNING if electing[0] == path[0] else BLOCKER,
            )


def outage_findings(
    cluster: ClusterSpec, partitions: Sequence[PartitionState], elections: UncleanElections
) -> Iterator[Finding]:
    """Yield a finding if all nodes of the cluster cannot stop together without unclean elections.

    Combined nodes start together, because a majority of the controllers must run before a broker is unfenced. Other
    brokers start in order (metadata_log/start_order.py).
    """
    combined = [node.node_id for node in cluster.controllers if node.is_broker]
    topics = {one.topic for one in partitions if len(one.replicas) > 1 and elections.of(one.topic) is not False}
    if combined and topics:
        value = "true" if all(elections.of(topic) for topic in topics) else "true or unknown"
        yield UNCLEAN_IN_OUTAGE.found(
            "offline downgrade",
            f"{ENABLE} is {value} for {count(len(topics), 'topic')} with replicas ({few(sorted(topics))}). The broker "
            "that stops last has records that the others lack. Combined nodes start together, because the controllers "
            f"need a majority (here {nodes(combined)}): the first one that is unfenced is elected, and these records "
            "are lost.",
        )


def find_stale_replicas(
    partitions: Sequence[PartitionState], elections: UncleanElections, running: Collection[int]
) -> tuple[str, ...]:
    """Return the partitions of which a controller can elect a running replica that is out of sync, when the members of
    the ISR stop. `running`: the unfenced brokers."""
    return tuple(
        one.name
        for one in partitions
        if (set(one.replicas) & set(running)) - set(one.isr) and elections.of(one.topic) is not False
    )


def unknown_unclean_elections(
    catalogue: Catalogue,
    path: Sequence[Release],
    partitions: Sequence[PartitionState],
    elections: UncleanElections,
) -> str:
    """Return for which topics the value is unknown, as a sentence: the file of a controller decides and is not known.

    Arguments as for `unclean_election_findings`.
    """
    topics = [topic for topic in sorted(_leaderless(partitions)) if elections.of(topic) is None]
    if not _electing(catalogue, path) or not topics:
        return ""
    unread = [node_id for node_id, value in elections.controllers.items() if value is None]
    return f"{ENABLE} of {nodes(unread)} is unknown. Partitions of {few(topics)} have no leader."


def _electing(catalogue: Catalogue, path: Sequence[Release]) -> list[Release]:
    return [release for release in path if release in catalogue and INTERVAL in catalogue.get(release).config_names]


def _leaderless(partitions: Sequence[PartitionState]) -> Mapping[str, list[PartitionState]]:
    topics: defaultdict[str, list[PartitionState]] = defaultdict(list)
    for partition in partitions:
        # Without a replica outside the ISR, the controller has nothing to elect.
        if partition.leader < 0 and partition.is_missing_replicas:
            topics[partition.topic].append(partition)
    return topics
