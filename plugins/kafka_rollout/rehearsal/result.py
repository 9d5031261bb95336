"""The result of a rehearsal with its findings for the plan, and the contents of a cluster that it compares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from kafka_rollout.base.clock import Clock
from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, CheckOf, Examined, Finding, FindingCode, Severity
from kafka_rollout.base.internal_topics import (
    COORDINATOR_TOPICS,
    GROUPS_TOPIC,
    SHARE_TOPIC,
    TRANSACTIONS_TOPIC,
    coordinator_partition,
)
from kafka_rollout.base.wording import few_sentences
from kafka_rollout.gates.coordinators import LOADED
from kafka_rollout.model.contents import (
    GROUPS,
    TRANSACTIONAL_IDS,
    ClusterInventory,
    Difference,
    compare_inventories,
    few_marked,
)
from kafka_rollout.model.groups import SHARE
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.ports.cluster import ClusterAdmin

FAILED = FindingCode("REHEARSAL-FAILED", BLOCKER, "A node of the copy did not start, or a gate did not pass.")
DIFFERS = FindingCode(
    "REHEARSAL-DIFFERS",
    BLOCKER,
    "Contents are missing or changed in the copy.",
    "Find the cause in the report of the rehearsal. Do not run the change on the cluster before that.",
)
INCOMPLETE = FindingCode(
    "REHEARSAL-INCOMPLETE",
    WARNING,
    "The rehearsal ended at a gate that waits for clients or operators.",
    "The steps after it were not rehearsed. Approve the plan only if this is acceptable.",
)
NO_ROLLBACK = FindingCode("REHEARSAL-NO-ROLLBACK", WARNING, "The change passed, and the rollback of the copy failed.")
PASSED = FindingCode("REHEARSAL-PASSED", INFO, "The change passed in the rehearsal.")
REHEARSAL_CHECK = Check(
    "rehearsal",
    "Rehearsal of the change on a copy of the cluster",
    "rehearsal.md#what-happens",
    (FAILED, DIFFERS, INCOMPLETE, NO_ROLLBACK, PASSED),
    of=(CheckOf.REHEARSAL,),
    needs=(),
    examines=Examined.FILES,
)


class RehearsalOutcome(StrEnum):
    """Result of a rehearsal. INCOMPLETE: it ended at a gate that waits for clients, which the sandbox does not have."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalPhase:
    """One part of a rehearsal."""

    name: str
    seconds: float
    sentence: str = ""
    """Its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a rehearsal compares: the contents of a cluster and its transactional ids."""

    inventory: ClusterInventory
    transactional_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalResult:
    """A finished rehearsal."""

    outcome: RehearsalOutcome
    cluster: str
    source: str
    target: str
    nodes: tuple[int, ...]
    """Ids of the copied nodes."""
    seconds: float
    phases: tuple[RehearsalPhase, ...]
    findings: tuple[Finding, ...]
    node_seconds: Mapping[str, float] = field(default_factory=dict)
    """Release step and node (`3.9.1-to-4.3.1 node 2`) → seconds of its node step."""
    not_covered: tuple[str, ...] = ()
    """What the rehearsal could not show, as sentences."""
    estimate: str = ""
    isolation: str = ""
    """How the sandbox was separated from the cluster."""

    @property
    def sentence(self) -> str:
        return f"The rehearsal {self.source} → {self.target} {_ENDINGS[self.outcome]} after {self.seconds:.0f} s."


_ENDINGS = {
    RehearsalOutcome.PASSED: "passed",
    RehearsalOutcome.FAILED: "failed",
    RehearsalOutcome.INCOMPLETE: "ended before its last step",
}


def failed(sentence: str, remedy: str, subject: str = "rehearsal") -> Finding:
    """Return the finding of a failed rehearsal. `sentence`: with the message of the broker."""
    return FAILED.found(subject, sentence, remedy)


def incomplete(sentence: str) -> Finding:
    return INCOMPLETE.found("rehearsal", f"The rehearsal ended before its last step: {sentence}")


def passed(result: RehearsalResult) -> Finding:
    """Return the finding of a rehearsal that passed, with what it did not cover."""
    per_node = list(result.node_seconds.values())
    times = f" A node step took {min(per_node):.0f} to {max(per_node):.0f} s." if per_node else ""
    rest = f" Not covered: {' '.join(result.not_covered)}" if result.not_covered else ""
    return PASSED.found("rehearsal", f"{result.sentence}{times}{rest}")


