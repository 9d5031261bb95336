"""One DAG per cluster of the inventory: upgrades the cluster. Text, form and procedure."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from kafka_rollout.airflow.common.dag_ids import DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import (
    GATES,
    approval_fields,
    choice,
    dags_of_procedure,
    dry_run_field,
    node_gate_fields,
    release_field,
    traffic_field,
)
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.planning.request import FinalizePolicy
from kafka_rollout.settings import Settings
from kafka_rollout.steps.procedures.upgrade import UPGRADE

DOC = """\
### Upgrade of the Kafka cluster {name}

1. Reads the state of the cluster, and plans the release steps to the target release.
2. Asks for an approval of the plan.
3. Replaces one node at a time. The next node is stopped after the gate of the previous node has passed. If a gate
   fails, an approver chooses: keep checking, retry, or roll back.
4. Finalizes the features after a separate approval. This is the point of no return.

A **dry run** ends with the plan and its findings. With the finalize policy *later*, the run ends when every node runs
the target release. Start the DAG again after the soak: that run replaces no node and finalizes the features.
"""


def upgrade_params(cluster: ClusterSpec, releases: list[str]) -> dict[str, Param]:
    """Return the fields of the form."""
    policies = {
        FinalizePolicy.LATER.form_value: "later, in another run after the soak",
        FinalizePolicy.AFTER_APPROVAL.form_value: "in this run, after an approval",
    }
    return {
        **release_field(releases, releases[-1] if releases else "", "Release that all nodes run after the upgrade."),
        "finalize": choice(policies, title="Finalize features", description="Finalizing is the point of no return."),
        **dry_run_field(),
        **node_gate_fields(),
        "snapshot_interval_seconds": Param(
            None,
            type=["null", "integer"],
            minimum=5,
            maximum=3600,
            title="Snapshot interval (seconds)",
            description="Lowers metadata.log.max.snapshot.interval.ms when each node restarts on the target release, "
            "so that Kafka writes a snapshot soon after finalizing. The value stays until the configuration of a later "
            "rolling change resets it. Empty: the nodes keep their own interval.",
            section=GATES,
        ),
        **traffic_field(),
        **approval_fields(cluster),
    }


def upgrade_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return dags_of_procedure(
        settings,
        UPGRADE,
        DAG_PREFIX,
        upgrade_params,
        tag="upgrade",
        description="Upgrades the Kafka cluster {name}, one node at a time. Each step waits for its gate.",
        doc=DOC,
    )
