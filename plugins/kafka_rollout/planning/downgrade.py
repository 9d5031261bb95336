"""What a downgrade changes: its feature levels, and the method that lowers metadata.version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.findings import (
    WARNING,
    Check,
    CheckOf,
    Examined,
    Finding,
    FindingCode,
    Need,
    sort_findings,
)
from kafka_rollout.features.requests import feature_change, missing_dependencies
from kafka_rollout.features.rules import FEATURE_DOWNGRADE_REFUSED, LEVELS_CHECK, USERS_CHECK, check_feature_support
from kafka_rollout.groups.findings import leave_to_gate
from kafka_rollout.model.plan import FeatureChange, Lowering
from kafka_rollout.model.state import ClusterState
from kafka_rollout.planning.lowering import (
    LoweringChoice,
    choose_lowering,
    live_obstacles,
    refused_by_kafka,
)
from kafka_rollout.planning.observation import Change, PlanObservation
from kafka_rollout.planning.release_path import find_release_steps, source_release
from kafka_rollout.planning.request import Request
from kafka_rollout.releases.facts import KRAFT_VERSION, METADATA_VERSION, Catalogue, Release, ReleaseFacts

LIVE_DOWNGRADE = FindingCode(
    "LIVE-DOWNGRADE",
    WARNING,
    "Kafka refuses the lower metadata.version, and the run stops the controllers for some seconds.",
    "Read the approval: it shows what is unavailable without a controller, and for how many seconds.",
)
OFFLINE_DOWNGRADE = FindingCode(
    "OFFLINE-DOWNGRADE",
    WARNING,
    "Kafka refuses the lower metadata.version, and the run stops all nodes.",
    "Read the approval: it shows the expected outage and the point of no return.",
)
LOWERING_CHECK = Check(
    "lowering-method",
    "Method that lowers metadata.version",
    "downgrade.md#online-live-or-offline",
    (LIVE_DOWNGRADE, OFFLINE_DOWNGRADE),
    of=(CheckOf.DOWNGRADE,),
    needs=(Need.LEVELS, Need.FACTS),
    examines=Examined.LEVELS,
)


def target_level(catalogue: Catalogue, state: ClusterState, target: Release, asked: int | None) -> int:
    """Return the metadata.version to set: the requested one, else the highest that the target supports.

    It is never above the current level, if that is known (LEVELS_UNKNOWN blocks the plan otherwise). Raises UserError
    for a level that the target does not support or that is above the current level.
    """
    supported = catalogue.get(target).features[METADATA_VERSION].supported
    current = state.finalized.known()[METADATA_VERSION] if state.finalized.is_known else supported.max
    if asked is None:
        return min(current, supported.max)
    if asked not in supported:
        raise UserError(
            f"Release {target} supports metadata.version {supported}, not {asked}.",
            remedy="Choose a level that the target release supports, or omit the level.",
        )
    if asked > current:
        raise UserError(
            f"metadata.version is finalized at {current}. Level {asked} is higher.",
            remedy=f"Choose {current} or lower, or omit the level. To raise it, use kafka_features or kafka_upgrade.",
        )
    return asked


def downgrade_levels(
    catalogue: Catalogue, state: ClusterState, path: Sequence[Release], level: int
) -> tuple[FeatureChange, ...]:
    """Return every feature that must be lowered.

    The new level is the highest that all releases of `path` support, 0 if one does not support the feature. It is lower
    still if dependencies at metadata.version `level` require that. kraft.version cannot be lowered and stays.
    """
    known = [release for release in state.releases if release in catalogue]
    if not known or not state.finalized.is_known:
        return ()
    running = catalogue.get(max(known))
    below = [catalogue.get(release) for release in path]
    wanted = {feature: current for feature, current in state.finalized.reported.items() if current > 0}
    for feature in wanted.keys() - {KRAFT_VERSION}:
        highest = (one.features[feature].supported.max if feature in one.features else 0 for one in below)
        wanted[feature] = min([wanted[feature], *highest])
    wanted[METADATA_VERSION] = level
    while unmet := next((name for name in sorted(wanted) if _lacks([running, *below], name, wanted)), None):
        wanted[unmet] -= 1
    return tuple(
        feature_change(running, feature, state.finalized.reported.get(feature, 0), target)
        for feature, target in sorted(wanted.items(), key=lambda item: (item[0] == METADATA_VERSION, item[0]))
        if target != state.finalized.reported.get(feature, 0)
    )


def _lacks(facts: Sequence[ReleaseFacts], feature: str, levels: Mapping[str, int]) -> bool:
    """Return whether a feature must be lowered, because a dependency of it is not met."""
    if feature in {METADATA_VERSION, KRAFT_VERSION} or levels[feature] <= 0:
        return False
    return any(missing_dependencies(one, feature, levels) for one in facts)


def decide_downgrade(observed: PlanObservation, request: Request, of_cluster: Sequence[Finding]) -> Change:
    """Return the release steps and levels of a downgrade, and how it lowers metadata.version.

    `of_cluster`: the findings about the cluster. The level is the requested one, else the highest that the target
    supports. The lowering is live or offline only if Kafka rejects the level, the request allows it, and the binary is
    downgraded too. Raises UserError for a target or level that cannot be planned.
    """
    cluster, catalogue, state, target = observed.cluster, observed.catalogue, observed.state, request.target_release
    level = target_level(catalogue, state, target, request.level)
    choice = choose_lowering(
        refused_by_kafka(cluster, catalogue, state, state.finalized.reported.get(METADATA_VERSION, 0), level),
        live_obstacles(cluster, catalogue, state, level, of_cluster),
        request.lowering,
        lowers_binary=target < source_release(cluster, state, down=True),
    )
    together = choice.lowering is not Lowering.OFFLINE
    release_steps = find_release_steps(cluster, catalogue, state, target, down=True, together=together)
    changes = downgrade_levels(catalogue, state, [release_step.to_release for release_step in release_steps], level)
    levels = {change.feature: change.target for change in changes}
    support = check_feature_support(cluster, catalogue, state, levels, unsafe=request.unsafe).findings
    return Change(
        release_steps=release_steps,
        feature_changes=changes,
        lowering=choice.lowering,
        checked=sort_findings(
            leave_to_gate(dict.fromkeys((*_of_levels(support, choice), *_methods(choice)))),
            (LEVELS_CHECK, USERS_CHECK, LOWERING_CHECK),
        ),
    )


def _of_levels(findings: Iterable[Finding], choice: LoweringChoice) -> Iterable[Finding]:
    """Adapt the finding about Kafka's refusal to lower metadata.version.

    If a snapshot lowers the level, the refusal is not a blocker. Else the remedy lists the possible actions.
    """
    subject = f"feature {METADATA_VERSION}"
    lowered = choice.lowering is not Lowering.ONLINE
    for finding in findings:
        if finding.code != FEATURE_DOWNGRADE_REFUSED.code or finding.subject != subject:
            yield finding
        elif not lowered:
            yield replace(finding, remedy=_ways(choice))


def _methods(choice: LoweringChoice) -> Iterable[Finding]:
    subject = f"feature {METADATA_VERSION}"
    if choice.lowering is Lowering.LIVE:
        yield LIVE_DOWNGRADE.found(
            subject,
            f"Kafka does not lower it online: {choice.refused} The run lowers it while the controllers are stopped; "
            "the brokers serve clients. Then it replaces one node at a time.",
        )
    if choice.lowering is Lowering.OFFLINE:
        yield OFFLINE_DOWNGRADE.found(
            subject,
            f"Kafka does not lower it online: {choice.refused} A live downgrade is not possible: {choice.not_live}. "
            "The run lowers it while all nodes are stopped. "
            "The cluster serves no requests from the first stop until the brokers are back.",
        )


def _ways(choice: LoweringChoice) -> str:
    other = "Choose a level that Kafka can reach online. Or choose an older target release and"
    if choice.not_live:
        return (
            f"{other} the lowering '{Lowering.OFFLINE}': this stops all nodes. A live downgrade is not "
            f"possible: {choice.not_live}."
        )
    return f"{other} the lowering '{Lowering.LIVE}': this stops only the controllers for some seconds."
