"""How long an offline downgrade's outage really was: seen, recorded once, and read from the run's record afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_rollout.domain.model.errors import TransientError
from kafka_rollout.domain.offline.outage import expected, not_serving, unwritable
from kafka_rollout.domain.run.events import Event
from kafka_rollout.domain.run.offline_events import OfflineServed, OfflineWritable
from kafka_rollout.domain.run.projections.offline import outages, unwritable_before
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.observe import observe_some

_POLL_S = 0.5


def look_for_service(ports: ClusterPorts, unserved_at: float = 0.0) -> bool:
    """Whether nothing is left of the outage that is worth waiting for: a node without a process comes back when a
    person brings it back, and partitions that need it with it.

    What is back for the first time is recorded. `unserved_at`: when this caller last saw that something was not.
    """
    events = ports.run.events()
    seen = outages(events)
    if not seen or seen[-1].served_at is not None:
        return True
    try:
        state = observe_some(ports, ports.cluster.brokers, metrics=False)
    except TransientError:
        return False  # no broker answers
    blocked, away = unwritable(state, unwritable_before(events)), not_serving(ports.cluster, state)
    if not blocked and seen[-1].writable_at is None:
        ports.run.record(OfflineWritable(sentence="Every partition has a leader and its min ISR again."))
    if not blocked and not away:
        ports.run.record(OfflineServed(unserved_at=unserved_at, sentence="Every broker serves again."))
    return (not blocked or bool(away)) and all(state.nodes[node_id].process.pid is None for node_id in away)


def watch_service(ports: ClusterPorts, for_s: float, unserved_at: float = 0.0) -> None:
    """Look until the cluster serves again, for so long at most; what is not back then is seen by the gates' looks.
    `unserved_at`: when the caller last saw that it could not serve."""
    deadline = ports.clock.monotonic() + for_s
    while True:
        looked_at = ports.clock.now()
        if look_for_service(ports, unserved_at) or ports.clock.monotonic() >= deadline:
            return
        unserved_at = looked_at
        ports.clock.sleep(_POLL_S)


def outage_report(events: Sequence[Event], expected_s: tuple[float, float] | None) -> dict[str, Any]:
    """For the run's report: seconds, each outage of the run for itself. `expected_s`: with no controller that has to
    be ended, and with one."""
    return {
        "expected_s": None if expected_s is None else expected_s[0],
        "expected_at_most_s": None if expected_s is None else expected_s[1],
        "expected": None if expected_s is None else expected(*expected_s),
        "measured": [
            {
                "began_at": one.began_at,
                "served_at": one.served_at,
                "seconds": _rounded(one.seconds),
                "seconds_at_least": _rounded(one.seconds_at_least),
                "writable_s": _rounded(one.writable_s),
                "sentence": one.sentence,
            }
            for one in outages(events)
        ],
    }


def outage_sentence(events: Sequence[Event], expected_s: tuple[float, float] | None) -> str:
    """The last outage beside what the approval had said; empty before the first stop."""
    seen = outages(events)
    if not seen:
        return ""
    approved = "" if expected_s is None else f" The approval had said {expected(*expected_s)}."
    return f"{seen[-1].sentence}{approved}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
