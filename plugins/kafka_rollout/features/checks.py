"""The feature changes of a plan: levels, order and consequences of each change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Examined, FindingCode, Verdict
from kafka_rollout.model.plan import FeatureChange, Undo
from kafka_rollout.model.state import ClusterState
from kafka_rollout.releases.facts import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    Catalogue,
    Release,
    ReleaseFacts,
)

_LOSSES = {
    METADATA_VERSION: "Binaries that support less than level {target} cannot start in this cluster any more.",
    "group.version": (
        "Groups of the consumer protocol leave records that older releases ignore or cannot load. Their "
        "members must use the classic protocol before a downgrade."
    ),
    "transaction.version": (
        "Lowering the level causes a fatal error in every running transactional producer. The producers must "
        "be restarted."
    ),
    "share.version": "A downgrade loses the share groups and their progress in __share_group_state.",
    "streams.version": ("Members of groups of the streams protocol must use the classic protocol before a downgrade."),
    ELR_VERSION: (
        "A downgrade loses the eligible leader replicas that partitions store. The cluster-wide default of "
        "min.insync.replicas stays after a downgrade, and deleted values of single brokers do not come back."
    ),
    KRAFT_VERSION: "The quorum stays dynamic: the log contains its voters permanently.",
}
_LOSSES_OF_LOWERING = {
    METADATA_VERSION: "Metadata that needs a level above {target} is lost.",
    "group.version": (
        "Brokers no longer serve groups of the consumer protocol. Their records stay in __consumer_offsets."
    ),
    "transaction.version": "Running transactional producers get a fatal error and must be restarted.",
    "share.version": (
        "Brokers no longer serve share groups. Their progress stays in __share_group_state and is not read."
    ),
    "streams.version": "Brokers no longer serve groups of the streams protocol.",
    ELR_VERSION: "Partitions lose their stored eligible leader replicas.",
}
_RAISED_AGAIN = "The level can be raised again. Metadata that was lost does not come back."


LEVEL_OUT_OF_RANGE = FindingCode(
    "FINALIZED-LEVEL-OUT-OF-RANGE", BLOCKER, "A release of the path does not support a finalized level."
)
NO_ROLLBACK = FindingCode(
    "NO-ROLLBACK", WARNING, "The release that runs now cannot run at the levels after the change."
)
RANGES_CHECK = Check(
    "finalized-levels-path",
    "Finalized levels, compared with the releases of the path",
    "upgrade.md#findings",
    (LEVEL_OUT_OF_RANGE,),
    examines=Examined.LEVELS,
)
ROLLBACK_LEVELS_CHECK = Check(
    "finalized-levels-rollback",
    "Feature levels, compared with the release that runs now",
    "upgrade.md#findings",
    (NO_ROLLBACK,),
    examines=Examined.LEVELS,
)


def feature_changes(catalogue: Catalogue, state: ClusterState, target: Release) -> tuple[FeatureChange, ...]:
    """Return the changes that finalize `target`: every feature at the default level of the release.

    A higher level of the release, such as a preview, is raised only by name. A finalized level above the default stays.
    kraft.version is never changed implicitly, because it makes a static quorum dynamic permanently. A level with unmet
    dependencies is replaced by the highest level whose dependencies are met. metadata.version comes first, because the
    other features depend on it.
    """
    facts = catalogue.get(target)
    current = state.finalized
    wanted = {
        name: max(feature.default_level, current.get(name, 0))
        for name, feature in facts.features.items()
        if name != KRAFT_VERSION
    }
    levels = lower_until_dependencies_are_met([facts], current, wanted)
    changes = [feature_change(facts, name, current.get(name, 0), level) for name, level in levels.items()]
    return tuple(sorted(changes, key=lambda change: (change.feature != METADATA_VERSION, change.feature)))


def lower_until_dependencies_are_met(
    facts: Sequence[ReleaseFacts], current: Mapping[str, int], wanted: Mapping[str, int]
) -> dict[str, int]:
    """Return the raised levels of `wanted`, each at the highest level whose dependencies are met in all `facts`."""
    rising = dict(wanted)
    levels = {**current, **wanted}
    while name := next((n for n in sorted(rising) if any(missing_dependencies(f, n, levels) for f in facts)), None):
        levels[name] -= 1
        if levels[name] <= current.get(name, 0):
            levels[name] = current.get(name, 0)
            del rising[name]
    return {name: levels[name] for name in rising if levels[name] > current.get(name, 0)}


def feature_change(facts: ReleaseFacts, feature: str, current: int, target: int) -> FeatureChange:
    """Return one change, with the undo information of the release `facts`."""
    is_lowered = target < current
    undo, source = (Undo.POSSIBLE, _RAISED_AGAIN) if is_lowered else undo_of(facts, feature, current, target)
    loss = (_LOSSES_OF_LOWERING if is_lowered else _LOSSES).get(
        feature, "The catalogue does not contain this feature: read the feature's own documentation."
    )
    return FeatureChange(
        feature=feature,
        current=current,
        target=target,
        undo=undo,
        undo_source=source,
        loss=loss.format(target=target),
    )


def feature_request_batches(changes: Iterable[FeatureChange]) -> tuple[tuple[FeatureChange, ...], ...]:
    """Return the requests in their order: metadata.version first when raised, last when lowered.

    The other features need a separate request. Brokers that registered with an older controller have ranges with
    minimum 0 in their registration only after they re-register, and the change of metadata.version makes them
    re-register.
    """
    ordered = sorted(changes, key=lambda change: change.feature)
    down = tuple(c for c in ordered if c.feature != METADATA_VERSION and c.target < c.current)
    level = tuple(c for c in ordered if c.feature == METADATA_VERSION)
    up = tuple(c for c in ordered if c.feature != METADATA_VERSION and c.target >= c.current)
    return tuple(batch for batch in (down, level, up) if batch)


def missing_dependencies(facts: ReleaseFacts, feature: str, levels: Mapping[str, int]) -> dict[str, int]:
    """Return the required levels of other features that `levels` does not have."""
    known = facts.features.get(feature)
    needs = known.dependencies.get(levels.get(feature, 0), {}) if known else {}
    return {other: level for other, level in needs.items() if levels.get(other, 0) < level}


def range_findings(
    catalogue: Catalogue,
    state: ClusterState,
    release: Release,
    *,
    planned: Mapping[str, int] | None = None,
    code: FindingCode = LEVEL_OUT_OF_RANGE,
) -> Verdict:
    """Return the finalized levels at which `release` cannot start. Its ranges, with their minimum, must contain every
    level.

    `planned`: levels that are set before the release starts.
    """
    facts = catalogue.get(release)
    findings = []
    for feature, level in sorted({**state.finalized, **(planned or {})}.items()):
        known = facts.features.get(feature)
        if known is None and level == 0:
            continue
        if known is not None and (level in known.supported or (level == 0 and feature != METADATA_VERSION)):
            continue
        can = f"supports {known.supported}" if known else "does not support this feature"
        if known is not None and level < known.supported.min:
            remedy = f"First finalize {feature} at {known.supported.min} or higher on the running release."
        else:
            remedy = f"Choose a release that supports {feature} {level}, or lower the feature first."
        findings.append(
            code.found(
                f"feature {feature} on {release}",
                f"{feature} is finalized at {level}, and release {release} {can}.",
                remedy,
            )
        )
    return Verdict(question=f"Can {release} run at the finalized levels?", findings=tuple(findings))


def undo_of(facts: ReleaseFacts, feature: str, current: int, target: int) -> tuple[Undo, str]:
    """Return whether a cluster on release `facts` can return `feature` from `target` to `current`, and the source."""
    if feature == KRAFT_VERSION:
        return Undo.IMPOSSIBLE, "Kafka does not lower kraft.version (KIP-853)."
    known = facts.features.get(feature)
    if known is None:
        return Undo.UNKNOWN, f"The catalogue of {facts.release} does not contain {feature}."
    if current not in known.supported and not (current == 0 and feature != METADATA_VERSION):
        return Undo.IMPOSSIBLE, f"Release {facts.release} supports {feature} {known.supported}, not {current}."
    if feature == ELR_VERSION:
        return Undo.POSSIBLE, (
            "The controller accepts SAFE_DOWNGRADE for this feature. It keeps the cluster-wide default of "
            "min.insync.replicas that was written when the feature was raised."
        )
    if feature != METADATA_VERSION:
        return Undo.POSSIBLE, (
            "The controller accepts SAFE_DOWNGRADE for this feature. The records that it wrote stay in the logs."
        )
    between = {mv.level: mv for mv in facts.metadata_versions if current < mv.level <= target}
    if set(between) != set(range(current + 1, target + 1)):
        return Undo.UNKNOWN, f"The catalogue of {facts.release} does not contain every level up to {target}."
    changed = [level for level, mv in sorted(between.items()) if mv.changed]
    if changed:
        levels = f"Level{'s' if len(changed) > 1 else ''} {', '.join(map(str, changed))}"
        return (
            Undo.IMPOSSIBLE,
            f"{levels} changed metadata (MetadataVersion.didMetadataChange). A controller lowers metadata.version "
            "across such levels only if every node implements KIP-1155.",
        )
    return (
        Undo.POSSIBLE,
        f"No level from {current + 1} to {target} changed metadata (MetadataVersion.didMetadataChange).",
    )
