"""The older releases that a cluster can go down to: verdicts, levels, methods and history, from what is stored.

Pure: the caller reads, and passes the time in. An option is open only if a fresh scan proves that its releases load the
coordinator logs. What only a plan can check (metadata logs, losses, users of features) is not part of an option.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.internal_topics import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.coordinator_logs.comparison import ScanSummary
from kafka_rollout.coordinator_logs.scan import LoadVerdict
from kafka_rollout.features.requests import range_findings
from kafka_rollout.features.rules import FEATURE_DOWNGRADE_REFUSED, check_feature_support
from kafka_rollout.model.plan import FeatureChange
from kafka_rollout.model.state import ClusterState, NodeFeatures, NodeState, ProcessState, RegisteredNodes
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.planning.downgrade import downgrade_levels, target_level
from kafka_rollout.planning.lowering import refused_by_kafka
from kafka_rollout.planning.release_path import plan_release_steps
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release
from kafka_rollout.run.projections.observations import Observation

FRESH_S = 48 * 3600.0  # a cluster changes at any time; scheduled scans and checks are daily by default
LOADS = frozenset({LoadVerdict.LOADS, LoadVerdict.LOADS_IGNORING})
LOGS = (GROUPS_TOPIC, TRANSACTIONS_TOPIC)


class OptionState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why an option is not open."""

    sentence: str
    remedy: str = ""
    code: str = ""
    """Of a finding; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One older release."""

    release: Release
    state: OptionState
    reasons: tuple[Reason, ...]
    path: tuple[Release, ...] = ()
    """The releases that the nodes start on, the target last."""
    lowered: tuple[FeatureChange, ...] = ()
    """Levels that must be lowered before."""
    refused: str = ""
    """Why Kafka does not lower metadata.version, empty if it does."""


def judge_options(
    spec: ClusterSpec, catalogue: Catalogue, observation: Observation | None, scan: ScanSummary | None, now: float
) -> tuple[Judged, ...]:
    """Return the releases of the catalogue below the oldest running one, newest first; empty if none is known to run.

    The release is closed if Kafka cannot run it at any level that the cluster can reach, or if a fresh scan proves that
    a release of the path does not load the coordinator logs. Without a fresh scan it is unknown.
    """
    running = running_releases(observation)
    if observation is None or not running or running[0] not in catalogue:
        return ()
    state = state_of(spec, observation, one_per_release=True)
    lacks = _not_fresh(spec, observation, scan, now)
    older = [release for release in catalogue if release < running[0]]
    return tuple(_judge(spec, catalogue, state, release, scan=scan, lacks=lacks) for release in reversed(older))


def needed_releases(
    catalogue: Catalogue,
    running: Collection[Release],
    verdicts: Mapping[Release, LoadVerdict] | None,
    listed: Collection[Release] = (),
) -> frozenset[Release]:
    """Return the releases whose verdict somebody needs: those that run, the listed ones, and those of a path down that
    an earlier scan found open.

    `verdicts`: of this scan; None without one. `running`: at least one.
    """
    found, known = {*running, *listed}, verdicts or {}
    for release in catalogue if known else ():
        if release >= min(running):
            continue
        try:
            path = {to for _, to, _ in plan_release_steps(catalogue, max(running), release, down=True)}
        except UserError:
            continue
        if all(known.get(one) in LOADS for one in path):
            found |= path
    return frozenset(found)


def _judge(
    spec: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    release: Release,
    *,
    scan: ScanSummary | None,
    lacks: Sequence[Reason],
) -> Judged:
    try:
        path = tuple(to for _, to, _ in plan_release_steps(catalogue, max(state.releases), release, down=True))
        level = target_level(catalogue, state, release, None)
    except UserError as error:
        unknown = Reason(sentence=error.sentence, remedy=error.remedy)
        return Judged(release=release, state=OptionState.UNKNOWN, reasons=(unknown,))
    known = replace(spec, nodes=tuple(node for node in spec.nodes if node.node_id in state.nodes))
    lowered = downgrade_levels(catalogue, state, path, level)
    judged = Judged(
        release=release,
        state=OptionState.CLOSED,
        reasons=_of_levels(known, catalogue, state, path, lowered),
        path=path,
        lowered=lowered,
        refused=refused_by_kafka(known, catalogue, state, state.finalized.reported.get(METADATA_VERSION, 0), level),
    )
    if judged.reasons:
        return judged
    if lacks or scan is None:
        return replace(judged, state=OptionState.UNKNOWN, reasons=tuple(lacks))
    verdicts = {one: scan.verdicts.get(one, LoadVerdict.UNKNOWN) for one in path}
    failing = {one: verdict for one, verdict in verdicts.items() if verdict.blocks}
    unproved = [one for one, verdict in verdicts.items() if verdict not in LOADS]
    if failing:
        found = [Reason(sentence=f"{one} {_WORDS[verdict]} the coordinator logs.") for one, verdict in failing.items()]
        return replace(judged, reasons=tuple(found))
    if unproved:
        found = [Reason(sentence=f"The scan does not prove that {few(unproved)} loads the coordinator logs.")]
        return replace(judged, state=OptionState.UNKNOWN, reasons=tuple(found))
    return replace(judged, state=OptionState.OPEN)


