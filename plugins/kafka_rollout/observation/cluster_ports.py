"""The ports of a run, and the state of the cluster that they observe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import count
from typing import Any, Protocol, TypeVar, cast

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import NotObservableError, RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.findings import Need
from kafka_rollout.gates.gate import GateRef
from kafka_rollout.metadata_log.losses import Loss, with_paths
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.model.claims import Claims
from kafka_rollout.model.contents import StartReading
from kafka_rollout.model.finalized_levels import UNKNOWN_LEVELS
from kafka_rollout.model.quorum_addresses import QUORUM_BOOTSTRAP, QUORUM_VOTERS
from kafka_rollout.model.rights import PINNING, need_of, refuse_without_reading
from kafka_rollout.model.state import (
    FETCH_TIMEOUT_MS,
    ClusterState,
    GroupState,
    NodeFeatures,
    NodeMetrics,
    NodeState,
    PartitionState,
    ProcessState,
    QuorumState,
    RegisteredNodes,
    TransactionState,
    begin_with_another,
    check_current,
    find_current_brokers,
    find_unlisted_controllers,
)
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.observation.claimed import ClaimedNodes
from kafka_rollout.observation.node_logs import read_logged_requests, with_log_errors
from kafka_rollout.planning.findings.clients import has_old_requests
from kafka_rollout.planning.findings.zookeeper import refuse_zookeeper_mode
from kafka_rollout.ports.cluster import (
    ClusterAdmin,
    ClusterQueries,
    CoordinatorLogs,
    KafkaClasses,
    MetadataLogQueries,
    MetadataLogs,
    Metrics,
    NodeQueries,
    NodeRuntime,
    OutsideValues,
)
from kafka_rollout.rehearsal.job import Rehearsals
from kafka_rollout.releases.facts import Catalogue
from kafka_rollout.releases.reported import identify_by_levels
from kafka_rollout.run.events import Approval
from kafka_rollout.run.ports import ChangeLock, RunQueries, RunStore, RunTraffic


class ReadPorts(Protocol):
    """The ports of one cluster for a function that only observes: no call of them changes the cluster or the history.

    `ClusterPorts` are also these.
    """

    @property
    def run_id(self) -> str: ...
    @property
    def cluster(self) -> ClusterSpec: ...
    @property
    def catalogue(self) -> Catalogue: ...
    @property
    def admin(self) -> ClusterQueries: ...
    @property
    def runtime(self) -> NodeQueries: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def outside(self) -> OutsideValues: ...
    @property
    def classes(self) -> KafkaClasses: ...
    @property
    def logs(self) -> CoordinatorLogs: ...
    @property
    def metadata_logs(self) -> MetadataLogQueries: ...
    @property
    def run(self) -> RunQueries: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def racks(self) -> dict[int, str]: ...
    @property
    def start_readings(self) -> dict[GateRef, StartReading]: ...
    @property
    def claimed(self) -> ClaimedNodes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPorts:
    """The ports of one cluster, to observe and to act. A function that only observes takes `ReadPorts`."""

    run_id: str
    """Id of the run and holder of the cluster's lock."""
    cluster: ClusterSpec
    catalogue: Catalogue
    admin: ClusterAdmin
    runtime: NodeRuntime
    metrics: Metrics
    outside: OutsideValues
    classes: KafkaClasses
    logs: CoordinatorLogs
    metadata_logs: MetadataLogs
    rehearsals: Rehearsals
    traffic: RunTraffic
    run: RunStore
    lock: ChangeLock
    clock: Clock
    confirm_approval: Callable[[Approval], None] | None = None
    """Compares an approval with Airflow's own record of the answer, and raises if they differ. Every task and trigger
    has it; a shell, which has no such record, has None."""
    racks: dict[int, str] = field(default_factory=dict, compare=False)
    """broker.rack of the nodes that the pauses of the plan have compared, because a gate checks them every few seconds.
    """
    start_readings: dict[GateRef, StartReading] = field(default_factory=dict, compare=False)
    """The newest reading for the gate of each node that was started last: a soak checks every second."""
    claimed: ClaimedNodes = field(default_factory=ClaimedNodes, compare=False)


_T = TypeVar("_T")
_Item = TypeVar("_Item")
Around = Callable[[str, Sequence[object], Mapping[str, object]], AbstractContextManager[None]]

