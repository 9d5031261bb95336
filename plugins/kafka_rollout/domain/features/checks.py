"""Features of a plan: what finalizing a release means, in which order, and what each change costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka_rollout.domain.model.findings import Finding, Severity, Verdict
from kafka_rollout.domain.model.plan import FeatureChange, Undo
from kafka_rollout.domain.model.releases import (
    KRAFT_VERSION,
    METADATA_VERSION,
    Catalogue,
    Release,
    ReleaseFacts,
)
from kafka_rollout.domain.model.state import ClusterState

_LOSSES = {
    METADATA_VERSION: "Binaries that support less than level {target} can no longer start in this cluster.",
    "group.version": "Groups of the consumer protocol leave records that older releases ignore or cannot load; "
    "their members must go back to the classic protocol first.",
    "transaction.version": "Running transactional producers fail fatally when it is lowered and must be restarted.",
    "share.version": "Share groups and their progress in __share_group_state.",
    "streams.version": "Groups of the streams protocol; their members must go back to the classic protocol first.",
    "eligible.leader.replicas.version": "The eligible leader replicas that partitions remember.",
    KRAFT_VERSION: "The quorum stays dynamic: its voters are in the log for good.",
}
_LOSSES_OF_FALLING = {
    METADATA_VERSION: "What only levels above {target} can say of the cluster's metadata.",
    "group.version": "Groups of the consumer protocol are no longer served; their records stay in __consumer_offsets.",
    "transaction.version": "Running transactional producers end in a fatal error and must be started again.",
    "share.version": "Share groups are no longer served; their progress stays unread in __share_group_state.",
    "streams.version": "Groups of the streams protocol are no longer served.",
    "eligible.leader.replicas.version": "The eligible leader replicas that partitions remember.",
}
_RAISED_AGAIN = "It can be raised again; what its lowering took away does not come back."


def feature_changes(catalogue: Catalogue, state: ClusterState, target: Release) -> tuple[FeatureChange, ...]:
    """What finalizing `target` means: every feature it has, raised to its latest production level.

    kraft.version is never raised by implication (it turns a static quorum into a dynamic one for good). A level
    whose dependencies would not be met is lowered to the highest one whose are. metadata.version comes first: the
    others depend on it.
    """
    facts = catalogue.get(target)
    current = state.finalized
    wanted = {
        name: max(feature.latest_production, current.get(name, 0))
        for name, feature in facts.features.items()
        if name != KRAFT_VERSION
    }
    levels = lower_until_dependencies_are_met([facts], current, wanted)
    changes = [feature_change(facts, name, current.get(name, 0), level) for name, level in levels.items()]
    return tuple(sorted(changes, key=lambda change: (change.feature != METADATA_VERSION, change.feature)))


def lower_until_dependencies_are_met(
    facts: Sequence[ReleaseFacts], current: Mapping[str, int], wanted: Mapping[str, int]
) -> dict[str, int]:
    """Those of the `wanted` levels that rise, each at the highest level whose dependencies all `facts` see met."""
    rising = dict(wanted)
    levels = {**current, **wanted}
    while name := next((n for n in sorted(rising) if any(missing_dependencies(f, n, levels) for f in facts)), None):
        levels[name] -= 1
        if levels[name] <= current.get(name, 0):
            levels[name] = current.get(name, 0)
            del rising[name]
    return {name: levels[name] for name in rising if levels[name] > current.get(name, 0)}


def feature_change(facts: ReleaseFacts, feature: str, current: int, target: int) -> FeatureChange:
    """One change with what the release `facts` says about its undoing."""
    falls = target < current
    undo, source = (Undo.POSSIBLE, _RAISED_AGAIN) if falls else undo_of(facts, feature, current, target)
    loss = (_LOSSES_OF_FALLING if falls else _LOSSES).get(
        feature, "Not known to the catalogue: see the feature's own documentation."
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
    """Requests in their order: metadata.version first on the way up and last on the way down.

    The others wait for a request of their own: brokers that registered with an older controller get ranges with
    minimum 0 into their registration only when they register anew, which metadata.version's change makes them do.
    """
    ordered = sorted(changes, key=lambda change: change.feature)
    down = tuple(c for c in ordered if c.feature != METADATA_VERSION and c.target < c.current)
    level = tuple(c for c in ordered if c.feature == METADATA_VERSION)
    up = tuple(c for c in ordered if c.feature != METADATA_VERSION and c.target >= c.current)
    return tuple(batch for batch in (down, level, up) if batch)


def missing_dependencies(facts: ReleaseFacts, feature: str, levels: Mapping[str, int]) -> dict[str, int]:
    """Levels of other features that `feature` at its level in `levels` needs and `levels` does not have."""
    known = facts.features.get(feature)
    needs = known.dependencies.get(levels.get(feature, 0), {}) if known else {}
    return {other: level for other, level in needs.items() if levels.get(other, 0) < level}


def range_findings(
    catalogue: Catalogue,
    state: ClusterState,
    release: Release,
    *,
    planned: Mapping[str, int] | None = None,
    code: str = "FINALIZED-LEVEL-OUT-OF-RANGE",
    severity: Severity = Severity.BLOCKER,
) -> Verdict:
    """Finalized levels that `release` could not start at: every range, its minimum included, must contain them.

    `planned` are levels that are set before the release starts.
    """
    facts = catalogue.get(release)
    findings = []
    for feature, level in sorted({**state.finalized, **(planned or {})}.items()):
        known = facts.features.get(feature)
        if known is None and level == 0:
            continue
        if known is not None and (level in known.supported or (level == 0 and feature != METADATA_VERSION)):
            continue
        can = f"supports {known.supported}" if known else "does not know this feature"
        if known is not None and level < known.supported.min:
            remedy = f"Finalize {feature} to at least {known.supported.min} on the running release first."
        else:
            remedy = f"Choose a release that supports {feature} {level}, or lower the feature first (see its undo)."
        findings.append(
            Finding(
                code=code,
                severity=severity,
                subject=f"feature {feature} on {release}",
                sentence=f"{feature} is finalized at {level}, and release {release} {can}.",
                remedy=remedy,
            )
        )
    return Verdict(question=f"Can {release} run at the finalized levels?", findings=tuple(findings))


def way_back_findings(catalogue: Catalogue, state: ClusterState, source: Release) -> Verdict:
    """Warnings where the levels finalized now already bar the way back to `source`."""
    return range_findings(catalogue, state, source, code="NO-WAY-BACK", severity=Severity.WARNING)


def undo_of(facts: ReleaseFacts, feature: str, current: int, target: int) -> tuple[Undo, str]:
    """Whether a cluster on release `facts` can take `feature` from `target` back to `current`, and who says so."""
    if feature == KRAFT_VERSION:
        return Undo.IMPOSSIBLE, "Kafka does not lower kraft.version (KIP-853)."
    known = facts.features.get(feature)
    if known is None:
        return Undo.UNKNOWN, f"The catalogue of {facts.release} does not know {feature}."
    if current not in known.supported and not (current == 0 and feature != METADATA_VERSION):
        return Undo.IMPOSSIBLE, f"Release {facts.release} supports {feature} {known.supported}, not {current}."
    if feature != METADATA_VERSION:
        return Undo.POSSIBLE, "The controller accepts SAFE_DOWNGRADE of this feature; what it wrote stays in the logs."
    between = {mv.level: mv for mv in facts.metadata_versions if current < mv.level <= target}
    if set(between) != set(range(current + 1, target + 1)):
        return Undo.UNKNOWN, f"The catalogue of {facts.release} does not know every level up to {target}."
    changed = [level for level, mv in sorted(between.items()) if mv.changed]
    if changed:
        levels = f"Level{'s' if len(changed) > 1 else ''} {', '.join(map(str, changed))}"
        return (
            Undo.IMPOSSIBLE,
            f"{levels} changed metadata (MetadataVersion.didMetadataChange), and {facts.release} does not lower across "
            "such levels (KIP-1155 is not implemented).",
        )
    return (
        Undo.POSSIBLE,
        f"No level from {current + 1} to {target} changed metadata (MetadataVersion.didMetadataChange).",
    )
