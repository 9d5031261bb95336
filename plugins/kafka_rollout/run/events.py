"""Events of a run's record: the run, its plan and its approvals. One dataclass per kind.

`kind` is the name in the stored record and in the report. It stays when the class gets another name. Release steps are
named by their key in the plan, or in the plan's rollback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, TypeVar, dataclass_transform

from kafka_rollout.base.findings import Severity
from kafka_rollout.base.wording import count
from kafka_rollout.gates.gate import GateRef
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.releases.facts import Release


class Channel(StrEnum):
    AIRFLOW = "airflow"
    SHELL = "shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Responder:
    """The person as the channel knows them."""

    channel: Channel
    user: str
    """Airflow's user id, or the operating system's user at a shell."""
    name: str = ""
    """The user's name in Airflow."""
    host: str = ""
    """The host of the shell."""
    record_id: str = ""
    """The id of Airflow's Human-in-the-loop record, which is the task instance's."""
    answered_at: float = 0.0
    """Epoch seconds by Airflow's record, 0 at a shell."""

    def __str__(self) -> str:
        if self.channel is Channel.SHELL:
            return f"shell user {self.user} on {self.host}"
        return (
            f"Airflow user {self.user}" if self.name in ("", self.user) else f"Airflow user {self.name} ({self.user})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the line of an event needs beyond the event: the plan of the run, and the names of its procedure."""

    plan: Plan | None
    place: Callable[[str, int], str]
    """The position of a node in the plan, by release step and node id: `node 2 of 6 (broker-2 to 4.3.1)`."""
    label: Callable[[str], str]
    """The label of a step; its id if the procedure has no such step."""
    begins: Callable[[str], str]
    """What the run does in a step; empty for a step that only waits or asks."""
    gate: Callable[[GateRef], str]
    """Who waits for the gate, and for what."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
@dataclass(frozen=True, kw_only=True)
class Event:
    """One event. `at` in epoch seconds; the store sets it when it records an event whose `at` is 0.

    Each subclass is a dataclass of the same form.
    """

    kind: ClassVar[str] = ""
    """Its name in the stored record."""

    at: float = 0.0

    def __init_subclass__(cls, *, kind: str = "") -> None:
        cls.kind = kind
        dataclass(frozen=True, kw_only=True)(cls)

    def line(self, words: Words) -> str:
        """Return the line of the event in the progress of its run; empty for an event that is no news."""
        return ""


class Unknown(Event):
    """An event of a newer version of this tool, or one that cannot be read. Kept as it was recorded."""

    recorded_kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


class ApprovalOf(StrEnum):
    """What an approver decides, in its stored form."""

    ROLL = "roll"
    FINALIZE = "finalize"
    ROLL_BACK = "roll-back"
    DIFFERENCES = "differences"  # from the state before the run, that the plan does not name
    PAUSE = "pause"  # of the plan (`pause_after`): continue, or roll back
    FAILED_GATE = "failed-gate"  # wait, retry or roll back
    SPLIT = "split"  # the nodes of a batch, which cannot be stopped together, restart in parts
    NODE_LOG = "node-log"  # what a node's log shows, or does not show, and nothing else can tell

    def noun(self, change: str = "plan") -> str:
        """Return it for a sentence after `the`. `change`: upgrade, downgrade or restart, if it is known."""
        return change if self is ApprovalOf.ROLL else _NOUNS.get(self, self.value)


class Decision(StrEnum):
    """What an approver chose, in its stored form. The last six are the choices after a failure."""

    APPROVED = "approved"
    REJECTED = "rejected"
    WAIT_ON = "Wait on"
    ACCEPT = "Accept the log"
    RETRY = "Retry"
    SPLIT = "Split the batch"
    ROLL_BACK = "Roll back"
    STOP_HERE = "Stop here"

    @property
    def label(self) -> str:
        """The option as Airflow shows it."""
        return _LABELS.get(self, self.value)

    @classmethod
    def of_label(cls, label: str) -> Decision:
        """Return the decision of an option. Raises ValueError for an option that no request offers."""
        return cls(next((decision for decision, shown in _LABELS.items() if shown == label), label))


_NOUNS = {
    ApprovalOf.FINALIZE: "feature change",
    ApprovalOf.ROLL_BACK: "rollback",
    ApprovalOf.FAILED_GATE: "failure",  # of a gate or a step
    ApprovalOf.PAUSE: "end of the pause",
    ApprovalOf.SPLIT: "split of the batch",
    ApprovalOf.NODE_LOG: "log of a node",
}
_LABELS = {Decision.APPROVED: "Approve", Decision.REJECTED: "Reject"}


class Begun(Event, kind="begun"):
    """The first event of a DAG run, and of each time that it plans again."""

    dag_id: str
    triggered_by: str = ""
    """The name of Airflow's user who triggered the run; empty if unknown."""
    run_type: str = ""
    """Airflow's type of the run."""
    clears: int = 0
    """How often users had cleared tasks of the run by then."""


class StartedAtShell(Event, kind="started-at-shell"):
    """The first event of a run of the command line."""

    starter: Responder


class Called(Event, kind="called"):
    """A command started the run, or continued it with other options. The next call keeps what it does not name."""

    options: Mapping[str, str]
    """Name of a field of the request → its value as the option has it, as JSON, of the options that were given."""
    command_config: str = ""
    """The absolute path of the file with the credentials; empty without one."""


class Observed(Event, kind="observed"):
    """The cluster was observed.

    The numbers of partitions without a leader, with too few replicas in sync, and with a replica out of sync are None
    if the partitions were not read, as in an event of an earlier version.
    """

    cluster_id: str
    releases: Mapping[int, Release | None]
    """Node id → release."""
    finalized: Mapping[str, int]
    """Feature → level."""
    quorum_leader: int | None
    partitions: int
    groups: int
    unanswered: tuple[str, ...]
    """A sentence per failed query."""
    builds: Mapping[int, str] = field(default_factory=dict)
    """Node id → version of a vendor's build as the node reports it."""
    down: tuple[int, ...] = ()
    """Nodes that did not respond."""
    offline_partitions: int | None = None
    under_min_isr: int | None = None
    under_replicated: int | None = None


class Planned(Event, kind="plan"):
    """The plan was made and frozen."""

    run_of: RunOf
    plan_hash: str
    source: Release
    target: Release
    release_steps: tuple[str, ...] = ()
    release_overrides: Mapping[Release, Mapping[str, str]] | None = None
    """Configuration of the inventory by release, for the releases of the plan; None for a plan of features alone."""
    requests: tuple[str, ...] = ()
    """What was asked for, for such a plan."""
    unsafe: bool = False
    lowering: Lowering = Lowering.ONLINE
    """The way in which metadata.version is lowered."""
    blockers: tuple[str, ...]
    """Findings as text."""

    def line(self, words: Words) -> str:
        plan = words.plan
        if plan is None:
            return ""
        release_steps = ", then ".join(
            f"restart of {count(len(step.order), 'node')} on {step.to_release}"
            if step.restarts
            else f"{len(step.order)} nodes {step.from_release} → {step.to_release}"
            for step in plan.release_steps
        )
        features = ", ".join(f"{one.feature} {one.current} → {one.target}" for one in plan.feature_changes)
        numbers = Counter(finding.severity for finding in plan.findings)
        findings = ", ".join(count(numbers[severity], severity.value) for severity in Severity)
        return f"planned: {release_steps or 'no release steps'}; {features or 'no features to finalize'}; {findings}"


class Voided(Event, kind="void"):
    """New blockers made the approval of the plan invalid; `blockers` are findings as text."""

    plan_hash: str
    blockers: tuple[str, ...]

    def line(self, words: Words) -> str:
        return f"the approval is no longer valid: {'; '.join(self.blockers)}"


class Asked(Event, kind="asked"):
    """A request for an answer in Airflow or at a terminal."""

    what: ApprovalOf
    """What an answer approves; failed-gate: how to continue. The options of both can be the same."""
    task_id: str
    record_id: str
    """The id of Airflow's Human-in-the-loop record."""
    text: str
    """Subject and Markdown body as they are shown."""
    options: tuple[str, ...]
    users: tuple[str, ...] = ()
    """Airflow's ids of those who may answer; empty: everybody who may change the DAG."""
    answer_by: float = 0.0
    """When the request expires (epoch seconds); 0: never, or in an event of an earlier version."""
    terminal: Responder | None = None
    """User and host of a request at a terminal, which only the named approver can answer; it waits as long as the run
    holds the lock."""
    is_pause: bool = False
    """The plan pauses here, and an answer can end this pause."""
    map_index: int = -1
    """Of the instance of a mapped task; -1 if the task is not mapped."""


class AskingEnded(Event, kind="asking-ended"):
    """A request at a terminal ended without an answer."""


class Approval(Event, kind="approval"):
    """A decision of a named approver on the plan."""

    what: ApprovalOf
    by: str
    decision: Decision
    reason: str
    plan_hash: str
    responder: Responder | None = None
    """Who answered and where."""
    text: str = ""
    """What was shown, with its SHA-256."""
    text_sha256: str = ""
    accepted_unknowns: tuple[str, ...] = ()
    """What can hide a blocker and `--accept-unknown` named, as `check=subject`. An answer without `--yes` accepts what
    `text` lists."""
    doubts: tuple[str, ...] = ()
    """Of the doubts about logs of nodes that `text` lists, those that were accepted."""

    def line(self, words: Words) -> str:
        what = self.what.noun() if words.plan is None else self.what.noun(words.plan.direction)
        is_plain = self.decision in {Decision.APPROVED, Decision.REJECTED}
        did = self.decision.value if is_plain else f"answered '{self.decision}' to"
        accepted = f" Accepted as unknown: {', '.join(self.accepted_unknowns)}." if self.accepted_unknowns else ""
        return f"{self.by} {did} the {what}. Reason: {self.reason}{accepted}"


class ApprovalRefuted(Event, kind="approval-refuted"):
    """An action found that Airflow's own record does not confirm an approval of the run history."""

    what: ApprovalOf
    by: str
    record_id: str
    """The record that the approval names."""
    sentence: str
    """The difference."""


class TakenOver(Event, kind="taken-over"):
    """An approver continues the run of a DAG from a shell."""

    by: str
    dag_id: str
    responder: Responder


class LockedOut(Event, kind="locked-out"):
    """Another run refuses a change: by the lock, or by its claim on a host, which can also be unreadable. Or an
    approver broke the lock of the run."""

    sentence: str
    is_broken: bool = False
    """An approver broke the lock: the run does nothing more before a person continues it."""

    def line(self, words: Words) -> str:
        return self.sentence if self.is_broken else ""


class EndedInAirflow(Event, kind="ended-in-airflow"):
    """The DAG run ended before its report: a user marked or deleted it, or its last tasks never ran."""

    state: str
    """Airflow's state of the run; `deleted` for none."""

    def line(self, words: Words) -> str:
        return "the DAG run was deleted in Airflow" if self.state == "deleted" else f"Airflow shows {self.state}"


class ClearedInAirflow(Event, kind="cleared-in-airflow"):
    """A user cleared tasks of the DAG run after it had ended in Airflow, so it continues."""

    def line(self, words: Words) -> str:
        return "the DAG run was cleared in Airflow"


class Rolled(Event, kind="rolled"):
    """Every node step of the plan is done."""

    target: Release


class RolledBack(Event, kind="rolled-back"):
    """Every node that left its previous release runs it again."""

    target: Release


class StoppedByOperator(Event, kind="stopped-by-person"):
    """An operator ended the run between two nodes."""

    target: Release
    """The release it went to."""
    asks: str = ""
    """Why it waits for the answer of an approver, which the next call brings; empty if it waits for none."""


class ControlAsked(Event):
    """A request of an operator to a run in progress, which reads it at each check of a gate and before each step."""

    done: ClassVar[str] = ""
    """Its effect, in a sentence after `was`."""
    follows: ClassVar[str] = ""
    """A sentence for the operator."""

    by: str
    reason: str
    responder: Responder

    @property
    def text(self) -> str:
        return f"{self.done} by {self.by}: {self.reason}"

    def line(self, words: Words) -> str:
        return f"{self.text} (before the next node)"


class PauseAsked(ControlAsked, kind="pause-asked"):
    """An operator paused the run. The pause is in force until `resume-asked`."""

    done: ClassVar[str] = "paused"
    follows: ClassVar[str] = (
        "It pauses before its next node, and keeps the lock of the cluster. With no node left, it fails before its "
        "next change."
    )


class ResumeAsked(ControlAsked, kind="resume-asked"):
    """An operator resumed the run. It also withdraws a stop that the run has not read yet."""

    done: ClassVar[str] = "resumed"
    follows: ClassVar[str] = "It continues with its next node."


class StopAsked(ControlAsked, kind="stop-asked"):
    """An operator asked for the end of the run, also of its waits."""

    done: ClassVar[str] = "stopped"
    follows: ClassVar[str] = (
        "It ends at the next check of its gate, or before its next step, and releases the lock of the cluster. A node "
        "that it has stopped is started first."
    )


CONTROLS: Mapping[str, type[ControlAsked]] = {"pause": PauseAsked, "resume": ResumeAsked, "stop": StopAsked}


class RollbackClosed(Event, kind="way-back-closed"):
    """The older release can no longer run this cluster."""

    release_step: str
    sentence: str


class RollbackAskedAgain(Event, kind="rollback-asked-again"):
    """An approver chose to roll back, and a rollback can compare less than the text of the request says."""

    by: str
    sentences: tuple[str, ...]
    """What the text does not list. The same answer, given again, accepts it."""

    def line(self, words: Words) -> str:
        return f"{self.by} is asked again whether to roll back. Not compared: {' '.join(self.sentences)}"


class RollbackUnread(Event, kind="rollback-unread"):
    """The rollback went on without a comparison: no host of a controller responded, or the cluster hides the value."""

    release_step: str
    sentences: tuple[str, ...]

    def line(self, words: Words) -> str:
        return f"not compared before the rollback: {' '.join(self.sentences)}"


START_TRAFFIC, GATE_FINALIZED = "start_traffic", "gate_finalized"  # ids of steps
STOP_TRAFFIC = "stop_traffic"  # id of the step that also follows a failed one


class StepOutcome(StrEnum):
    """How a step ended."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class StepEvent(Event):
    """An event of a step."""

    step: str
    """Its id."""
    batch: int | None = None
    """Of a part of a batch, the index of the batch from 0."""

    @property
    def shown_step(self) -> str:
        """The id of the step that shows it: the parts of all batches are one step."""
        return self.step if self.batch is None else self.step.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The step in a sentence."""
        return self.step if self.batch is None else f"{self.step} of batch {self.batch + 1}"


class StepBegan(StepEvent, kind="step-began"):
    """A step of the procedure began, also another time. A gate of a batch begins when its turn has come.

    Without a later `step-ended`, the step still runs or was interrupted: only an observation shows what it has done.
    """

    def line(self, words: Words) -> str:
        return words.begins(self.step) if self.batch is None else ""  # the events of its nodes have lines


class StepEnded(StepEvent, kind="step-ended"):
    """A step ended. A step that waits for an answer has not ended."""

    outcome: StepOutcome
    reason: str = ""
    """Why it was skipped, or the error."""

    def line(self, words: Words) -> str:
        if self.outcome is StepOutcome.DONE:
            return ""
        return f"{words.label(self.shown_step)} {self.outcome}: {self.reason}"


class StepsSkipped(Event, kind="steps-skipped"):
    """A step skipped steps after it, which never begin."""

    steps: tuple[str, ...]
    reason: str
    """A sentence."""


E = TypeVar("E", bound=Event)


def events_of(events: Iterable[Event], kind: type[E]) -> tuple[E, ...]:
    """In their order."""
    return tuple(event for event in events if isinstance(event, kind))


def newest(events: Sequence[Event], kind: type[E]) -> E | None:
    return next((event for event in reversed(events) if isinstance(event, kind)), None)


def has(events: Iterable[Event], *kinds: type[Event]) -> bool:
    return any(isinstance(event, kinds) for event in events)


def find_text(events: Sequence[Event], at: int) -> int | None:
    """Return the position in the history at which the text was made that the approval at position `at` answers.

    That is the request with the same record of Airflow, or the open one at a terminal; without a request the approval
    itself. What is recorded between request and answer was not in the text. None for an answer to a request
    about something else, which renews an approval without its text.
    """
    given = events[at]
    if not isinstance(given, Approval):
        return None
    record_id = "" if given.responder is None else given.responder.record_id
    asked: list[tuple[int, ApprovalOf]] = []
    for position, event in enumerate(events[:at]):
        match event:
            case Asked(record_id=known) if known == record_id:
                if record_id or (given.text and event.text.endswith(given.text)):
                    asked.append((position, event.what))
            case Approval() | AskingEnded() if not record_id:
                asked.clear()  # a terminal has one request at a time
    own = [position for position, what in asked if what is given.what]
    if own:
        return own[-1]
    return None if record_id and asked else at
