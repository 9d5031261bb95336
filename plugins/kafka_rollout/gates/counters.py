"""Conditions from Kafka's own counters: errors, log directories, and the counts of the active controller."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kafka_rollout.base.findings import (
    BLOCKER,
    WARNING,
    Check,
    CheckOf,
    Finding,
    FindingCode,
    Need,
    UnknownValue,
)
from kafka_rollout.base.wording import count, few
from kafka_rollout.gates.gate import GateCondition, doubtful
from kafka_rollout.gates.reasons import DIRECTORIES, NO_ERRORS
from kafka_rollout.model.configs import ConfigKind
from kafka_rollout.model.counters import (
    ACTIVE_BROKERS,
    COUNTERS,
    COUNTS_PARTITIONS_SINCE,
    FENCED_BROKERS,
    METADATA_APPLY_ERRORS,
    METADATA_ERROR_COUNTERS,
    MOST_ERRORS_PER_S,
    OFFLINE_LOG_DIRECTORIES,
    OFFLINE_PARTITIONS,
    PREFERRED_REPLICA_IMBALANCE,
    REMOTE_ERROR_RATES,
)
from kafka_rollout.model.counters import METADATA_ERRORS as CONTROLLER_ERRORS
from kafka_rollout.model.node_log import BROKER_SETTINGS, SeenLog
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import ClusterState, NodeMetrics
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.releases.facts import Release

REMOTE_REQUESTS = "remote copies and fetches succeed"
AGREES = "the active controller agrees"
PARTITION_COUNT = "partitions"
OTHERS = "further settings"

Unchecked = Mapping[str, Sequence[int]] | None
"""Counter → nodes whose agents did not export it when the plan was made. None: the plan did not look."""


IGNORED_CONFIG = FindingCode(
    "DYNAMIC-CONFIG-IGNORED", WARNING, "A release of the path starts and ignores a setting in the metadata."
)


_NAMED = 12
METADATA_ERRORS = FindingCode(
    "METADATA-ERRORS",
    (WARNING, BLOCKER),
    "A node could not apply a part of the metadata since its start, and serves without it.",
)
LOG_DIRECTORY_OFFLINE = FindingCode("LOG-DIRECTORY-OFFLINE", BLOCKER, "A log directory of a broker has failed.")
COUNTERS_NOT_EXPORTED = FindingCode(
    "COUNTERS-NOT-EXPORTED", WARNING, "Metrics agents do not export counters that the gates check."
)
COUNTER_CHECK = Check(
    "error-counters",
    "Error counters of the nodes",
    "upgrade.md#what-the-gates-believe",
    (METADATA_ERRORS, LOG_DIRECTORY_OFFLINE, COUNTERS_NOT_EXPORTED),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.FEATURES),
    needs=(Need.METRICS,),
)


def expected_errors(plan: Plan, release: Release) -> tuple[str, ...]:
    """Return what the plan says that nodes of the release ignore, as SeenLog.faults names it.

    DynamicConfigPublisher catches what an invalid client-metrics subscription or a topic's tiered storage throws, logs
    it and counts it. OTHERS stands for those that one finding has without their names.
    """
    names = {ConfigKind.TOPIC: "topic", ConfigKind.CLIENT_METRICS: "client metrics"}
    found = [f"{name} {one}" for kind, name in names.items() for one in _ignored(plan, release, kind)]
    further = tuple(f"{release}, further {kind}s, " for kind in (*names, ConfigKind.BROKER))
    if any(one.code == IGNORED_CONFIG.code and one.subject.startswith(further) for one in plan.findings):
        found.append(OTHERS)
    return tuple(dict.fromkeys(found))


def expected_broker_errors(plan: Plan, release: Release, cluster: ClusterSpec) -> dict[int, frozenset[str]]:
    """Return node id → the errors of its own settings that the plan says that it ignores, as SeenLog.faults names them.

    The broker drops such a value. But for each listener with a keystore, DynamicConfigPublisher validates the settings
    again, to load a store that has changed (DynamicBrokerConfig.reloadUpdatedFilesWithoutConfigChange), and counts what
    that throws, once for each role.
    """
    named = set(_ignored(plan, release, ConfigKind.BROKER))
    return {
        node.node_id: frozenset(BROKER_SETTINGS[: len(node.roles)])
        for node in cluster.brokers
        if str(node.node_id) in named
    }


def _ignored(plan: Plan, release: Release, kind: ConfigKind) -> list[str]:
    """Return the names of the resources that findings of settings that the release ignores name."""
    own = f"{release}, {kind} "
    subjects = [one.subject for one in plan.findings if one.code == IGNORED_CONFIG.code]
    return [one.removeprefix(own).partition(", ")[0] for one in subjects if one.startswith(own)]


def expected_counters(node: NodeSpec, *, tiered: bool = False) -> tuple[str, ...]:
    """Return the counters that the node's process has. `tiered`: it has tiered storage."""
    return tuple(
        name
        for name, counter in COUNTERS.items()
        if counter.is_expected and counter.role in node.roles and (tiered or not counter.needs_tiered_storage)
    )


