"""One UpdateFeatures request made true: looked up before and after, so that a lost answer or a killed caller does no
harm. One is in flight at a time; the callers hold the cluster's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_rollout.domain.features.answers import UNSUPPORTED_VERSION, FeatureUpdateResult, refused_by_controller
from kafka_rollout.domain.model.errors import TransientError
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.plan import FeatureChange
from kafka_rollout.domain.model.releases import METADATA_VERSION
from kafka_rollout.domain.model.state import ClusterState
from kafka_rollout.domain.run.feature_events import Finalized, Finalizing, Validated
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.observe import observe_some
from kafka_rollout.steps.common.until import until

# Brokers register anew after metadata.version changes; until the controller has their new ranges it refuses the rest.
_REGISTRATION_PATIENCE_S = 60.0
# How long a lost answer is looked up before the person (or the retry) is told that nobody knows.
_LOST_ANSWER_PATIENCE_S = 20.0
# How long a node that answers and has not heard of the level yet is waited for; one that is cut off may never hear.
_LAGGARD_PATIENCE_S = 10.0
_LOOK_AGAIN_S = 0.5
_SENDS = 2

NOT_SENT = "NOT_SENT"  # stands where Kafka's error name would
_NOT_SENT_WHY = "Another feature of the same request was refused."


def ensure_levels(
    ports: ClusterPorts, batch: Sequence[FeatureChange], *, unsafe: bool = False
) -> tuple[FeatureUpdateResult, ...]:
    """Look the levels up, validate-only, update, look them up again; what was refused carries Kafka's own answer.

    An update whose answer was lost is sent again only when the nodes, looked at for a while, show that it was not
    done. Raises TransientError when nobody knows.
    """
    for attempt in range(_SENDS + 1):
        state = levels_now(ports)
        missing = {c.feature: c.target for c in batch if state.finalized.get(c.feature, 0) != c.target}
        if not missing:
            ports.run.record(Finalized(levels=levels_of_changes(batch), epoch_after=highest_epoch(state)))
            return _answers(batch, {})
        if attempt == _SENDS:
            break
        if refused := _validate(ports, missing, unsafe=unsafe):
            not_sent = {f: FeatureUpdateResult(feature=f, error=NOT_SENT, message=_NOT_SENT_WHY) for f in missing}
            return _answers(batch, {**not_sent, **refused})
        ports.run.record(Finalizing(levels=missing, epoch_before=highest_epoch(state)))
        try:
            results = ports.admin.update_features(missing, validate_only=False, unsafe=unsafe)
        except TransientError:  # nobody knows; the cluster does
            _wait_until_there(ports, missing)
            continue
        if refused := {result.feature: result for result in results if not result.accepted}:
            # Older controllers apply what they can of a request.
            taken = {feature: level for feature, level in missing.items() if feature not in refused}
            if taken and _wait_until_there(ports, taken):
                ports.run.record(Finalized(levels=taken, epoch_after=highest_epoch(levels_now(ports))))
            return _answers(batch, refused)
        if not _wait_until_there(ports, missing):
            break
    raise TransientError(
        f"Nobody knows yet whether {named(levels_of_changes(batch))} is finalized: the answer was lost or the nodes do "
        "not report it.",
        remedy="Call again: it is looked up first.",
    )


def second_opinion(
    ports: ClusterPorts, state: ClusterState, levels: Mapping[str, int], *, unsafe: bool
) -> tuple[Finding, ...]:
    """The controller's validate-only as findings; none when it accepts."""
    try:
        results = ports.admin.update_features(levels, validate_only=True, unsafe=unsafe)
    except TransientError as error:
        return (
            Finding(
                code="CONTROLLER-UNANSWERED",
                severity=Severity.BLOCKER,
                subject="active controller",
                sentence=f"The controller did not answer the validate-only request: {error.sentence}",
                remedy="Look again; what is unknown is not assumed to be well.",
            ),
        )
    if all(result.error == UNSUPPORTED_VERSION for result in results):
        return (
            Finding(
                code="CONTROLLER-CANNOT-VALIDATE",
                severity=Severity.WARNING,
                subject="active controller",
                sentence=f"There is no second opinion: {results[0].message}",
                remedy="UpdateFeatures has validate-only from version 1 on (Kafka 3.3); our own checks stand alone.",
            ),
        )
    return refusals(state, levels, results)


