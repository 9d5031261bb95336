"""Why a gate does not pass, as one text: for the terminal, the status, the pages, the report and the notifications.

The cause comes first and alone: of a node that does not start, the line that its own log has between the start and the
exit. A condition that needs another one of the same node, and is unmet with it, is counted and not listed. Objects with
the same reason are named once. No other module makes a text of an unmet condition (a test of the architecture).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kafka_rollout.base.wording import few, without_counts

PROCESS = "process"  # names of conditions of a node
ANSWERS = "answers"
RELEASE = "release"
NEXT_START = "next start"
NEW_PROCESS = "new process"
QUORUM = "quorum"
UNFENCED, IN_ISRS, LEADS = "unfenced", "in every ISR it was in", "leadership back"
NO_ERRORS, DIRECTORIES = "no metadata errors", "all log directories are online"
OTHERS_UP = "all other nodes are up"  # names of conditions of the cluster
CAUGHT_UP = "every broker is caught up"
QUORUM_WITHOUT, ALL_SERVED = "quorum without it", "every partition is served"
SPARE_REPLICA, SPARE_ISR, SPARE_OF_BATCH = (
    "another in-sync replica",
    "min ISR without it",
    "one more than min ISR without the batch",
)

_SERVES = (PROCESS, ANSWERS)
_NEEDS: Mapping[str, Sequence[str]] = {
    ANSWERS: (PROCESS,),
    RELEASE: _SERVES,
    NEXT_START: (PROCESS,),
    NEW_PROCESS: (PROCESS,),
    QUORUM: _SERVES,
    NO_ERRORS: _SERVES,
    DIRECTORIES: _SERVES,
    UNFENCED: (*_SERVES, QUORUM),
    IN_ISRS: (*_SERVES, QUORUM, UNFENCED),
    LEADS: (*_SERVES, QUORUM, UNFENCED, IN_ISRS),
    **dict.fromkeys((CAUGHT_UP, QUORUM_WITHOUT, ALL_SERVED, SPARE_REPLICA, SPARE_ISR, SPARE_OF_BATCH), (OTHERS_UP,)),
}
"""ExplainedCondition → those without which it cannot be met."""
_CAUSES = 3  # that are listed


class ExplainedCondition(Protocol):
    """What a reason needs of a condition of a gate (`gates/gate.py`)."""

    @property
    def name(self) -> str: ...
    @property
    def is_met(self) -> bool: ...
    @property
    def evidence(self) -> str: ...
    @property
    def log(self) -> str: ...
    @property
    def is_lasting(self) -> bool: ...


def find_causes(conditions: Iterable[ExplainedCondition]) -> tuple[ExplainedCondition, ...]:
    """Return the unmet conditions that need no other unmet one; those that a log explains first.

    A condition that lasts until somebody acts, and one that the node's own log explains, is a cause of its own.
    """
    unmet = [one for one in conditions if not one.is_met]
    names = {one.name for one in unmet}
    explained = {name for one in unmet if one.log for name in _NEEDS.get(one.name, ())}

    def is_cause(one: ExplainedCondition) -> bool:
        return names.isdisjoint(_NEEDS.get(one.name, ())) and one.name not in explained

    return tuple(
        sorted((one for one in unmet if one.log or one.is_lasting or is_cause(one)), key=lambda one: not one.log)
    )


def describe(condition: ExplainedCondition) -> str:
    """Return the evidence of a condition; the line of the node's own log first."""
    return f"its log shows: {condition.log} ({condition.evidence})" if condition.log else condition.evidence


def reason_of(conditions: Iterable[ExplainedCondition]) -> str:
    """Return why the conditions are not met, without a full stop; empty if all are met."""
    unmet = [one for one in conditions if not one.is_met]
    causes = find_causes(unmet)
    alike: dict[str, list[str]] = {}
    for one in causes:
        alike.setdefault(describe(one), []).append(one.name)
    texts = [f"{', '.join(names)}: {text}" for text, names in alike.items()]
    shown = "; ".join([*texts[:_CAUSES], *([f"and {len(texts) - _CAUSES} more"] if len(texts) > _CAUSES else [])])
    if not (left := len(unmet) - len(causes)):
        return shown
    those = "it" if len(causes) == 1 else "them"
    return f"{shown}; {left} more {'condition needs' if left == 1 else 'conditions need'} {those}"


def name_once(reasons: Iterable[tuple[str, str]]) -> str:
    """Return reasons with their subjects: those that differ in numbers only are printed once.

    `reasons`: (subject, reason).
    """
    alike: dict[str, tuple[list[str], str]] = {}
    for subject, reason in reasons:
        alike.setdefault(without_counts(f": {reason}"), ([], reason))[0].append(subject)
    return "; ".join(f"{few(subjects)} {reason}" for subjects, reason in alike.values())
