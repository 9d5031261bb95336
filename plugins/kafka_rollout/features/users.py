"""The users of a feature, and the effect of a lower level on them.

Source: KIP-584 ("first downgrade the stream clients").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Need, Severity
from kafka_rollout.base.wording import few
from kafka_rollout.model.contents import SERVED_BY
from kafka_rollout.model.state import ClusterState, GroupState
from kafka_rollout.releases.facts import GROUP_VERSION, TRANSACTION_VERSION

_CLIENTS_SEE_IT_FROM = 2  # KIP-890: from this level, clients raise their epoch with every transaction
_ELR_VERSION = "eligible.leader.replicas.version"
_IN_A_TRANSACTION = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_EMPTY = frozenset({"empty", "dead"})
_NAMED = 30


FEATURE_USERS_UNKNOWN = FindingCode(
    "FEATURE-USERS-UNKNOWN",
    BLOCKER,
    "The users of a lowered feature are unknown.",
    "Repeat the command when every coordinator responds.",
)
GROUPS_LOSE_THEIR_PROTOCOL = FindingCode(
    "GROUPS-LOSE-THEIR-PROTOCOL", (BLOCKER, WARNING), "Active groups have a type whose feature is lowered."
)
GROUPS_KEEP_THEIR_RECORDS = FindingCode(
    "GROUPS-KEEP-THEIR-RECORDS", WARNING, "Empty groups leave records that only a release with the feature can read."
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
        PRODUCERS_END_FATALLY,
        PRODUCERS_MAY_RUN,
        ELIGIBLE_LEADERS_LOST,
    ),
    of=(CheckOf.DOWNGRADE, CheckOf.FEATURES),
    needs=(Need.RESPONSES, Need.GROUPS),
    examines=Examined.GROUPS,
)


def user_findings(state: ClusterState, targets: Mapping[str, int], *, unsafe: bool) -> Iterable[Finding]:
    """Return findings for groups, producers and partitions that use a feature that is lowered.

    A feature in use is a blocker unless an approver accepted losses (`unsafe`). A feature that is possibly in use is a
    warning.
    """
    lowered = {f for f, level in targets.items() if level < state.finalized.get(f, 0)}
    in_use = Severity.WARNING if unsafe else Severity.BLOCKER
    if lowered & {*SERVED_BY, TRANSACTION_VERSION}:
        yield from _unknown(state, lowered)
    for feature, kind in SERVED_BY.items():
        if feature in lowered and targets[feature] < 1:
            yield from _groups(state, feature, kind, in_use)
    if ends_transactional_producers({feature: targets[feature] for feature in lowered}):
        yield from _producers(state, targets[TRANSACTION_VERSION], in_use)
    if _ELR_VERSION in lowered:
        yield from _eligible_leaders(state, in_use)


def ends_transactional_producers(lowered: Mapping[str, int]) -> bool:
    """Return whether running transactional producers get a fatal error when features get the `lowered` levels.

    Source: KIP-890.
    """
    return lowered.get(TRANSACTION_VERSION, _CLIENTS_SEE_IT_FROM) < _CLIENTS_SEE_IT_FROM


def ends_consumer_groups(lowered: Mapping[str, int]) -> bool:
    """Return whether brokers serve no groups of the consumer protocol at the `lowered` levels (KIP-848)."""
    return lowered.get(GROUP_VERSION, 1) < 1


def _unknown(state: ClusterState, lowered: Iterable[str]) -> Iterable[Finding]:
    of_nodes = {node.problem for node in state.nodes.values()}
    unanswered = [sentence for sentence in state.unanswered if sentence not in of_nodes]
    if unanswered:
        yield FEATURE_USERS_UNKNOWN.found(
            f"feature {', '.join(sorted(lowered))}",
            f"The users of {', '.join(sorted(lowered))} could not be listed: {' '.join(unanswered)}",
        )


def _groups(state: ClusterState, feature: str, kind: str, in_use: Severity) -> Iterable[Finding]:
    of_kind = [group for group in state.groups if group.type == kind]
    active = [group for group in of_kind if group.members or group.state.lower() not in _EMPTY]
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
                "Delete them, or let a classic member join each group once: that converts the group and "
                "writes tombstones."
            )
            if kind == "consumer"
            else "Delete them first.",
        )


_BEFORE = {
    "consumer": "First restart their members with group.protocol=classic, which converts the groups.",
    "share": "First stop their members and delete the groups: share groups cannot be converted.",
    "streams": "First downgrade the stream clients (KIP-584): restart them with group.protocol=classic.",
}


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
    under = sorted(p.name for p in state.partitions if len(p.isr) < p.min_isr or p.leader < 0)
    if under:
        yield ELIGIBLE_LEADERS_LOST.found(
            f"feature {_ELR_VERSION}",
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
