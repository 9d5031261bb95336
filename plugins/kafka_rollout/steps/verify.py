"""Verify that every node reports the same levels and metadata.version and that there are no findings. Read-only."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.base.findings import Verdict, all_findings
from kafka_rollout.gates import cluster as cluster_gates
from kafka_rollout.gates.check import GateCheck
from kafka_rollout.planning.findings.cluster import check_cluster
from kafka_rollout.releases.facts import METADATA_VERSION
from kafka_rollout.steps.common.cluster_ports import ClusterPorts, observe


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One check of the whole cluster, outside a run."""

    finalized: GateCheck
    metadata_version: GateCheck
    verdict: Verdict

    @property
    def ok(self) -> bool:
        return self.finalized.passes and self.metadata_version.passes and self.verdict.ok


def verify(ports: ClusterPorts) -> Verification:
    """Compare every node's response with the finalized levels of the highest epoch, and return the findings."""
    state = observe(ports)
    levels = state.finalized
    return Verification(
        finalized=cluster_gates.check_finalized(ports.cluster, state, levels),
        metadata_version=cluster_gates.check_metadata_version(
            ports.cluster, ports.catalogue, state, levels.get(METADATA_VERSION, 0)
        ),
        verdict=Verdict(
            question=f"Can the nodes of {ports.cluster.name} be restarted one by one?",
            findings=all_findings(check_cluster(ports.cluster, ports.catalogue, state)),
        ),
    )
