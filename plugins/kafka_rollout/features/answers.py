"""Errors of the controller's UpdateFeatures response with the remedy for each, and the outcome of each feature."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.base.errors import FatalError, RefusedError
from kafka_rollout.base.findings import BLOCKER, Finding, FindingCode
from kafka_rollout.features.support import keeps_registrations
from kafka_rollout.model.state import ClusterState
from kafka_rollout.releases.facts import METADATA_VERSION

UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"  # error of UpdateFeatures version 0, which has no validate-only

_BY_MESSAGE = (
    (
        "has not registered",
        "Start that controller. If it was removed permanently, remove it from the quorum: a voter that does "
        "not respond still counts.",
    ),
    (
        "because it might delete metadata",
        "Use kafka_downgrade. It shows what would be lost and offers the offline downgrade.",
    ),
    ("Unsafe metadata downgrade is not supported", "Use kafka_downgrade. It offers the offline downgrade."),
    (
        "Can't downgrade to a newer version",
        ("The level changed after the request was made. Read the current level, then repeat the request."),
    ),
    (
        "without setting the upgrade type",
        ("The level changed after the request was made. Read the current level, then request a downgrade."),
    ),
)
_BY_ERROR = {
    "INVALID_REQUEST": (
        "The controller rejected the request as invalid. Read its message, correct the request and repeat it."
    ),
    "FEATURE_UPDATE_FAILED": (
        "The controller could not apply the change. Read the level (`features describe`), make sure that "
        "every node is up and supports it, then repeat the request."
    ),
    "INVALID_UPDATE_VERSION": "Choose a level that the message allows, or upgrade the node that the message lists.",
    UNSUPPORTED_VERSION: "The release of the controller is too old for this request. Upgrade the controller first.",
}


FEATURE_REFUSED = FindingCode(
    "FEATURE-REFUSED",
    BLOCKER,
    "The controller refuses a requested level.",
    "Read the controller's message and correct the request. Then repeat the request.",
)
DROPPED_RANGES = FindingCode(
    "REGISTRATION-DROPPED-RANGES",
    BLOCKER,
    "The controller refuses a level because an older controller dropped a range of a broker's registration.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdateResult:
    """The controller's answer for one feature: `error` is Kafka's error name (`NONE` when accepted) and message."""

    feature: str
    error: str
    message: str = ""

    @property
    def accepted(self) -> bool:
        return self.error == "NONE"


def refused_by_controller(state: ClusterState, feature: str, level: int, error: str, message: str) -> Finding:
    """Return the controller's rejection as a finding, with the remedy that its message lacks."""
    own = [n.features.supported.get(feature) for n in state.nodes.values() if n.features is not None]
    all_support = bool(own) and all(supported is not None and level in supported for supported in own)
    code = FEATURE_REFUSED
    if "does not support this feature" in message and all_support:
        code = DROPPED_RANGES
        remedy = (
            "Restart the listed broker, and every other one that registered with an older controller. At this level, "
            "nothing else makes them re-register."
            if keeps_registrations(state.finalized.get(METADATA_VERSION, 0))
            else "Finalize metadata.version first, so that the brokers re-register. If it is already at the "
            "target, restart the listed broker so that it registers with the new controller."
        )
        message += " Every node supports it: an older controller accepted the registration and dropped the range."
    else:
        of_message = next((remedy for words, remedy in _BY_MESSAGE if words in message), None)
        remedy = of_message or _BY_ERROR.get(error, code.remedy)
    return code.found(
        f"feature {feature}",
        f"The controller rejected {feature} {level}: {error} {message}".strip(),
        remedy,
    )


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
