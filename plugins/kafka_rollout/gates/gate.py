"""Gates: which there are, the checks of their conditions, and the rule for repeated checks. Input and output are data.

One passing check does not prove that the cluster is stable. A gate passes only after several consecutive passing checks
and after a soak in which every check passes. This module has no clock and does not wait: the caller checks and passes
the time in. So a trigger, a sensor and the command line use one rule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.gates.reasons import PROCESS, describe, reason_of
from kafka_rollout.model.host_state import Installation
from kafka_rollout.model.node_log import UNKNOWN_LAYOUT
from kafka_rollout.model.plan import Plan, ReleaseStep
from kafka_rollout.model.state import ProcessState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec

_SAME_START_S = 1.0  # two readings of one start time differ by rounding
OBJECTS = 300  # of a condition, because the run history keeps many checks


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCondition:
    """One condition of a gate in one check."""

    name: str
    is_met: bool
    evidence: str
    """The measured fact as a sentence."""
    log: str = ""
    """The line in the node's own log that explains it, if it is not met."""
    left: int = 0
    """The number of objects that do not meet it; 0 if it is not about objects."""
    objects: tuple[str, ...] = ()
    """The first OBJECTS of them."""
    doubts: tuple[str, ...] = ()
    """If they alone hold the condition: what an approver can accept, as sentences without texts of clients."""
    is_lasting: bool = False
    """Of one that is not met: this was seen, and stays until somebody acts on the node. What is in flight (an ISR, a
    response, a process that starts) and what is unknown is not lasting."""

    def listing(self, objects: Collection[str]) -> GateCondition:
        """Return the condition with the objects that do not meet it."""
        return replace(self, left=len(objects), objects=tuple(objects)[:OBJECTS])


def none_left(name: str, left: Collection[str], *, unmet: str = "", met: str) -> GateCondition:
    """Return the condition that no object is left. `unmet`, `met`: its evidence; default of `unmet`: the objects."""
    return GateCondition(name=name, is_met=not left, evidence=(unmet or few(left)) if left else met).listing(left)


def doubtful(
    name: str, evidence: str, doubts: Sequence[str], accepted: Mapping[str, str] | None = None
) -> GateCondition:
    """Return a condition that only doubts hold. It is met if an approver has accepted each of them.

    `evidence`: why it is in doubt. `accepted`: doubt → who accepted it, and why.
    """
    left = tuple(one for one in doubts if one not in (accepted or {}))
    if left:
        return GateCondition(name=name, is_met=False, evidence=evidence, doubts=left)
    by = few(dict.fromkeys((accepted or {})[one] for one in doubts))
    return GateCondition(name=name, is_met=True, evidence=f"{evidence}; accepted by {by}")


def join_of_nodes(conditions: Mapping[int, GateCondition]) -> GateCondition:
    """Return one condition of several nodes: node id → its condition, all of one name.

    An approver can accept what doubts alone hold, on each node that does not meet it.
    """
    unmet = {node_id: one for node_id, one in conditions.items() if not one.is_met}
    accepted = {node_id: one for node_id, one in conditions.items() if one.is_met and "accepted by" in one.evidence}
    name = next(iter(conditions.values())).name
    shown = few([f"node {node_id}: {describe(one)}" for node_id, one in (unmet or accepted).items()], limit=3)
    evidence = "; ".join(filter(None, ("" if unmet else count(len(conditions), "node"), shown)))
    doubts = (
        tuple(doubt for one in unmet.values() for doubt in one.doubts) if all(o.doubts for o in unmet.values()) else ()
    )
    is_lasting = any(one.is_lasting for one in unmet.values())
    return GateCondition(name=name, is_met=not unmet, evidence=evidence, doubts=doubts, is_lasting=is_lasting)