def refusals(
    state: ClusterState, levels: Mapping[str, int], results: Sequence[FeatureUpdateResult]
) -> tuple[Finding, ...]:
    """What the controller refused, with remedies."""
    return tuple(
        refused_by_controller(state, result.feature, levels[result.feature], result.error, result.message)
        for result in results
        if not result.accepted
    )


def levels_now(ports: ClusterPorts) -> ClusterState:
    """Every node's own answer about features, and nothing else."""
    return observe_some(ports, ports.cluster.nodes, metrics=False, brokers=False)


def levels_of_changes(changes: Sequence[FeatureChange]) -> dict[str, int]:
    return {change.feature: change.target for change in changes}


def highest_epoch(state: ClusterState) -> int | None:
    epochs = [n.features.epoch for n in state.nodes.values() if n.features and n.features.epoch is not None]
    return max(epochs, default=None)


def named(levels: Mapping[str, int]) -> str:
    return ", ".join(f"{feature} {level}" for feature, level in sorted(levels.items()))


def _validate(ports: ClusterPorts, levels: Mapping[str, int], *, unsafe: bool) -> dict[str, FeatureUpdateResult]:
    """What validate-only refuses. Refusals for want of a registration are waited for once metadata.version is in
    place. A controller that has no validate-only refuses nothing here."""
    rises = any(level > 0 for level in levels.values())
    deadline = ports.clock.monotonic() + (_REGISTRATION_PATIENCE_S if METADATA_VERSION not in levels and rises else 0.0)
    results = until(
        lambda: ports.admin.update_features(levels, validate_only=True, unsafe=unsafe),
        lambda results: not any(_may_pass(result) for result in _refused(results).values()),
        deadline=deadline,
        clock=ports.clock.monotonic,
        sleep=ports.clock.sleep,
        pause_s=_LOOK_AGAIN_S,
    )
    ports.run.record(
        Validated(levels=dict(levels), answers={r.feature: f"{r.error} {r.message}".strip() for r in results})
    )
    return _refused(results)


def _refused(results: Sequence[FeatureUpdateResult]) -> dict[str, FeatureUpdateResult]:
    return {r.feature: r for r in results if not r.accepted and r.error != UNSUPPORTED_VERSION}


def _may_pass(result: FeatureUpdateResult) -> bool:
    return "not support" in result.message or "has not registered" in result.message


def _answers(
    batch: Sequence[FeatureChange], refused: Mapping[str, FeatureUpdateResult]
) -> tuple[FeatureUpdateResult, ...]:
    return tuple(refused.get(c.feature) or FeatureUpdateResult(feature=c.feature, error="NONE") for c in batch)


def _wait_until_there(ports: ClusterPorts, levels: Mapping[str, int]) -> bool:
    """Whether the levels are finalized, by the newest answer. The controller answers before brokers have heard of it:
    those that lag are given time, for whoever asked goes on to use the feature through any of them."""
    began = ports.clock.monotonic()
    while True:
        state = levels_now(ports)
        passed_s = ports.clock.monotonic() - began
        if _has(state.finalized, levels):
            if passed_s >= _LAGGARD_PATIENCE_S or not _some_lag(state, levels):
                return True
        elif passed_s >= _LOST_ANSWER_PATIENCE_S:
            return False
        ports.clock.sleep(_LOOK_AGAIN_S)


def _some_lag(state: ClusterState, levels: Mapping[str, int]) -> bool:
    answers = (node.features for node in state.nodes.values() if node.features is not None)
    # Controllers before 3.5 name no levels.
    return any(not _has(told.finalized, levels) for told in answers if told.finalized or told.epoch is not None)


def _has(finalized: Mapping[str, int], levels: Mapping[str, int]) -> bool:
    return all(finalized.get(feature, 0) == level for feature, level in levels.items())