def has_agent(node: NodeSpec) -> bool:
    return node.prometheus_url is not None or node.jolokia_url is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedErrors:
    """Metadata errors that the approved plan expects, and the logs that must explain each."""

    settings: Sequence[str] = ()
    """As `expected_errors`."""
    of_nodes: Mapping[int, Collection[str]] = field(default_factory=dict)
    """Node id → further faults that only this node can have, as `expected_faults` of its log directories."""
    logs: Mapping[int, SeenLog] = field(default_factory=dict)
    """Node id → the log of its process; a node without one has no readable log."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Doubt → who accepted it."""

    def of(self, node_id: int) -> tuple[str, ...]:
        """Return what is expected of this node, as `SeenLog.faults` names it."""
        return (*self.settings, *sorted(self.of_nodes.get(node_id, ())))


NONE_EXPECTED = ExpectedErrors()


def no_metadata_errors(
    nodes: Sequence[NodeSpec], state: ClusterState, unchecked: Unchecked, *, expected: ExpectedErrors = NONE_EXPECTED
) -> GateCondition:
    """Return the condition that these nodes have applied all metadata since their processes started.

    A broker may count as many errors as its log has errors that the plan expects of it, one for each. Other errors hold
    the condition, also on the same broker.
    """
    wrong = _nonzero(METADATA_ERROR_COUNTERS, nodes, state, unchecked)
    doubts: list[str] = []
    unread: list[str] = []
    unexplained: list[str] = []
    named: dict[str, None] = {}
    others: dict[str, None] = {}
    for node, name, value in wrong.values:
        named |= dict.fromkeys(one for one in expected.of(node.node_id) if one != OTHERS)
        read = _explain(node, name, value, state, expected)
        if read.doubt:
            doubts.append(read.doubt)
        elif read.is_open:
            unread.append(f"{_reported(node, name, value)}, and its log is not read to its end yet")
        elif not read.is_enough:
            unexplained.append(_reported(node, name, value))
            seen = expected.logs.get(node.node_id)
            others |= dict.fromkeys(one for one in (seen.faults if seen else ()) if one not in read.faults)
    evidence = f"0 metadata errors since the start of {_processes(nodes)}"
    awaited_text = few(list(named) or ["settings of the plan"])
    if unexplained:
        beyond = ", more than the approved plan and the log explain" if expected.settings or named else ""
        shown = f"the log names errors of {few(list(others))}" if others else "its log has the error"
        evidence = (
            f"{few(unexplained)}{beyond}: the node does not serve a part of the metadata; {shown}. A restart applies "
            "all metadata again, and counts an error again whose cause is still there"
        )
    elif unread:
        evidence = few(unread)
    elif doubts:
        evidence = f"{few(doubts)}. The approved plan expects errors of {awaited_text}"
    elif wrong.counted:
        evidence = f"{few(wrong.counted)}; the approved plan expects errors of {awaited_text}, and the log has them"
    is_expected = not unexplained and not unread
    condition = wrong.condition(NO_ERRORS, evidence, is_expected=is_expected, is_lasting=bool(unexplained))
    if doubts and condition.is_met:
        return doubtful(NO_ERRORS, condition.evidence, doubts, expected.accepted)
    return condition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explained:
    """How far plan and log explain the value of a counter."""

    faults: frozenset[str]
    is_enough: bool
    doubt: str
    """Why the rest is the decision of an approver; empty if it is not."""
    is_open: bool
    """The part of the log that was not read yet can explain the rest."""


def _explain(node: NodeSpec, name: str, value: float, state: ClusterState, expected: ExpectedErrors) -> _Explained:
    faults, awaited = _explained(node, name, state, expected), expected.of(node.node_id)
    seen, doubt = expected.logs.get(node.node_id), ""
    is_enough = value <= len(faults)  # False for NaN
    is_rest_expected = not is_enough and _can_be_expected(node, name) and bool(awaited)
    is_open = is_rest_expected and seen is not None and seen.is_cut
    is_unknown = seen is None or bool(seen.why_unknown) or OTHERS in awaited
    if is_rest_expected and is_unknown and not is_open:
        who = f"node {node.node_id}{f' ({seen.who})' if seen else ''}"
        doubt = f"{who}: {COUNTERS[name].kafka_name} {value:g}, and the log explains {len(faults)} of them"
    return _Explained(faults=faults, is_enough=is_enough, doubt=doubt, is_open=is_open)


