"""The result of each feature of a request, as one line in the format of KIP-584's tool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.domain.model.errors import FatalError, RefusedError


class Result(StrEnum):
    OK = "OK"
    ALREADY_THERE = "OK (already there)"
    ACCEPTED = "OK (dry run)"
    FAILED = "FAILED"
    NOT_SENT = "NOT SENT"  # a previous request failed
    UNKNOWN = "UNKNOWN"  # the response was lost, and the nodes do not report the level

    @property
    def ok(self) -> bool:
        return self in {Result.OK, Result.ALREADY_THERE, Result.ACCEPTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOutcome:
    """The result for one feature. `existing` and `new`: finalized maximum levels; 0 means not finalized."""

    feature: str
    existing: int
    new: int
    result: Result
    sentence: str = ""

    @property
    def action(self) -> str:
        if self.new == 0:
            return "Delete"
        if self.new < self.existing:
            return "Downgrade"
        return "Add" if self.existing == 0 else "Upgrade"

    def __str__(self) -> str:
        text = f"{self.result}: {self.sentence}" if self.sentence else str(self.result)
        return (
            f"{f'[{self.action}]':>11} Feature: {self.feature:<32} "
            f"ExistingFinalizedMaxVersion: {self.existing or '-':<3} NewFinalizedMaxVersion: {self.new or '-':<3} "
            f"Result: {text}"
        )


def exit_code(outcomes: Iterable[FeatureOutcome]) -> int:
    """Return 0 if every level is as requested, 3 if refused without a change, 1 if changed in part or unknown."""
    results = {outcome.result for outcome in outcomes}
    if all(result.ok for result in results):
        return 0
    return FatalError.exit_code if results & {Result.OK, Result.UNKNOWN} else RefusedError.exit_code
