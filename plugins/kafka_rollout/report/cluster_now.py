"""The state of a cluster now, as Kafka shows it: numbers with their lists, and the effect on clients.

Pure: the caller queries the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_rollout.base.wording import count
from kafka_rollout.model.caught_up import check_caught_up
from kafka_rollout.model.state import PartitionState, QuorumState, RegisteredNodes
from kafka_rollout.report.console import Trend, compare_numbers

_OBJECTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A number of objects, the first _OBJECTS of them, and how the number changes; None: it is unknown."""

    number: int | None
    objects: tuple[str, ...] = ()
    trend: Trend | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNow:
    """`observed_at`: epoch seconds. `counts`: name → objects; 0 is good. `controller`: id of the active one, None if
    there is none or it is unknown. `most_lag`: records between the leader of the quorum and the last node. `levels`:
    finalized feature → level. `clients`: the effect on clients, as a sentence; `serves`: there is none, None if it is
    unknown. `problems`: of queries without an answer.
    """

    observed_at: float
    counts: Mapping[str, Counted]
    partitions: int | None
    controller: int | None
    most_lag: int | None
    levels: Mapping[str, int]
    clients: str
    serves: bool | None
    problems: tuple[str, ...]


UNDER_REPLICATED = "under-replicated partitions"
OFFLINE = "offline partitions"
UNDER_MIN_ISR = "partitions under min ISR"
FENCED = "fenced brokers"
BEHIND = "nodes behind the metadata quorum"


def summarize(
    *,
    observed_at: float,
    partitions: Sequence[PartitionState] | None,
    quorum: QuorumState | None,
    registered: RegisteredNodes | None,
    levels: Mapping[str, int],
    problems: Sequence[str] = (),
    lists_all: bool = True,
) -> ClusterNow:
    """Return the state from the answers of the cluster; None: no answer.

    `lists_all`: `partitions` has all of the cluster. Without it, no number of them is 0 or a total.
    """
    offline = _names(partitions, lambda one: one.leader < 0)
    under = _names(partitions, lambda one: one.leader >= 0 and len(one.isr) < one.min_isr)
    fenced = None if registered is None or registered.fenced is None else registered.fenced
    leader = None if quorum is None or quorum.leader_id < 0 else quorum.leader_id
    replicas = [] if quorum is None else [one.replica_id for one in (*quorum.voters, *quorum.observers)]
    lags = [lag for one in replicas if quorum is not None and (lag := quorum.lag(one)) is not None]
    behind = None
    if quorum is not None:
        evidence = {one: check_caught_up(quorum, one) for one in dict.fromkeys(replicas)}
        behind = [f"node {one}: {why}" for one, (is_met, why) in evidence.items() if not is_met]
    known = lists_all and offline is not None and under is not None

    def counted(names: list[str] | None) -> Counted:
        return _counted(names if names or lists_all else None)

    return ClusterNow(
        observed_at=observed_at,
        counts={
            UNDER_REPLICATED: counted(_names(partitions, lambda one: len(one.isr) < len(one.replicas))),
            OFFLINE: counted(offline),
            UNDER_MIN_ISR: counted(under),
            FENCED: _counted(None if fenced is None else [f"broker {one}" for one in sorted(fenced)]),
            BEHIND: _counted(behind),
        },
        partitions=None if partitions is None or not lists_all else len(partitions),
        controller=leader,
        most_lag=max(lags, default=None),
        levels=levels,
        clients=_clients(offline, under, lists_all=lists_all),
        serves=False if offline or under else True if known else None,
        problems=tuple(problems),
    )


def with_trends(now: ClusterNow, earlier: Sequence[ClusterNow]) -> ClusterNow:
    """Return the state with the change of each number. `earlier`: observations, the oldest first."""
    counts = {}
    for name, counted in now.counts.items():
        numbers = [(one.observed_at, number) for one in earlier if (number := one.counts[name].number) is not None]
        trend = compare_numbers(numbers, now.observed_at, counted.number) if counted.number is not None else None
        counts[name] = replace(counted, trend=trend)
    return replace(now, counts=counts)


def _names(partitions: Sequence[PartitionState] | None, is_bad: Callable[[PartitionState], bool]) -> list[str] | None:
    return None if partitions is None else [one.name for one in partitions if is_bad(one)]


def _counted(objects: Collection[str] | None) -> Counted:
    return Counted(number=None) if objects is None else Counted(number=len(objects), objects=tuple(objects)[:_OBJECTS])


def _clients(offline: Collection[str] | None, under: Collection[str] | None, *, lists_all: bool) -> str:
    if offline is None or under is None:
        return "The effect on clients is unknown: the partitions could not be read."
    if offline:
        return f"Clients cannot read or write {count(len(offline), 'partition')} without a leader."
    if under:
        return f"Producers with acks=all cannot write {count(len(under), 'partition')} under min ISR."
    if not lists_all:
        return "The effect on clients is unknown: the brokers do not list every partition to the user of this page."
    return "No client is affected: every partition has a leader and its min ISR."
