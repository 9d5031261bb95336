"""The measured outage of an offline downgrade: observed, recorded once, and read from the run history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_rollout.domain.model.errors import TransientError
from kafka_rollout.domain.offline.outage import expected, not_serving, unwritable
from kafka_rollout.domain.run.events import Event
from kafka_rollout.domain.run.offline_events import OfflineServed, OfflineWritable
from kafka_rollout.domain.run.projections.offline import outages, unwritable_before
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe_some
from kafka_rollout.steps.common.until import until


def check_service(ports: ClusterPorts, unserved_at: float = 0.0) -> bool:
    """Return whether all service that can return without an operator is back.

    A node without a process, and partitions that need it, do not count. The first return of each part is recorded.
    `unserved_at`: the last time at which this caller saw that something was missing.
    """
    events = ports.run.events()
    seen = outages(events)
    if not seen or seen[-1].served_at is not None:
        return True
    try:
        state = observe_some(ports, ports.cluster.brokers, metrics=False)
    except TransientError:
        return False  # no broker responds
    blocked, away = unwritable(state, unwritable_before(events)), not_serving(ports.cluster, state)
    if not blocked and seen[-1].writable_at is None:
        ports.run.record(OfflineWritable(sentence="Every partition has a leader and its min ISR again."))
    if not blocked and not away:
        ports.run.record(OfflineServed(unserved_at=unserved_at, sentence="Every broker serves requests again."))
    return (not blocked or bool(away)) and all(state.nodes[node_id].process.pid is None for node_id in away)


def watch_service(ports: ClusterPorts, for_s: float, unserved_at: float = 0.0) -> None:
    """Check until the cluster serves again, for at most `for_s` seconds; later the gates' checks record it.

    `unserved_at`: the last time at which the caller saw that it did not serve.
    """

    def check() -> bool:
        nonlocal unserved_at
        checked_at = ports.clock.now()
        serves = check_service(ports, unserved_at)
        unserved_at = checked_at
        return serves

    until(ports.clock, check, bool, for_s=for_s)


def outage_report(events: Sequence[Event], expected_s: tuple[float, float] | None) -> dict[str, Any]:
    """Return the outages for the report, in seconds. `expected_s`: if no controller is killed, and if one is."""
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
    """Return the last outage next to the approved estimate; empty before the first stop."""
    seen = outages(events)
    if not seen:
        return ""
    approved = "" if expected_s is None else f" The approval showed {expected(*expected_s)}."
    return f"{seen[-1].sentence}{approved}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