_WORDS = {LoadVerdict.FAILS: "does not load", LoadVerdict.LOSES: "loses transactional ids of"}


def _of_levels(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    path: Sequence[Release],
    lowered: Sequence[FeatureChange],
) -> tuple[Reason, ...]:
    """Return why no method reaches levels at which every release of the path runs."""
    levels = {change.feature: change.target for change in lowered}
    found = list(check_feature_support(cluster, catalogue, state, levels).blockers)
    for release in path if state.finalized.is_known else ():
        found += range_findings(catalogue, state, release, planned=levels).findings
    refused = FEATURE_DOWNGRADE_REFUSED.code, f"feature {METADATA_VERSION}"
    return tuple(
        Reason(code=one.code, sentence=one.sentence, remedy=one.remedy)
        for one in dict.fromkeys(found)
        if one.identity != refused or not cluster.manages_nodes  # else live and offline lower it
    )


def _not_fresh(spec: ClusterSpec, observation: Observation, scan: ScanSummary | None, now: float) -> tuple[Reason, ...]:
    """Return why nothing is known about the coordinator logs now."""
    how = f"Scan the logs: `kafka-rollout scan --cluster {spec.name}`, or trigger its scan DAG."
    see = "Trigger its scan DAG, or plan a dry run of a downgrade."
    reasons = []
    if missing := [node.node_id for node in spec.nodes if observation.observed.releases.get(node.node_id) is None]:
        reasons.append(Reason(sentence=f"The release of {nodes(missing)} is unknown.", remedy=see))
    if METADATA_VERSION not in observation.observed.finalized:
        reasons.append(Reason(sentence="The finalized metadata.version is unknown."))
    if observation.is_outdated:
        told = "A run whose history you cannot read can have changed releases or levels since the newest observation."
        reasons.append(Reason(sentence=told, remedy=see))
    if now - observation.observed.at > FRESH_S:
        told = f"The newest observation is {duration(now - observation.observed.at)} old"
        reasons.append(Reason(sentence=f"{told}; at most {duration(FRESH_S)} counts.", remedy=see))
    if scan is None:
        return (*reasons, Reason(sentence="The coordinator logs were not scanned yet.", remedy=how))
    if now - scan.scanned_at > FRESH_S:
        age = duration(now - scan.scanned_at)
        reasons.append(
            Reason(sentence=f"The newest scan is {age} old; at most {duration(FRESH_S)} counts.", remedy=how)
        )
    if observation.changed_at > scan.scanned_at:
        reasons.append(Reason(sentence="Releases or levels have changed since the newest scan.", remedy=how))
    absent = [log for log in LOGS if log not in (scan.topics or ())]
    if absent and not scan.run_id:  # a scheduled scan has every coordinator log of the cluster
        told = f"The newest scan has no partition of {few(absent)}: the topic does not exist, or was left out."
        reasons.append(Reason(sentence=told, remedy=how))
    return tuple(reasons)


def running_releases(observation: Observation | None) -> list[Release]:
    releases = set() if observation is None else set(observation.observed.releases.values())
    return sorted(release for release in releases if release is not None)


def state_of(spec: ClusterSpec, observation: Observation, *, one_per_release: bool = False) -> ClusterState:
    """Return the observed releases and levels as a state. Supported levels are those of the releases.

    `one_per_release`: one node stands for all with its release.
    """
    observed = observation.observed
    chosen: dict[Any, NodeSpec] = {
        (observed.releases.get(node.node_id) if one_per_release else node.node_id): node for node in spec.nodes
    }
    features = NodeFeatures(supported={}, finalized=observed.finalized, epoch=0)
    return ClusterState(
        cluster_id=observed.cluster_id,
        observed_at=observed.at,
        nodes={
            node.node_id: NodeState(
                node_id=node.node_id,
                process=ProcessState(pid=None, running=release),
                features=features,
                metrics=None,
            )
            for node in chosen.values()
            if (release := observed.releases.get(node.node_id)) is not None
        },
        quorum=None,
        registered=RegisteredNodes(brokers=frozenset(), fenced=None, controllers=None),
        partitions=(),
    )
