"""Conditions from Kafka's own counters: errors, log directories, and the counts of the active controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.base.findings import WARNING, FindingCode
from kafka_rollout.base.wording import count, few
from kafka_rollout.gates.check import Condition
from kafka_rollout.model.configs import ConfigKind
from kafka_rollout.model.counters import (
    ACTIVE_BROKERS,
    COUNTERS,
    COUNTS_PARTITIONS_SINCE,
    FENCED_BROKERS,
    METADATA_ERROR_COUNTERS,
    MOST_ERRORS_PER_S,
    OFFLINE_LOG_DIRECTORIES,
    OFFLINE_PARTITIONS,
    PREFERRED_REPLICA_IMBALANCE,
    REMOTE_ERROR_RATES,
)
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import ClusterState, NodeMetrics
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.releases.facts import Release

NO_ERRORS = "no metadata errors"
DIRECTORIES = "all log directories are online"
REMOTE_REQUESTS = "remote copies and fetches succeed"
AGREES = "the active controller agrees"
PARTITION_COUNT = "partitions"

Unchecked = Mapping[str, Sequence[int]] | None
"""Counter → nodes whose agents did not export it when the plan was made. None: the plan did not look."""


IGNORED_CONFIG = FindingCode(
    "DYNAMIC-CONFIG-IGNORED", WARNING, "A release of the path starts and ignores a setting in the metadata."
)


def expected_errors(plan: Plan, release: Release) -> tuple[str, ...]:
    """Return what the plan says that nodes of the release ignore: Kafka counts some of it as metadata errors.

    DynamicConfigPublisher catches what an invalid client-metrics subscription or a topic's tiered storage throws.
    """
    kinds = tuple(f"{release}, {kind} " for kind in (ConfigKind.TOPIC, ConfigKind.CLIENT_METRICS))
    return tuple(f.subject for f in plan.findings if f.code == IGNORED_CONFIG.code and f.subject.startswith(kinds))


def expected_counters(node: NodeSpec, *, tiered: bool = False) -> tuple[str, ...]:
    """Return the counters that the node's process has. `tiered`: it has tiered storage."""
    return tuple(
        name
        for name, counter in COUNTERS.items()
        if counter.role in node.roles and (tiered or not counter.needs_tiered_storage)
    )


def has_agent(node: NodeSpec) -> bool:
    return node.prometheus_url is not None or node.jolokia_url is not None


def no_metadata_errors(
    nodes: Sequence[NodeSpec], state: ClusterState, unchecked: Unchecked, *, expected: Sequence[str] = ()
) -> Condition:
    """Return the condition that these nodes have applied all metadata since their processes started.

    `expected`: settings that the approved plan names as ignored by the release, which Kafka counts as errors.
    """
    names = METADATA_ERROR_COUNTERS
    wrong, skipped = _nonzero(NO_ERRORS, names, nodes, state, unchecked)
    evidence = f"0 metadata errors since the start of {_processes(nodes)}"
    if wrong.counted and expected:
        evidence = f"{few(wrong.counted)}; the approved plan expects errors of {few(list(expected))}"
    elif wrong.counted:
        evidence = (
            f"{few(wrong.counted)}: the node does not serve a part of the metadata. Its log has the error; "
            "a restart applies all metadata again"
        )
    is_met = not wrong.unknown and (not wrong.counted or bool(expected))
    return Condition(name=NO_ERRORS, is_met=is_met, evidence="; ".join(filter(None, (*wrong.texts(evidence), skipped))))


def directories_online(node: NodeSpec, state: ClusterState, unchecked: Unchecked) -> Condition:
    wrong, skipped = _nonzero(DIRECTORIES, (OFFLINE_LOG_DIRECTORIES,), [node], state, unchecked)
    evidence = few(wrong.counted) if wrong.counted else f"0 offline log directories on node {node.node_id}"
    is_met = not wrong.counted and not wrong.unknown
    return Condition(
        name=DIRECTORIES, is_met=is_met, evidence="; ".join(filter(None, (*wrong.texts(evidence), skipped)))
    )


def remote_requests_succeed(node: NodeSpec, state: ClusterState, unchecked: Unchecked) -> Condition:
    """Return the condition that a broker with tiered storage has copied and fetched without errors recently.

    A broker that has not tried either yet reports no errors, and meets it.
    """
    wrong, skipped = _nonzero(REMOTE_REQUESTS, REMOTE_ERROR_RATES, [node], state, unchecked)
    evidence = f"node {node.node_id} reports at most {MOST_ERRORS_PER_S} errors per second"
    if wrong.counted:
        evidence = (
            f"{few(wrong.counted)} errors per second (limit {MOST_ERRORS_PER_S}): it cannot reach a part of its remote "
            "data. Its log has the errors"
        )
    is_met = not wrong.counted and not wrong.unknown
    return Condition(
        name=REMOTE_REQUESTS, is_met=is_met, evidence="; ".join(filter(None, (*wrong.texts(evidence), skipped)))
    )


class _Wrong:
    """Counters above their limit and counters without a value, as texts."""

    def __init__(self) -> None:
        self.counted: list[str] = []
        self.unknown: list[str] = []
        self.checked = False

    def texts(self, evidence: str) -> tuple[str, ...]:
        return (evidence if self.checked else "", few(self.unknown) if self.unknown else "")


