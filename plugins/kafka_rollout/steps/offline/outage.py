"""How long an offline downgrade's outage really was: seen, recorded once, and read from the run's record afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kafka_rollout.domain.model.errors import TransientError
from kafka_rollout.domain.offline.outage import Outage, expected, not_serving, unwritable
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.observe import observe_some
from kafka_rollout.steps.offline.record import SERVED, STOPPING, WRITABLE

_POLL_S = 0.5


def outages(ports: ClusterPorts) -> tuple[Outage, ...]:
    """In their order; more than one where a run was taken back and went down again."""
    found: list[Outage] = []
    for event in ports.run.events():
        if "at" not in event:
            continue  # a line that a kill tore
        kind, at = event.get("kind"), float(event["at"])
        if kind == "stopping" and (not found or found[-1].served_at is not None):
            found.append(Outage(began_at=at, unserved_at=at))
        elif not found or found[-1].served_at is not None:
            continue
        elif kind in {"stopping", "started"}:
            found[-1] = replace(found[-1], unserved_at=at)
        elif kind == WRITABLE:
            found[-1] = replace(found[-1], writable_at=at)
        elif kind == SERVED:
            found[-1] = replace(found[-1], served_at=at, unserved_at=max(found[-1].unserved_at, event["unserved_at"]))
    return tuple(found)


def look_for_service(ports: ClusterPorts, unserved_at: float = 0.0) -> bool:
    """Whether nothing is left of the outage that is worth waiting for: a node without a process comes back when a
    person brings it back, and partitions that need it with it.

    What is back for the first time is recorded. `unserved_at`: when this caller last saw that something was not.
    """
    told = outages(ports)
    if not told or told[-1].served_at is not None:
        return True
    try:
        state = observe_some(ports, ports.cluster.brokers, metrics=False)
    except TransientError:
        return False  # no broker answers
    before = [event.get("unwritable", ()) for event in ports.run.events() if event.get("kind") == STOPPING]
    blocked, away = unwritable(state, before[-1] if before else ()), not_serving(ports.cluster, state)
    if not blocked and told[-1].writable_at is None:
        ports.run.record(WRITABLE, {"sentence": "Every partition has a leader and its min ISR again."})
    if not blocked and not away:
        ports.run.record(SERVED, {"unserved_at": unserved_at, "sentence": "Every broker serves again."})
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


def outage_report(ports: ClusterPorts, expected_s: tuple[float, float] | None) -> dict[str, Any]:
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
            for one in outages(ports)
        ],
    }


def outage_sentence(ports: ClusterPorts, expected_s: tuple[float, float] | None) -> str:
    """The last outage beside what the approval had said; empty before the first stop."""
    told = outages(ports)
    if not told:
        return ""
    approved = "" if expected_s is None else f" The approval had said {expected(*expected_s)}."
    return f"{told[-1].sentence}{approved}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