# Nodes are queried in parallel, because most of the time is waiting for responses.
ASKED_AT_ONCE = 8
_ASKED_FOR_APPLIED = 3
_READ_FROM = 2  # the second responds if the first is overloaded
_CHECKS = count()
AUTO_JOIN = "controller.quorum.auto.join.enable"
_NO_PARTITIONS: tuple[PartitionState, ...] = ()
_NO_GROUPS: tuple[GroupState, ...] = ()
_NO_TRANSACTIONS: tuple[TransactionState, ...] = ()
FETCH_TIMEOUT = "controller.quorum.fetch.timeout.ms"
_NOT_ASKED = RegisteredNodes(brokers=frozenset(), fenced=None, controllers=None)


def observe(ports: ReadPorts) -> ClusterState:
    """Observe the whole cluster. As `observe_without_groups`, and in addition groups and transactional ids."""
    state = observe_without_groups(ports)
    unanswered: list[str] = []
    refused: dict[str, Need] = {}
    ask_groups = _unless_refused(ports, ports.admin.groups, _NO_GROUPS, refused, Need.GROUPS)
    ask_transactions = _unless_refused(ports, ports.admin.transactions, _NO_TRANSACTIONS, refused, Need.GROUPS)
    groups = _ask(ask_groups, _NO_GROUPS, unanswered)
    transactions = _ask(ask_transactions, _NO_TRANSACTIONS, unanswered)
    return replace(
        state,
        groups=groups,
        transactions=transactions,
        unanswered=(*state.unanswered, *unanswered),
        not_observable=(*state.not_observable, *refused),
        needs={**state.needs, **refused, **dict.fromkeys(unanswered, Need.GROUPS)},
    )


def observe_without_groups(ports: ReadPorts) -> ClusterState:
    """Observe the cluster for a decision that needs neither groups nor transactional ids: those of the state are empty.

    A value that was not reported is None or empty and listed in `unanswered`. Raises TransientError only if the brokers
    do not report the cluster's id, its nodes and its partitions. Raises RefusedError with all missing rights if one of
    them is needed to observe the cluster, except for a cluster without a runtime: `not_observable` lists it.
    """
    # A plan that sets a default asks the controller to validate this request.
    missing = tuple(one for one in ports.admin.missing_rights() if one.right not in PINNING)
    if ports.cluster.manages_nodes:
        refuse_without_reading(ports.cluster, missing)
    if not ports.cluster.controllers:
        modes: dict[int, bool] = {}
        for node in ports.cluster.brokers:
            with suppress(TransientError):
                modes[node.node_id] = ports.admin.features(node).in_zookeeper_mode
        refuse_zookeeper_mode(ports.cluster, modes)
    state = with_log_errors(ports, observe_some(ports, ports.cluster.nodes, metrics=True))
    refused = {one.sentence: need_of(one.right) for one in missing if one.is_to_read}
    return replace(
        with_registered_levels(ports, state),
        quorum_in_use=_quorum_in_use(ports, state),
        not_observable=(*state.not_observable, *refused),
        needs={**state.needs, **refused},
        logged_requests=read_logged_requests(ports, _with_old_requests(ports, state)),
        missing_rights=tuple(one for one in missing if not one.is_to_read),
    )


def _quorum_in_use(ports: ReadPorts, state: ClusterState) -> dict[int, dict[str, str]]:
    """Ask the processes: the leader of a static quorum counts by its own file, and a follower can have read another."""
    answering = [node for node in ports.cluster.nodes if state.nodes[node.node_id].features is not None]

    def ask(node: NodeSpec) -> dict[str, str]:
        with suppress(NotObservableError, TransientError, RefusedError):
            settings = ports.admin.settings_in_use(node, [QUORUM_VOTERS, QUORUM_BOOTSTRAP])
            return {name: setting.value for name, setting in settings.items() if setting.value}
        return {}

    found = zip(answering, at_once(ask, answering), strict=True)
    return {node.node_id: in_use for node, in_use in found if in_use}


def with_registered_levels(ports: ReadPorts, state: ClusterState) -> ClusterState:
    """Add the cluster's id, and the registered levels of controllers if the inventory lacks a registered one."""
    state = replace(state, cluster_id=ports.admin.cluster_id())
    if not ports.cluster.manages_nodes or not find_unlisted_controllers(ports.cluster, state):
        return state
    found = read_registrations(ports, state.quorum.leader_id if state.quorum else None, state.cluster_id)
    return state if found is None else replace(state, registered_levels=found.controllers)