def _nonzero(
    condition: str, names: Sequence[str], nodes: Sequence[NodeSpec], state: ClusterState, unchecked: Unchecked
) -> tuple[_Wrong, str]:
    wrong, skipped = _Wrong(), []
    for node in nodes:
        seen = state.nodes.get(node.node_id)
        metrics = seen.metrics if seen else None
        for name in names:
            if COUNTERS[name].role not in node.roles:
                continue
            value = None if metrics is None else metrics.counters.get(name)
            kafka_name = COUNTERS[name].kafka_name
            if value is not None:
                wrong.checked = True
                if not value <= COUNTERS[name].most:  # NaN too
                    wrong.counted.append(f"node {node.node_id} reports {kafka_name} {round(value, 4)}")
            elif why := _why_unchecked(node, name, unchecked):
                skipped.append(f"{kafka_name} of node {node.node_id} ({why})")
            else:
                wrong.unknown.append(f"node {node.node_id} does not report {kafka_name}")
    return wrong, f"not checked: {few(skipped)}" if skipped else ""


def _why_unchecked(node: NodeSpec, name: str, unchecked: Unchecked) -> str:
    """Return why a missing counter does not count as unknown; empty if it does."""
    if not has_agent(node):
        return "no metrics agent"
    if unchecked is None:
        return "no agent exports it, and the plan is of a version that did not look"
    return "no agent exports it, as the plan says" if node.node_id in unchecked.get(name, ()) else ""


def _processes(nodes: Sequence[NodeSpec]) -> str:
    return f"node {nodes[0].node_id}" if len(nodes) == 1 else count(len(nodes), "node")


def controller_agrees(cluster: ClusterSpec, state: ClusterState, unchecked: Unchecked) -> Condition:
    """Return the condition that the active controller counts nothing worse than the brokers report.

    A broker that is cut off from the controllers answers from its last metadata. The registrations and the ISRs that it
    shows can be hours old.
    """
    quorum = state.quorum
    if quorum is None or quorum.leader_id < 0:
        return Condition(name=AGREES, is_met=False, evidence="the active controller is unknown")
    leader = next((node for node in cluster.nodes if node.node_id == quorum.leader_id), None)
    metrics = state.active_controller
    who = f"controller {quorum.leader_id}"
    if leader is None or not has_agent(leader):
        return Condition(name=AGREES, is_met=True, evidence=f"not compared: {who} has no metrics agent")
    worse: list[str] = []
    compared: list[str] = []
    skipped: list[str] = []
    unknown: list[str] = []
    doubt = _doubt(state, quorum.leader_id)
    for name, seen in _shown(state).items():
        kafka_name = "GlobalPartitionCount" if name == PARTITION_COUNT else COUNTERS[name].kafka_name
        value = None if metrics is None else _count(metrics, name)
        if doubt and value is not None and name not in (ACTIVE_BROKERS, FENCED_BROKERS):
            skipped.append(f"{kafka_name} ({doubt})")
        elif value is None and (why := _why_unchecked(leader, name, unchecked)):
            skipped.append(f"{kafka_name} ({why})")
        elif value is None:
            unknown.append(kafka_name)
        else:
            # Fewer active brokers are worse, more of everything else.
            (worse if (value < seen if name == ACTIVE_BROKERS else value > seen) else compared).append(
                f"{kafka_name} {value}" + (f" (the brokers show {seen})" if value != seen else "")
            )
    parts = [
        f"{who} reports {', '.join(worse or compared)}" if worse or compared else "",
        f"{who} does not report {few(unknown)}" if unknown else "",
        f"not compared: {few(skipped)}" if skipped else "",
        "the counts of partitions are compared before the next stop and after the last start"
        if state.is_partial
        else "",
    ]
    return Condition(name=AGREES, is_met=not worse and not unknown, evidence="; ".join(filter(None, parts)))


def _count(metrics: NodeMetrics, name: str) -> float | None:
    return metrics.partition_count if name == PARTITION_COUNT else metrics.counters.get(name)


def _doubt(state: ClusterState, leader_id: int) -> str:
    """Return why the controller's counts of partitions prove nothing; empty if they do."""
    leader, metrics = state.nodes.get(leader_id), state.active_controller
    release = metrics.release if metrics else None
    if release is None and leader is not None:
        release = leader.release
    if release is None:
        return "the release of the controller is unknown"
    return "" if release >= COUNTS_PARTITIONS_SINCE else f"controllers of {release} also count deleted partitions"


def _shown(state: ClusterState) -> dict[str, int]:
    """Return counter → the same number as the brokers show it; none about partitions if only some were read."""
    registered = state.registered
    fenced = registered.fenced
    counted = {ACTIVE_BROKERS: len(registered.brokers - (fenced or frozenset()))}
    if fenced is not None:
        counted[FENCED_BROKERS] = len(fenced)
    if state.is_partial:
        return counted
    return {
        **counted,
        OFFLINE_PARTITIONS: sum(p.leader < 0 for p in state.partitions),
        PREFERRED_REPLICA_IMBALANCE: sum(p.leader != p.preferred_leader for p in state.partitions),
        PARTITION_COUNT: len(state.partitions),
    }
