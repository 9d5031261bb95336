"""Feature changes (KIP-584): requested levels, the changes of a plan and their effects, and the answers to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_rollout.base.errors import FatalError, RefusedError, UserError
from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Examined, Finding, FindingCode, Need, Verdict
from kafka_rollout.base.wording import nodes
from kafka_rollout.features.registrations import SeenRegistrations, keeps_registrations
from kafka_rollout.features.support import format_levels, supported_ranges
from kafka_rollout.model.plan import FeatureChange, Undo
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    Catalogue,
    Release,
    ReleaseFacts,
    VersionRange,
)

_HIGHEST_LEVEL = 32767  # levels are int16 in the protocol
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
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
# Level 1 enables what these texts are about; a change above it does not.
_BEGINS_AT_1 = frozenset({"group.version", "share.version", "streams.version", ELR_VERSION, KRAFT_VERSION})
_ABOVE_1 = {
    "share.version": (
        "Level 2 enables dead-letter queues of share groups (KIP-1191), with records in a state that releases before "
        "4.4 never leave."
    )
}
_RAISED_AGAIN = "The level can be raised again. Metadata that was lost does not come back."


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
LEVEL_OUT_OF_RANGE = FindingCode(
    "FINALIZED-LEVEL-OUT-OF-RANGE", BLOCKER, "A release of the path does not support a finalized level."
)
LEVELS_UNKNOWN = FindingCode(
    "FINALIZED-LEVELS-UNKNOWN",
    BLOCKER,
    "The finalized levels are unknown, and not 0.",
    "Check that the brokers reach the active controller, then plan again.",
)
NO_ROLLBACK = FindingCode(
    "NO-ROLLBACK", WARNING, "The release that runs now cannot run at the levels after the change."
)
RANGES_CHECK = Check(
    "finalized-levels-path",
    "Finalized levels, compared with the releases of the path",
    "upgrade.md#findings",
    (LEVEL_OUT_OF_RANGE, LEVELS_UNKNOWN),
    needs=(Need.LEVELS,),
    examines=Examined.LEVELS,
)
ROLLBACK_LEVELS_CHECK = Check(
    "finalized-levels-rollback",
    "Feature levels, compared with the release that runs now",
    "upgrade.md#findings",
    (NO_ROLLBACK,),
    needs=(Need.LEVELS,),
    examines=Examined.LEVELS,
)


class RequestKind(StrEnum):
    """The requested kind of change. Lowering and deleting must be requested explicitly (KIP-584's allowDowngrade)."""

    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRequest:
    """The requested maximum level of one feature.

    A level below 1 removes the finalization and is sent as 0, because 4.3.1 rejects negative levels.
    """

    feature: str
    level: int
    kind: RequestKind

    @property
    def deletes(self) -> bool:
        return self.level < 1

    def __str__(self) -> str:
        return f"{self.kind} of {self.feature}" + ("" if self.kind is RequestKind.DELETE else f" to {self.level}")


def parse_requests(upgrades: Iterable[str] = (), downgrades: Iterable[str] = ()) -> tuple[FeatureRequest, ...]:
    """Parse `feature=level` or `feature:level`. Each text can be a list with commas. A downgrade below 1 deletes.

    Raises UserError for an invalid level, and for two requests for the same feature.
    """
    requests = [_with_level(text, RequestKind.UPGRADE) for text in _split(upgrades)]
    requests += [_with_level(text, RequestKind.DOWNGRADE) for text in _split(downgrades)]
    seen: dict[str, FeatureRequest] = {}
    for request in requests:
        if request.feature in seen:
            raise UserError(
                f"There are two requests for {request.feature}: {seen[request.feature]}, and {request}.",
                remedy="Request each feature once.",
            )
        seen[request.feature] = request
    return tuple(requests)


class FeatureAction(StrEnum):
    """The purpose of a feature run."""

    UPGRADE_ALL = "upgrade-all"
    DOWNGRADE_ALL = "downgrade-all"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOrder:
    """A feature order, before the cluster is read."""

    action: FeatureAction
    named: tuple[FeatureRequest, ...] = ()
    """Requests for single features."""
    release: Release | None = None
    """The release whose levels are requested; with `may_lower` levels can be lowered."""
    may_lower: bool = True

    def __post_init__(self) -> None:
        if self.action is FeatureAction.DOWNGRADE_ALL and self.release is None:
            raise UserError("A downgrade of all features needs a release.", remedy="Add the target release.")
        if self.action is FeatureAction.UPGRADE_ALL and self.release is not None:
            raise UserError(
                "All features are raised to the levels of the running release, not of one that is named.",
                remedy="Remove the release, or change the action to update.",
            )
        if self.action is FeatureAction.UPDATE and bool(self.named) == (self.release is not None):
            raise UserError(
                "The request must contain either features or a release.",
                remedy="List features to upgrade, downgrade or delete, or the release whose levels to set.",
            )

    def requests(self, cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> tuple[FeatureRequest, ...]:
        """Return the requests that the order means for the current cluster."""
        if self.action is FeatureAction.UPGRADE_ALL:
            return upgrade_all(cluster, catalogue, state)
        if self.release is None:
            return self.named
        if self.action is FeatureAction.DOWNGRADE_ALL:
            return downgrade_all(catalogue, state, self.release)
        found = release_levels(catalogue, state, self.release)
        # Without the permission, the checks refuse a lower level.
        return found if self.may_lower else tuple(replace(one, kind=RequestKind.UPGRADE) for one in found)


def upgrade_all(cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState) -> tuple[FeatureRequest, ...]:
    """Request every feature at the default level of the running releases, if all nodes support it.

    kraft.version is never changed implicitly. A level above the default is raised only by name. A feature that a node
    does not support stays, as does one whose default is unknown, and no feature is lowered. A node that does not
    respond is ignored here; the checks refuse the run because of it.
    """
    current = state.finalized.reported
    facts = [catalogue.get(release) for release in sorted(state.releases) if release in catalogue]
    names = {name for node in state.nodes.values() if node.features for name in node.features.supported}
    wanted = {}
    for name in names - {KRAFT_VERSION}:
        ranges = supported_ranges(cluster, catalogue, state, name).values()
        known = [found for found in ranges if isinstance(found, VersionRange)]
        defaults = [f.features[name].default_level for f in facts if name in f.features]
        if None in ranges or not defaults:
            continue
        level = min([found.max for found in known] + defaults)
        if level >= max(found.min for found in known):
            wanted[name] = level
    levels = lower_until_dependencies_are_met(facts, current, wanted)
    return tuple(
        FeatureRequest(feature=name, level=level, kind=RequestKind.UPGRADE) for name, level in sorted(levels.items())
    )


def downgrade_all(catalogue: Catalogue, state: ClusterState, release: Release) -> tuple[FeatureRequest, ...]:
    """Request every finalized feature at the highest stable level of `release`; delete unsupported features.

    No feature is raised. If the release can run at a level, the level stays.
    """
    return tuple(r for r in release_levels(catalogue, state, release) if r.kind is not RequestKind.UPGRADE)


def release_levels(catalogue: Catalogue, state: ClusterState, release: Release) -> tuple[FeatureRequest, ...]:
    """Request the levels that `release` would finalize. kraft.version is never changed implicitly.

    A level above the default of the release stays if the release supports it as a stable level.
    """
    known = catalogue.get(release).features
    requests = []
    for name in sorted(set(known) | set(state.finalized.reported)):
        current = state.finalized.reported.get(name, 0)
        default, highest = (known[name].default_level, known[name].latest_production) if name in known else (0, 0)
        if default > current and name != KRAFT_VERSION:
            requests.append(FeatureRequest(feature=name, level=default, kind=RequestKind.UPGRADE))
        elif highest < current:
            kind = RequestKind.DOWNGRADE if highest else RequestKind.DELETE
            requests.append(FeatureRequest(feature=name, level=highest, kind=kind))
    return tuple(requests)


def levels_of(requests: Iterable[FeatureRequest]) -> Mapping[str, int]:
    """Return the levels as they are sent."""
    return {request.feature: max(0, request.level) for request in requests}


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _with_level(text: str, kind: RequestKind) -> FeatureRequest:
    form = re.fullmatch(r"(.*)[:=](-?\d{1,9})", text)
    if form is None:
        raise UserError(f"'{text}' is not in the form feature=level.", remedy="Example: group.version=1.")
    name, level = form[1], form[2]
    if int(level) > _HIGHEST_LEVEL:
        raise UserError(f"'{text}' has a level above {_HIGHEST_LEVEL}.", remedy="Example: group.version=1.")
    if kind is RequestKind.DOWNGRADE and int(level) < 1:
        kind = RequestKind.DELETE
    return FeatureRequest(feature=_name(name), level=int(level), kind=kind)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise UserError(f"'{text}' is not a feature name.", remedy="Example: group.version.")
    return text


def unknown_level_findings(state: ClusterState) -> tuple[Finding, ...]:
    """Return the blocker of a plan whose changes of levels cannot be known."""
    if state.finalized.is_known:
        return ()
    return (LEVELS_UNKNOWN.found("features", "No node that has applied the newest metadata reports finalized levels."),)


def feature_changes(catalogue: Catalogue, state: ClusterState, target: Release) -> tuple[FeatureChange, ...]:
    """Return the changes that finalize `target`: every feature at the default level of the release.

    A higher level of the release, such as a preview, is raised only by name. A finalized level above the default stays.
    kraft.version is never changed implicitly, because it makes a static quorum dynamic permanently. A level with unmet
    dependencies is replaced by the highest level whose dependencies are met. metadata.version comes first, because the
    other features depend on it. No change if the finalized levels are unknown (LEVELS_UNKNOWN blocks the plan).
    """
    if not state.finalized.is_known:
        return ()
    facts = catalogue.get(target)
    current = state.finalized.reported
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
    losses = _LOSSES_OF_LOWERING if is_lowered else _LOSSES
    loss = losses.get(feature, "The catalogue does not contain this feature: read the feature's own documentation.")
    if feature in _BEGINS_AT_1 and min(current, target) >= 1:
        loss = _ABOVE_1.get(
            feature, "The catalogue does not say what this level adds: read the documentation of level {level}."
        )
    return FeatureChange(
        feature=feature,
        current=current,
        target=target,
        undo=undo,
        undo_source=source,
        loss=loss.format(target=target, level=max(current, target)),
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

    `planned`: levels that are set before the release starts. Unknown levels are a finding, too.
    """
    facts = catalogue.get(release)
    findings = []
    if not state.finalized.is_known:
        sentence = f"No node reports the finalized levels, so it is unknown whether release {release} supports them."
        findings.append(code.found(f"features on {release}", sentence, "Repeat the command when a broker responds."))
    for feature, level in sorted({**state.finalized.reported, **(planned or {})}.items()):
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
            "The controller accepts SAFE_DOWNGRADE for this feature. That lowers the level alone: the cluster-wide "
            "default of min.insync.replicas, which was written when the feature was raised, stays, and the "
            "min.insync.replicas of brokers, which was removed, does not come back."
        )
    if feature != METADATA_VERSION:
        return Undo.POSSIBLE, (
            "The controller accepts SAFE_DOWNGRADE for this feature. That lowers the level alone: the records of the "
            "higher level stay in the logs, and a release that does not know them cannot load them."
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
    if "does not support this feature" in message and all_support and feature != METADATA_VERSION:
        code = DROPPED_RANGES
        remedy = "Restart every broker whose registration lacks the level, so that it registers again."
        if not keeps_registrations(state.finalized.reported.get(METADATA_VERSION, 0)):
            remedy = _RAISE_FIRST
    else:
        of_message = next((remedy for words, remedy in _BY_MESSAGE if words in message), None)
        remedy = of_message or _BY_ERROR.get(error, code.remedy)
    return code.found(
        f"feature {feature}",
        f"The controller rejected {feature} {level}: {error} {message}".strip(),
        remedy,
    )


_RAISE_FIRST = "Finalize metadata.version first, so that the brokers register again."
_BROKER = re.compile(r"\bBroker (\d+)\b")


def dropped_ranges(
    cluster: ClusterSpec,
    seen: SeenRegistrations,
    levels: Mapping[str, int],
    refused: Sequence[Finding],
    *,
    metadata_level: int,
) -> Finding:
    """Return one finding for all levels that registrations lack. `refused`: the DROPPED_RANGES finding of each level.

    `levels`: those that the controller refuses. `seen`: the registrations of all brokers.
    `metadata_level`: the finalized metadata.version. Where raising it renews registrations, no node has to restart.
    """
    listed = format_levels(levels)
    named = {int(number) for finding in refused for number in _BROKER.findall(finding.sentence)}
    ids = sorted(named | set(seen.lacking) | set(seen.unknown))
    which = f"The registrations of {nodes(sorted(named | set(seen.lacking)))} lack {listed}"
    if seen.unknown:
        which += f", and those of {nodes(seen.unknown)} could not be read"
    if not keeps_registrations(metadata_level):
        remedy = _RAISE_FIRST
    elif cluster.manages_nodes:
        options = "".join(f" --node {node_id}" for node_id in ids)
        remedy = f"Run `kafka-rollout restart --cluster {cluster.name}{options}`."
    else:
        remedy = f"Restart {nodes(ids)}, one after the other, while every controller runs 3.9 or later."
    return DROPPED_RANGES.found(
        "broker registrations",
        f"{which}, although the nodes support the levels: a controller before 3.9 drops ranges with minimum 0 "
        "(KAFKA-17492). The active controller refuses these levels until the nodes register again.",
        f"{remedy} Then repeat this command.",
    )


class FeatureUpdateStatus(StrEnum):
    OK = "OK"
    ALREADY_THERE = "OK (already there)"
    ACCEPTED = "OK (dry run)"
    FAILED = "FAILED"
    NOT_SENT = "NOT SENT"  # a previous request failed
    UNKNOWN = "UNKNOWN"  # the response was lost, and the nodes do not report the level

    @property
    def ok(self) -> bool:
        return self in {FeatureUpdateStatus.OK, FeatureUpdateStatus.ALREADY_THERE, FeatureUpdateStatus.ACCEPTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOutcome:
    """The result for one feature."""

    feature: str
    existing: int
    """Finalized maximum levels; 0 means not finalized."""
    new: int
    """Finalized maximum levels; 0 means not finalized."""
    result: FeatureUpdateStatus
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
    return (
        FatalError.exit_code
        if results & {FeatureUpdateStatus.OK, FeatureUpdateStatus.UNKNOWN}
        else RefusedError.exit_code
    )
