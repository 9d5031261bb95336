"""Events of a run's record: nodes and gates."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.domain.gates.check import GateCheck
from kafka_rollout.domain.gates.ref import GateRef
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.run.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent(Event):
    """An event of one node in one release step."""

    node_id: int
    release_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(NodeEvent, kind="stopping"):
    """Recorded before the node is asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(NodeEvent, kind="stopped"):
    """`forced`: the process was killed at the end of its deadline."""

    seconds: float
    forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(NodeEvent, kind="started"):
    """`pid` is None when the process was gone before it was looked up."""

    release: Release
    pid: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed(NodeEvent, kind="trimmed"):
    """The node's metadata log was trimmed. `start_offset`: its new start; None when nothing was left to do."""

    sentence: str
    backup: str | None
    start_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapReplaced(NodeEvent, kind="bootstrap-replaced"):
    """The node's bootstrap.checkpoint was written again at `level`; `backup` is None when it was done before."""

    level: int
    backup: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateChecked(Event, kind="gate"):
    """One check of a gate. Not every check is recorded: see steps.gates.checks."""

    ref: GateRef
    check: GateCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEnded(Event):
    """`gate` names the gate for a reader; `message` says how long it took and what it waited for."""

    ref: GateRef
    gate: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePassed(GateEnded, kind="gate-held"):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFailed(GateEnded, kind="gate-failed"):
    pass
