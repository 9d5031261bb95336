"""Step: one step of a procedure as data. The DAG, the command line, progress, page and report read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from logging import getLogger
from typing import Any, Protocol

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.time_limits import LOGS_OF_NODE_S, REPLACEMENT_S
from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.run.events import (
    ApprovalOf,
    Begun,
    Event,
)

Events = Sequence[Event]


class RunsAfter(StrEnum):
    """In which states of the steps before it a step runs. The values are Airflow's trigger rules."""

    SUCCESS = "all_success"
    SKIPPED = "none_failed"  # also after a skipped step
    ANYTHING = "all_done"  # also after a failed step
    ANY_SUCCESS = "one_success"  # it waits for the others by itself


class Reaction(StrEnum):
    """What happens when a step fails."""

    FAIL = "fail"  # the run ends; continued, it begins with this step
    ASK = "ask"  # the approver keeps checking, retries or stops the run
    ASK_ROLL_BACK = "ask-roll-back"  # the approver keeps checking, retries or rolls back
    ASK_UNDO = "ask-undo"  # the approver retries, or restores the backups of an offline downgrade


class OnResume(StrEnum):
    """What a resumed run of the command line does with a step that it has finished. (A DAG clears tasks.)"""

    REPEAT = "repeat"  # the step observes first and acts only where something is left to do
    KEEP = "keep"
    KEEP_APPROVED = "keep-approved"  # repeated until the run has an approval


class Service(StrEnum):
    """Steps that the run's surroundings perform: they own processes and files outside the cluster."""

    START_TRAFFIC = "start-traffic"
    STOP_TRAFFIC = "stop-traffic"
    REPORT = "report"
    OUTCOME = "outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How often a step is tried again after a transient error, and how long one try can take."""

    retries: int
    pause_s: float
    timeout_s: float


READS = Limits(retries=3, pause_s=5, timeout_s=300)  # a cluster that is being rolled does not answer every time
READS_LOGS = Limits(retries=3, pause_s=5, timeout_s=LOGS_OF_NODE_S)  # seconds for each node's metadata log
CHANGES = Limits(retries=6, pause_s=5, timeout_s=REPLACEMENT_S)  # every action is idempotent
CHANGES_LOGS = Limits(retries=6, pause_s=5, timeout_s=3 * LOGS_OF_NODE_S)
REHEARSES = Limits(retries=1, pause_s=5, timeout_s=3 * 3600)
SCANS = Limits(retries=1, pause_s=5, timeout_s=2 * 3600)  # the job itself waits a minute for a restarting broker


class Log(Protocol):
    """Where an action writes details: the log of Airflow's task, or Python's."""

    def info(self, msg: str, /, *args: object) -> object: ...

    def warning(self, msg: str, /, *args: object) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """What an action gets."""

    ports: ClusterPorts
    request: Request
    plan_or_none: Plan | None = None
    begun: Begun | None = None
    """How the DAG run began; None on the command line."""
    log: Log = field(default=getLogger(__name__))
    on_progress: Callable[[str], None] | None = None
    """Shows a line of a long action; None writes it to the log."""
    results: dict[str, Any] = field(default_factory=dict)
    """What actions leave for the caller, by id of their step."""

    @property
    def plan(self) -> Plan:
        """The run's frozen plan. Raises UserError before the plan is made."""
        if self.plan_or_none is None:
            raise UserError(f"Run {self.ports.run.number} has no plan.", remedy="Start a new run.")
        return self.plan_or_none

    @property
    def run(self) -> Run:
        """The run with its frozen plan. Raises UserError before the plan is made."""
        return Run(self.ports, self.plan)


Act = Callable[[StepCall], Any]  # the result is plain data: an XCom


class Condition(Protocol):
    """Why a step is skipped, in a sentence; None if it is not. `plan` is None before the plan is made."""

    def __call__(self, plan: Plan | None, request: Request, events: Events, /) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What an approver is asked.

    `body` is Markdown, identical each time for the same plan. `check` reads the cluster before: it raises what
    forbids the approval, and returns the reason why no approval is needed, or None.
    """

    of: ApprovalOf
    subject: Callable[[Plan], str]
    body: Callable[[StepCall], str]
    check: Callable[[StepCall], str | None]
    offers_roll_back: bool = False  # where the plan rolls nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """Skips everything after this step up to and including `past`, if `when` returns a reason."""

    past: str
    when: Condition
    by_plan: bool = False
    """The reason depends on the plan alone, so that it is known before the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What all steps have. Each is one of the classes of `AnyStep`, which both drivers match."""

    id: str
    """Of the task; it also names the step in events and reports."""
    label: str
    """A noun phrase of at most four words."""
    doc: str
    """Markdown."""
    progress: str = ""
    """What the run does; of a gate: what it waits for."""
    skip: Condition = field(default=lambda plan, request, events: None)
    limits: Limits = READS
    runs_after: RunsAfter = RunsAfter.SUCCESS
    on_failure: Reaction = Reaction.FAIL
    on_resume: OnResume = OnResume.REPEAT
    files: tuple[str, ...] = ()
    """What the step leaves in the run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActStep(Step):
    """A step with an action."""

    act: Act
    monitored: bool = False
    """Groups are watched, and test traffic runs if the run requests it, while the step acts."""
    changes: bool = False
    """The action changes the cluster, so an operator's pause or stop ends the run before it."""
    lists: bool = False
    """The action only lists what the next group is mapped over, so it is not a line of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpStep(Step):
    """A step that can skip steps after it."""

    jump: Jump
    act: Act | None = None
    """What it does before; not a change of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStep(Step):
    """A gate: of the whole cluster, or of the nodes of a batch."""

    gate: GateKind
    proves: bool = False
    """A run that changed levels is finished only if this gate passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceStep(Step):
    """The replacement of the nodes of a batch (`roll/loop.py`). Groups and test traffic are watched meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalStep(Step):
    """A request for an approval."""

    approval: ApprovalRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanStep(Step):
    """A scan of the coordinator logs."""

    scan: str
    """The file that keeps the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStep(Step):
    """A step that the run's surroundings perform."""

    service: Service


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStep(Step):
    """A step that only waits for the steps before it. Nothing of it is recorded."""


