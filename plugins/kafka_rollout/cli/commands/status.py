"""`kafka-rollout status`: what happens on a cluster now, for operators and machines."""

from __future__ import annotations

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName
from kafka_rollout.cli.status_screen import print_status
from kafka_rollout.clusters.inventory import get_cluster


def status(cluster: ClusterName, as_json: AsJson = False) -> None:
    """Show what happens on a cluster: phase, node, what the run waits for, and what an operator must do.

    Reads the run histories and the lock, not the cluster. With --json, docs/cluster-status.schema.json describes the
    result. The exit code is 0 in every phase.
    """
    from kafka_rollout.wiring.run_status import read_status

    settings = Settings.from_environment()
    found = read_status(get_cluster(cluster, settings).name, settings)
    if found is None:
        raise UserError(f"Cluster {cluster} has no status.")
    if as_json:
        show.print_json(found.to_json())
    else:
        print_status(found)
