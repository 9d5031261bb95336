"""Whether a broker has loaded the coordinator partitions that it leads: part of the gate after its start.

A broker that cannot load a partition stays registered and in sync, and answers all other requests. Its clients find no
coordinator, or their groups and transactional ids are gone.

- GroupMetadataManager and TransactionStateManager, the coordinators of 3.x (and of transactions in 4.x), log the error.
  They serve the partition with what they loaded before it: no groups, or some transactional ids.
- CoordinatorRuntime, of groups and share groups in 4.x, logs the error and counts the partition as failed. It answers
  NOT_COORDINATOR for the partition.

The evidence, from the strongest: what the broker answers, its own counters of partitions, and its log. What only the
log shows, or does not show, an approver can accept (`GateCondition.doubts`). An id that is listed again is no evidence
after a failed load: a consumer that joins again makes a group of the same name, without its offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_up

from kafka_rollout.base.internal_topics import (
    COORDINATOR_TOPICS,
    GROUPS_TOPIC,
    SHARE_TOPIC,
    TRANSACTIONS_TOPIC,
    coordinator_partition,
)
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.gates.gate import BeforeStop, GateCondition, doubtful, layout_doubt
from kafka_rollout.model.counters import COORDINATOR_COUNTERS
from kafka_rollout.model.node_log import UNKNOWN_LAYOUT, SeenLog
from kafka_rollout.model.state import PartitionState

CONDITION = "coordinators loaded"

LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
# Responses for an id that does not exist, from a coordinator that has loaded the partition of the id.
LOADED = frozenset({"NONE", "GROUP_ID_NOT_FOUND", "TRANSACTIONAL_ID_NOT_FOUND"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorAnswers:
    """One broker's answers."""

    by_partition: Mapping[str, str]
    """Partition (`topic-partition`) → error name for an id that does not exist."""
    groups: frozenset[str] | None
    """All that the broker coordinates; None while it loads and does not list them."""
    transactional_ids: frozenset[str] | None
    """All that the broker coordinates; None while it loads and does not list them."""


def ids_for(numbers: Collection[int], partitions: int) -> dict[str, int]:
    """Return an id for each of these partition numbers, which no client uses: id → partition number."""
    wanted = set(numbers)
    found: dict[str, int] = {}
    for attempt in count_up():
        if not wanted:
            return found
        name = f"kafka-rollout-load-check-{attempt}"
        number = coordinator_partition(name, partitions)
        if number in wanted:
            wanted.discard(number)
            found[name] = number
    raise AssertionError("unreachable")


def led_partitions(partitions: Iterable[PartitionState], node_id: int) -> tuple[PartitionState, ...]:
    """Return the coordinator partitions that the node leads."""
    return tuple(p for p in partitions if p.topic in COORDINATOR_TOPICS and p.leader == node_id)


def coordinators_condition(
    partitions: Sequence[PartitionState],
    node_id: int,
    answers: CoordinatorAnswers,
    before: BeforeStop | None,
    seen: SeenLog | None,
    *,
    counters: Mapping[str, float] | None = None,
    accepted: Mapping[str, str] | None = None,
    brokers: Sequence[int] = (),
    shares: bool = True,
    needed: Collection[str] | None = None,
) -> GateCondition:
    """Return the condition that the node has loaded what it leads, and serves the ids that it knew before its stop.

    `seen`: the log of the node's process; None if the runtime cannot read it. `counters`: of the node's process, by
    name in COUNTERS. `accepted`: doubt → who accepted it. `brokers`: all of the cluster, for one acceptance of a layout
    that no gate can read. `shares`: whether the process has a share coordinator; else it loads nothing of share groups.
    `needed`: without `before`, the only partitions whose load must be shown; None: all.
    Without the ids from before the stop, and without a log that would show an error, the load of every partition with
    such an id must be shown. An id that is gone was deleted, expired, or is of no interest to the release (KIP-915) if
    its partition has finished loading without an error.
    """
    led = tuple(p for p in led_partitions(partitions, node_id) if shares or p.topic != SHARE_TOPIC)
    if not led:
        return GateCondition(name=CONDITION, is_met=True, evidence="leads no coordinator partition")
    # The log and the counters alone show the state of share groups' partitions.
    answers_of = {p.name: answers.by_partition.get(p.name, "no answer") for p in led if p.topic != SHARE_TOPIC}
    open_ones = {name: answer for name, answer in answers_of.items() if answer not in LOADED}
    counted = _loaded_by_counters(led, counters or {})
    failed = seen.failed if seen is not None else {}
    errors = {p.name: failed[p.name] for p in led if p.name in failed and p.topic not in counted}
    if open_ones:
        shown = [f"{name} ({answer})" for name, answer in open_ones.items()]
        return _unmet(_not_loaded(open_ones, len(led), errors)).listing(shown)
    if answers.groups is None or answers.transactional_ids is None:
        return _unmet("the broker does not list its groups and transactional ids yet")
    if seen is not None and seen.is_cut:
        return _unmet("the node's log is not read to its end yet")
    missing = _missing(partitions, led, answers, before)
    gone = f"; {_gone(missing)}" if missing else ""
    if errors:
        doubts = [_doubt(node_id, seen, f"shows a failed load of {name}") for name in errors]
        part = f"{len(errors)} of {count(len(led), 'coordinator partition')}"
        evidence = f"the log shows that the broker could not load {part}: {_one_per_topic(errors)}{gone}"
        return doubtful(CONDITION, evidence, doubts, accepted)
    asked = [p for p in led if needed is None or p.name in needed]
    lacking: Collection[str] = [p.name for p in asked]
    if before is not None and before.has_answered:
        # A failed load leaves a partition empty, and its clients join it again at once: without a log that would show
        # the error, an id that is listed again proves nothing.
        shows_errors = seen is not None and not seen.why_unknown
        lacking = missing.values() if shows_errors else _partitions_of(partitions, led, before).values()
    unshown = _unshown(asked, lacking, counted, seen)
    if unshown:
        doubts = [_doubt(node_id, seen, f"does not show the load of {name}") for name in unshown]
        why = "the node's log cannot be read" if seen is None else f"the log {seen.why_unknown or 'is whole'}"
        evidence = f"the log does not show the load of {few(unshown)} ({why}){gone}"
        if len(brokers) > 1 and seen is not None and seen.problem == UNKNOWN_LAYOUT:
            doubts = [layout_doubt(brokers, "the load of coordinator partitions")]
            evidence += f"; an acceptance counts for such logs of {nodes(brokers)}"
        return doubtful(CONDITION, evidence, doubts, accepted)
    loaded = Counter(p.topic for p in led)
    evidence = (
        f"{count(loaded[GROUPS_TOPIC], 'partition')} of groups with {count(len(answers.groups), 'group')}, "
        f"{count(loaded[TRANSACTIONS_TOPIC], 'partition')} of transactions with "
        f"{count(len(answers.transactional_ids), 'transactional id')}"
    )
    if gone:
        evidence += f"{gone}. Their partitions have finished loading: deleted, expired, or ignored by this release"
    return GateCondition(name=CONDITION, is_met=True, evidence=evidence)


