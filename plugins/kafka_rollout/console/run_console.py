"""What the page of a cluster shows, as values, so that the page only draws: the console of a run, and the state of the
cluster now, as Kafka shows it: numbers with their lists, and the effect on clients.

Pure: the caller reads history, plan and lock, and queries the cluster. Phase, next action and conditions are those of
`cluster_status`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial

from kafka_rollout.base.findings import group_by_kind
from kafka_rollout.base.tones import Tone
from kafka_rollout.base.wording import count, nodes
from kafka_rollout.console.cluster_status import (
    ENDED,
    NEEDS_HUMAN,
    WAITS,
    ClusterStatus,
    Phase,
    RunState,
    answer_command,
    can_roll_back,
    find_current_step,
)
from kafka_rollout.gates.gate import GateCheck, GateCondition
from kafka_rollout.gates.reasons import describe, find_causes
from kafka_rollout.model.plan import Lowering, Plan
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.state import PartitionState, QuorumState, RegisteredNodes, check_caught_up
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.report.run_report import StepLine
from kafka_rollout.run.batch_progress import BatchProgress, current_batches
from kafka_rollout.run.estimates import estimate_of
from kafka_rollout.run.events import Asked, Decision, Planned
from kafka_rollout.run.node_status import NodeStatus, node_statuses
from kafka_rollout.run.step_events import GatePassed
from kafka_rollout.run.view import GateHistory, GateState, NodeStage, RunView

_TREND_S = 600.0  # the number that blocks a gate is compared with the one of ten minutes before
_OPTION = re.compile(r"^- \*\*(?P<option>[^*]+)\*\*: (?P<text>.+)$", re.MULTILINE)
_CONSEQUENCES = {
    Decision.APPROVED.label: "The run continues with the plan as the request shows it.",
    Decision.REJECTED.label: "The run ends. Nothing is undone.",
    Decision.ROLL_BACK.label: "Every node that left its previous release returns to it. Then the run ends.",
}
_NO_RACK = "no rack"
_OBJECTS = 1000
UNDER_REPLICATED = "under-replicated partitions"
OFFLINE = "offline partitions"
UNDER_MIN_ISR = "partitions under min ISR"
FENCED = "fenced brokers"
BEHIND = "nodes behind the metadata quorum"


class Way(StrEnum):
    """The direction of a number that blocks a gate."""

    FALLS = "falls"
    RISES = "rises"
    SAME = "stays"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    way: Way
    before: int
    """The number `over_s` seconds before the newest check."""
    over_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCondition(GateCondition):
    """A condition in the newest check."""

    trend: Trend | None
    needs_others: bool
    """It is not met because it needs another one that is not met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGate:
    """A gate that has not passed. Times: epoch seconds; None: never checked."""

    gate: str
    node_id: int | None
    state: GateState
    message: str
    began_at: float | None
    checked_at: float | None
    conditions: tuple[ShownCondition, ...]
    """The causes first, then the others that are not met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A possible answer, and its consequence as a sentence."""

    option: str
    consequence: str
    undoes: bool
    """It rolls back or ends the run."""
    command: str
    """Does the same in a shell; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """The request of Airflow that the run waits for."""

    task_id: str
    map_index: int
    """-1 of a task that is not mapped."""
    record_id: str
    """Id of the task instance."""
    asked_at: float
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RackNode:
    node_id: int
    role: str
    """Broker, controller or both; empty if the inventory lacks the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rack:
    """The nodes of a rack in their order."""

    name: str
    counts: Mapping[NodeStage, int]
    """Phase → number."""
    nodes: tuple[RackNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """The last error in the log of a node, as a gate check read it."""

    node_id: int
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFindings:
    """Findings with one code and one remedy."""

    severity: str
    code: str
    subjects: str
    """The number of subjects and the first of them."""
    sentence: str
    remedy: str
    items: tuple[str, ...]
    """All subjects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEstimate:
    """The time for the `left` node steps in `batches`, from `since` (epoch seconds): between two numbers of seconds."""

    left: int
    batches: int
    since: float
    at_least_s: float
    at_most_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A stop of all nodes, or of all controllers, that the run has not ended yet."""

    since: float
    """Epoch seconds."""
    clients: str
    """The effect on clients, as a sentence."""
    serves: bool
    """Clients can produce and consume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLine:
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """One run."""

    run_id: str
    number: int
    """What the run is called."""
    title: str
    """Kind and releases."""
    phase: Phase
    needs_human: bool
    """An operator or an approver must act."""
    why: str
    """The reason, or the end in a sentence."""
    stopped: str
    """What the run has stopped, in a sentence."""
    stop: Stop | None
    request: OpenRequest | None
    steps: tuple[StepLine, ...]
    current_step: str
    nodes: tuple[NodeStatus, ...]
    batches: BatchProgress | None
    """None before the first batch, and for a run without batches."""
    gates: tuple[ShownGate, ...]
    log: tuple[LogLine, ...]
    findings: tuple[ShownFindings, ...]
    estimate: ShownEstimate | None
    lines: tuple[TimedLine, ...]
    way_back: str
    """What is possible by the history, in a sentence."""
    plan_hash: str
    began_at: float | None
    changed_at: float | None


def build_console(
    run: RunState, status: ClusterStatus, lines: Sequence[TimedLine] = (), *, has_credentials: bool = False
) -> Console:
    """Return the console of a run. `status`: of the cluster with this run; `lines`: the progress lines of the run;
    `has_credentials`: as for `answer_command`.
    """
    view = run.view
    phase = status.phase
    has_ended = phase in ENDED
    statuses = node_statuses(view, run.plan, has_ended=has_ended)
    asked = run.question() if phase in WAITS else None
    gates = () if has_ended else view.open_gates
    current = None if has_ended else find_current_step(run.steps)
    why = _why(run, status)
    planned = view.newest(Planned)
    commands = partial(answer_command, status.cluster, run, has_credentials=has_credentials)
    return Console(
        run_id=run.run_id,
        number=run.number,
        title=title_of(view.run_of, run.plan, planned),
        phase=phase,
        needs_human=phase in NEEDS_HUMAN,
        why=why,
        stopped=_stopped(statuses, has_ended),
        stop=None if has_ended else _stop(view, run.plan),
        request=None if asked is None or asked.terminal is not None else _request(asked, commands),
        steps=tuple(replace(one, reason=_unsaid(one.reason, why)) for one in run.steps),
        current_step="" if current is None else current.id,
        nodes=tuple(replace(one, note=_unsaid(one.note, why)) for one in statuses),
        batches=_batches(view, run.plan, why),
        gates=tuple(replace(_gate(gate), message=_unsaid(gate.message, why)) for gate in gates),
        log=tuple(_log_lines(gates)),
        findings=tuple(_findings(run.plan, planned)),
        estimate=None if has_ended else _estimate(view, run.plan),
        lines=tuple(lines),
        way_back="" if has_ended or phase is Phase.ROLLING_BACK else _way_back(run),
        plan_hash="" if planned is None else planned.plan_hash,
        began_at=view.first_at,
        changed_at=view.last_at,
    )


def _unsaid(text: str, why: str) -> str:
    """Return the text, or nothing if the page has said it above: one reason is shown once."""
    said = text.partition(". ")[0].removesuffix(".").removeprefix("The gate ")
    return "" if said and said in why else text


def _batches(view: RunView, plan: Plan | None, why: str) -> BatchProgress | None:
    found = current_batches(view, plan)
    if found is None:
        return None
    return replace(found, open=tuple(replace(one, reason=_unsaid(one.reason, why)) for one in found.open))


def title_of(kind: RunOf, plan: Plan | None, planned: Planned | None) -> str:
    """Return kind and releases: `Upgrade 3.9.1 → 4.3.1`."""
    if plan is not None and kind is RunOf.FEATURES:
        return plan.way.capitalize()
    if plan is not None:
        return f"{kind.capitalize()}: {plan.way}" if plan.source == plan.target else f"{kind.capitalize()} {plan.way}"
    if planned is not None:
        return f"{kind.capitalize()} {planned.source} → {planned.target}"
    return "Not planned yet"


def group_by_rack(listed: Iterable[NodeSpec], statuses: Sequence[NodeStatus]) -> tuple[Rack, ...]:
    """Return the nodes by rack; the controllers first, then the racks in the order of their names.

    `listed`: nodes of the inventory. Another one is in no rack.
    """
    known = {node.node_id: node for node in listed}
    racks: dict[str, list[tuple[NodeStage, RackNode]]] = {}
    for status in statuses:
        node = known.get(status.node_id)
        role = "" if node is None else " and ".join(sorted(role.value for role in node.roles))
        rack = "controllers" if role == "controller" else (node.rack if node is not None else None) or _NO_RACK
        racks.setdefault(rack, []).append((status.phase, RackNode(node_id=status.node_id, role=role)))
    others = "brokers" if "controllers" in racks else "nodes"
    return tuple(
        Rack(
            name=others if name == _NO_RACK and racks.keys() <= {"controllers", _NO_RACK} else name,
            counts={phase: number for phase in NodeStage if (number := sum(one is phase for one, _ in found))},
            nodes=tuple(node for _, node in found),
        )
        for name, found in sorted(racks.items(), key=lambda item: (item[0] != "controllers", item[0]))
    )


def _why(run: RunState, status: ClusterStatus) -> str:
    if run.problem:
        return run.problem
    if status.needs_human:
        return next((one.message for one in status.conditions if one.type == "NeedsHuman"), "")
    return "" if run.current_end is None else run.current_end.sentence


def _stopped(statuses: Sequence[NodeStatus], has_ended: bool) -> str:
    down = [status.node_id for status in statuses if status.is_down]
    if not down:
        return "" if has_ended else "The run has no node stopped."
    if len(down) == len(statuses) > 1:
        return f"The run stopped all {len(down)} nodes. No gate has passed since."
    return f"The run stopped {nodes(down)}, whose gate has not passed since."


def _stop(view: RunView, plan: Plan | None) -> Stop | None:
    """Return the stop of all nodes or controllers by an offline or a live downgrade, until it is over."""
    if plan is None or plan.lowering is Lowering.ONLINE:
        return None
    if plan.lowering is Lowering.OFFLINE:
        last = view.outages[-1:]
        clients = "No client can produce or consume: the run stopped all nodes."
        return Stop(since=last[0].began_at, clients=clients, serves=False) if last and not last[0].writable_at else None
    if view.switch is None:
        return None
    clients = (
        "The run stopped all controllers. Brokers serve clients, but no partition leader is elected and no topic or "
        "configuration can be changed."
    )
    return Stop(since=view.switch.at, clients=clients, serves=True)


def _way_back(run: RunState) -> str:
    if not can_roll_back(run):
        return ""
    is_offline = run.plan is not None and run.plan.lowering is Lowering.OFFLINE
    return "The downgrade can be undone from the backups." if is_offline else "A rollback is possible."


def _request(asked: Asked, command_of: Callable[[Decision], str]) -> OpenRequest:
    texts = {**_CONSEQUENCES, **{found["option"]: found["text"] for found in _OPTION.finditer(asked.text)}}
    ends = {Decision.REJECTED.label, Decision.ROLL_BACK.label, Decision.STOP_HERE.label}
    choices = tuple(
        Choice(
            option=option,
            consequence=texts.get(option, ""),
            undoes=option in ends,
            command=command_of(Decision.of_label(option)),
        )
        for option in asked.options
    )
    return OpenRequest(
        task_id=asked.task_id,
        map_index=asked.map_index,
        record_id=asked.record_id,
        asked_at=asked.at,
        choices=choices,
    )


def _gate(gate: GateHistory) -> ShownGate:
    newest_check = gate.checks[-1] if gate.checks else None
    conditions = () if newest_check is None else newest_check.conditions
    causes = [one.name for one in find_causes(conditions)]
    order = {name: place for place, name in enumerate(causes)}
    return ShownGate(
        gate=gate.gate,
        node_id=gate.ref.node_id,
        state=gate.state,
        message=gate.message,
        began_at=gate.began_at,
        checked_at=None if newest_check is None else newest_check.at,
        conditions=tuple(
            ShownCondition(
                **{**asdict(one), "evidence": describe(one)},
                trend=None if one.is_met else trend_of(gate.checks, one),
                needs_others=not one.is_met and one.name not in order,
            )
            for one in sorted(conditions, key=lambda one: (one.is_met, order.get(one.name, len(order))))
        ),
    )


def trend_of(checks: Sequence[GateCheck], condition: GateCondition) -> Trend | None:
    """Compare the number that blocks a condition with the one of _TREND_S before, or of the first check since.

    None for a condition without a number, and before a second check with one.
    """
    numbers = [
        (check.at, one.left)
        for check in checks[:-1]
        for one in check.conditions
        if one.name == condition.name and one.left
    ]
    return compare_numbers(numbers, checks[-1].at, condition.left) if condition.left else None


def compare_numbers(numbers: Sequence[tuple[float, int]], now: float, number: int) -> Trend | None:
    """Compare a number with the one of _TREND_S before, or the first one since; None without an earlier number.

    `numbers`: (time, number), the oldest first.
    """
    found = next(((at, before) for at, before in numbers if at >= now - _TREND_S), None)
    if found is None:
        return None
    at, before = found
    way = Way.FALLS if number < before else Way.RISES if number > before else Way.SAME
    return Trend(way=way, before=before, over_s=round(now - at, 1))


def _log_lines(gates: Iterable[GateHistory]) -> Iterator[LogLine]:
    for gate in gates:
        for check in reversed(gate.checks):
            found = next((one.log for one in check.conditions if one.log), "")
            if found and gate.ref.node_id is not None:
                yield LogLine(node_id=gate.ref.node_id, at=check.at, text=found)
                break


def _findings(plan: Plan | None, planned: Planned | None) -> Iterator[ShownFindings]:
    if plan is None:
        for text in () if planned is None else planned.blockers:
            yield ShownFindings(severity="blocker", code="", subjects="", sentence=text, remedy="", items=())
        return
    for group in group_by_kind(plan.findings):
        items = tuple(f"{one.subject}: {one.sentence}" for one in group.findings) if len(group.findings) > 1 else ()
        yield ShownFindings(
            severity=group.severity.value,
            code=str(group.code),
            subjects=group.subjects,
            sentence=group.sentence,
            remedy=group.remedy,
            items=items,
        )


def _estimate(view: RunView, plan: Plan | None) -> ShownEstimate | None:
    found = None if plan is None else estimate_of(view, plan)
    if found is None or not found.left or view.last_at is None:
        return None
    passed = view.newest(GatePassed)
    return ShownEstimate(
        left=found.left,
        batches=found.batches,
        since=view.last_at if passed is None else passed.at,
        at_least_s=found.at_least_s,
        at_most_s=found.at_most_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A number of objects, the first _OBJECTS of them, and how the number changes; None: it is unknown."""

    tone: Tone = Tone.FAIR
    """Clients suffer from some (BAD); others are usual while a node restarts."""

    number: int | None
    objects: tuple[str, ...] = ()
    trend: Trend | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNow:
    observed_at: float
    """Epoch seconds."""
    counts: Mapping[str, Counted]
    """Name → objects; 0 is good."""
    partitions: int | None
    controller: int | None
    """Id of the active one, None if there is none or it is unknown."""
    most_lag: int | None
    """Records between the leader of the quorum and the last node."""
    levels: Mapping[str, int]
    """Finalized feature → level."""
    clients: str
    """The effect on clients, as a sentence."""
    serves: bool | None
    """There is no such effect; None if it is unknown."""
    problems: tuple[str, ...]
    """Of queries without an answer."""


def summarize(
    *,
    observed_at: float,
    partitions: Sequence[PartitionState] | None,
    quorum: QuorumState | None,
    registered: RegisteredNodes | None,
    levels: Mapping[str, int],
    problems: Sequence[str] = (),
    lists_all: bool = True,
) -> ClusterNow:
    """Return the state from the answers of the cluster; None: no answer.

    `lists_all`: `partitions` has all of the cluster. Without it, no number of them is 0 or a total.
    """
    offline = _names(partitions, lambda one: one.leader < 0)
    under = _names(partitions, lambda one: one.leader >= 0 and one.is_under_min_isr)
    fenced = None if registered is None or registered.fenced is None else registered.fenced
    leader = None if quorum is None or quorum.leader_id < 0 else quorum.leader_id
    replicas = [] if quorum is None else [one.replica_id for one in (*quorum.voters, *quorum.observers)]
    lags = [lag for one in replicas if quorum is not None and (lag := quorum.lag(one)) is not None]
    behind = None
    if quorum is not None:
        evidence = {one: check_caught_up(quorum, one) for one in dict.fromkeys(replicas)}
        behind = [f"node {one}: {why}" for one, (is_met, why) in evidence.items() if not is_met]
    known = lists_all and offline is not None and under is not None

    def counted(names: list[str] | None) -> Counted:
        return _counted(names if names or lists_all else None)

    return ClusterNow(
        observed_at=observed_at,
        counts={
            UNDER_REPLICATED: counted(_names(partitions, lambda one: len(one.isr) < len(one.replicas))),
            OFFLINE: _of_clients(counted(offline)),
            UNDER_MIN_ISR: _of_clients(counted(under)),
            FENCED: _counted(None if fenced is None else [f"broker {one}" for one in sorted(fenced)]),
            BEHIND: _counted(behind),
        },
        partitions=None if partitions is None or not lists_all else len(partitions),
        controller=leader,
        most_lag=max(lags, default=None),
        levels=levels,
        clients=_clients(offline, under, lists_all=lists_all),
        serves=False if offline or under else True if known else None,
        problems=tuple(problems),
    )


def with_trends(now: ClusterNow, earlier: Sequence[ClusterNow]) -> ClusterNow:
    """Return the state with the change of each number. `earlier`: observations, the oldest first."""
    counts = {}
    for name, counted in now.counts.items():
        numbers = [(one.observed_at, number) for one in earlier if (number := one.counts[name].number) is not None]
        trend = compare_numbers(numbers, now.observed_at, counted.number) if counted.number is not None else None
        counts[name] = replace(counted, trend=trend)
    return replace(now, counts=counts)


def _names(partitions: Sequence[PartitionState] | None, is_bad: Callable[[PartitionState], bool]) -> list[str] | None:
    return None if partitions is None else [one.name for one in partitions if is_bad(one)]


def _counted(objects: Collection[str] | None) -> Counted:
    if objects is None:
        return Counted(number=None)
    tone = Tone.FAIR if objects else Tone.GOOD
    return Counted(number=len(objects), objects=tuple(objects)[:_OBJECTS], tone=tone)


def _of_clients(counted: Counted) -> Counted:
    """Return the count of what clients suffer from."""
    return replace(counted, tone=Tone.BAD) if counted.number else counted


def _clients(offline: Collection[str] | None, under: Collection[str] | None, *, lists_all: bool) -> str:
    if offline is None or under is None:
        return "The effect on clients is unknown: the partitions could not be read."
    if offline:
        return f"Clients cannot read or write {count(len(offline), 'partition')} without a leader."
    if under:
        return f"Producers with acks=all cannot write {count(len(under), 'partition')} under min ISR."
    if not lists_all:
        return "The effect on clients is unknown: the brokers do not list every partition to the user of this page."
    return "No client is affected: every partition has a leader and its min ISR."