def compare_copy(
    real: Contents, copy: Contents, later: Contents, *, uncovered: Collection[str] = ()
) -> tuple[Difference, ...]:
    """Return what the copy lacks on the release it came from. `real`: before the copying, `later`: after it.

    The real cluster goes on: only what is missing compared with both counts. Partitions other than the coordinators'
    are empty in the copy. `uncovered`: coordinator partitions that the copy does not serve.
    """
    missing = {(d.kind, d.subject) for d in compare_contents(_covered(later, uncovered), copy)}
    return tuple(d for d in compare_contents(_covered(real, uncovered), copy) if (d.kind, d.subject) in missing)


def difference_findings(differences: Sequence[Difference], *, when: str) -> tuple[Finding, ...]:
    """Return one blocker with the unexpected differences, or none. `when`: such as `on 4.3.1`."""
    unexpected = [difference.sentence for difference in differences if not difference.foretold]
    if not unexpected:
        return ()
    return (
        DIFFERS.found(
            f"contents {when}",
            f"In the rehearsal, {len(unexpected)} contents of the cluster are missing or changed {when}: "
            f"{few_sentences(unexpected)}",
        ),
    )


def worst(findings: Sequence[Finding]) -> RehearsalOutcome:
    if any(finding.severity is Severity.BLOCKER for finding in findings):
        return RehearsalOutcome.FAILED
    return RehearsalOutcome.INCOMPLETE if any(f.code == INCOMPLETE.code for f in findings) else RehearsalOutcome.PASSED


def compare_contents(
    before: Contents,
    after: Contents,
    *,
    unserved: Collection[str] = (),
    dropped: Mapping[str, Collection[str]] | None = None,
) -> tuple[Difference, ...]:
    """Return what is missing, smaller or changed in the copy. The arguments are those of `compare_inventories`."""
    ids = set(after.transactional_ids)
    unread = TRANSACTIONAL_IDS in after.inventory.unasked  # that not all could be read is a difference already
    return (
        *compare_inventories(before.inventory, after.inventory, unserved=unserved, dropped=dropped),
        *(
            Difference("transactional id", name, f"The transactional id {name} is missing.")
            for name in before.transactional_ids
            if name not in ids and not unread
        ),
    )


def _covered(contents: Contents, uncovered: Collection[str]) -> Contents:
    """Return what a copy has: end offsets of coordinator partitions, groups and ids of those that it serves."""
    inventory = contents.inventory
    without = set(uncovered)
    sizes = {topic: len(inventory.topics.get(topic, {}).get("replicas", ())) for topic in COORDINATOR_TOPICS}

    def is_served(topic: str, name: str) -> bool:
        return not sizes[topic] or f"{topic}-{coordinator_partition(name, sizes[topic])}" not in without

    def copied(group: Mapping[str, Any]) -> Mapping[str, Any]:
        """Which partition has the start offsets of a share group is not known from outside."""
        return {**group, "offsets": {}} if group["type"] == SHARE and not has_share_log else group

    has_share_log = all(name.rpartition("-")[0] != SHARE_TOPIC for name in without)
    return Contents(
        inventory=replace(
            inventory,
            ends={
                name: end
                for name, end in inventory.ends.items()
                if name.rpartition("-")[0] in COORDINATOR_TOPICS and name not in without
            },
            kept={},
            groups={name: copied(group) for name, group in inventory.groups.items() if is_served(GROUPS_TOPIC, name)},
        ),
        transactional_ids=tuple(i for i in contents.transactional_ids if is_served(TRANSACTIONS_TOPIC, i)),
    )


T = TypeVar("T")
_TRIES, _PAUSE_S = 10, 2.0  # a leader that was just elected responds later
_PARTS = {GROUPS_TOPIC: GROUPS, TRANSACTIONS_TOPIC: TRANSACTIONAL_IDS}