def _reported(node: NodeSpec, name: str, value: float) -> str:
    return f"node {node.node_id} reports {COUNTERS[name].kafka_name} {value:g}"


def _can_be_expected(node: NodeSpec, name: str) -> bool:
    """A node with both roles counts each error of its broker for its controller too (SharedServer)."""
    return node.is_broker and name in {METADATA_APPLY_ERRORS, CONTROLLER_ERRORS}


def _explained(node: NodeSpec, name: str, state: ClusterState, expected: ExpectedErrors) -> frozenset[str]:
    """Return the expected faults that the log of the node names; of topics, those that the node has.

    Each counts once: a client can write more such lines.
    """
    seen = expected.logs.get(node.node_id)
    if seen is None or not _can_be_expected(node, name):
        return frozenset()
    found = frozenset(expected.of(node.node_id)).intersection(seen.faults)
    here = {f"topic {p.topic}" for p in state.partitions if node.node_id in p.replicas}
    return frozenset(one for one in found if not state.partitions or not one.startswith("topic ") or one in here)


def directories_online(node: NodeSpec, state: ClusterState, unchecked: Unchecked) -> GateCondition:
    wrong = _nonzero((OFFLINE_LOG_DIRECTORIES,), [node], state, unchecked)
    evidence = few(wrong.counted) if wrong.counted else f"0 offline log directories on node {node.node_id}"
    return wrong.condition(DIRECTORIES, evidence, is_lasting=True)


def remote_requests_succeed(node: NodeSpec, state: ClusterState, unchecked: Unchecked) -> GateCondition:
    """Return the condition that a broker with tiered storage has copied and fetched without errors recently.

    A broker that has not tried either yet reports no errors, and meets it.
    """
    wrong = _nonzero(REMOTE_ERROR_RATES, [node], state, unchecked)
    evidence = f"node {node.node_id} reports at most {MOST_ERRORS_PER_S} errors per second"
    if wrong.counted:
        evidence = (
            f"{few(wrong.counted)} errors per second (limit {MOST_ERRORS_PER_S}): it cannot reach a part of its remote "
            "data. Its log has the errors"
        )
    return wrong.condition(REMOTE_REQUESTS, evidence)


class _Wrong:
    """Counters above their limit, counters without a value, and those that are not checked, as texts."""

    def __init__(self) -> None:
        self.counted: list[str] = []
        self.values: list[tuple[NodeSpec, str, float]] = []  # of `counted`
        self.unknown: list[str] = []
        self.skipped: list[str] = []
        self.checked = False

    def condition(
        self, name: str, evidence: str, *, is_expected: bool = False, is_lasting: bool = False
    ) -> GateCondition:
        """Return the condition. `is_expected`: counters above their limit do not count. `is_lasting`: these counters do
        not become smaller in a process.
        """
        skipped = f"not checked: {few(self.skipped)}" if self.skipped else ""
        parts = (evidence if self.checked else "", few(self.unknown), skipped)
        is_met = not self.unknown and (is_expected or not self.counted)
        is_lasting = is_lasting and not is_expected and bool(self.counted)
        evidence = "; ".join(filter(None, parts))
        return GateCondition(name=name, is_met=is_met, evidence=evidence, is_lasting=is_lasting)


def _nonzero(names: Sequence[str], nodes: Sequence[NodeSpec], state: ClusterState, unchecked: Unchecked) -> _Wrong:
    wrong = _Wrong()
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
                    wrong.values.append((node, name, value))
                    wrong.counted.append(f"node {node.node_id} reports {kafka_name} {round(value, 4)}")
            elif why := _why_unchecked(node, name, unchecked):
                wrong.skipped.append(f"{kafka_name} of node {node.node_id} ({why})")
            else:
                wrong.unknown.append(f"node {node.node_id} does not report {kafka_name}")
    return wrong


def _why_unchecked(node: NodeSpec, name: str, unchecked: Unchecked) -> str:
    """Return why a missing counter does not count as unknown; empty if it does."""
    if not has_agent(node):
        return "no metrics agent"
    if unchecked is None:
        return "no agent exports it, and the plan is of a version that did not look"
    return "no agent exports it, as the plan says" if node.node_id in unchecked.get(name, ()) else ""


def _processes(nodes: Sequence[NodeSpec]) -> str:
    return f"node {nodes[0].node_id}" if len(nodes) == 1 else count(len(nodes), "node")