def read_registrations(ports: ReadPorts, leader_id: int | None, cluster_id: str) -> MetadataRegistrations | None:
    """Read the log of the active controller, which is the longest; another one if it cannot be read.

    None if no controller's log can be read. `leader_id`: None if it is unknown.
    """
    for node in sorted(ports.cluster.controllers, key=lambda node: node.node_id != leader_id):
        with suppress(RefusedError, TransientError, UserError):  # unknown, which a finding reports
            if ports.runtime.metadata_log_dir(node) is not None:
                return ports.metadata_logs.registrations(node, cluster_id=cluster_id)
    return None


def _with_old_requests(ports: ReadPorts, state: ClusterState) -> Iterator[NodeSpec]:
    """Yield the brokers that counted old request versions."""
    for node in ports.cluster.brokers:
        metrics = state.nodes[node.node_id].metrics
        if metrics is not None and has_old_requests(ports.catalogue, metrics):
            yield node


def observe_some(
    ports: ReadPorts,
    nodes: Sequence[NodeSpec],
    *,
    metrics: bool,
    brokers: bool = True,
    topics: Collection[str] | None = None,
    min_isr_age_s: float = 0.0,
) -> ClusterState:
    """Observe a part of the cluster for a gate: some nodes, and with `brokers` the quorum, registrations and
    partitions.

    `cluster_id`, groups and transactions stay empty; a node that was not queried is not in `nodes`. `topics`: only
    their partitions are read, without min.insync.replicas, through brokers that have applied the newest metadata; no
    response is in `unanswered` then, and no error. `min_isr_age_s`: as for `ClusterQueries.partitions`.
    """
    unanswered: list[str] = []
    refused: dict[str, Need] = {}
    # The quorum first: what was committed then must have been applied by the nodes, and the brokers that are current
    # report the rest.
    ask_quorum = _unless_refused(ports, ports.admin.quorum, None, refused, Need.QUORUM)
    quorum = _ask(ask_quorum, None, unanswered) if brokers else None
    needs = dict.fromkeys(unanswered, Need.QUORUM)
    quorum = _with_joining_voters(ports, _with_fetch_timeout(ports, quorum))
    asked_at = ports.clock.monotonic()
    seen, compared = _with_other_claims(ports, at_once(lambda node: observe_node(ports, node, metrics=metrics), nodes))
    unanswered += [node.problem for node in seen if node.problem]
    observed = {node.node_id: node for node in seen}
    current = find_current_brokers(ports.cluster, quorum, observed)
    if topics is not None:
        current = _applied(ports, quorum, current)
        if not current:
            unanswered.append("No broker that was queried has applied the newest metadata.")
    through = current if topics is not None else begin_with_another(current, ports.clock.now())
    # Before the partitions: a topic that is created in between does not count as hidden.
    active = _active_controller(ports, quorum, observed)
    registered, partitions = _NOT_ASKED, _NO_PARTITIONS
    if brokers and topics is None:
        registered = ports.admin.registered(through=through)
        read = partial(ports.admin.partitions, through=through)
        without_settings = _unless_refused(
            ports, partial(read, min_isr_age_s=None), _NO_PARTITIONS, refused, Need.TOPICS
        )
        whole = partial(read, min_isr_age_s=min_isr_age_s)
        found = _unless_refused(ports, whole, None, refused, Need.TOPICS)()
        partitions = without_settings() if found is None else found
    elif brokers:  # the process of a node counts also if no broker reports the rest
        registered = _ask(partial(ports.admin.registered, through=through), _NOT_ASKED, unanswered)
        read = partial(ports.admin.partitions, through=through, topics=topics, min_isr_age_s=None)
        ask_partitions = _unless_refused(ports, read, _NO_PARTITIONS, refused, Need.TOPICS)
        partitions = _ask(ask_partitions, _NO_PARTITIONS, unanswered) if through else _NO_PARTITIONS
    return ClusterState(
        cluster_id="",
        nodes=observed,
        quorum=quorum,
        registered=registered,
        partitions=partitions,
        unanswered=tuple(unanswered),
        not_observable=tuple(refused),
        needs={**needs, **refused},
        active_controller=active,
        read_from=current,
        is_partial=topics is not None,
        # The time of the responses, not of the queries: lags and ages are computed from it.
        observed_at=ports.clock.now(),
        asked_at=asked_at,
        compares_claims=compared,
    )


def _with_other_claims(ports: ReadPorts, seen: Sequence[NodeState]) -> tuple[list[NodeState], bool]:
    others, compared = without_known(ports, {one.node_id: one.process.claims for one in seen})
    return [replace(one, other_claims=others[one.node_id]) for one in seen], compared


