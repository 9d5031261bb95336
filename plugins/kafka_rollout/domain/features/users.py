"""Who uses a feature, and what a lower level of it means for them (KIP-584: "first downgrade the stream clients")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_rollout.domain.groups.records import SERVED_BY
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.state import ClusterState, GroupState
from kafka_rollout.domain.model.wording import few

_TRANSACTION_VERSION = "transaction.version"
_CLIENTS_SEE_IT_FROM = 2  # KIP-890: from here on clients bump their epoch with every transaction
_ELR_VERSION = "eligible.leader.replicas.version"
_IN_A_TRANSACTION = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_EMPTY = frozenset({"empty", "dead"})
_NAMED = 30


def user_findings(state: ClusterState, targets: Mapping[str, int], *, unsafe: bool) -> Iterable[Finding]:
    """Findings about groups, producers and partitions that use what falls.

    What is in use blocks, unless a person accepted losses (`unsafe`); what only might be used warns.
    """
    falling = {f for f, level in targets.items() if level < state.finalized.get(f, 0)}
    in_use = Severity.WARNING if unsafe else Severity.BLOCKER
    if falling & {*SERVED_BY, _TRANSACTION_VERSION}:
        yield from _unknown(state, falling)
    for feature, kind in SERVED_BY.items():
        if feature in falling and targets[feature] < 1:
            yield from _groups(state, feature, kind, in_use)
    if _TRANSACTION_VERSION in falling and targets[_TRANSACTION_VERSION] < _CLIENTS_SEE_IT_FROM:
        yield from _producers(state, targets[_TRANSACTION_VERSION], in_use)
    if _ELR_VERSION in falling:
        yield from _eligible_leaders(state, in_use)


def _unknown(state: ClusterState, falling: Iterable[str]) -> Iterable[Finding]:
    of_nodes = {node.problem for node in state.nodes.values()}
    unanswered = [sentence for sentence in state.unanswered if sentence not in of_nodes]
    if unanswered:
        yield Finding(
            code="FEATURE-USERS-UNKNOWN",
            severity=Severity.BLOCKER,
            subject=f"feature {', '.join(sorted(falling))}",
            sentence=f"Nobody knows who uses what would fall: {' '.join(unanswered)}",
            remedy="Ask again when every coordinator answers.",
        )


def _groups(state: ClusterState, feature: str, kind: str, in_use: Severity) -> Iterable[Finding]:
    of_kind = [group for group in state.groups if group.type == kind]
    active = [group for group in of_kind if group.members or group.state.lower() not in _EMPTY]
    empty = [group for group in of_kind if group not in active]
    if active:
        yield Finding(
            code="GROUPS-LOSE-THEIR-PROTOCOL",
            severity=in_use,
            subject=f"feature {feature}",
            sentence=f"Brokers serve no {kind} group without {feature}, and {len(active)} active "
            f"{_one_or_more(active, 'group is', 'groups are')} of that type: {_names(active)}.",
            remedy=_BEFORE[kind],
        )
    if empty:
        yield Finding(
            code="GROUPS-KEEP-THEIR-RECORDS",
            severity=Severity.WARNING,
            subject=f"feature {feature}",
            sentence=f"{len(empty)} empty {kind} {_one_or_more(empty, 'group leaves', 'groups leave')} records that "
            f"only a release with {feature} reads: {_names(empty)}.",
            remedy="Delete them, or let a classic member join each once: that converts it and writes tombstones."
            if kind == "consumer"
            else "Delete them first.",
        )


_BEFORE = {
    "consumer": "Restart their members with group.protocol=classic first: that converts the groups.",
    "share": "Stop their members and delete the groups first: share groups have no classic form.",
    "streams": "First downgrade the stream clients (KIP-584): restart them with group.protocol=classic.",
}


def _producers(state: ClusterState, level: int, in_use: Severity) -> Iterable[Finding]:
    running = sorted(t.transactional_id for t in state.transactions if t.state in _IN_A_TRANSACTION)
    others = sorted(t.transactional_id for t in state.transactions if t.state not in _IN_A_TRANSACTION)
    if running:
        yield Finding(
            code="PRODUCERS-END-FATALLY",
            severity=in_use,
            subject=f"feature {_TRANSACTION_VERSION}",
            sentence=f"Producers that run while {_TRANSACTION_VERSION} falls to {level} end in a fatal error, and "
            f"{len(running)} transactional {'id is' if len(running) == 1 else 'ids are'} in a transaction: "
            f"{few(running, limit=_NAMED)}.",
            remedy="Stop these producers first, and start them again afterwards.",
        )
    if others:
        yield Finding(
            code="PRODUCERS-MAY-RUN",
            severity=Severity.WARNING,
            subject=f"feature {_TRANSACTION_VERSION}",
            sentence=f"{len(others)} transactional {'id is' if len(others) == 1 else 'ids are'} between transactions; "
            f"where a producer still runs, it ends in a fatal error: {few(others, limit=_NAMED)}.",
            remedy="Stop these producers (exactly-once Streams applications too), and start them again afterwards.",
        )


def _eligible_leaders(state: ClusterState, in_use: Severity) -> Iterable[Finding]:
    """A partition remembers eligible leaders only while it is under its min ISR (KIP-966)."""
    under = sorted(p.name for p in state.partitions if len(p.isr) < p.min_isr or p.leader < 0)
    if under:
        yield Finding(
            code="ELIGIBLE-LEADERS-LOST",
            severity=in_use,
            subject=f"feature {_ELR_VERSION}",
            sentence=f"{len(under)} {'partition is' if len(under) == 1 else 'partitions are'} under min ISR and would "
            f"forget which replicas may lead without loss: {few(under, limit=_NAMED)}.",
            remedy="Bring their replicas back into the ISR first.",
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
