"""Whether a broker has loaded the coordinator partitions that it leads: part of the gate after its start.

A broker that cannot load a partition stays registered and in sync, and answers all other requests. Its clients find no
coordinator, or their groups and transactional ids are gone.

- GroupMetadataManager and TransactionStateManager, the coordinators of 3.x (and of transactions in 4.x), log the error.
  They serve the partition with what they loaded before it: no groups, or some transactional ids.
- CoordinatorRuntime, of groups and share groups in 4.x, logs the error. It answers NOT_COORDINATOR for the partition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_up

from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS, GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.base.log_lines import LogEvent, find_start, is_throwable, parse_events
from kafka_rollout.base.wording import count, few
from kafka_rollout.gates.check import BeforeStop, Condition
from kafka_rollout.model.state import PartitionState

CONDITION = "coordinators loaded"

LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
# Responses for an id that does not exist, from a coordinator that has loaded the partition of the id.
_LOADED = frozenset({"NONE", "GROUP_ID_NOT_FOUND", "TRANSACTIONAL_ID_NOT_FOUND"})
_PARTITION = rf"(?P<partition>(?:{GROUPS_TOPIC}|{TRANSACTIONS_TOPIC}|{SHARE_TOPIC})-\d+)"
# Messages and the classes that log them, in all releases from 3.3 to 4.4. Both coordinators of 3.x end the message of a
# failed load with the partition; the cause is an exception.
_GROUPS_3, _TRANSACTIONS, _RUNTIME = "GroupMetadataManager", "TransactionStateManager", "CoordinatorRuntime"
_FAILED = {
    _GROUPS_3: re.compile(rf"Error loading offsets from {_PARTITION}"),
    _TRANSACTIONS: re.compile(rf"Error loading transactions from transaction log {_PARTITION}"),
    _RUNTIME: re.compile(rf"Failed to load metadata from {_PARTITION} with epoch \d+ due to .*"),
}
_FINISHED = {
    _GROUPS_3: re.compile(rf"Finished loading offsets and group metadata from {_PARTITION} in \d+ milliseconds.*"),
    _TRANSACTIONS: re.compile(rf"Finished loading \d+ transaction metadata from {_PARTITION} in \d+ milliseconds.*"),
    _RUNTIME: re.compile(rf"Finished loading of metadata from {_PARTITION} with epoch \d+ in \d+ms.*"),
}
_MOST_OF_A_LINE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorAnswers:
    """One broker's answers. `by_partition`: partition (`topic-partition`) → error name for an id that does not exist.

    `groups` and `transactional_ids`: all that the broker coordinates; None while it loads and does not list them.
    """

    by_partition: Mapping[str, str]
    groups: frozenset[str] | None
    transactional_ids: frozenset[str] | None


def coordinator_partition(name: str, partitions: int) -> int:
    """Return the partition number of a group or a transactional id among `partitions`.

    Source: GroupMetadataManager.partitionFor, `Utils.abs(name.hashCode) % partitions`.
    """
    code = 0
    data = name.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        code = (31 * code + int.from_bytes(data[position : position + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code & 0x80000000 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


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


def find_load_errors(log: Sequence[str]) -> dict[str, str]:
    """Return partition → the broker's own error with its cause, from the lines since its last start.

    A later load that succeeds removes the error. TransactionStateManager finishes a failed load with the same line as a
    successful one, so only the second such line removes it. A line that a client's text can have written does not
    remove an error and is no start; as an error it counts, because nobody else can tell.
    """
    events = [event for event in parse_events(log) if event.is_of_kafka]
    begin = find_start(events) or 0
    errors: dict[str, str] = {}
    pending: set[str] = set()  # failed loads of transactions that have not finished
    for event in events:
        if event.number < begin:
            continue
        if failed := _matches(_FAILED, event, "ERROR"):
            # A stack trace can follow; its first line is the cause.
            following = log[event.number + 1].strip() if event.number + 1 < len(log) else ""
            cause = following if is_throwable(following) else ""
            doubt = "" if event.is_certain else "(a text of a client with a line break can have written this line)"
            errors[failed] = " ".join(filter(None, (event.message.strip(), cause, doubt)))[:_MOST_OF_A_LINE]
            if failed.startswith(TRANSACTIONS_TOPIC):
                pending.add(failed)
        elif event.is_certain and (finished := _matches(_FINISHED, event, "INFO")):
            if finished in pending:
                pending.discard(finished)
            else:
                errors.pop(finished, None)
    return errors


def _matches(expressions: Mapping[str, re.Pattern[str]], event: LogEvent, level: str) -> str:
    """Return the partition of a message that its own class logged; empty for another message."""
    expression = expressions.get(event.class_name)
    found = expression.fullmatch(event.message) if expression is not None and event.level == level else None
    return found["partition"] if found else ""


def coordinators_condition(
    partitions: Sequence[PartitionState],
    node_id: int,
    answers: CoordinatorAnswers,
    before: BeforeStop | None,
    log: Sequence[str],
) -> Condition:
    """Return the condition that the node has loaded what it leads, and serves the ids that it knew before its stop.

    `log`: the last lines of the node's log, which are needed if ids are gone or the node leads partitions of share
    groups. Ids that are gone without a load error in the log were deleted or expired, or the release ignores
    their records (KIP-915).
    """
    led = led_partitions(partitions, node_id)
    if not led:
        return Condition(name=CONDITION, is_met=True, evidence="leads no coordinator partition")
    # The log alone shows the state of share groups' partitions.
    answers_of = {p.name: answers.by_partition.get(p.name, "no answer") for p in led if p.topic != SHARE_TOPIC}
    open_ones = {name: answer for name, answer in answers_of.items() if answer not in _LOADED}
    errors = {name: error for name, error in find_load_errors(log).items() if name in {p.name for p in led}}
    if open_ones:
        shown = [f"{name} ({answer})" for name, answer in open_ones.items()]
        return _unmet(_not_loaded(open_ones, len(led), errors)).listing(shown)
    if answers.groups is None or answers.transactional_ids is None:
        return _unmet("the broker does not list its groups and transactional ids yet")
    missing = _missing(partitions, led, answers, before)
    gone = f"; {_gone(missing)}" if missing else ""
    if errors:
        return _unmet(f"the broker could not load {count(len(errors), 'partition')}: {_one_per_topic(errors)}{gone}")
    if (missing or len(answers_of) < len(led)) and not parse_events(log):
        why = "is in a layout that is not known" if log else "cannot be read"
        return _unmet(f"the node's log, which shows failed loads, {why}{gone}")
    loaded = Counter(p.topic for p in led)
    evidence = (
        f"{count(loaded[GROUPS_TOPIC], 'partition')} of groups with {count(len(answers.groups), 'group')}, "
        f"{count(loaded[TRANSACTIONS_TOPIC], 'partition')} of transactions with "
        f"{count(len(answers.transactional_ids), 'transactional id')}"
    )
    if gone:
        evidence += f"{gone}. Without a load error in its log: deleted, expired, or ignored by this release"
    return Condition(name=CONDITION, is_met=True, evidence=evidence)


def _unmet(evidence: str) -> Condition:
    return Condition(name=CONDITION, is_met=False, evidence=evidence)


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
    sizes = Counter(p.topic for p in partitions)
    names = {p.name for p in led}
    missing: dict[str, str] = {}
    for topic, known, listed in (
        (GROUPS_TOPIC, before.groups, answers.groups or frozenset()),
        (TRANSACTIONS_TOPIC, before.transactional_ids, answers.transactional_ids or frozenset()),
    ):
        for name in sorted(known - listed):
            partition = f"{topic}-{coordinator_partition(name, sizes[topic])}" if sizes[topic] else ""
            if partition in names:
                missing[name] = partition
    return missing


def _gone(missing: Mapping[str, str]) -> str:
    known = f"{count(len(missing), 'id')} of groups or transactions from before the stop"
    return f"{known} {'is' if len(missing) == 1 else 'are'} gone: {few(missing)}"
