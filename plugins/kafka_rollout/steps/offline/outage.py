"""What an approval shows of an outage and of each undo, and the measured outage of an offline downgrade.

The measured outage is observed, recorded once, and read from the run history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.time_limits import WITHOUT_QUORUM_S
from kafka_rollout.metadata_log.log_choice import describe_no_return
from kafka_rollout.metadata_log.outage import (
    UNAVAILABLE,
    AbsenceEstimate,
    OutageEstimate,
    absence_estimate,
    expected,
    not_serving,
    outage_estimate,
    unwritable,
)
from kafka_rollout.model.plan import FeatureChange, Lowering, Plan, Undo
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.lowering import LevelUndo, level_undo
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.report.run_report import MeasuredOutage, OutageReport
from kafka_rollout.run.projections.offline import unwritable_before
from kafka_rollout.run.step_events import OfflineServed, OfflineWritable
from kafka_rollout.run.view import RunView
from kafka_rollout.steps.common.approval import OUTAGE_FACTS, shown_once
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, ReadPorts, observe, observe_some, until


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


def outage_report(view: RunView, expected_s: tuple[float, float] | None) -> OutageReport:
    """Return the outages for the report. `expected_s`: seconds if no controller is killed, and if one is."""
    total_s, longest_s = expected_s or (None, None)
    return OutageReport(
        expected_s=total_s,
        expected_at_most_s=longest_s,
        expected=None if expected_s is None else expected(*expected_s),
        measured=tuple(MeasuredOutage.of(one) for one in view.outages),
    )


def outage_sentence(view: RunView, expected_s: tuple[float, float] | None) -> str:
    """Return the last outage next to the approved estimate; empty before the first stop."""
    seen = view.outages
    if not seen:
        return ""
    approved = "" if expected_s is None else f" The approval showed {expected(*expected_s)}."
    return f"{seen[-1].sentence}{approved}"


def estimate_outage(ports: ReadPorts) -> OutageEstimate:
    """Estimate the outage of an offline downgrade from the metadata logs and the replicas of the cluster."""
    replicas = sum(len(partition.replicas) for partition in ports.admin.partitions())
    sizes = log_sizes(ports, ports.cluster.nodes)
    return outage_estimate(len(ports.cluster.nodes), sizes, replicas, forced_after_s=WITHOUT_QUORUM_S)


def log_sizes(ports: ReadPorts, nodes: Sequence[NodeSpec]) -> list[int]:
    """Return the bytes of each node's metadata log. A node without a readable log is left out.

    The choice of the log reports such a node.
    """
    sizes = []
    for node in nodes:
        if ports.runtime.metadata_log_dir(node) is None:
            continue
        try:
            sizes.append(ports.metadata_logs.log_bytes(node))
        except UserError:
            continue
    return sizes


def offline_facts(ports: ReadPorts, plan: Plan, estimated: OutageEstimate) -> tuple[str, ...]:
    """Return the facts for the approval, true at any time of the run."""
    return (
        estimated.sentence,
        describe_no_return(ports.cluster),
        "Before anything is replaced, every node's metadata log, quorum-state and bootstrap.checkpoint are copied to "
        "__cluster_metadata-0/kafka-rollout-install-<snapshot> in its metadata.log.dir. Remove that folder when you no "
        "longer need the old release.",
        "A controller can hang in its shutdown when the other controllers are stopped. After "
        f"{WITHOUT_QUORUM_S:.0f} s the run kills its process. The outage grows by this time and by the log recovery at "
        "the next start.",
        f"Undo command: kafka-rollout rollback --cluster {plan.cluster} --run {ports.run_id} --as <name> "
        "--reason <text>",
    )


def shown_facts(ports: ClusterPorts, plan: Plan) -> Sequence[str]:
    """Return the facts as the approval shows them."""

    def compute() -> dict[str, Any]:
        estimated = estimate_outage(ports)
        return {
            "lines": list(offline_facts(ports, plan, estimated)),
            "outage_s": round(estimated.total_s, 1),
            "outage_at_most_s": round(estimated.longest_s, 1),
        }

    return tuple(shown_once(ports, plan, OUTAGE_FACTS, compute)["lines"])


FACTS = "live/facts.json"


def estimate_absence(ports: ReadPorts) -> AbsenceEstimate:
    """Estimate the time without an active controller from the controllers' metadata logs."""
    return absence_estimate(log_sizes(ports, ports.cluster.controllers))


def live_facts(ports: ReadPorts, plan: Plan) -> Sequence[str]:
    """Compute the facts from the current state of the controllers."""
    change = next(c for c in plan.snapshot_changes if c.feature == METADATA_VERSION)
    return (
        estimate_absence(ports).sentence,
        *UNAVAILABLE,
        "The controllers are killed (SIGKILL): in an ordinary stop, the active one waits for a new leader, which the "
        "stopped controllers cannot elect. Every committed record is on the disks of a majority.",
        "If this fails before the controllers have a leader at the new level, the run starts them on their old logs.",
        f"After that, kafka_features can raise metadata.version to {change.current} again while every node runs "
        f"{plan.source}. Lost metadata is not restored.",
        "Each controller's metadata log and bootstrap.checkpoint are copied to "
        "__cluster_metadata-0/kafka-rollout-install-<snapshot> in its metadata.log.dir first. Remove that folder when "
        "you no longer need it.",
    )


def shown_live_facts(ports: ClusterPorts, plan: Plan) -> Sequence[str]:
    """Return the facts as the approval shows them."""
    return tuple(shown_once(ports, plan, FACTS, lambda: {"lines": list(live_facts(ports, plan))})["lines"])


UNDOS = "live/level_undos.json"


def shown_level_undos(ports: ClusterPorts, plan: Plan, changes: Iterable[FeatureChange]) -> tuple[LevelUndo, ...]:
    """Return the methods as the approval shows them. `changes`: of the plan, with the controller's own answers."""

    def compute() -> dict[str, Any]:
        state = observe(ports)
        undos = (level_undo(ports.cluster, ports.catalogue, state, plan, change) for change in changes)
        return {"undos": [asdict(_with_time(ports, plan, undo)) for undo in undos]}

    kept = shown_once(ports, plan, UNDOS, compute)["undos"]
    return tuple(from_json(LevelUndo, one) for one in kept)


def _with_time(ports: ReadPorts, plan: Plan, undo: LevelUndo) -> LevelUndo:
    if undo.lowering not in {Lowering.LIVE, Lowering.OFFLINE}:
        return undo
    if not log_sizes(ports, ports.cluster.controllers):
        why = "The run can read no controller's metadata log, so it cannot write a snapshot at the lower level."
        return replace(undo, undo=Undo.UNKNOWN, lowering=None, reason=why)
    estimate = estimate_absence(ports) if undo.lowering is Lowering.LIVE else estimate_outage(ports)
    return replace(undo, reason=f"{undo.reason} {estimate.sentence}")