def controller_agrees(cluster: ClusterSpec, state: ClusterState, unchecked: Unchecked) -> GateCondition:
    """Return the condition that the active controller counts nothing worse than the brokers report.

    A broker that is cut off from the controllers answers from its last metadata. The registrations and the ISRs that it
    shows can be hours old.
    """
    quorum = state.quorum
    if quorum is None or quorum.leader_id < 0:
        return GateCondition(name=AGREES, is_met=False, evidence="the active controller is unknown")
    leader = next((node for node in cluster.nodes if node.node_id == quorum.leader_id), None)
    metrics = state.active_controller
    who = f"controller {quorum.leader_id}"
    if leader is None or not has_agent(leader):
        return GateCondition(name=AGREES, is_met=True, evidence=f"not compared: {who} has no metrics agent")
    answers = _compare(leader, metrics, _shown(state), unchecked, _doubt(state, quorum.leader_id))
    return GateCondition(
        name=AGREES,
        is_met=not answers[_Answer.WORSE] and not answers[_Answer.UNKNOWN],
        evidence=_say(who, answers, is_partial=state.is_partial),
    )


class _Answer(Enum):
    """What the number of a counter says: worse than the brokers show, as good, nothing yet, or nothing at all."""

    WORSE = "worse"
    COMPARED = "compared"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


def _say(who: str, answers: Mapping[_Answer, Sequence[str]], *, is_partial: bool) -> str:
    reported = answers[_Answer.WORSE] or answers[_Answer.COMPARED]
    parts = {
        f"{who} reports {', '.join(reported)}": reported,
        f"{who} does not report {few(answers[_Answer.UNKNOWN])}": answers[_Answer.UNKNOWN],
        f"not compared: {few(answers[_Answer.SKIPPED])}": answers[_Answer.SKIPPED],
        "the counts of partitions are compared before the next stop and after the last start": is_partial,
    }
    return "; ".join(part for part, is_said in parts.items() if is_said)


def _compare(
    leader: NodeSpec, metrics: NodeMetrics | None, shown: Mapping[str, int], unchecked: Unchecked, doubt: str
) -> dict[_Answer, list[str]]:
    """Return the counters by what they say. `shown`: numbers of the brokers. `doubt`: why partitions prove nothing."""
    answers: dict[_Answer, list[str]] = {answer: [] for answer in _Answer}
    for name, seen in shown.items():
        kafka_name = _kafka_name(name)
        value = None if metrics is None else _count(metrics, name)
        if value is None:
            why = _why_unchecked(leader, name, unchecked)
            answer, text = (_Answer.SKIPPED, f"{kafka_name} ({why})") if why else (_Answer.UNKNOWN, kafka_name)
        elif doubt and name not in (ACTIVE_BROKERS, FENCED_BROKERS):
            answer, text = _Answer.SKIPPED, f"{kafka_name} ({doubt})"
        else:
            # Fewer active brokers are worse, more of everything else.
            is_worse = value < seen if name == ACTIVE_BROKERS else value > seen
            answer = _Answer.WORSE if is_worse else _Answer.COMPARED
            text = f"{kafka_name} {value}" + (f" (the brokers show {seen})" if value != seen else "")
        answers[answer].append(text)
    return answers


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
    counted = {ACTIVE_BROKERS: len(registered.unfenced)}
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


def find_unchecked_counters(
    cluster: ClusterSpec, state: ClusterState, tiered: Collection[int] = ()
) -> dict[str, tuple[int, ...]]:
    """Return counter → nodes with an agent that does not export it now. The gates do not wait for these.

    `tiered`: ids of the brokers with tiered storage, which have more counters.
    """
    missing: defaultdict[str, list[int]] = defaultdict(list)
    for node in cluster.nodes:
        if not has_agent(node):
            continue
        seen = state.nodes.get(node.node_id)
        metrics = seen.metrics if seen else None
        for name in expected_counters(node, tiered=node.node_id in tiered):
            if metrics is None or name not in metrics.counters:
                missing[name].append(node.node_id)
        if node.is_controller and (metrics is None or metrics.partition_count is None):
            missing[PARTITION_COUNT].append(node.node_id)
    return {name: tuple(ids) for name, ids in missing.items()}


