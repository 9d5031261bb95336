"""Runs the rehearsal in the sandbox: the copy is started, goes through the procedure of the run, and is compared.

It is the procedure of the real run, by the same runner, with the same gates. Only predictions are left out, because
the nodes of the copy are started.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError
from kafka_rollout.base.findings import Finding
from kafka_rollout.base.internal_topics import GROUPS_TOPIC, METADATA_TOPIC
from kafka_rollout.base.wording import count, few, few_sentences
from kafka_rollout.control import lock
from kafka_rollout.coordinator_logs.scan import Damage, LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.gates.gate import BeforeStop, GateCheck, GateKind
from kafka_rollout.gates.node import check_after_start, find_lost_leaderships
from kafka_rollout.gates.reasons import reason_of
from kafka_rollout.groups.group_records import GroupRecords
from kafka_rollout.model.acls import Acl, AclDifferences
from kafka_rollout.model.configs import ConfigCheck, ConfigProblem, DynamicConfigs
from kafka_rollout.model.contents import Difference, find_unserved_types
from kafka_rollout.model.plan import Direction, Lowering, Plan
from kafka_rollout.model.probes import Probe
from kafka_rollout.model.starts import NodeStart, StartProblems
from kafka_rollout.model.state import CheckpointSummary, ClusterState
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, levels_now, observe_some
from kafka_rollout.observation.node_logs import read_last_error, read_log
from kafka_rollout.observation.node_steps import check_coordinators
from kafka_rollout.ports.cluster import KafkaClasses
from kafka_rollout.preparation.node_checks import dropped_settings
from kafka_rollout.preparation.state_comparison import COMPARED
from kafka_rollout.procedure.kinds import DOWNGRADE, UPGRADE
from kafka_rollout.procedure.runner import Runner
from kafka_rollout.rehearsal.job import RehearsalJob, RehearsalStoppedError
from kafka_rollout.rehearsal.result import (
    NO_ROLLBACK,
    Contents,
    RehearsalPhase,
    RehearsalResult,
    compare_contents,
    compare_copy,
    difference_findings,
    failed,
    incomplete,
    read_contents,
    worst,
)
from kafka_rollout.rehearsal.selection import find_spareless_topics
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.walk import RollProgress
from kafka_rollout.run.events import ApprovalOf, Channel, Decision, Responder, events_of
from kafka_rollout.run.ports import Answer, Question
from kafka_rollout.run.projections.nodes import find_last_node_event
from kafka_rollout.run.step_events import ComparedAfter, Finalized, GateFailed, Started
from kafka_rollout.run.view import RunView

_APPROVER = "rehearsal"


class RehearsalAnswers:
    """Approves every request, because the cluster of the sandbox is a copy, but no difference from its state before."""

    @property
    def terminal(self) -> None:
        return None

    @property
    def present(self) -> bool:
        return False

    def ask(self, question: Question) -> Answer | None:
        if question.what is ApprovalOf.DIFFERENCES:
            return None  # the runner refuses, and the rehearsal reports the differences
        responder = Responder(channel=Channel.SHELL, user=_APPROVER, host="sandbox")
        return Answer(by=_APPROVER, decision=Decision.APPROVED, reason="Rehearsal on a copy.", responder=responder)

    def show(self, body: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RehearsalServices:
    """No test traffic, no monitor, no report. A scan has no finding: the started nodes load the logs themselves."""

    ports: ClusterPorts

    def scan(self, file: str, releases: Sequence[Release]) -> None:
        """Store a scan in which every release loads everything."""
        verdicts = (
            ReleaseVerdict(release=release, topic=GROUPS_TOPIC, partition=0, verdict=LoadVerdict.LOADS)
            for release in self.ports.catalogue
        )
        cluster, now = self.ports.cluster.name, self.ports.clock.now()
        self.ports.run.attach(
            file, ScanResult(cluster=cluster, scanned_at=now, logs=(), classes=(), verdicts=tuple(verdicts))
        )

    def monitor_groups(self) -> None: ...

    def start_traffic(self) -> None: ...

    def stop(self) -> None: ...

    def report(self, *, dry_run: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class UnpredictedLogs:
    """CoordinatorLogs without findings."""

    read_at: float

    def scan_small(self, *, planned: bool | None) -> ScanResult:
        raise RefusedError("A rehearsal scans no coordinator logs.", remedy="Scan those of the cluster.")

    def scan_new_records(self, before: ScanResult, *, planned: bool | None, complete: bool = False) -> ScanResult:
        return before

    def unread_replicas(self) -> tuple[Damage, ...]:
        return ()

    def group_records(self, *, planned: bool | None, by_spark: bool = False, incremental: bool = False) -> GroupRecords:
        return GroupRecords(read_at=self.read_at, offsets=0)


@dataclass(frozen=True, slots=True)
class UnpredictedConfigs:
    """KafkaClasses that accept every configuration: the started nodes show whether they do. Snapshots are loaded.

    Settings that a release drops are found, because the comparison expects that they are missing.
    """

    classes: KafkaClasses

    def keep_processes(self) -> AbstractContextManager[None]:
        return self.classes.keep_processes()

    def start_problems(self, release: Release, nodes: Mapping[int, NodeStart]) -> Mapping[int, StartProblems]:
        return dict.fromkeys(nodes, StartProblems())

    def dynamic_config_problems(
        self, release: Release, brokers: Mapping[int, Mapping[str, str]], dynamic: DynamicConfigs
    ) -> tuple[ConfigProblem, ...]:
        found = self.classes.dynamic_config_problems(release, brokers, dynamic)
        return tuple(problem for problem in found if problem.check is ConfigCheck.DROPPED)

    def acl_differences(
        self, source: Release, others: Sequence[Release], acls: Sequence[Acl], settings: Mapping[str, str]
    ) -> Mapping[Release, AclDifferences]:
        return {release: AclDifferences() for release in others}  # the plan of the cluster has them

    def authentication_probes(
        self, release: Release, nodes: Mapping[int, Mapping[str, str]]
    ) -> Mapping[int, tuple[Probe, ...]]:
        return {}  # the listeners of the copy have no SASL

    def setting_documentation(self, release: Release, names: Collection[str]) -> Mapping[str, str]:
        return {}

    def load_checkpoint(self, release: Release, path: Path) -> CheckpointSummary:
        return self.classes.load_checkpoint(release, path)


_POLL_S = 0.5
_READINGS = 4  # until two of them, one after the other, have the same differences
_SHOWN_SETTINGS = 100
_STOPPED = "The rehearsal was stopped. Nothing of it is left."


class SaysLines:
    """RollProgress of the runner as lines, each once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._last = say, ""

    def __call__(self, progress: RollProgress, /) -> None:
        left = "" if progress.remaining_s is None else f", about {progress.remaining_s:.0f} s left"
        line = f"node {progress.k} of {progress.n}, {progress.node}: {progress.message}"
        self.say(line if "gate" in progress.message else f"{line} [{progress.elapsed_s:.0f} s{left}]")

    def on_check(self, seen: GateCheck, message: str, /) -> None:
        self.say(f"gate {seen.gate}: {message}")

    def say(self, line: str, /) -> None:
        if line != self._last:
            self._last = line
            self._say(line)


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    ports: ClusterPorts
    """Of the copy, whose nodes are not started yet."""
    job: RehearsalJob
    say: Callable[[str], None]
    stop_asked: Callable[[], bool] = field(default=lambda: False)
    """As for a Runner."""
    phases: list[RehearsalPhase] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def run(self) -> RehearsalResult:
        """Run all phases. A failure of the copy is a finding; RehearsalStoppedError is raised."""
        ports = self.ports = replace(
            self.ports,
            classes=UnpredictedConfigs(self.ports.classes),
            logs=UnpredictedLogs(self.ports.clock.now()),
            cluster=replace(self.ports.cluster, gate_timeout_s=self.job.gate_timeout_s),
        )
        began = ports.clock.monotonic()
        plan: Plan | None = None
        try:
            before = self._start_on_source()
            plan = self._change(before)
            self._return(plan, before)
        except RehearsalStoppedError:
            raise
        except RolloutError as error:
            self.findings.append(self._finding(error))
        result = RehearsalResult(
            outcome=worst(self.findings),
            cluster=self.job.cluster,
            source=str(self.job.source),
            target=str(self.job.target),
            nodes=self.job.nodes,
            seconds=round(ports.clock.monotonic() - began, 1),
            phases=tuple(self.phases),
            findings=tuple(self.findings),
            node_seconds=RunView.of(ports.run.events()).node_seconds,
            not_covered=self.job.not_covered,
            estimate=self.job.estimate,
            isolation=self.job.isolation,
        )
        return result

    def _start_on_source(self) -> Contents:
        """Start all nodes on the source release and compare them with the cluster that was copied."""
        ports, job = self.ports, self.job
        began = ports.clock.monotonic()
        self.say(f"starting {len(ports.cluster.nodes)} nodes on {job.source}")
        lock.acquire_lock(ports, f"Start the copy on {job.source}.")
        with ports.lock.acting(ports.cluster.name, ports.run_id, "Starting the copy"):
            for node in ports.cluster.controllers_first:
                ports.runtime.install(node, job.source)
                ports.runtime.start(node)
        self._wait_for_all(job.source)
        self._unregister(job.unregistered)
        self._phase(f"start on {job.source}", began, "The copy is in service.")
        began = ports.clock.monotonic()
        self.say("comparing the copy with the cluster")
        real, later = job.real, job.later
        contents, found = self._read_twice(
            job.source,
            real,
            lambda copy: compare_copy(real, copy, later, uncovered=job.uncovered) if real and later else (),
        )
        self.findings += difference_findings(found, when=f"on {job.source}")
        self._accept_spareless()
        numbers = {**contents.inventory.counts, "transactional ids": len(contents.transactional_ids)}
        counted = ", ".join(count(number, name.removesuffix("s")) for name, number in numbers.items() if number)
        self._phase("comparison of the copy", began, f"{counted or 'nothing'}.")
        return contents

    def _accept_spareless(self) -> None:
        """Accept what has no spare replica in the copy, topics and the metadata quorum: the copy has no clients."""
        nodes = {node.node_id for node in self.ports.cluster.brokers}
        topics = find_spareless_topics(self.ports.admin.partitions(), nodes)
        accepted = tuple(sorted({*self.job.request.accept_unavailable, *topics, METADATA_TOPIC}))
        self.job = replace(self.job, request=replace(self.job.request, accept_unavailable=accepted))

    def _change(self, before: Contents) -> Plan:
        ports = self.ports
        began = ports.clock.monotonic()
        runner = self._runner()
        done = runner.run()
        plan = ports.run.load_plan()
        if not done:
            raise RehearsalStoppedError(_STOPPED)
        self._phase("change", began, f"Every node runs {plan.target}.")
        self._compare(before, plan.target, f"on {plan.target}")
        return plan

    def _return(self, plan: Plan, before: Contents) -> None:
        """Roll the nodes back, unless levels were finalized or metadata was lowered while all nodes were stopped."""
        ports = self.ports
        if not plan.release_steps:
            return
        if plan.lowering is Lowering.OFFLINE or (
            plan.direction is Direction.UPGRADE and events_of(ports.run.events(), Finalized)
        ):
            self._phase("rollback", ports.clock.monotonic(), "Not possible after this change, as planned.")
            return
        began = ports.clock.monotonic()
        try:
            if not self._runner().roll_back("Rehearsal of the rollback."):
                raise RehearsalStoppedError(_STOPPED)
        except RehearsalStoppedError:
            raise
        except RolloutError as error:
            self.findings.append(
                NO_ROLLBACK.found(
                    "rehearsal",
                    f"The rollback to {plan.source} failed in the rehearsal: {error.sentence}",
                    f"Approve the plan only if the cluster can stay on {plan.target}. {error.remedy}".strip(),
                )
            )
            return
        self._phase("rollback", began, f"Every node runs {plan.source} again.")
        self._compare(before, plan.source, f"back on {plan.source}")

    def _runner(self) -> Runner:
        job = self.job
        return Runner(
            ports=self.ports,
            procedure=UPGRADE if job.direction is Direction.UPGRADE else DOWNGRADE,
            request=job.request,
            answers=RehearsalAnswers(),
            services=RehearsalServices(self.ports),
            progress=SaysLines(self.say),
            stop_asked=self._stop_asked,
        )

    def _stop_asked(self) -> bool:
        """Raise FatalError if the node that was started last has exited: nothing restarts it in a sandbox."""
        last = find_last_node_event(self.ports.run.events())
        if isinstance(last, Started):
            self._refuse_exited(self.ports.cluster.node(last.node_id), last.release)
        return self.stop_asked()

    def _refuse_exited(self, node: NodeSpec, release: Release) -> None:
        if self.ports.runtime.process(node).pid is None:
            shown = read_last_error(self.ports, node).rstrip(".")
            raise FatalError(
                f"{node.name} ({node.node_id}) does not start on {release}: {shown}.",
                remedy="Fix the cause on the cluster, then rehearse again.",
            )

    def _wait_for_all(self, release: Release) -> None:
        """Wait until every node is in service on the release, with its leaderships and loaded coordinators.

        All nodes must pass one after the other: an election for one of them moves the coordinators of another.
        """
        ports = self.ports
        ends = ports.clock.monotonic() + self.job.gate_timeout_s
        nodes = ports.cluster.nodes
        at = passed = 0
        while passed < len(nodes):
            if self.stop_asked():
                raise RehearsalStoppedError(_STOPPED)
            why = self._waits_for(nodes[at], release)
            if not why:
                at, passed = (at + 1) % len(nodes), passed + 1
                continue
            passed = 0
            for node in nodes:
                self._refuse_exited(node, release)
            if ports.clock.monotonic() >= ends:
                raise RefusedError(
                    f"The copy is not in service on {release} after {self.job.gate_timeout_s:.0f} s: {why}",
                    remedy="Read the message of the node, or repeat the rehearsal with a longer --gate-timeout.",
                )
            self.say(f"waiting for {nodes[at].name}: {why}"[:200])
            ports.clock.sleep(_POLL_S)

    def _unregister(self, brokers: Sequence[int]) -> None:
        """Remove the brokers that were not copied: they would block the plan, and finalizing."""
        if not brokers:
            return
        with self.ports.lock.acting(self.ports.cluster.name, self.ports.run_id, "Removing brokers from the copy"):
            for node_id in brokers:
                self.ports.admin.unregister_broker(node_id)
        self._wait_for_all(self.job.source)

    def _waits_for(self, node: NodeSpec, release: Release) -> str:
        ports = self.ports
        try:
            state = observe_some(ports, (node,), metrics=True)
            before = _expected_of_copy(ports, state, node, release)
            seen = check_after_start(ports.cluster, state, node, before=before, expected=release)
            if lost := find_lost_leaderships(state, node.node_id, before):
                ports.admin.elect_preferred_leaders(lost)
            if not seen.passes:
                return seen.waits_for
            loaded = check_coordinators(ports, state, node, None, log=read_log(ports, node)) if node.is_broker else None
            return "" if loaded is None else reason_of([loaded])
        except TransientError as error:
            return error.sentence

    def _read_twice(
        self, release: Release, before: Contents | None, compare: Callable[[Contents], Sequence[Difference]]
    ) -> tuple[Contents, tuple[Difference, ...]]:
        """Return the contents of the copy and the differences that a second reading has too.

        Before it all nodes are in service again: elections since the first wait can have moved coordinators.
        """
        ports = self.ports
        known: set[tuple[str, str]] = set()
        for left in reversed(range(_READINGS)):
            brokers, uncovered = ports.cluster.brokers, self.job.uncovered
            contents = read_contents(ports.admin, ports.clock, brokers, before, uncovered=uncovered)
            found = tuple(compare(contents))
            unexpected = {(one.kind, one.subject) for one in found if not one.foretold}
            if unexpected <= known or not left:
                break
            known = unexpected
            self._wait_for_all(release)
        return contents, found

    def _compare(self, before: Contents, release: Release, when: str) -> None:
        began = self.ports.clock.monotonic()
        unserved = find_unserved_types(levels_now(self.ports).finalized.known())
        dropped = dropped_settings(self.ports)
        _, found = self._read_twice(
            release, before, lambda after: compare_contents(before, after, unserved=unserved, dropped=dropped)
        )
        self.findings += difference_findings(found, when=when)
        expected = [difference.sentence for difference in found if difference.foretold]
        sentence = f"{len(found) - len(expected)} differences, and {len(expected)} that the plan expects."
        listed = f" {few_sentences(expected)}" if expected else ""
        self._phase(f"comparison {when}", began, f"{sentence}{listed}{self._new_settings(when)}")

    def _new_settings(self, when: str) -> str:
        """List what the run's own comparison after the roll found. A downgrade does not compare the configuration."""
        compared = self.ports.run.attachment(COMPARED[ComparedAfter.ROLL])
        if compared is None or when != f"on {self.job.target}" or not compared["new_settings"]:
            return ""
        return f" New settings: {few(compared['new_settings'], limit=_SHOWN_SETTINGS)}."

    def _phase(self, name: str, began: float, sentence: str) -> None:
        seconds = round(self.ports.clock.monotonic() - began, 1)
        self.phases.append(RehearsalPhase(name=name, seconds=seconds, sentence=sentence))
        self.say(f"{name}: {sentence} ({seconds:.0f} s)")

    def _finding(self, error: RolloutError) -> Finding:
        """Return the finding of an error. A gate that waits for clients ends a rehearsal early without a failure."""
        failures = events_of(self.ports.run.events(), GateFailed)
        if failures and failures[-1].ref.kind is GateKind.GROUPS:
            return incomplete(error.sentence)
        return failed(error.sentence, error.remedy or "Fix the cause on the cluster, then rehearse again.")


def _expected_of_copy(ports: ReadPorts, state: ClusterState, node: NodeSpec, release: Release) -> BeforeStop:
    """Return what a started node of a copy must reach: the ISRs of partitions that a copied broker leads."""
    copied = {broker.node_id for broker in ports.cluster.brokers}
    return BeforeStop(
        node_id=node.node_id,
        release=str(release),
        at=state.observed_at,
        in_isr=frozenset(p.name for p in state.partitions if p.leader in copied),
        leads=frozenset(
            p.name for p in state.partitions if p.preferred_leader == node.node_id and node.node_id in p.isr
        ),
        was_active_controller=False,
    )
