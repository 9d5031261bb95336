"""All checks, in the order of the rooms, and those of a plan without a run: of another release, of levels.

A finding has a code of one of them. `check_release` and `verify` change nothing and store nothing. A check that needs
Kafka's own classes or a long coordinator log is unknown where they are not available; the reason is in its result.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import (
    NotObservableError,
    RefusedError,
    RolloutError,
    TransientError,
    UserError,
    result_code,
)
from kafka_rollout.base.findings import (
    Check,
    Checked,
    CheckOf,
    Verdict,
    all_findings,
    results_of,
    timed_checks,
    unknown,
)
from kafka_rollout.base.wording import count
from kafka_rollout.coordinator_logs.findings import LOGS_CHECK, ROLLBACK_CHECK
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.feature_updates.levels import RACE_CHECK
from kafka_rollout.feature_updates.open_gates import OPEN_GATES_CHECK
from kafka_rollout.feature_updates.update import CONTROLLER_CHECK
from kafka_rollout.features.min_isr import MIN_ISR_CHECK
from kafka_rollout.features.requests import RANGES_CHECK, ROLLBACK_LEVELS_CHECK
from kafka_rollout.features.rules import HELD_BACK_CHECK, LEVELS_CHECK, USERS_CHECK
from kafka_rollout.gates import whole_cluster as cluster_gates
from kafka_rollout.gates.control import OUTSIDE_CHECK
from kafka_rollout.gates.counters import COUNTER_CHECK
from kafka_rollout.gates.gate import GateCheck
from kafka_rollout.gates.remote_storage import REMOTE_STORAGE_CHECK
from kafka_rollout.groups.findings import GROUPS_CHECK
from kafka_rollout.groups.migration import MIGRATION_CHECK
from kafka_rollout.model.plan import Direction
from kafka_rollout.model.rights import RIGHTS_CHECK, find_rights_of_checks
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import ClusterState
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, around_calls, observe
from kafka_rollout.observation.planned_coordinators import planned_group_coordinator
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.planning.batches import WINDOWS_CHECK
from kafka_rollout.planning.downgrade import LOWERING_CHECK
from kafka_rollout.planning.findings.acls import ACLS_CHECK
from kafka_rollout.planning.findings.advisories import ADVISORIES_CHECK
from kafka_rollout.planning.findings.agreement import BETWEEN_NODES_CHECK
from kafka_rollout.planning.findings.authentication import AUTHENTICATION_CHECK
from kafka_rollout.planning.findings.certificates import CERTIFICATES_CHECK
from kafka_rollout.planning.findings.changed_settings import CHANGED_SETTINGS_CHECK
from kafka_rollout.planning.findings.claims import CLAIMS_CHECK
from kafka_rollout.planning.findings.clients import CLIENTS_CHECK, USE_CHECK
from kafka_rollout.planning.findings.cluster_state import (
    AGENTS_CHECK,
    AGREEMENT_CHECK,
    HIDDEN_CHECK,
    MIXED_CHECK,
    NODES_CHECK,
    PARTITIONS_CHECK,
    QUERIES_CHECK,
    QUORUM_CHECK,
    UNLISTED_CHECK,
    check_cluster,
)
from kafka_rollout.planning.findings.configuration import (
    CONFIGURATION_CHECK,
    DIRECTORIES_CHECK,
    JAVA_CHECK,
    SHUTDOWN_CHECK,
)
from kafka_rollout.planning.findings.downgrade_scans import LOSSES_CHECK, METADATA_LOGS_CHECK
from kafka_rollout.planning.findings.dynamic_configs import DYNAMIC_CONFIGURATION_CHECK
from kafka_rollout.planning.findings.hosts import HOSTS_CHECK, REACHABLE_CHECK
from kafka_rollout.planning.findings.jvm_properties import JVM_PROPERTIES_CHECK
from kafka_rollout.planning.findings.log_folders import LOG_FOLDERS_CHECK
from kafka_rollout.planning.findings.new_settings import NEW_SETTINGS_CHECK
from kafka_rollout.planning.findings.not_observable import FILES_CHECK, OBSERVABLE_CHECK, RELEASE_BY_LEVELS
from kafka_rollout.planning.findings.pending import PENDING_CHECK
from kafka_rollout.planning.findings.quorum_start import QUORUM_START_CHECK
from kafka_rollout.planning.findings.releases import GAPS_CHECK, REPORTED_CHECK, ROLLBACK_END_CHECK
from kafka_rollout.planning.findings.runs_in_progress import (
    RUNS_CHECK,
    RUNS_UNKNOWN,
    RunInProgress,
    run_findings,
)
from kafka_rollout.planning.findings.starts import START_FILES_CHECK
from kafka_rollout.planning.findings.unclean_elections import UNCLEAN_CHECK
from kafka_rollout.planning.findings.unreachable import IP_QUOTAS_CHECK, SNAPSHOT_CHECK, THROTTLES_CHECK
from kafka_rollout.planning.findings.zookeeper import ZOOKEEPER_CHECK
from kafka_rollout.planning.observation import PlanObservation
from kafka_rollout.planning.plan_checks import NO_RESTART, examined_text, nodes_text, unknown_responses, unknown_values
from kafka_rollout.planning.plans import decide_plan
from kafka_rollout.planning.registration import REGISTRATIONS_CHECK
from kafka_rollout.planning.release_path import PAST_CHECK
from kafka_rollout.planning.request import Request
from kafka_rollout.preparation.earlier_runs import EARLIER_RUNS_CHECK
from kafka_rollout.preparation.frozen_plan import logs_findings
from kafka_rollout.preparation.lost_metadata import find_losses
from kafka_rollout.preparation.plan_making import check_files, check_min_isr, min_isr_effects, observe_files
from kafka_rollout.preparation.replayed_metadata import check_metadata
from kafka_rollout.rehearsal.result import REHEARSAL_CHECK
from kafka_rollout.releases.facts import METADATA_VERSION, Release
from kafka_rollout.report.check_report import CheckEntry, ClusterCheckReport
from kafka_rollout.roll.metadata_logs import find_metadata_logs
from kafka_rollout.run.projections.observations import observed_of

CHECKS: tuple[Check, ...] = (
    RIGHTS_CHECK,
    COUNTER_CHECK,
    REMOTE_STORAGE_CHECK,
    RANGES_CHECK,
    ROLLBACK_LEVELS_CHECK,
    LEVELS_CHECK,
    HELD_BACK_CHECK,
    USERS_CHECK,
    MIN_ISR_CHECK,
    LOGS_CHECK,
    ROLLBACK_CHECK,
    GROUPS_CHECK,
    MIGRATION_CHECK,
    PAST_CHECK,
    REGISTRATIONS_CHECK,
    GAPS_CHECK,
    QUERIES_CHECK,
    NODES_CHECK,
    AGENTS_CHECK,
    CLAIMS_CHECK,
    MIXED_CHECK,
    QUORUM_CHECK,
    AGREEMENT_CHECK,
    PARTITIONS_CHECK,
    UNCLEAN_CHECK,
    HIDDEN_CHECK,
    UNLISTED_CHECK,
    OBSERVABLE_CHECK,
    FILES_CHECK,
    REPORTED_CHECK,
    CLIENTS_CHECK,
    USE_CHECK,
    ZOOKEEPER_CHECK,
    CONFIGURATION_CHECK,
    START_FILES_CHECK,
    CERTIFICATES_CHECK,
    BETWEEN_NODES_CHECK,
    QUORUM_START_CHECK,
    THROTTLES_CHECK,
    IP_QUOTAS_CHECK,
    SNAPSHOT_CHECK,
    JAVA_CHECK,
    SHUTDOWN_CHECK,
    DIRECTORIES_CHECK,
    DYNAMIC_CONFIGURATION_CHECK,
    CHANGED_SETTINGS_CHECK,
    JVM_PROPERTIES_CHECK,
    LOG_FOLDERS_CHECK,
    AUTHENTICATION_CHECK,
    NEW_SETTINGS_CHECK,
    ADVISORIES_CHECK,
    RUNS_CHECK,
    ROLLBACK_END_CHECK,
    PENDING_CHECK,
    WINDOWS_CHECK,
    OUTSIDE_CHECK,
    HOSTS_CHECK,
    REACHABLE_CHECK,
    ACLS_CHECK,
    LOWERING_CHECK,
    METADATA_LOGS_CHECK,
    LOSSES_CHECK,
    REHEARSAL_CHECK,
    CONTROLLER_CHECK,
    RACE_CHECK,
    OPEN_GATES_CHECK,
    EARLIER_RUNS_CHECK,
)


_T = TypeVar("_T")
_QUERIES: Mapping[str, Check] = {
    "cluster_id": QUERIES_CHECK,
    "features": NODES_CHECK,
    "registered": NODES_CHECK,
    "read": AGENTS_CHECK,
    "quorum": QUORUM_CHECK,
    "partitions": PARTITIONS_CHECK,
    "groups": GROUPS_CHECK,
    "transactions": USE_CHECK,
    "missing_rights": RIGHTS_CHECK,
    "config": FILES_CHECK,
    "java_version": JAVA_CHECK,
    "start_problems": CONFIGURATION_CHECK,
    "certificates": CERTIFICATES_CHECK,
    "dynamic_configs": DYNAMIC_CONFIGURATION_CHECK,
    "dynamic_config_problems": DYNAMIC_CONFIGURATION_CHECK,
    "acls": ACLS_CHECK,
    "acl_differences": ACLS_CHECK,
    "scan": METADATA_LOGS_CHECK,
    "authentication_probes": AUTHENTICATION_CHECK,
    "setting_documentation": NEW_SETTINGS_CHECK,
    "setting": MIN_ISR_CHECK,
    "scan_small": LOGS_CHECK,
}
"""Call of a port → the check whose duration includes it. A call that several checks need counts once."""
_NO_TAGS = "Tagged fields that an older release ignores (KIP-482) were not read. A scan with Spark lists them."


def checks_of(kinds: Sequence[CheckOf]) -> tuple[Check, ...]:
    """Return the checks that belong to one of these, in the order of all checks."""
    return tuple(check for check in CHECKS if set(check.of) & set(kinds))


CHECKED_KINDS = (CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.CHECK)


def choose_checks(only: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Check, ...]:
    """Return the checks of another release: all, or those with the ids `only`, without those with the ids `skip`.

    Raises UserError for an unknown id, and if no check is left.
    """
    checks = {one.id: one for one in checks_of(CHECKED_KINDS)}
    for wanted in (*only, *skip):
        if wanted not in checks:
            near = get_close_matches(wanted, checks, n=1, cutoff=0.7)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise UserError(
                f"There is no check {wanted}.", remedy=f"{meant}`kafka-rollout check --list` lists all checks."
            )
    chosen = tuple(one for name, one in checks.items() if (not only or name in only) and name not in skip)
    if not chosen:
        raise UserError("No check is left to make.", remedy="Leave out fewer of them.")
    return chosen


def check_release(
    ports: ClusterPorts,
    target: Release,
    chosen: Sequence[Check],
    *,
    complete_with: str,
    on_progress: Callable[[str], None] = lambda line: None,
    by_levels: str = "",
    scan: ScanResult | None = None,
    run_in_progress: Callable[[], RunInProgress | None] | None = None,
) -> ClusterCheckReport:
    """Observe the cluster and run the `chosen` checks for its change to `target`, up or down.

    `complete_with`: how more results become known. `by_levels`: remedy where no node reports its patch release;
    default: that of the finding. `scan`: a scan of the coordinator logs with the contents of the records;
    without one that evaluated the releases of the path, a small log is read here. `run_in_progress` reads it from the
    stored runs; None: they are not known by the name of this cluster.

    A target that already runs on all nodes is checked as a restart. Raises RefusedError if no node's release is known,
    and UserError for a target that cannot be planned.
    """
    began, at = ports.clock.monotonic(), ports.clock.now()
    watch = _Stopwatch(ports.clock)
    classes = _OptionalClasses(ports.classes, chosen)
    runtime = around_calls(ports.runtime, _OF_NODES, _unknown_if_silent)
    ports = watch.around(replace(ports, classes=cast(Any, classes), runtime=runtime))
    on_progress(f"reading the state of {count(len(ports.cluster.nodes), 'node')}")
    missing = ports.admin.missing_rights()
    state = observe(ports)
    run_of = direction_to(target, state)
    on_progress(f"reading configurations, and checking them with the classes of Kafka {target}")
    request = Request(target=target)  # with the defaults of the form: levels are finalized by a later run
    with ports.classes.keep_processes(), timed_checks(ports.clock.monotonic):
        observed = observe_files(ports, state, request, run_of)
        ports = replace(ports, catalogue=observed.catalogue)
        on_progress("checking, and reading the coordinator logs")
        plan, checked = decide_plan(observed, request, run_of)
        rights = RIGHTS_CHECK.ran(find_rights_of_checks(ports.cluster, missing))
        checked = (*(one for one in checked if one.check is not RIGHTS_CHECK), rights)
        checked = (*checked, _check_runs(run_in_progress), *_more(Run(ports, plan), observed, request, chosen))
        if LOGS_CHECK in chosen and plan.direction is not Direction.RESTART:
            checked = (*checked, _check_logs(Run(ports, plan), scan))
    unknown = unknown_values(observed, plan.path)
    entries = tuple(
        CheckEntry.of(
            _with_remedy(_without_classes(one, classes.missing), by_levels),
            unknown,
            examined=examined_text(one.check.examines, observed, plan),
            seconds=watch.seconds(one.check),
        )
        for one in sorted(checked, key=lambda one: CHECKS.index(one.check))
        if one.check in chosen
    )
    return ClusterCheckReport(
        cluster=ports.cluster.name,
        bootstrap_servers=ports.cluster.bootstrap_servers,
        cluster_id=state.cluster_id,
        change=run_of.value,
        path=tuple(map(str, plan.path)) if plan.changes_release else (str(plan.source),),
        target=str(target),
        nodes=nodes_text(observed),
        contents=_contents(state),
        checked_at=at,
        seconds=ports.clock.monotonic() - began,
        entries=entries,
        left_out=len({one.check for one in checked}) - len(entries),
        observed=replace(observed_of(state), at=at),
        complete_with=f"Grant the rights that user-rights names. {complete_with}" if rights.findings else complete_with,
    )


def direction_to(target: Release, state: ClusterState) -> RunOf:
    """Return the kind of run that moves a cluster to `target`; restart if all nodes run it.

    A cluster whose nodes run different releases is upgraded to the highest of them, as an interrupted upgrade.
    """
    running = state.releases
    if not running:
        return RunOf.UPGRADE  # the plan refuses it, because no node's release is known
    if running == {target}:
        return RunOf.RESTART
    return RunOf.DOWNGRADE if target < max(running) else RunOf.UPGRADE


def _more(
    run: Run,
    observed: PlanObservation,
    request: Request,
    chosen: Collection[Check],
) -> Iterator[Checked]:
    """Yield the checks that `decide_plan` does not have, as far as the brokers can answer them."""
    yield from check_files(run, observed, request)
    if run.plan.direction is Direction.RESTART:
        return
    if run.plan.direction is Direction.UPGRADE:
        yield check_min_isr(run.plan, min_isr_effects(run, observed, request))
        if METADATA_LOGS_CHECK in chosen:
            yield check_metadata(run)
    else:
        if METADATA_LOGS_CHECK in chosen:
            yield find_metadata_logs(run)
        if LOSSES_CHECK in chosen:
            yield find_losses(run)


def _check_runs(read: Callable[[], RunInProgress | None] | None) -> Checked:
    if read is None:
        return RUNS_CHECK.ran(unknown=unknown("runs", RUNS_UNKNOWN))
    try:
        return RUNS_CHECK.ran(run_findings(read()))
    except (RolloutError, OSError, ValueError) as error:  # as in wiring/runs.py
        return RUNS_CHECK.ran(unknown=unknown("runs", f"The stored runs cannot be read: {error}"))


def _check_logs(run: ReadRun, scanned: ScanResult | None) -> Checked:
    if not run.plan.changes_release:
        return LOGS_CHECK.ran(unless=NO_RESTART)
    if scanned is not None and not scanned.standing.keys() >= set(run.plan.path[1:]):
        scanned = None  # it did not evaluate these releases
    try:
        planned = planned_group_coordinator(run.ports, run.plan.path[1:])
        if scanned is not None and planned not in (None, scanned.new_group_coordinator):
            scanned = None
        scan = run.ports.logs.scan_small(planned=planned) if scanned is None else scanned
    except RolloutError as error:
        return LOGS_CHECK.ran(unknown=unknown("coordinator logs", str(error)))
    found = logs_findings(run, scan)
    if scanned is None and run.plan.direction is Direction.DOWNGRADE:
        return LOGS_CHECK.ran(found, unknown=unknown("tagged fields", _NO_TAGS))
    return LOGS_CHECK.ran(found)


def _contents(state: ClusterState) -> str:
    topics = len({partition.topic for partition in state.partitions})
    return (
        f"{count(topics, 'topic')}, {count(len(state.partitions), 'partition')}, {count(len(state.groups), 'group')}, "
        f"{count(len(state.transactions), 'transactional id')}"
    )


def _without_classes(checked: Checked, missing: str) -> Checked:
    """Add that Kafka's own classes were not available, to the checks that use them."""
    uses = checked.check in (
        CONFIGURATION_CHECK,
        START_FILES_CHECK,
        DYNAMIC_CONFIGURATION_CHECK,
        ACLS_CHECK,
        AUTHENTICATION_CHECK,
    )
    if not (uses and missing) or checked.not_applicable:
        return checked
    return replace(checked, unknown=(*checked.unknown, *unknown("Kafka's own classes", missing)))


