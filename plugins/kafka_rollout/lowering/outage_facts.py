"""What an approval shows of an outage and of each undo, and the measured outage of an offline downgrade.

The measured outage is observed, recorded once, and read from the run history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import from_json
from kafka_rollout.base.time_limits import WITHOUT_QUORUM_S
from kafka_rollout.control.approval import OUTAGE_FACTS, shown_once
from kafka_rollout.metadata_log.log_choice import describe_no_return
from kafka_rollout.metadata_log.outage import (
    UNAVAILABLE,
    AbsenceEstimate,
    OutageEstimate,
    absence_estimate,
    expected,
    outage_estimate,
)
from kafka_rollout.model.plan import FeatureChange, Lowering, Undo
from kafka_rollout.model.run_of import ROLLBACK, SIGNED
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.model.unclean_elections import ENABLE
from kafka_rollout.observation.cluster_ports import ReadPorts, observe
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.planning.lowering import LevelUndo, level_undo
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.run.view import RunView


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
    return outage_estimate(ports.cluster, sizes, replicas, forced_after_s=WITHOUT_QUORUM_S)


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


def offline_facts(run: ReadRun, estimated: OutageEstimate) -> tuple[str, ...]:
    """Return the facts for the approval, true at any time of the run."""
    return (
        estimated.sentence,
        describe_no_return(run.cluster),
        "Before anything is replaced, every node's metadata log, quorum-state and bootstrap.checkpoint are copied to "
        "__cluster_metadata-0/kafka-rollout-install-<snapshot> in its metadata.log.dir. Remove that folder when you no "
        "longer need the old release.",
        "A controller can hang in its shutdown when the other controllers are stopped. After "
        f"{WITHOUT_QUORUM_S:.0f} s the run kills its process. The outage grows by this time and by the log recovery at "
        "the next start.",
        *_order(run.cluster),
        f"Undo command: kafka-rollout {ROLLBACK} --cluster {run.plan.cluster} --run {run.ports.run.number} {SIGNED}",
    )


def _order(cluster: ClusterSpec) -> Iterable[str]:
    """Yield what remains of unclean leader elections (metadata_log/start_order.py)."""
    if len(cluster.brokers_alone) > 1:
        yield (
            f"The broker that stops last has records that the others lack. For topics with {ENABLE}=true the run "
            "starts it first, also in the undo, and the others of its partitions wait until it serves. This can add "
            "the start of a broker, and its commands after it, to the outage for each of the "
            f"{len(cluster.brokers_alone)} brokers. If it does not return, the run does not start the others. A broker "
            "that something else starts before its turn can lose these records."
        )


def shown_facts(run: Run) -> Sequence[str]:
    """Return the facts as the approval shows them."""

    def compute() -> dict[str, Any]:
        estimated = estimate_outage(run.ports)
        return {
            "lines": list(offline_facts(run, estimated)),
            "outage_s": round(estimated.total_s, 1),
            "outage_at_most_s": round(estimated.longest_s, 1),
        }

    return tuple(shown_once(run, OUTAGE_FACTS, compute)["lines"])


FACTS = "live/facts.json"


def estimate_absence(ports: ReadPorts) -> AbsenceEstimate:
    """Estimate the time without an active controller from the controllers' metadata logs."""
    return absence_estimate(ports.cluster, log_sizes(ports, ports.cluster.controllers))


def live_facts(run: ReadRun) -> Sequence[str]:
    """Compute the facts from the current state of the controllers."""
    change = next(c for c in run.plan.snapshot_changes if c.feature == METADATA_VERSION)
    return (
        estimate_absence(run.ports).sentence,
        *UNAVAILABLE,
        "The controllers are killed (SIGKILL): in an ordinary stop, the active one waits for a new leader, which the "
        "stopped controllers cannot elect. Every committed record is on the disks of a majority.",
        "If this fails before the controllers have a leader at the new level, the run starts them on their old logs.",
        f"After that, kafka_features can raise metadata.version to {change.current} again while every node runs "
        f"{run.plan.source}. Lost metadata is not restored.",
        "Each controller's metadata log and bootstrap.checkpoint are copied to "
        "__cluster_metadata-0/kafka-rollout-install-<snapshot> in its metadata.log.dir first. Remove that folder when "
        "you no longer need it.",
    )


def shown_live_facts(run: Run) -> Sequence[str]:
    """Return the facts as the approval shows them."""
    return tuple(shown_once(run, FACTS, lambda: {"lines": list(live_facts(run))})["lines"])


UNDOS = "live/level_undos.json"


def shown_level_undos(run: Run, changes: Iterable[FeatureChange]) -> tuple[LevelUndo, ...]:
    """Return the methods as the approval shows them. `changes`: of the plan, with the controller's own answers."""

    def compute() -> dict[str, Any]:
        state = observe(run.ports)
        undos = (level_undo(run.cluster, run.ports.catalogue, state, run.plan, change) for change in changes)
        return {"undos": [asdict(_with_time(run, undo)) for undo in undos]}

    kept = shown_once(run, UNDOS, compute)["undos"]
    return tuple(from_json(LevelUndo, one) for one in kept)


def _with_time(run: ReadRun, undo: LevelUndo) -> LevelUndo:
    if undo.lowering not in {Lowering.LIVE, Lowering.OFFLINE}:
        return undo
    if not log_sizes(run.ports, run.cluster.controllers):
        why = "The run can read no controller's metadata log, so it cannot write a snapshot at the lower level."
        return replace(undo, undo=Undo.UNKNOWN, lowering=None, reason=why)
    estimate = estimate_absence(run.ports) if undo.lowering is Lowering.LIVE else estimate_outage(run.ports)
    return replace(undo, reason=f"{undo.reason} {estimate.sentence}")