def without_known(ports: ReadPorts, found: Mapping[int, Claims]) -> tuple[dict[int, Claims], bool]:
    """Return the claims of nodes that no run of this database has left, and whether there is a database to know."""
    ours = {ports.claimed.nonce}
    known = ports.run.known_claims(frozenset().union(*(claims.nonces for claims in found.values())) - ours)
    return {node_id: one.without(ours.union(known or ())) for node_id, one in found.items()}, known is not None


def levels_now(ports: ReadPorts) -> ClusterState:
    """Return every node's own response about features, and nothing else.

    The finalized levels are unknown unless a broker has applied what was committed before.
    """
    quorum = _ask(_unless_refused(ports, ports.admin.quorum, None, {}, Need.QUORUM), None, [])
    state = observe_some(ports, ports.cluster.nodes, metrics=False, brokers=False)
    return replace(state, has_current_levels=_some_is_current(ports.cluster, quorum, state.nodes))


def _some_is_current(cluster: ClusterSpec, quorum: QuorumState | None, seen: Mapping[int, NodeState]) -> bool:
    return any(seen[node_id].features is not None for node_id in find_current_brokers(cluster, quorum, seen))


def read_current_levels(ports: ReadPorts) -> Mapping[str, int]:
    """Return the finalized levels that a broker with current metadata reports. Raises TransientError if none does."""
    quorum = ports.admin.quorum()
    for node_id in find_current_brokers(ports.cluster, quorum, {}):
        with suppress(TransientError):
            features = ports.admin.features(ports.cluster.node(node_id))
            if _has_applied(quorum, node_id, features):
                return features.finalized
    return UNKNOWN_LEVELS.known()


def _has_applied(quorum: QuorumState, node_id: int, features: NodeFeatures) -> bool:
    seen = NodeState(node_id=node_id, process=ProcessState(pid=None), features=features, metrics=None)
    return check_current(quorum, node_id, seen)[0]


def _applied(ports: ReadPorts, quorum: QuorumState | None, current: Sequence[int]) -> tuple[int, ...]:
    """Return up to two of three brokers of `current` that have applied the metadata which they fetched; the next time
    it begins with the next broker.

    The counts of all partitions would show an old answer, and a check of some topics has none.
    """
    if quorum is None or not current:
        return ()
    first = next(_CHECKS) % len(current)
    applied: list[int] = []
    for node_id in (*current[first:], *current[:first])[:_ASKED_FOR_APPLIED]:
        with suppress(TransientError):
            node = ports.cluster.node(node_id)
            if _has_applied(quorum, node_id, ports.admin.features(node)):
                applied.append(node_id)
        if len(applied) == _READ_FROM:
            break
    return tuple(applied)


def _with_fetch_timeout(ports: ReadPorts, quorum: QuorumState | None) -> QuorumState | None:
    """Add the controllers' own fetch timeout, if a replica is silent for longer than the default allows.

    So a check of a cluster in which every replica fetches reads no configuration.
    """
    if quorum is None or not quorum.is_a_replica_silent or not ports.cluster.manages_nodes:
        return quorum
    timeouts = [FETCH_TIMEOUT_MS]
    for node in ports.cluster.controllers:
        with suppress(TransientError, RefusedError, ValueError):
            timeouts.append(int(ports.runtime.config(node).get(FETCH_TIMEOUT, FETCH_TIMEOUT_MS)))
    return replace(quorum, fetch_timeout_ms=max(timeouts))


def _active_controller(
    ports: ReadPorts, quorum: QuorumState | None, seen: Mapping[int, NodeState]
) -> NodeMetrics | None:
    """Return the metrics of the quorum's leader; None if it has no agent or its agents do not respond."""
    leader = next((node for node in ports.cluster.nodes if quorum and node.node_id == quorum.leader_id), None)
    if leader is None:
        return None
    observed = seen.get(leader.node_id)
    if observed is not None and observed.metrics is not None:
        return observed.metrics
    try:
        return ports.metrics.read(leader)
    except TransientError:
        return None  # the gate's own condition reports it


def _with_joining_voters(ports: ReadPorts, quorum: QuorumState | None) -> QuorumState | None:
    """Add the voters that replace themselves. A file is read only if another directory of a voter observes."""
    if quorum is None or not quorum.replaced_voters or not ports.cluster.manages_nodes:
        return quorum
    joins: set[int] = set()
    for node in ports.cluster.controllers:
        if node.node_id in quorum.replaced_voters:
            with suppress(RefusedError, TransientError, UserError):  # then the operator replaces the voter
                if ports.runtime.config(node).get(AUTO_JOIN, "").strip().lower() == "true":
                    joins.add(node.node_id)
    return replace(quorum, joins_itself=frozenset(joins))