AnyStep = ActStep | JumpStep | GateStep | ReplaceStep | ApprovalStep | ScanStep | ServiceStep | JoinStep


@dataclass(frozen=True, slots=True, kw_only=True)
class EachBatch:
    """The parts of a batch, in their order, for every batch of a roll or of its rollback (`roll/loop.py`).

    In the graph it is a group that is mapped over the batches of the plan.
    """

    steps: tuple[GateStep | ReplaceStep, ...]
    is_rollback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EachNode:
    """A gate for every node, controllers first, after all nodes were started. In the graph it is a mapped task."""

    step: GateStep
    is_rollback: bool = False
    """The nodes were started on their previous release."""

    @property
    def id(self) -> str:
        """The id without the prefix of its section."""
        return f"nodes.{self.step.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Steps that belong together: a group of the graph."""

    id: str
    doc: str
    parts: tuple[AnyStep | EachBatch | EachNode | Section, ...]
    prefixes: bool = False
    """The group's id begins the ids of its steps."""
    on_decision: bool = False
    """It runs only if an approver decided so, and the procedure continues without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """All steps of a kind of run, in their order."""

    name: str
    parts: tuple[AnyStep | Section, ...]
    dry_run_body: Callable[[StepCall], str]
    """Markdown of the plan, shown after a dry run."""

    def __iter__(self) -> Iterator[tuple[str, AnyStep]]:
        """Yield (task id, step) in their order; a step of each batch or node once."""
        for task_id, step, _ in _walk(self.parts, ""):
            yield task_id, step

    @property
    def proofs(self) -> tuple[GateKind, ...]:
        """Return the gates that prove changed levels: without them a run is not finished."""
        return tuple(step.gate for _, step in self if isinstance(step, GateStep) and step.proves)

    def for_cluster(self, cluster: ClusterSpec) -> Procedure:
        """Return the steps that can run on a cluster: without a runtime, those of a dry run."""
        if cluster.manages_nodes or not any(self.batches()):
            return self
        jumps = ((index, part.jump.past) for index, part in enumerate(self.parts) if isinstance(part, JumpStep))
        begin, past = next(jumps)
        end = next(index for index, part in enumerate(self.parts) if part.id == past)
        return replace(self, parts=(*self.parts[:begin], *self.parts[end + 1 :]))

    def shown(self) -> tuple[tuple[str, str], ...]:
        """Return (task id, id of the step that shows it) in their order.

        The parts of all batches are one step, and so are the gates of all nodes.
        """
        return tuple(_shown(self.parts, ""))

    def between(self, task_id: str, past: str) -> tuple[str, ...]:
        """Return the ids of the steps after one, up to and including `past`."""
        ids = [found for found, _ in self.shown()]
        if task_id not in ids or past not in ids:
            return ()
        return tuple(dict.fromkeys(step for _, step in self.shown()[ids.index(task_id) + 1 : ids.index(past) + 1]))

    def batches(self) -> Iterator[tuple[str, EachBatch]]:
        """Yield (id of the step, parts) of the roll and the rollback."""
        for task_id, _, each in _walk(self.parts, ""):
            if isinstance(each, EachBatch) and each.steps[0].id == task_id.rpartition(".")[2]:
                yield task_id.rpartition(".")[0], each

    def follows_changes(self, task_id: str) -> bool:
        """Return whether neither this step nor one after it changes the cluster, without a decision to roll back.

        The gates of a batch, and of the nodes that an offline step has started, belong to its change.
        """
        known, last = dict[str, int](), -1
        for found, step, each in _walk(self.parts, "", decided=False):
            known[found] = len(known)
            if each is not None or (isinstance(step, ActStep) and step.changes):
                last = known[found]
        return known.get(task_id, -1) > last

    def find(self, task_id: str) -> AnyStep | None:
        """Return the step of a task; None if it belongs to another procedure."""
        return next((step for known, step in self if known == task_id), None)


Walked = Iterator[tuple[str, AnyStep, EachBatch | EachNode | None]]


def _walk(parts: Sequence[AnyStep | EachBatch | EachNode | Section], prefix: str, *, decided: bool = True) -> Walked:
    """Yield the steps. `decided`: also those that run only on a decision."""
    for part in parts:
        match part:
            case Step():
                yield prefix + part.id, part, None
            case Section():
                if decided or not part.on_decision:
                    yield from _walk(part.parts, f"{prefix}{part.id}." if part.prefixes else prefix, decided=decided)
            case EachBatch():
                yield from ((prefix + step.id, step, part) for step in part.steps)
            case EachNode():
                yield prefix + part.id, part.step, part


def _shown(parts: Sequence[AnyStep | EachBatch | EachNode | Section], prefix: str) -> Iterator[tuple[str, str]]:
    for task_id, _, each in _walk(parts, prefix):
        yield task_id, task_id if each is None else task_id.rpartition(".")[0]
