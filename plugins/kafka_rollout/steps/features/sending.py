"""Sends one UpdateFeatures request. The levels are read before and after, so a lost response or a kill does no harm.

Only one request is in progress at a time; the callers hold the cluster's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.features.requests import (
    DROPPED_RANGES,
    UNSUPPORTED_VERSION,
    FeatureUpdateResult,
    refused_by_controller,
)
from kafka_rollout.features.support import keeps_registrations
from kafka_rollout.model.plan import FeatureChange
from kafka_rollout.model.state import ClusterState
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.step_events import Finalized, Finalizing, Validated
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe_some
from kafka_rollout.steps.common.until import until

# Brokers re-register after metadata.version changes. Until the controller has their new ranges it refuses other
# features.
_REGISTRATION_PATIENCE_S = 60.0
# Seconds in which the levels are read after a lost response, before the result counts as unknown.
_LOST_ANSWER_PATIENCE_S = 20.0
# Seconds to wait for a node that responds but does not report the level yet; a node without a connection may never
# report it.
_LAGGARD_PATIENCE_S = 10.0
_SENDS = 2

NOT_SENT = "NOT_SENT"  # used in place of Kafka's error name
_NOT_SENT_WHY = "Another feature of the same request was refused."


CONTROLLER_UNANSWERED = FindingCode(
    "CONTROLLER-UNANSWERED",
    BLOCKER,
    "The controller did not respond to the validate-only request.",
    "Repeat the command. A failed query blocks the plan.",
)
CONTROLLER_CANNOT_VALIDATE = FindingCode(
    "CONTROLLER-CANNOT-VALIDATE",
    WARNING,
    "The release of the controller has no validate-only request.",
    "UpdateFeatures has validate-only from version 1 (Kafka 3.3). Only this tool's own checks apply.",
)


def ensure_levels(
    ports: ClusterPorts, batch: Sequence[FeatureChange], *, unsafe: bool = False
) -> tuple[FeatureUpdateResult, ...]:
    """Read the levels, validate-only, update, read them again. A refused feature has Kafka's own error.

    After a lost response the request is sent again only if the nodes show for some time that it was not applied. Raises
    TransientError if the result is unknown.
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
        except TransientError:  # the result is unknown here; the nodes report it
            _wait_until_there(ports, missing)
            continue
        if refused := {result.feature: result for result in results if not result.accepted}:
            # Older controllers can apply a part of a request.
            taken = {feature: level for feature, level in missing.items() if feature not in refused}
            if taken and _wait_until_there(ports, taken):
                ports.run.record(Finalized(levels=taken, epoch_after=highest_epoch(levels_now(ports))))
            return _answers(batch, refused)
        if not _wait_until_there(ports, missing):
            break
    raise TransientError(
        f"It is unknown whether {named(levels_of_changes(batch))} is finalized: the response was lost, or the "
        "nodes do not report the level.",
        remedy="Repeat the command. It reads the current level before it sends anything.",
    )


def find_refusals(
    ports: ClusterPorts, state: ClusterState, batches: Sequence[Sequence[FeatureChange]], *, unsafe: bool
) -> tuple[Finding, ...]:
    """Return the controller's refusals of the first request, by validate-only; later requests depend on its result.

    Where raising metadata.version does not make the brokers re-register, also the later features that a registration
    lacks. Each of them is sent alone, because one refused feature refuses the whole request.
    """
    first, *later = map(levels_of_changes, batches)
    found = _ask_controller(ports, state, first, unsafe=unsafe)
    if METADATA_VERSION in first and keeps_registrations(state.finalized.get(METADATA_VERSION, 0)):
        for feature, level in (one for levels in later for one in levels.items() if one[1] > 0):
            answer = _ask_controller(ports, state, {feature: level}, unsafe=False)
            found += tuple(finding for finding in answer if finding.code == DROPPED_RANGES.code)
    return found


def _ask_controller(
    ports: ClusterPorts, state: ClusterState, levels: Mapping[str, int], *, unsafe: bool
) -> tuple[Finding, ...]:
    """Return the findings of the controller's validate-only request; empty if it accepts."""
    try:
        results = ports.admin.update_features(levels, validate_only=True, unsafe=unsafe)
    except TransientError as error:
        return (
            CONTROLLER_UNANSWERED.found(
                "active controller", f"The controller did not respond to the validate-only request: {error.sentence}"
            ),
        )
    if all(result.error == UNSUPPORTED_VERSION for result in results):
        return (
            CONTROLLER_CANNOT_VALIDATE.found(
                "active controller", f"The controller cannot validate the request: {results[0].message}"
            ),
        )
    return refusals(state, levels, results)


def refusals(
    state: ClusterState, levels: Mapping[str, int], results: Sequence[FeatureUpdateResult]
) -> tuple[Finding, ...]:
    """Return the controller's refusals with remedies."""
    return tuple(
        refused_by_controller(state, result.feature, levels[result.feature], result.error, result.message)
        for result in results
        if not result.accepted
    )


def levels_now(ports: ClusterPorts) -> ClusterState:
    """Return every node's own response about features, and nothing else."""
    return observe_some(ports, ports.cluster.nodes, metrics=False, brokers=False)


def levels_of_changes(changes: Sequence[FeatureChange]) -> dict[str, int]:
    return {change.feature: change.target for change in changes}


def highest_epoch(state: ClusterState) -> int | None:
    epochs = [n.features.epoch for n in state.nodes.values() if n.features and n.features.epoch is not None]
    return max(epochs, default=None)


def named(levels: Mapping[str, int]) -> str:
    return ", ".join(f"{feature} {level}" for feature, level in sorted(levels.items()))


def _validate(ports: ClusterPorts, levels: Mapping[str, int], *, unsafe: bool) -> dict[str, FeatureUpdateResult]:
    """Return the refusals of the validate-only request.

    Refusals because of a missing registration are retried once metadata.version is set. A controller without
    validate-only refuses nothing here.
    """
    raises = any(level > 0 for level in levels.values())
    results = until(
        ports.clock,
        lambda: ports.admin.update_features(levels, validate_only=True, unsafe=unsafe),
        lambda results: not any(_may_pass(result) for result in _refused(results).values()),
        for_s=_REGISTRATION_PATIENCE_S if METADATA_VERSION not in levels and raises else 0.0,
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
    """Return whether the levels are finalized, by the newest response.

    The controller responds before brokers have read the level. Brokers that lag get some time, because the caller will
    use the feature through any of them.
    """
    laggards_until = ports.clock.monotonic() + _LAGGARD_PATIENCE_S

    def is_there(state: ClusterState) -> bool:
        return _has(state.finalized, levels) and (
            ports.clock.monotonic() >= laggards_until or not _some_lag(state, levels)
        )

    state = until(ports.clock, partial(levels_now, ports), is_there, for_s=_LOST_ANSWER_PATIENCE_S)
    return _has(state.finalized, levels)


def _some_lag(state: ClusterState, levels: Mapping[str, int]) -> bool:
    answers = (node.features for node in state.nodes.values() if node.features is not None)
    # Controllers before 3.5 report no levels.
    return any(
        not _has(features.finalized, levels) for features in answers if features.finalized or features.epoch is not None
    )


def _has(finalized: Mapping[str, int], levels: Mapping[str, int]) -> bool:
    return all(finalized.get(feature, 0) == level for feature, level in levels.items())