def read_contents(
    admin: ClusterAdmin,
    clock: Clock,
    brokers: Sequence[NodeSpec],
    before: Contents | None = None,
    *,
    uncovered: Collection[str] = (),
) -> Contents:
    """Read the contents of a cluster, without end offsets of partitions that have no leader.

    `before`: its groups with a configuration are queried in any case. `brokers`, `uncovered`: as in `_complete`. Raises
    TransientError if a query still fails after some tries.
    """
    configured = () if before is None else tuple(before.inventory.group_configs)

    def read() -> Contents:
        inventory = admin.inventory(configured_groups=configured, leaderless=True)
        ids = (transaction.transactional_id for transaction in admin.transactions())
        return Contents(inventory=inventory, transactional_ids=tuple(sorted(ids)))

    found, why = _complete(admin, clock, brokers, read, uncovered)
    return replace(found, inventory=replace(found.inventory, unasked={**found.inventory.unasked, **why}))


def read_inventory(
    admin: ClusterAdmin,
    clock: Clock,
    brokers: Sequence[NodeSpec],
    *,
    configured_groups: Collection[str] = (),
    leaderless: bool = True,
    kept: bool = False,
) -> ClusterInventory:
    """Read contents and configuration of a cluster in service, as `read_contents` does, without transactional ids.

    `kept`: also what retention keeps, for a later comparison.
    """
    found, why = _complete(
        admin,
        clock,
        brokers,
        lambda: admin.inventory(configured_groups=configured_groups, leaderless=leaderless, kept=kept),
    )
    why.pop(TRANSACTIONAL_IDS, None)
    return replace(found, unasked={**found.unasked, **why})


def _complete(
    admin: ClusterAdmin,
    clock: Clock,
    brokers: Sequence[NodeSpec],
    read: Callable[[], T],
    uncovered: Collection[str] = (),
) -> tuple[T, dict[str, str]]:
    """Read until no group and no transactional id can be missing, and return what was read last.

    A broker lists no groups of a partition that it has just begun or ceased to coordinate, and reports no error
    (GroupCoordinatorService.listGroups). So each coordinator partition must be served by the same leader before and
    after the reading. If that is not so after some tries, the second value names the incomplete parts with the reason:
    what is not listed then is unknown, not missing. `brokers`: all of the cluster. `uncovered`: coordinator partitions
    that a copy does not serve.
    """
    for left in reversed(range(_TRIES)):
        try:
            before = _serving(admin, brokers, uncovered)
            found = read()
            after = before if before.is_refused else _serving(admin, brokers, uncovered)
        except TransientError:
            if not left:
                raise
        else:
            why = {
                _PARTS[topic]: reason
                for topic in _PARTS
                if (reason := before.unserved.get(topic) or after.unserved.get(topic) or _moved(topic, before, after))
            }
            if not why or before.is_refused or not left:
                return found, why
        clock.sleep(_PAUSE_S)
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class _Serving:
    """The leaders of the coordinator partitions, and why not all partitions of a topic are served."""

    leaders: Mapping[str, int]
    unserved: Mapping[str, str]
    is_refused: bool = False
    """A right is missing, which no repetition cures."""


def _serving(admin: ClusterAdmin, brokers: Sequence[NodeSpec], uncovered: Collection[str]) -> _Serving:
    partitions = admin.partitions()
    leaders = {p.name: p.leader for p in partitions if p.topic in _PARTS and p.name not in uncovered}
    answers: dict[str, str] = {}
    for broker in brokers:
        if broker.node_id in leaders.values():
            try:
                answers |= admin.coordinators(broker, partitions).by_partition
            except RefusedError as error:
                return _Serving(leaders, dict.fromkeys(_PARTS, error.sentence), is_refused=True)
    unserved: dict[str, list[str]] = {}
    for name, leader in leaders.items():
        answer = "no leader" if leader < 0 else answers.get(name, f"no answer of broker {leader}")
        if answer not in LOADED:
            unserved.setdefault(name.rpartition("-")[0], []).append(f"{name} ({answer})")
    return _Serving(
        leaders,
        {topic: f"Coordinator partitions are not served: {few_marked(names)}." for topic, names in unserved.items()},
    )


def _moved(topic: str, before: _Serving, after: _Serving) -> str:
    moved = [
        name
        for name in sorted({*before.leaders, *after.leaders})
        if name.rpartition("-")[0] == topic and before.leaders.get(name) != after.leaders.get(name)
    ]
    return f"Coordinator partitions moved during the query: {few_marked(moved)}." if moved else ""