def counter_findings(
    cluster: ClusterSpec,
    state: ClusterState,
    *,
    tiered: Collection[int] = (),
    keeps: Collection[int] = (),
    expected: ExpectedErrors = NONE_EXPECTED,
) -> Iterator[Finding]:
    """Yield the findings of one observation. `keeps`: ids of nodes that do not restart before levels are changed.

    The gate after the change would find their errors again, so those that nothing explains block. `expected`: what
    explains them. `tiered`: as in find_unchecked_counters.
    """
    yield from _not_exported(cluster, state, tiered)
    for node in cluster.nodes:
        seen = state.nodes.get(node.node_id)
        counters = seen.metrics.counters if seen and seen.metrics else {}
        counted = {name: counters[name] for name in METADATA_ERROR_COUNTERS if counters.get(name)}
        if counted:
            read = [_explain(node, name, value, state, expected) for name, value in counted.items()]
            yield _metadata_errors(node, counted, read if node.node_id in keeps else None)
        if lost := counters.get(OFFLINE_LOG_DIRECTORIES):
            yield LOG_DIRECTORY_OFFLINE.found(
                f"node {node.node_id}",
                f"{node.name} reports OfflineLogDirectoryCount {lost}: the replicas there are not in sync.",
                f"Replace the disk, or remove the directory from log.dirs, and restart {node.name}. Then plan again.",
            )


def _metadata_errors(node: NodeSpec, counted: Mapping[str, float], read: Sequence[_Explained] | None) -> Finding:
    """Return the finding of a node. `read`: how far its values are explained; None if the node restarts first."""
    values = ", ".join(f"{COUNTERS[name].kafka_name} {value}" for name, value in counted.items())
    sentence = (
        f"{node.name} reports {values}: since its start it could not apply a part of the cluster's metadata, and "
        "serves clients without it (ACLs, quotas or dynamic settings, for example)."
    )
    remedy = (
        f"Read the errors in the log of {node.name} and remove their cause. A restart applies all metadata again, and "
        "counts an error again whose cause is still there."
    )
    severity = WARNING if read is None else BLOCKER
    if read is not None and all(one.is_enough or one.doubt for one in read):
        severity = WARNING
        faults = few(sorted({fault for one in read for fault in one.faults}))
        sentence = f"{node.name} reports {values}, which another finding of this plan explains: {faults}."
        remedy = "No action needed for this number. A higher one fails the gates."
        if doubts := [one.doubt for one in read if one.doubt]:
            sentence = f"{few(doubts)}. Another finding of this plan can explain it, and the log proves nothing."
            remedy = f"Read the errors in the log of {node.name} before you approve the plan."
    return METADATA_ERRORS.found(f"node {node.node_id}", sentence, remedy, severity=severity)


def metadata_doubts(
    nodes: Iterable[NodeSpec], state: ClusterState, expected: ExpectedErrors
) -> tuple[UnknownValue, ...]:
    """Return the errors that the plan can expect, and that no log explains. Who approves the plan accepts them."""
    return tuple(
        UnknownValue(f"metadata errors of node {node.node_id}", f"{doubt}.")
        for node in nodes
        if (seen := state.nodes.get(node.node_id)) and seen.metrics
        for name in METADATA_ERROR_COUNTERS
        if (value := seen.metrics.counters.get(name)) and (doubt := _explain(node, name, value, state, expected).doubt)
    )


def _not_exported(cluster: ClusterSpec, state: ClusterState, tiered: Collection[int]) -> Iterator[Finding]:
    """Report nodes whose agents respond without some counters; a node without metrics has METRICS-MISSING."""
    of_node: defaultdict[int, list[str]] = defaultdict(list)
    for name, ids in find_unchecked_counters(cluster, state, tiered).items():
        for node_id in ids:
            if (seen := state.nodes.get(node_id)) and seen.metrics is not None:
                of_node[node_id].append(name)
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for node_id, names in of_node.items():
        alike[tuple(names)].append(node_id)
    for lacking, nodes_ in alike.items():
        listed = few(sorted(nodes_), limit=_NAMED)
        rules = ", ".join(COUNTERS[name].exporter_rule(name) for name in lacking if name in COUNTERS)
        objects = ", ".join(dict.fromkeys(COUNTERS[name].mbean for name in lacking if name in COUNTERS))
        yield COUNTERS_NOT_EXPORTED.found(
            f"metrics agents of nodes {listed}",
            f"The metrics agents of nodes {listed} do not export {', '.join(map(_kafka_name, lacking))}. The gates do "
            "not check these counters: a node that could not apply a part of its metadata passes them.",
            f"Add the rules of include/metrics/jmx_exporter.yaml to the exporter: objects {objects}; rules {rules}. "
            "Or approve the plan, and read the nodes' logs for errors after each start.",
        )


def _kafka_name(name: str) -> str:
    return "GlobalPartitionCount" if name == PARTITION_COUNT else COUNTERS[name].kafka_name