def _doubt(node_id: int, seen: SeenLog | None, what: str) -> str:
    """Return what an approver can accept: of this process alone, and without a text that a client can choose."""
    return f"node {node_id}{f' ({seen.who})' if seen else ''}: the log {what}"


def _loaded_by_counters(led: Sequence[PartitionState], counters: Mapping[str, float]) -> frozenset[str]:
    """Return the topics of which the broker counts every led partition as active, and none as loading or failed."""
    found = set()
    for topic, (active, loading, failed) in COORDINATOR_COUNTERS.items():
        wanted = sum(p.topic == topic for p in led)
        if counters.get(active, 0) >= wanted and counters.get(loading) == 0 and counters.get(failed) == 0:
            found.add(topic)
    return frozenset(found)


def _unshown(
    asked: Sequence[PartitionState], lacking: Collection[str], counted: Collection[str], seen: SeenLog | None
) -> list[str]:
    """Return which of the partitions must be shown to be loaded, and are not, in their order: those in `lacking`, and
    those of share groups, about which the broker answers nothing."""
    needed = {*lacking, *(p.name for p in asked if p.topic == SHARE_TOPIC)}
    loaded = frozenset(seen.loaded if seen is not None else ())
    return [p.name for p in asked if p.name in needed and p.topic not in counted and p.name not in loaded]


def _unmet(evidence: str) -> GateCondition:
    return GateCondition(name=CONDITION, is_met=False, evidence=evidence)


def _not_loaded(answers: Mapping[str, str], led: int, errors: Mapping[str, str]) -> str:
    loading = [name for name, answer in answers.items() if answer == LOADING]
    others = [f"{name} ({answer})" for name, answer in answers.items() if answer != LOADING]
    parts = []
    if loading:
        parts.append(f"loads {len(loading)} of {count(led, 'coordinator partition')}: {few(loading)}")
    if others:
        parts.append(f"does not serve {len(others)} of {count(led, 'coordinator partition')}: {few(others)}")
    if reasons := dict.fromkeys(errors[name] for name in answers if name in errors):
        parts.append(f"the node's log: {few(reasons)}")
    if unasked := {name: error for name, error in errors.items() if name not in answers}:
        parts.append(f"could not load {count(len(unasked), 'partition')}: {_one_per_topic(unasked)}")
    return "; ".join(parts)


def _one_per_topic(errors: Mapping[str, str]) -> str:
    """Return the first partition's error of each topic. The log's order differs: topics are loaded in parallel."""
    texts = []
    for topic in COORDINATOR_TOPICS:
        failed = sorted((int(name.rpartition("-")[2]), name) for name in errors if name.startswith(f"{topic}-"))
        if failed:
            more = f" (and {len(failed) - 1} more of this topic)" if len(failed) > 1 else ""
            texts.append(errors[failed[0][1]] + more)
    return "; ".join(texts)


def _missing(
    partitions: Sequence[PartitionState],
    led: Sequence[PartitionState],
    answers: CoordinatorAnswers,
    before: BeforeStop | None,
) -> dict[str, str]:
    """Return id → partition of the ids from before the stop that the node should serve and does not list."""
    if before is None:
        return {}
    listed = (answers.groups or frozenset(), answers.transactional_ids or frozenset())
    return _partitions_of(partitions, led, before, but=listed)


def _partitions_of(
    partitions: Sequence[PartitionState],
    led: Sequence[PartitionState],
    before: BeforeStop,
    *,
    but: tuple[Collection[str], Collection[str]] = ((), ()),
) -> dict[str, str]:
    """Return id → led partition of the groups and transactional ids from before the stop. `but`: without these."""
    sizes = Counter(p.topic for p in partitions)
    names = {p.name for p in led}
    found: dict[str, str] = {}
    for topic, known, left_out in (
        (GROUPS_TOPIC, before.groups, but[0]),
        (TRANSACTIONS_TOPIC, before.transactional_ids, but[1]),
    ):
        for name in sorted(known.difference(left_out)):
            partition = f"{topic}-{coordinator_partition(name, sizes[topic])}" if sizes[topic] else ""
            if partition in names:
                found[name] = partition
    return found


def _gone(missing: Mapping[str, str]) -> str:
    known = f"{count(len(missing), 'id')} of groups or transactions from before the stop"
    return f"{known} {'is' if len(missing) == 1 else 'are'} gone: {few(missing)}"