def observe_node(ports: ReadPorts, node: NodeSpec, *, metrics: bool = True) -> NodeState:
    """Observe one node: process, features and metrics. A missing value is None, with the reason in `problem`."""
    problems: list[str] = []
    features = read = None
    process = ProcessState(pid=None)
    if ports.cluster.manages_nodes:
        process = _ask(lambda: ports.runtime.process(node), process, problems)
        process = replace(process, problem=problems[0]) if problems else process
    if process.pid is None and ports.cluster.manages_nodes and not problems:
        problems.append(f"Node {node.node_id} has no process.")
    else:
        features = _ask(lambda: ports.admin.features(node), None, problems)
        if metrics:
            read = _ask(lambda: ports.metrics.read(node), None, problems)
    if features is not None and not ports.cluster.manages_nodes:
        evaluated = identify_by_levels(features.supported, ports.catalogue, ports.cluster.apache_releases)
        process = replace(process, running=evaluated.release)
    return NodeState(node_id=node.node_id, process=process, features=features, metrics=read, problem=" ".join(problems))


def _unless_refused(
    ports: ReadPorts, question: Callable[[], _T], otherwise: _T, refused: dict[str, Need], need: Need
) -> Callable[[], _T]:
    """Return the question with `otherwise` as its answer if a cluster without a runtime refuses it.

    `refused` gets the sentence, with the `need` that is unknown then.
    """

    def ask() -> _T:
        try:
            return question()
        except RefusedError as error:
            if ports.cluster.manages_nodes:
                raise
            refused[error.sentence] = need
            return otherwise

    return ask


def _ask(question: Callable[[], _T], otherwise: _T, unanswered: list[str]) -> _T:
    try:
        return question()
    except TransientError as error:
        unanswered.append(error.sentence)
        return otherwise


Result = TypeVar("Result")


def at_once(act: Callable[[_Item], _T], items: Iterable[_Item], *, most: int = ASKED_AT_ONCE) -> list[_T]:
    """Act on some items in parallel, at most `most` at a time; return the results. Raise the first error at the end."""
    each = list(items)
    if len(each) <= 1:  # as in most gates: a thread costs more than many an act
        return [act(item) for item in each]
    with ThreadPoolExecutor(max_workers=most, thread_name_prefix="steps") as pool:
        return list(pool.map(act, each))


def once_per_node(read: Callable[[NodeSpec], _T]) -> Callable[[NodeSpec], _T]:
    """Return `read` that asks each node once: a repeated call has the same result, or raises the same error."""
    answers: dict[int, _T] = {}
    errors: dict[int, RolloutError] = {}

    def ask(node: NodeSpec) -> _T:
        if node.node_id in errors:
            raise errors[node.node_id]
        if node.node_id not in answers:
            try:
                answers[node.node_id] = read(node)
            except RolloutError as error:
                errors[node.node_id] = error
                raise
        return answers[node.node_id]

    return ask


def until(
    clock: Clock, check: Callable[[], Result], is_met: Callable[[Result], bool], *, for_s: float, every_s: float = 0.5
) -> Result:
    """Repeat `check` until `is_met` accepts its result or `for_s` have passed; return the last result. All in seconds.

    The check is called at least once, and its errors are raised.
    """
    deadline = clock.monotonic() + for_s
    while not is_met(result := check()) and clock.monotonic() < deadline:
        clock.sleep(every_s)
    return result


class _Around:
    def __init__(self, port: object, names: Collection[str], around: Around) -> None:
        self._port, self._names, self._around = port, names, around

    def __getattr__(self, name: str) -> Any:
        found: Callable[..., Any] = getattr(self._port, name)
        if name not in self._names:
            return found

        @wraps(found)
        def call(*args: Any, **options: Any) -> Any:
            with self._around(name, args, options):
                return found(*args, **options)

        return call


def around_calls(port: _T, names: Collection[str], around: Around) -> _T:
    """Return the port; its calls with these names run within `around`, which gets the name and the arguments."""
    return cast(_T, _Around(port, names, around))


def named_directories(ports: ReadPorts, losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Return the losses with directories also shown by path, if the runtime can read the files."""
    paths = {id_: path for node in ports.cluster.brokers for id_, path in ports.runtime.log_directories(node).items()}
    return with_paths(losses, paths)
