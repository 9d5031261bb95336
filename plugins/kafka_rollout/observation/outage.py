"""What a downgrade has stopped, and whether the cluster serves again; the first return of each part is recorded."""

from __future__ import annotations

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.metadata_log.outage import (
    not_serving,
    unwritable,
)
from kafka_rollout.observation.cluster_ports import (
    ClusterPorts,
    ReadPorts,
    observe_some,
    until,
)
from kafka_rollout.observation.each_node import on_each
from kafka_rollout.run.projections import offline as projections
from kafka_rollout.run.projections.offline import unwritable_before
from kafka_rollout.run.step_events import (
    OfflineServed,
    OfflineWritable,
)
from kafka_rollout.run.view import RunView


def nothing_was_stopped(ports: ReadPorts) -> bool:
    """Return whether this try of a live downgrade has stopped no controller yet, also if it was killed right before.

    Then the gate is checked again, because the state of the cluster can have changed since.
    """
    events = ports.run.events()
    if not projections.stop_has_begun(events):
        return True
    if projections.chosen_log(events) is not None:
        return False
    running = on_each(lambda node: ports.runtime.process(node).pid is not None, ports.cluster.controllers)
    return not running.failed and all(running.done.values())


def check_service(ports: ClusterPorts, unserved_at: float = 0.0) -> bool:
    """Return whether all service that can return without an operator is back.

    A node without a process, and partitions that need it, do not count. The first return of each part is recorded.
    `unserved_at`: the last time at which this caller saw that something was missing.
    """
    events = ports.run.events()
    seen = RunView.of(events).outages
    if not seen or seen[-1].served_at is not None:
        return True
    try:
        state = observe_some(ports, ports.cluster.brokers, metrics=False)
    except RolloutError:
        return False  # no broker responds, or those that were just started refuse the user of this tool
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
