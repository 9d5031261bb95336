"""Facts for the approval of an offline downgrade: the outage, the point of no return, the backups, a forced stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.plan import Plan
from kafka_rollout.domain.offline.log_choice import describe_no_return
from kafka_rollout.domain.offline.outage import OutageEstimate, outage_estimate
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.directories import metadata_directory
from kafka_rollout.steps.offline.actions import WITHOUT_QUORUM_S

FACTS = "offline/facts.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineFacts:
    """Sentences for the approval, true at any time of the run. `backups`: a path on every node's host."""

    outage: OutageEstimate
    no_return: str
    backups: str
    forced: str
    undo: str

    @property
    def lines(self) -> tuple[str, ...]:
        return (self.outage.sentence, self.no_return, self.backups, self.forced, self.undo)


def offline_facts(ports: ClusterPorts, plan: Plan) -> OfflineFacts:
    """Compute the facts from the current metadata logs and the replicas of the cluster."""
    sizes = []
    for node in ports.cluster.nodes:
        try:
            sizes.append(ports.metadata_logs.log_bytes(metadata_directory(ports, node), cluster_id=plan.cluster_id))
        except UserError:
            continue  # a node without a readable log; the choice of the log reports it
    replicas = sum(len(partition.replicas) for partition in ports.admin.partitions())
    return OfflineFacts(
        outage=outage_estimate(len(ports.cluster.nodes), sizes, replicas, forced_after_s=WITHOUT_QUORUM_S),
        no_return=describe_no_return(ports.cluster),
        backups="Before anything is replaced, every node's metadata log, quorum-state and bootstrap.checkpoint "
        "are copied to __cluster_metadata-0/kafka-rollout-install-<snapshot> in its metadata.log.dir. "
        "Remove that folder when you no longer need the old release.",
        forced="A controller can hang in its shutdown when the other controllers are stopped. After "
        f"{WITHOUT_QUORUM_S:.0f} s the run kills its process. The outage grows by this time and by the "
        "log recovery at the next start.",
        undo=f"Undo command: kafka-rollout roll-back --cluster {plan.cluster} --run {ports.run_id} "
        "--approve-as <name> --reason <text>",
    )


def shown_facts(ports: ClusterPorts, plan: Plan) -> Sequence[str]:
    """Return the facts as the approval shows them.

    They are computed once, so that a repeated request has the same text.
    """
    kept = ports.run.attachment(FACTS)
    if kept is None or kept["plan"] != plan.hash:
        facts = offline_facts(ports, plan)
        kept = {
            "plan": plan.hash,
            "lines": list(facts.lines),
            "outage_s": round(facts.outage.total_s, 1),
            "outage_at_most_s": round(facts.outage.longest_s, 1),
        }
        ports.run.attach(FACTS, kept)
    return tuple(kept["lines"])


def expected_outage_s(ports: ClusterPorts) -> tuple[float, float] | None:
    """Return the seconds shown in the approval: if every controller stops by itself, and if one must be killed."""
    kept = ports.run.attachment(FACTS)
    return None if kept is None else (kept["outage_s"], kept["outage_at_most_s"])