def _with_remedy(checked: Checked, by_levels: str) -> Checked:
    """Replace the remedy that needs an inventory, which a discovered cluster does not have."""
    findings = tuple(
        replace(one, remedy=by_levels) if by_levels and one.code == RELEASE_BY_LEVELS.code and one.remedy else one
        for one in checked.findings
    )
    return replace(checked, findings=findings)


_OF_NODES = frozenset(
    {
        "config",
        "java_version",
        "jvm_arguments",
        "jvm_problems",
        "log_folders",
        "named_files",
        "find_classes",
        "host",
        "directory_formats",
    }
)
"""Calls of a runtime about one node, without whose answer the other nodes are still checked."""


@contextmanager
def _unknown_if_silent(name: str, args: Sequence[object], options: Mapping[str, object]) -> Iterator[None]:
    """Let a node that does not respond, or refuses, be unknown in the checks that need it: the others go on."""
    try:
        yield
    except (TransientError, RefusedError) as error:
        raise NotObservableError(error.sentence, remedy=error.remedy) from error


_OPTIONAL: Mapping[str, tuple[Check, object]] = {
    "start_problems": (CONFIGURATION_CHECK, {}),
    "dynamic_config_problems": (DYNAMIC_CONFIGURATION_CHECK, ()),
    "acl_differences": (ACLS_CHECK, {}),
    "authentication_probes": (AUTHENTICATION_CHECK, {}),
    "setting_documentation": (NEW_SETTINGS_CHECK, {}),
}
"""Call of Kafka's own classes → the check that uses it, and the answer without them."""


