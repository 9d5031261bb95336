"""What the controller's answers to UpdateFeatures mean, and what to do about each."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.state import ClusterState

UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"  # of UpdateFeatures: version 0 has no validate-only

_BY_MESSAGE = (
    (
        "has not registered",
        "Bring that controller up, or take it out of the quorum if it is gone for ever: a voter that nobody hears of "
        "counts.",
    ),
    (
        "because it might delete metadata",
        "Use kafka_downgrade, which shows what would be lost and knows the offline way.",
    ),
    ("Unsafe metadata downgrade is not supported", "Use kafka_downgrade, which knows the offline way."),
    ("Can't downgrade to a newer version", "The level changed meanwhile: look at it, then ask again."),
    ("without setting the upgrade type", "The level changed meanwhile: look at it, then ask again as a downgrade."),
)
_BY_ERROR = {
    "INVALID_REQUEST": "The controller finds the request itself wrong: look at its message, correct it, ask again.",
    "FEATURE_UPDATE_FAILED": "The controller could not apply it: look at the level (`features describe`), see that "
    "every node is up and supports it, then ask again.",
    "INVALID_UPDATE_VERSION": "Choose a level that its message allows, or roll the node that it names.",
    UNSUPPORTED_VERSION: "The controller's release is too old for this; roll it first.",
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
    """The controller's refusal as a finding, with the remedy that its own message lacks."""
    own = [n.features.supported.get(feature) for n in state.nodes.values() if n.features is not None]
    all_support = bool(own) and all(supported is not None and level in supported for supported in own)
    code = "FEATURE-REFUSED"
    if "does not support this feature" in message and all_support:
        code = "REGISTRATION-DROPPED-RANGES"
        remedy = (
            "Finalize metadata.version first: the brokers then register anew. If it is at the target already, "
            "restart the named broker so that it registers with the new controller."
        )
        message += " Every node itself supports it: an older controller took the registration and dropped the range."
    else:
        of_message = next((remedy for words, remedy in _BY_MESSAGE if words in message), None)
        remedy = of_message or _BY_ERROR.get(error, "Follow the controller's message, then ask again.")
    return Finding(
        code=code,
        severity=Severity.BLOCKER,
        subject=f"feature {feature}",
        sentence=f"The controller refuses {feature} {level}: {error} {message}".strip(),
        remedy=remedy,
    )
