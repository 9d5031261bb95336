"""Errors of the controller's UpdateFeatures response, and the remedy for each."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.state import ClusterState

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
    code = "FEATURE-REFUSED"
    if "does not support this feature" in message and all_support:
        code = "REGISTRATION-DROPPED-RANGES"
        remedy = (
            "Finalize metadata.version first, so that the brokers re-register. If it is already at the "
            "target, restart the listed broker so that it registers with the new controller."
        )
        message += " Every node supports it: an older controller accepted the registration and dropped the range."
    else:
        of_message = next((remedy for words, remedy in _BY_MESSAGE if words in message), None)
        remedy = of_message or _BY_ERROR.get(
            error, "Read the controller's message and correct the request. Then repeat the request."
        )
    return Finding(
        code=code,
        severity=Severity.BLOCKER,
        subject=f"feature {feature}",
        sentence=f"The controller rejected {feature} {level}: {error} {message}".strip(),
        remedy=remedy,
    )