def layout_doubt(brokers: Sequence[int], what: str) -> str:
    """Return what an approver accepts once for a run: the log of each of these brokers, if its layout is unknown.

    `what`: that such a log does not show. Another cause, and an error that a log shows, are other doubts.
    """
    return f"{nodes(brokers)}: a log that {UNKNOWN_LAYOUT} does not show {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One check of a gate."""

    gate: str
    """`before node 3`, `after node 3`, `finalized`, …"""
    at: float
    """Epoch seconds."""
    conditions: tuple[GateCondition, ...]
    details: Mapping[str, str] = field(default_factory=dict)
    is_held: bool = False
    """The run pauses before the node (`gates/control.py`), and the cluster was not observed."""

    @property
    def passes(self) -> bool:
        return all(condition.is_met for condition in self.conditions)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What an approver can accept so that the check passes; empty if something else is unmet too."""
        unmet = [condition for condition in self.conditions if not condition.is_met]
        return tuple(dict.fromkeys(one for c in unmet for one in c.doubts)) if all(c.doubts for c in unmet) else ()

    @property
    def is_lasting(self) -> bool:
        """Whether no later check can pass before somebody acts."""
        return any(condition.is_lasting for condition in self.conditions if not condition.is_met)

    @property
    def waits_for(self) -> str:
        """Why the check did not pass, in one line; empty if it passed."""
        return reason_of(self.conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeStop:
    """State of a node before its stop. It is stored because it cannot be observed afterwards."""

    node_id: int
    release: str
    at: float
    in_isr: frozenset[str]
    """Partitions as `topic-partition`."""
    leads: frozenset[str]
    """Partitions as `topic-partition`."""
    was_active_controller: bool
    was_voter: bool = True
    """Of the metadata quorum; a controller can also be an observer (KIP-853)."""
    groups: frozenset[str] = frozenset()
    """Those that it coordinated; empty if it did not answer (`has_answered`)."""
    transactional_ids: frozenset[str] = frozenset()
    """Those that it coordinated; empty if it did not answer (`has_answered`)."""
    pid: int | None = None
    """Of its process; None in records of earlier versions."""
    started_at: float | None = None
    """Of its process; None in records of earlier versions (epoch seconds)."""
    has_answered: bool = True
    installation: Installation = field(default_factory=Installation)

    @property
    def topics(self) -> frozenset[str]:
        """The topics of its partitions, and those of the coordinators."""
        return frozenset((*COORDINATOR_TOPICS, *(name.rpartition("-")[0] for name in self.in_isr | self.leads)))

    def is_of(self, process: ProcessState) -> bool:
        """Return whether the process is the one before the stop, so that the node was not started since."""
        if process.pid != self.pid:
            return False
        if process.started_at is None or self.started_at is None:
            return True
        return abs(process.started_at - self.started_at) < _SAME_START_S  # a pid can be used again

    def joined(self, earlier: BeforeStop) -> BeforeStop:
        """Return this state with everything of an earlier one, which commands before the stop can have moved away."""
        return replace(
            self,
            in_isr=self.in_isr | earlier.in_isr,
            leads=self.leads | earlier.leads,
            was_active_controller=self.was_active_controller or earlier.was_active_controller,
            was_voter=self.was_voter or earlier.was_voter,
            groups=self.groups | earlier.groups,
            transactional_ids=self.transactional_ids | earlier.transactional_ids,
            has_answered=earlier.has_answered,
            installation=earlier.installation,
        )


class GateKind(StrEnum):
    BEFORE_STOP = "before-stop"
    AFTER_START = "after-start"
    FINALIZED = "finalized"
    SNAPSHOT = "snapshot"
    METADATA_VERSION = "metadata-version"
    CONTROLLERS_STOP = "controllers-stop"  # of a live downgrade: no broker needs a controller soon
    NODES_STOP = "stop-of-all-nodes"  # of an offline downgrade: nothing holds the stop of all nodes
    NEXT_CHANGE = "next-change"  # the run is not paused before a step that changes the cluster
    METADATA_LOG = "metadata-log"  # of a downgrade: the older release can read every node's log
    GROUPS = "groups"  # groups that lose their type are converted, and the path's releases can load what is left
    LEVELS = "levels"  # of a downgrade, at its end: all planned levels, however they were reached
    FINAL_METADATA_VERSION = "final-metadata-version"  # METADATA_VERSION once more, on the older release
    NODES = "nodes"  # every node serves on the target, whichever run started it; no step waits for it


RESTS_ON_LOGS = frozenset({GateKind.AFTER_START, GateKind.METADATA_VERSION, GateKind.FINAL_METADATA_VERSION})
"""Kinds whose conditions can have doubts, which an approver can accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRef:
    """One gate of a run. The two gates of a node have `release_step` (a key of the plan or of a rollback) and
    `node_id`; both are None for a gate of the whole cluster."""

    kind: GateKind
    release_step: str | None = None
    node_id: int | None = None

    def __str__(self) -> str:
        return f"{self.kind.value} of node {self.node_id}" if self.node_id is not None else self.kind.value

    def resolve(self, plan: Plan, cluster: ClusterSpec) -> Gate:
        """Return the gate that the reference names. Raises UserError for an unknown release step or node."""
        return Gate(
            kind=self.kind,
            release_step=None if self.release_step is None else plan.release_step(self.release_step),
            node=None if self.node_id is None else cluster.node(self.node_id),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate with what it is about: `release_step` and `node` for the two gates of a node, else None."""

    kind: GateKind
    release_step: ReleaseStep | None = None
    node: NodeSpec | None = None
    together: tuple[NodeSpec, ...] = ()
    """The other nodes that restart at the same time, and are down on purpose."""
    has_begun: bool = False
    """The commands before the stop of one of them have run, and what can hold the batch is checked again after those of
    the last one."""
    is_prepared: bool = False
    """All of them have run, and the stop follows. Then the window must be open, without time to spare: a node that its
    commands drained would else be held, and drained again in each window."""

    @property
    def ref(self) -> GateRef:
        """Name of the gate in the run history, and in a trigger."""
        return GateRef(
            kind=self.kind,
            release_step=None if self.release_step is None else self.release_step.key,
            node_id=None if self.node is None else self.node.node_id,
        )

    @property
    def name(self) -> str:
        """Name of the gate in its checks."""
        if self.node is None:
            return self.kind.value
        return f"{'before' if self.kind is GateKind.BEFORE_STOP else 'after'} node {self.node.node_id}"

    @property
    def subject(self) -> tuple[ReleaseStep, NodeSpec]:
        """Release step and node of a node gate. Raises UserError for a gate of the cluster."""
        if self.release_step is None or self.node is None:
            raise UserError(f"The gate {self.kind.value} is a node gate.", remedy="Add its release step and node.")
        return self.release_step, self.node


def gates_of_nodes(kind: GateKind, release_step: ReleaseStep, nodes: Sequence[NodeSpec]) -> tuple[Gate, ...]:
    """Return a gate of each node. The nodes restart at the same time."""
    return tuple(
        Gate(kind=kind, release_step=release_step, node=node, together=tuple(one for one in nodes if one != node))
        for node in nodes
    )


HELD_INTERVAL_S = 5.0  # between two checks while the run pauses
GONE_S = 60.0  # after this time, no supervisor is expected to restart a missing process
UNSEEN_S = 120.0  # what counts of a longer time between two checks, in addition to their interval


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """When a gate passes, and when it gives up."""

    checks: int = 3
    """Number of consecutive checks that must pass."""
    interval_s: float = 1.0
    """Seconds between two checks."""
    timeout_s: float = 600.0
    """Gate timeout in seconds, without the soak. A node without a process fails the gate after GONE_S."""
    soak_s: float = 0.0
    """Seconds for which the checks must pass."""

    def __post_init__(self) -> None:
        if self.checks < 1:
            raise UserError(
                f"A gate needs at least one passing check, not {self.checks}.",
                remedy=("Set the number of checks to 1 or more."),
            )
        for name in ("interval_s", "timeout_s", "soak_s"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} of a gate is negative.", remedy="Set it to 0 seconds or more.")


class WatchState(StrEnum):
    WAITING = "waiting"
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """Status of a watch after a check."""

    state: WatchState
    message: str
    """One line for the log and the page of the task."""
    reason: str = ""
    """Of one that failed: why, without the time that it took."""

    @property
    def done(self) -> bool:
        return self.state is not WatchState.WAITING


@dataclass(slots=True, kw_only=True)
class GateWatch:
    """The checks of one gate so far. A new trigger can continue the watch of another one.

    It counts its own seconds: of a longer time between two checks only what a check can take, and a clock that was set
    back as none. So a machine that was suspended passes no soak, and fails no gate, by a time that no check saw.
    """

    policy: GatePolicy
    checked_at: float | None = None  # the newest check, epoch seconds
    seconds: float = 0.0  # of the watch
    waits_since: float = 0.0  # these and the next ones: seconds of the watch
    consecutive_passes: int = 0
    passed_since: float | None = None  # the check that completed the consecutive checks
    gone_since: float | None = None  # the first consecutive check without a process
    is_held: bool = False  # by the newest check
    status: WatchStatus | None = None  # after the last check

    @property
    def is_done(self) -> bool:
        return self.status is not None and self.status.done

    @property
    def soak_left_s(self) -> float | None:
        """Seconds until the soak ends; None before it begins."""
        return None if self.passed_since is None else self.passed_since + self.policy.soak_s - self.seconds

    def add(self, check: GateCheck, now: float) -> WatchStatus:
        """Record one gate check and return the new status.

        `now`: epoch seconds. A failed check resets the consecutive count and the soak. While the run pauses, the gate
        timeout does not run.
        """
        if self.checked_at is not None:
            self.seconds += min(max(now - self.checked_at, 0.0), self.policy.interval_s + UNSEEN_S)
        self.checked_at = now
        self.is_held = check.is_held
        if self.is_held:
            self.waits_since = self.seconds
        self.status = self._add(check)
        return self.status

    def _add(self, check: GateCheck) -> WatchStatus:
        now = self.seconds
        if not check.passes:
            self.consecutive_passes, self.passed_since = 0, None
            gone = any(condition.name == PROCESS and not condition.is_met for condition in check.conditions)
            self.gone_since = (now if self.gone_since is None else self.gone_since) if gone else None
            return self._waiting(f"waits for {check.waits_for}", check.waits_for)
        self.gone_since = None
        self.consecutive_passes += 1
        if self.consecutive_passes < self.policy.checks:
            return self._waiting(f"check {self.consecutive_passes} of {self.policy.checks} passed")
        if self.passed_since is None:
            self.passed_since = now
        soaked = now - self.passed_since
        if soaked < self.policy.soak_s:
            # After the gate timeout, a passing gate can finish its soak; a failed check fails the gate at once.
            message = f"soaks: {soaked:.0f} of {self.policy.soak_s:.0f} s"
            return WatchStatus(state=WatchState.WAITING, message=message)
        checks = count(self.consecutive_passes, "check")
        return WatchStatus(state=WatchState.PASSED, message=f"passed after {now - self.waits_since:.0f} s, {checks}")

    def _waiting(self, message: str, reason: str = "") -> WatchStatus:
        waited = self.seconds - self.waits_since
        gone = 0.0 if self.gone_since is None else self.seconds - self.gone_since
        if waited >= self.policy.timeout_s + self.policy.soak_s or gone >= GONE_S:
            message = f"failed after {waited:.0f} s: {reason or message}"
            return WatchStatus(state=WatchState.FAILED, message=message, reason=reason or message)
        return WatchStatus(state=WatchState.WAITING, message=message)
