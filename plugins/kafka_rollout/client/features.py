"""Feature versions: the response to ApiVersions, and UpdateFeatures (KIP-584, upgrade types of KIP-778)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from kafka.protocol.admin import UpdateFeaturesRequest

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.lease import Fence, unfenced
from kafka_rollout.client.connection import NotOfferedError
from kafka_rollout.client.requests import ClusterConnections, Target, error_name, raise_for_error
from kafka_rollout.features.requests import FeatureUpdateResult
from kafka_rollout.model.state import NodeFeatures
from kafka_rollout.releases.facts import VersionRange


class UpgradeType(IntEnum):
    """FeatureUpdate.UpgradeType."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


# Errors of the request itself, not of a feature: the response does not show whether a level was changed.
_NOT_DECIDED = frozenset(
    {"REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "UNKNOWN_SERVER_ERROR", "CLUSTER_AUTHORIZATION_FAILED"}
)
# KIP-584: a server that is not the controller applied nothing, so the request can be sent to the new controller.
_NOT_CONTROLLER = "NOT_CONTROLLER"
_NEW_CONTROLLER_AFTER_S = 0.3
_LEADER_AND_ISR = 4  # only brokers in ZooKeeper mode serve it (listeners of LeaderAndIsrRequest.json)


def node_features(response: Any) -> NodeFeatures:
    """Read an ApiVersions response. Epoch −1 or none: the node does not know it, and its levels are not finalized ones.

    Before ApiVersions v4 a node leaves out ranges that begin at 0 (KAFKA-17011), so a missing feature proves nothing.
    """
    epoch = response.finalized_features_epoch
    is_known = epoch is not None and epoch >= 0
    reported = response.finalized_features or ()
    finalized = reported if is_known else ()
    return NodeFeatures(
        supported={f.name: VersionRange(f.min_version, f.max_version) for f in response.supported_features or ()},
        finalized={f.name: f.max_version_level for f in finalized},
        finalized_min={f.name: f.min_version_level for f in finalized},
        epoch=epoch if is_known else None,
        without_quorum=bool(reported) and not is_known,
        in_zookeeper_mode=any(one.api_key == _LEADER_AND_ISR for one in response.api_keys or ()),
    )


def upgrade_type(current: int, target: int, *, unsafe: bool) -> UpgradeType:
    """The upgrade type of a change of level; a removal (below 1) is always a downgrade."""
    if target >= 1 and target >= current:
        return UpgradeType.UPGRADE
    return UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE


def send_feature_updates(
    nodes: ClusterConnections,
    targets: Mapping[str, int],
    finalized: Mapping[str, int],
    *,
    validate_only: bool,
    unsafe: bool,
    timeout_s: float,
    clock: Clock,
    fence: Fence = unfenced,
) -> tuple[FeatureUpdateResult, ...]:
    """One UpdateFeatures request through a broker that can be reached; results in the order of `targets`.

    After NOT_CONTROLLER it is sent to the next broker, for at most `timeout_s`: by then a broker knows the new
    controller. Where a broker supports only version 0, which has neither validate-only nor unsafe downgrades, the
    results are UNSUPPORTED_VERSION and nothing was sent.
    """
    levels = {feature: max(0, level) for feature, level in targets.items()}
    request = _request(levels, finalized, validate_only=validate_only, unsafe=unsafe, timeout_s=timeout_s)
    deadline = clock.monotonic() + timeout_s
    brokers = deque(nodes.brokers)
    while True:
        try:
            results: tuple[FeatureUpdateResult, ...] | None = nodes.first_answer(
                tuple(brokers),
                request,
                lambda response, target: _results(response, target, levels),
                only_if_not_sent=not validate_only,
                fence=fence,
            )
        except NotOfferedError as error:
            return tuple(
                FeatureUpdateResult(feature=feature, error="UNSUPPORTED_VERSION", message=error.sentence)
                for feature in levels
            )
        if results is not None:
            return results
        if clock.monotonic() + _NEW_CONTROLLER_AFTER_S >= deadline:
            raise TransientError(
                f"UpdateFeatures found no controller in {timeout_s:.0f} s ({_NOT_CONTROLLER}); nothing was changed.",
                remedy="Check that the quorum has a leader, then repeat the command.",
            )
        brokers.rotate(-1)
        clock.sleep(_NEW_CONTROLLER_AFTER_S)


def _request(
    levels: Mapping[str, int], finalized: Mapping[str, int], *, validate_only: bool, unsafe: bool, timeout_s: float
) -> Any:
    types = {
        feature: upgrade_type(finalized.get(feature, 0), level, unsafe=unsafe) for feature, level in levels.items()
    }
    needs_types = validate_only or UpgradeType.UNSAFE_DOWNGRADE in types.values()
    update = UpdateFeaturesRequest.FeatureUpdateKey
    return UpdateFeaturesRequest(
        timeout_ms=int(timeout_s * 1000),
        feature_updates=[
            update(
                feature=feature,
                max_version_level=level,
                allow_downgrade=types[feature] is not UpgradeType.UPGRADE,  # version 0
                upgrade_type=types[feature].value,  # later versions
            )
            for feature, level in levels.items()
        ],
        validate_only=validate_only,
        min_version=1 if needs_types else 0,
    )


def _results(response: Any, target: Target, levels: Mapping[str, int]) -> tuple[FeatureUpdateResult, ...] | None:
    """None from a server that is not the controller.

    Older controllers return a result for each feature (some can be applied, others not). Newer ones apply all updates
    or none and return one result, which is then the result of every feature.
    """
    name = error_name(response.error_code)
    if name == _NOT_CONTROLLER:
        return None
    if name in _NOT_DECIDED:
        raise_for_error(response, "UpdateFeatures", target, "ALTER on CLUSTER")
    own = {result.feature: result for result in response.results or ()}
    answers = {f: own.get(f, response) if response.error_code == 0 else response for f in levels}
    return tuple(
        FeatureUpdateResult(feature=feature, error=error_name(answer.error_code), message=answer.error_message or "")
        for feature, answer in answers.items()
    )