@dataclass(slots=True)
class _OptionalClasses:
    """KafkaClasses that finds no problem if the classes are not available; `missing` is the reason then.

    A check that is not `chosen` starts no JVM.
    """

    classes: Any
    chosen: Collection[Check]
    missing: str = ""

    def keep_processes(self) -> AbstractContextManager[None]:
        found: AbstractContextManager[None] = self.classes.keep_processes()
        return found

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _OPTIONAL:
            raise AttributeError(name)
        check, nothing = _OPTIONAL[name]

        def call(*args: Any) -> Any:
            if self.missing or check not in self.chosen:
                return nothing
            try:
                return getattr(self.classes, name)(*args)
            except (RolloutError, OSError) as error:
                self.missing = f"Kafka's own classes were not available: {error}"
                return nothing

        return call


@dataclass(slots=True)
class _Stopwatch:
    """Time in which at least one call of a kind was open; calls run in parallel."""

    clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: Counter[str] = field(default_factory=Counter)
    _since: dict[str, float] = field(default_factory=dict)
    _spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def around(self, ports: ClusterPorts) -> ClusterPorts:
        """Return the ports with their calls measured."""
        return replace(
            ports,
            admin=around_calls(ports.admin, _QUERIES, self.running),
            runtime=around_calls(ports.runtime, _QUERIES, self.running),
            metrics=around_calls(ports.metrics, _QUERIES, self.running),
            classes=around_calls(ports.classes, _QUERIES, self.running),
            metadata_logs=around_calls(ports.metadata_logs, _QUERIES, self.running),
            logs=around_calls(ports.logs, _QUERIES, self.running),
        )

    def seconds(self, check: Check) -> float:
        return sum(spent for name, spent in self._spent.items() if _QUERIES[name] is check)

    @contextmanager
    def running(self, name: str, args: Sequence[object], options: Mapping[str, object]) -> Iterator[None]:
        with self._lock:
            self._open[name] += 1
            if self._open[name] == 1:
                self._since[name] = self.clock.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._open[name] -= 1
                if not self._open[name]:
                    self._spent[name] += self.clock.monotonic() - self._since[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One check of the whole cluster, outside a run."""

    state: ClusterState
    finalized: GateCheck
    metadata_version: GateCheck
    verdict: Verdict
    unknown: Mapping[str, str]
    """Id of each check that could not exclude a blocker → what it did not observe."""

    @property
    def ok(self) -> bool:
        """Nothing blocks, and no check that can find a blocker is unknown."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        passes = self.finalized.passes and self.metadata_version.passes and self.verdict.ok
        return result_code(blocks=not passes, can_hide=bool(self.unknown))


def verify(ports: ReadPorts) -> Verification:
    """Observe, compare every node's response with the finalized levels of the highest epoch, and list the findings."""
    state = observe(ports)
    levels = state.finalized.reported
    checked = check_cluster(ports.cluster, ports.catalogue, state)
    results = results_of(checked, unknown_responses(ports.cluster, state))
    return Verification(
        state=state,
        finalized=cluster_gates.check_finalized(ports.cluster, state, levels),
        metadata_version=cluster_gates.check_metadata_version(
            ports.cluster, ports.catalogue, state, levels.get(METADATA_VERSION, 0)
        ),
        verdict=Verdict(
            question=f"Can the nodes of {ports.cluster.name} be restarted one by one?",
            findings=all_findings(checked),
        ),
        unknown={one.id: one.unknown for one in results if one.can_hide_a_blocker},
    )
