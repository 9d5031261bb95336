"""Watching a gate until it holds: the rule of how many looks, how long, and when to give up.

A look that holds is not yet a cluster that is well ("Ready" is not "caught up"), so a gate is passed only after
several holding looks in a row, and after a soak in which it keeps holding. No clock and no waiting in here: the
caller looks and tells the time, so a trigger, a sensor and a shell share one rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kafka_rollout.domain.gates.check import PROCESS, GateCheck
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.wording import count

GONE_S = 60.0  # a process that is gone for so long is not brought back by whatever looks after it


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """`looks` that must hold in a row, `interval_s` between them, then `soak_s` in which the gate keeps holding.

    `timeout_s` bounds the waiting without the soak; a node without a process is waited for GONE_S at most.
    """

    looks: int = 3
    interval_s: float = 1.0
    timeout_s: float = 600.0
    soak_s: float = 0.0

    def __post_init__(self) -> None:
        if self.looks < 1:
            raise UserError(f"A gate needs at least one look, not {self.looks}.", remedy="Set looks to 1 or more.")
        for name in ("interval_s", "timeout_s", "soak_s"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} of a gate is negative.", remedy="Give it in seconds, 0 or more.")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GatePolicy:
        return cls(**data)


class WatchState(StrEnum):
    WAITING = "waiting"
    HELD = "held"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """What a watch says after a look; `message` is one line for the log and the task's page."""

    state: WatchState
    message: str

    @property
    def done(self) -> bool:
        return self.state is not WatchState.WAITING


@dataclass(slots=True, kw_only=True)
class GateWatch:
    """The looks at one gate so far. `to_dict` and `from_dict` let a trigger go on where another one stopped."""

    policy: GatePolicy
    started_at: float | None = None
    held_in_a_row: int = 0
    held_since: float | None = None  # the look that completed the row
    gone_since: float | None = None  # the first of the looks in a row that saw no process

    def seen(self, look: GateCheck, now: float) -> WatchStatus:
        """Count one look; `now` in epoch seconds. A look that does not hold starts the row and the soak anew."""
        if self.started_at is None:
            self.started_at = now
        if not look.holds:
            self.held_in_a_row, self.held_since = 0, None
            self._note_process(look, now)
            return self._waiting(now, f"waits for {look.waits_for}")
        self.gone_since = None
        self.held_in_a_row += 1
        if self.held_in_a_row < self.policy.looks:
            return self._waiting(now, f"look {self.held_in_a_row} of {self.policy.looks} holds")
        if self.held_since is None:
            self.held_since = now
        soaked = now - self.held_since
        if soaked < self.policy.soak_s:
            # Past the deadline a gate that holds may finish its soak; one that does not hold fails at once.
            message = f"soaks: {soaked:.0f} of {self.policy.soak_s:.0f} s"
            return WatchStatus(state=WatchState.WAITING, message=message)
        looks = count(self.held_in_a_row, "look")
        return WatchStatus(state=WatchState.HELD, message=f"holds after {now - self.started_at:.0f} s, {looks}")

    def _note_process(self, look: GateCheck, now: float) -> None:
        gone = any(condition.name == PROCESS and not condition.holds for condition in look.conditions)
        if not gone:
            self.gone_since = None
        elif self.gone_since is None:
            self.gone_since = now

    def _waiting(self, now: float, message: str) -> WatchStatus:
        waited = now - (now if self.started_at is None else self.started_at)
        gone = 0.0 if self.gone_since is None else now - self.gone_since
        if waited >= self.policy.timeout_s + self.policy.soak_s or gone >= GONE_S:
            return WatchStatus(state=WatchState.FAILED, message=f"gives up after {waited:.0f} s; {message}")
        return WatchStatus(state=WatchState.WAITING, message=message)

    def to_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy.to_dict(),
            "started_at": self.started_at,
            "held_in_a_row": self.held_in_a_row,
            "held_since": self.held_since,
            "gone_since": self.gone_since,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GateWatch:
        rest = {key: value for key, value in data.items() if key != "policy"}
        return cls(policy=GatePolicy.from_dict(data["policy"]), **rest)
