"""KIP-584's validation of feature updates, before the request is sent to the controller.

The controller's own response names one node and no remedy ("Broker 1 does not support this feature"). It also checks
less: only the dependencies of the requested features, and not whether groups still need a feature. These rules query
every node, list all blockers and give a remedy. The users of a lowered feature count too (KIP-584: "first downgrade the
stream clients").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kafka_rollout.base.findings import (
    BLOCKER,
    WARNING,
    Check,
    CheckOf,
    Examined,
    Finding,
    FindingCode,
    Need,
    Severity,
    Verdict,
)
from kafka_rollout.base.wording import few
from kafka_rollout.features.requests import FeatureRequest, RequestKind, levels_of, missing_dependencies, undo_of
from kafka_rollout.features.support import (
    FEATURE_HELD_BACK,
    FEATURE_SUPPORT_UNKNOWN,
    FEATURE_UNSUPPORTED,
    NEXT_START_UNSUPPORTED,
    REGISTRATION_MAY_LACK_RANGES,
    dropped_registration,
    find_lossy_downgrade_gap,
    find_static_controllers,
    format_levels,
    highest_known,
    next_start_findings,
    support_findings,
    unlisted_node_findings,
)
from kafka_rollout.features.voter_addresses import VOTER_ADDRESS_CHANGES, VOTER_ADDRESSES, voter_address_findings
from kafka_rollout.model.contents import SERVED_BY
from kafka_rollout.model.groups import REMOTE_ASSIGNOR, SHARE, STREAMS_TO_CLASSIC
from kafka_rollout.model.plan import Undo
from kafka_rollout.model.state import ClusterState, GroupState
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    Catalogue,
)

# Controllers cannot register below 3.7-IV0 (KIP-919), so their supported levels would be unknown (KIP-1155).
METADATA_VERSION_FLOOR = 15
_CLIENTS_SEE_IT_FROM = 2  # KIP-890: from this level, clients raise their epoch with every transaction
# TransactionState: PrepareEpochFence aborts the transaction of a producer that another one fences.
_IN_A_TRANSACTION = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_NAMED = 30
_BEFORE = {
    "consumer": f"First restart their members with group.protocol=classic and without {REMOTE_ASSIGNOR}, which "
    "converts the groups.",
    "share": "First stop their members and delete the groups: share groups cannot be converted.",
    "streams": f"First downgrade the stream clients (KIP-584). {STREAMS_TO_CLASSIC}",
}

# No cluster supports the request: invalid input, not a refusal.
FEATURE_UNKNOWN = FindingCode(
    "FEATURE-UNKNOWN", BLOCKER, "No node and no release of the catalogue supports the feature."
)
FEATURE_LEVEL_UNKNOWN = FindingCode(
    "FEATURE-LEVEL-UNKNOWN",
    BLOCKER,
    "No node and no release of the catalogue supports the level.",
    "Choose a level that the nodes support. `features describe` lists them.",
)
FEATURE_NOT_LOWER = FindingCode("FEATURE-NOT-LOWER", BLOCKER, "A downgrade is requested to an equal or a higher level.")
METADATA_VERSION_BELOW_FLOOR = FindingCode(
    "METADATA-VERSION-FLOOR",
    BLOCKER,
    "The level of metadata.version is below 3.7-IV0, where controllers cannot register.",
)
FEATURE_NOT_FINALIZED = FindingCode(
    "FEATURE-NOT-FINALIZED", BLOCKER, "There is no finalized level to delete.", "Omit this feature."
)
METADATA_VERSION_NEEDED = FindingCode(
    "METADATA-VERSION-NEEDED", BLOCKER, "metadata.version cannot be deleted.", "Request a lower level instead."
)
FEATURE_DOWNGRADE_REFUSED = FindingCode(
    "FEATURE-DOWNGRADE-REFUSED",
    BLOCKER,
    "Kafka does not lower the feature to this level.",
    "Keep the level, or use kafka_downgrade, which offers the offline downgrade.",
)
FEATURE_DOWNGRADE_NOT_ALLOWED = FindingCode(
    "FEATURE-DOWNGRADE-NOT-ALLOWED", BLOCKER, "An upgrade request would lower the level."
)
FEATURE_UNSTABLE = FindingCode(
    "FEATURE-UNSTABLE", WARNING, "The level is above the highest stable level of the running release."
)
FEATURE_NOT_DEFAULT = FindingCode(
    "FEATURE-NOT-DEFAULT", WARNING, "The level is stable, and above the default level of a running release."
)
QUORUM_STAYS_STATIC = FindingCode(
    "QUORUM-STAYS-STATIC",
    BLOCKER,
    "Raising kraft.version would not make the quorum dynamic: a controller before 4.1.0 only writes the level.",
    "Upgrade every controller to 4.1.0 or later first.",
)
FEATURE_DEPENDENCY = FindingCode(
    "FEATURE-DEPENDENCY", BLOCKER, "A finalized feature would lack the level of another feature that it requires."
)
BAD_INPUT = frozenset({FEATURE_UNKNOWN.code, FEATURE_LEVEL_UNKNOWN.code})
LEVELS_CHECK = Check(
    "feature-levels-requested",
    "Requested feature levels (KIP-584)",
    "features.md#what-is-checked-before-the-request",
    (
        FEATURE_UNKNOWN,
        FEATURE_LEVEL_UNKNOWN,
        FEATURE_SUPPORT_UNKNOWN,
        FEATURE_UNSUPPORTED,
        NEXT_START_UNSUPPORTED,
        FEATURE_NOT_LOWER,
        METADATA_VERSION_BELOW_FLOOR,
        FEATURE_NOT_FINALIZED,
        METADATA_VERSION_NEEDED,
        FEATURE_DOWNGRADE_REFUSED,
        FEATURE_DOWNGRADE_NOT_ALLOWED,
        FEATURE_UNSTABLE,
        FEATURE_NOT_DEFAULT,
        QUORUM_STAYS_STATIC,
        VOTER_ADDRESS_CHANGES,
        VOTER_ADDRESSES,
        FEATURE_DEPENDENCY,
        REGISTRATION_MAY_LACK_RANGES,
    ),
    of=(CheckOf.DOWNGRADE, CheckOf.FEATURES),
    needs=(Need.NODES, Need.LEVELS, Need.FACTS),
    examines=Examined.LEVELS,
)
HELD_BACK_CHECK = Check(
    "feature-support",
    "Features that only some nodes support",
    "features.md#what-is-checked-before-the-request",
    (FEATURE_HELD_BACK,),
    of=(CheckOf.FEATURES,),
    needs=(Need.NODES,),
    examines=Examined.LEVELS,
)
FEATURE_USERS_UNKNOWN = FindingCode(
    "FEATURE-USERS-UNKNOWN",
    (BLOCKER, WARNING),
    "The users of a lowered feature are unknown. A warning if the request accepts losses for rights that are missing.",
    "Repeat the command when every coordinator responds.",
)
GROUPS_LOSE_THEIR_PROTOCOL = FindingCode(
    "GROUPS-LOSE-THEIR-PROTOCOL", (BLOCKER, WARNING), "Active groups have a type whose feature is lowered."
)
GROUPS_KEEP_THEIR_RECORDS = FindingCode(
    "GROUPS-KEEP-THEIR-RECORDS", WARNING, "Empty groups leave records that only a release with the feature can read."
)
SHARE_RECORDS_STAY_ARCHIVING = FindingCode(
    "SHARE-RECORDS-STAY-ARCHIVING",
    WARNING,
    "share.version is lowered below 2, and share groups exist, which can have records in the state ARCHIVING.",
    "Before the change, remove errors.deadletterqueue.topic.name of these groups (kafka-configs.sh --entity-type "
    "groups), and wait until no record is rejected. If the start offset of a share partition stops on an older "
    "release, stop the members and reset the offsets (kafka-share-groups.sh --reset-offsets).",
)
PRODUCERS_END_FATALLY = FindingCode(
    "PRODUCERS-END-FATALLY",
    (BLOCKER, WARNING),
    "Transactional producers that run get a fatal error at the lower level.",
    "Stop these producers first, and start them again after the change.",
)
PRODUCERS_MAY_RUN = FindingCode(
    "PRODUCERS-MAY-RUN",
    WARNING,
    "Transactional ids are between transactions. A producer that still runs gets a fatal error.",
    "Stop these producers, exactly-once Streams applications included, and start them again after the change.",
)
ELIGIBLE_LEADERS_LOST = FindingCode(
    "ELIGIBLE-LEADERS-LOST",
    (BLOCKER, WARNING),
    "Partitions under min ISR would lose the list of replicas that can lead without data loss.",
    "Start the brokers of their replicas and wait until the replicas are in the ISR.",
)
USERS_CHECK = Check(
    "feature-users",
    "Users of lowered features",
    "features.md#what-is-checked-before-the-request",
    (
        FEATURE_USERS_UNKNOWN,
        GROUPS_LOSE_THEIR_PROTOCOL,
        GROUPS_KEEP_THEIR_RECORDS,
        SHARE_RECORDS_STAY_ARCHIVING,
        PRODUCERS_END_FATALLY,
        PRODUCERS_MAY_RUN,
        ELIGIBLE_LEADERS_LOST,
    ),
    of=(CheckOf.DOWNGRADE, CheckOf.FEATURES),
    needs=(Need.LEVELS, Need.GROUPS, Need.TOPICS),
    examines=Examined.GROUPS,
)


def check_requests(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    requests: Sequence[FeatureRequest],
    *,
    unsafe: bool = False,
) -> Verdict:
    """Apply every rule of KIP-584 and KIP-1155 to every request. `unsafe` turns losses for users into warnings."""
    targets = levels_of(requests)
    findings: list[Finding] = []
    for request in requests:
        if request.deletes:
            findings += _deletion(catalogue, state, request)
        else:
            findings += _level(cluster, catalogue, state, targets, request)
    if any(not request.deletes for request in requests):
        findings += unlisted_node_findings(cluster, state, targets)
    findings += next_start_findings(cluster, catalogue, state, targets)
    findings += _dependencies(catalogue, state, targets)
    findings += user_findings(state, targets, unsafe=unsafe)
    asked = format_levels(targets) or "their current levels"
    return Verdict(question=f"Can the features be set to {asked}?", findings=tuple(findings))


def check_feature_support(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, targets: Mapping[str, int], *, unsafe: bool = False
) -> Verdict:
    """Apply the rules to the levels of an approved plan."""
    # With the permission to lower or delete where needed.
    requests = [
        FeatureRequest(feature=feature, level=level, kind=_kind(level, state.finalized.reported.get(feature, 0)))
        for feature, level in targets.items()
    ]
    return check_requests(cluster, catalogue, state, requests, unsafe=unsafe)


def _kind(level: int, current: int) -> RequestKind:
    if level >= max(1, current):
        return RequestKind.UPGRADE
    return RequestKind.DOWNGRADE if level >= 1 else RequestKind.DELETE


def _level(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, targets: Mapping[str, int], request: FeatureRequest
) -> Iterable[Finding]:
    feature, level, current = request.feature, request.level, state.finalized.reported.get(request.feature, 0)
    highest = highest_known(catalogue, state, feature)
    if highest is None:
        every = {name for release in catalogue for name in catalogue.get(release).features}
        yield FEATURE_UNKNOWN.found(
            f"feature {feature}",
            f"Feature {feature} does not exist: no node of {cluster.name} and no release of the catalogue supports it.",
            f"Supported features: {', '.join(sorted(every))}.",
        )
        return
    if level > highest:
        yield FEATURE_LEVEL_UNKNOWN.found(
            f"feature {feature}",
            f"{feature} {level} does not exist: the highest level of all nodes and of the catalogue is {highest}.",
        )
        return
    yield from support_findings(cluster, catalogue, state, feature, level)
    if level < current:
        yield from _lowered(cluster, catalogue, state, request)
    elif request.kind is RequestKind.DOWNGRADE:
        yield FEATURE_NOT_LOWER.found(
            f"feature {feature}",
            f"{feature} is finalized at {current or 'no level'}. A downgrade to {level} does not lower it.",
            "Omit this feature, or request an upgrade." if level > current else "Omit this feature.",
        )
    elif level > current:
        yield from _above_default(catalogue, state, feature, level)
        yield from dropped_registration(catalogue, state, targets, feature, level)
        if feature == KRAFT_VERSION and (older := find_static_controllers(cluster, catalogue, state)):
            yield QUORUM_STAYS_STATIC.found(
                f"feature {feature}",
                f"{older} The controller would accept kraft.version {level}, and the quorum would stay static.",
            )
        elif feature == KRAFT_VERSION:
            yield from voter_address_findings(cluster, state)


def _lowered(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, request: FeatureRequest
) -> Iterable[Finding]:
    feature, level, current = request.feature, request.level, state.finalized.reported.get(request.feature, 0)
    if request.kind is RequestKind.UPGRADE:
        yield _not_allowed(feature, current, f"lower it to {level}")
    if feature == METADATA_VERSION and level < METADATA_VERSION_FLOOR:
        yield METADATA_VERSION_BELOW_FLOOR.found(
            f"feature {feature}",
            f"metadata.version cannot be lowered to {level}. Below {METADATA_VERSION_FLOOR} (3.7-IV0) "
            "controllers cannot register, so their supported levels would be unknown (KIP-1155, KIP-919).",
            f"Choose {METADATA_VERSION_FLOOR} or higher, or keep {current}.",
        )
    gap = find_lossy_downgrade_gap(cluster, catalogue, state) if feature == METADATA_VERSION else ""
    if feature != METADATA_VERSION or gap:
        yield from _refused_downgrade(catalogue, state, feature, level, gap)


def _deletion(catalogue: Catalogue, state: ClusterState, request: FeatureRequest) -> Iterable[Finding]:
    """KIP-584: a deletion needs the permission to lower, and skips the checks of ranges and of unknown features."""
    feature, current = request.feature, state.finalized.reported.get(request.feature, 0)
    if request.kind is RequestKind.UPGRADE:
        yield _not_allowed(feature, current, "delete it")
    elif current == 0:
        yield FEATURE_NOT_FINALIZED.found(
            f"feature {feature}", f"{feature} is not finalized, so there is nothing to delete."
        )
    elif feature == METADATA_VERSION:
        yield METADATA_VERSION_NEEDED.found(
            f"feature {feature}", "metadata.version cannot be deleted: a KRaft cluster always has a metadata.version."
        )
    else:
        yield from _refused_downgrade(catalogue, state, feature, 0)


def _refused_downgrade(
    catalogue: Catalogue, state: ClusterState, feature: str, level: int, gap: str = ""
) -> Iterable[Finding]:
    current = state.finalized.reported.get(feature, 0)
    known = [release for release in state.releases if release in catalogue]
    if not known or (feature == KRAFT_VERSION and state.quorum is not None and not state.has_dynamic_quorum):
        return  # a level that a controller before 4.1 only wrote can be deleted
    undo, source = undo_of(catalogue.get(max(known)), feature, level, current)
    # A feature that the running release does not support can be deleted; its other levels cannot be evaluated.
    if undo is not Undo.POSSIBLE and not (undo is Undo.UNKNOWN and level == 0):
        yield FEATURE_DOWNGRADE_REFUSED.found(
            f"feature {feature}",
            f"The controller cannot lower {feature} from {current} to {level}: {source} {gap}".rstrip(),
        )


def _not_allowed(feature: str, current: int, what: str) -> Finding:
    return FEATURE_DOWNGRADE_NOT_ALLOWED.found(
        f"feature {feature}",
        f"{feature} is finalized at {current}. An upgrade request cannot {what} (KIP-584: allowDowngrade).",
        f"Request a downgrade or a deletion of {feature}.",
    )


def _above_default(catalogue: Catalogue, state: ClusterState, feature: str, level: int) -> Iterable[Finding]:
    known = {release: catalogue.get(release).features for release in sorted(state.releases) if release in catalogue}
    stable = max((facts[feature].latest_production for facts in known.values() if feature in facts), default=level)
    if level > stable:
        yield FEATURE_UNSTABLE.found(
            f"feature {feature}",
            f"{feature} {level} is not stable in the running release. Its highest stable level is "
            f"{stable}. Records of an unstable level can change, and a later release may not be able to "
            "upgrade from it.",
            f"Choose {stable}, except on a test cluster.",
        )
        return
    supporting = {release: facts[feature] for release, facts in known.items() if feature in facts}
    defaults = {release: one.default_level for release, one in supporting.items() if level in one.supported}
    release = min(defaults, key=lambda one: defaults[one], default=None)
    if release is not None and level > defaults[release]:
        yield FEATURE_NOT_DEFAULT.found(
            f"feature {feature}",
            f"{feature} {level} is above the default of Kafka {release}, which is {defaults[release]}. A release does "
            "not enable a level by default if the level is a preview or an operator must choose it.",
            f"Read the upgrade notes of Kafka {release} about this feature. Omit it unless you need it.",
        )


def _dependencies(catalogue: Catalogue, state: ClusterState, targets: Mapping[str, int]) -> Iterable[Finding]:
    """Check the dependencies of all finalized features, not only of the requested ones.

    Controllers of 3.9.1 check none, controllers from 4.0 only the requested features. If a request removes the
    dependency of another feature, the finding is about the requested feature.
    """
    levels = {**state.finalized.reported, **targets}
    facts = [catalogue.get(release) for release in sorted(state.releases) if release in catalogue]
    for feature in sorted(levels):
        missing: dict[str, int] = {}
        for release in facts:
            missing |= missing_dependencies(release, feature, levels)
        if missing and feature not in targets and missing.keys() & targets.keys():
            for other in sorted(missing.keys() & targets.keys()):
                yield FEATURE_DEPENDENCY.found(
                    f"feature {other}",
                    f"{feature} {levels[feature]} stays finalized and requires {other} {missing[other]}.",
                    f"Keep {other} at {missing[other]} or higher, or first lower {feature} if Kafka can lower it.",
                )
        elif missing:
            needs = ", ".join(f"{other} {level}" for other, level in sorted(missing.items()))
            yield FEATURE_DEPENDENCY.found(
                f"feature {feature}",
                f"{feature} {levels[feature]} needs {needs}.",
                f"Raise {', '.join(sorted(missing))} in the same request, or keep {feature} lower.",
            )


def user_findings(state: ClusterState, targets: Mapping[str, int], *, unsafe: bool) -> Iterable[Finding]:
    """Return findings for groups, producers and partitions that use a feature that is lowered.

    A feature in use is a blocker unless an approver accepted losses (`unsafe`). A feature that is possibly in use is a
    warning.
    """
    lowered = {f for f, level in targets.items() if level < state.finalized.reported.get(f, 0)}
    in_use = Severity.WARNING if unsafe else Severity.BLOCKER
    needs = {Need.GROUPS: lowered & {*SERVED_BY, TRANSACTION_VERSION}, Need.TOPICS: lowered & {ELR_VERSION}}
    for need, features in needs.items():
        yield from _unknown(state, features, need, in_use)
    for feature, kind in SERVED_BY.items():
        if feature in lowered and targets[feature] < 1:
            yield from _groups(state, feature, kind, in_use)
    if SHARE_VERSION in lowered and targets[SHARE_VERSION] == 1:
        yield from _archiving(state)
    if ends_transactional_producers({feature: targets[feature] for feature in lowered}):
        yield from _producers(state, targets[TRANSACTION_VERSION], in_use)
    if ELR_VERSION in lowered:
        yield from _eligible_leaders(state, in_use)


def ends_transactional_producers(lowered: Mapping[str, int]) -> bool:
    """Return whether running transactional producers get a fatal error when features get the `lowered` levels.

    Source: KIP-890.
    """
    return lowered.get(TRANSACTION_VERSION, _CLIENTS_SEE_IT_FROM) < _CLIENTS_SEE_IT_FROM


def ends_consumer_groups(lowered: Mapping[str, int]) -> bool:
    """Return whether brokers serve no groups of the consumer protocol at the `lowered` levels (KIP-848)."""
    return lowered.get(GROUP_VERSION, 1) < 1


def _unknown(state: ClusterState, lowered: Collection[str], need: Need, in_use: Severity) -> Iterable[Finding]:
    """Return a finding if a response about the users of these features is missing, or not permitted."""
    if not lowered:
        return
    of_nodes = {node.problem for node in state.nodes.values()}
    unanswered, refused = (
        [one for one in sentences if one not in of_nodes and state.needs.get(one, need) is need]
        for sentences in (state.unanswered, state.not_observable)
    )
    what = f"feature {', '.join(sorted(lowered))}"
    said = f"The users of {', '.join(sorted(lowered))} could not be listed: {' '.join([*unanswered, *refused])}"
    if unanswered:
        yield FEATURE_USERS_UNKNOWN.found(what, said, severity=BLOCKER)
    elif refused:
        remedy = (
            "Grant the rights, then repeat the command. With --unsafe, an approver accepts that the users are unknown."
        )
        yield FEATURE_USERS_UNKNOWN.found(what, said, remedy, severity=in_use)


def _groups(state: ClusterState, feature: str, kind: str, in_use: Severity) -> Iterable[Finding]:
    of_kind = [group for group in state.groups if group.type == kind]
    active = [group for group in of_kind if group.is_active]
    empty = [group for group in of_kind if group not in active]
    if active:
        yield GROUPS_LOSE_THEIR_PROTOCOL.found(
            f"feature {feature}",
            f"Without {feature}, brokers serve no {kind} groups, and {len(active)} active "
            f"{_one_or_more(active, 'group is', 'groups are')} of that type: {_names(active)}.",
            _BEFORE[kind],
            severity=in_use,
        )
    if empty:
        yield GROUPS_KEEP_THEIR_RECORDS.found(
            f"feature {feature}",
            f"{len(empty)} empty {kind} {_one_or_more(empty, 'group leaves', 'groups leave')} records "
            f"that only a release with {feature} can read: {_names(empty)}.",
            (
                "Let a classic member join each group once: that converts the group, and keeps its offsets. Or delete "
                "them, with their committed offsets."
            )
            if kind == "consumer"
            else "Delete them first.",
        )


def _archiving(state: ClusterState) -> Iterable[Finding]:
    """Return a finding for share groups, which can have a dead-letter queue at level 2 (KIP-1191).

    4.4 stores the state ARCHIVING until a record is in the queue. Releases before read this state and never leave it
    (SharePartition), so the start offset of the share partition stops there.
    """
    groups = [group for group in state.groups if group.type == SHARE]
    if groups:
        yield SHARE_RECORDS_STAY_ARCHIVING.found(
            f"feature {SHARE_VERSION}",
            "Kafka 4.4 stores records as ARCHIVING until they are in the dead-letter queue of their group. On an older "
            f"release they stay so, and the share partition does not advance. {len(groups)} share "
            f"{_one_or_more(groups, 'group', 'groups')}: {_names(groups)}.",
        )


def _producers(state: ClusterState, level: int, in_use: Severity) -> Iterable[Finding]:
    running = sorted(t.transactional_id for t in state.transactions if t.state in _IN_A_TRANSACTION)
    others = sorted(t.transactional_id for t in state.transactions if t.state not in _IN_A_TRANSACTION)
    if running:
        yield PRODUCERS_END_FATALLY.found(
            f"feature {TRANSACTION_VERSION}",
            f"Lowering {TRANSACTION_VERSION} to {level} causes a fatal error in every running "
            f"transactional producer. {len(running)} transactional "
            f"{'id is' if len(running) == 1 else 'ids are'} in a transaction: "
            f"{few(running, limit=_NAMED)}.",
            severity=in_use,
        )
    if others:
        yield PRODUCERS_MAY_RUN.found(
            f"feature {TRANSACTION_VERSION}",
            f"{len(others)} transactional {'id is' if len(others) == 1 else 'ids are'} between "
            f"transactions. A producer that still runs gets a fatal error: {few(others, limit=_NAMED)}.",
        )


def _eligible_leaders(state: ClusterState, in_use: Severity) -> Iterable[Finding]:
    """Return findings for partitions under min ISR. Only such partitions store eligible leaders (KIP-966)."""
    under = sorted(p.name for p in state.partitions if p.is_under_min_isr or p.leader < 0)
    if under:
        yield ELIGIBLE_LEADERS_LOST.found(
            f"feature {ELR_VERSION}",
            f"{len(under)} {'partition is' if len(under) == 1 else 'partitions are'} under min ISR and "
            f"would lose the list of replicas that can lead without data loss: {few(under, limit=_NAMED)}.",
            severity=in_use,
        )


def _names(groups: Iterable[GroupState]) -> str:
    texts = (
        f"{group.group_id} ({group.members} member{'' if group.members == 1 else 's'})"
        if group.members
        else group.group_id
        for group in sorted(groups, key=lambda group: group.group_id)
    )
    return few(texts, limit=_NAMED)


def _one_or_more(things: list[GroupState], one: str, more: str) -> str:
    return one if len(things) == 1 else more
