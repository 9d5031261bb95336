"""One DAG per cluster of the inventory: downgrades the cluster. Text, form and procedure."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from kafka_rollout.airflow.common.dag_ids import DOWNGRADE_DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import (
    approval_fields,
    choice,
    dags_of_procedure,
    downgrade_type_field,
    dry_run_field,
    node_gate_fields,
    release_field,
    traffic_field,
)
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.planning.downgrade import WhereRefused
from kafka_rollout.settings import Settings
from kafka_rollout.steps.procedures.downgrade import DOWNGRADE

DOC = """\
### Downgrade of the Kafka cluster {name}

1. Checks whether the older release can read the coordinator logs and the metadata log.
2. Reports the losses of a lower metadata.version, and asks for an approval.
3. Lowers the feature levels, metadata.version last. Waits until every node reports the levels and has a snapshot.
4. Asks for an approval of the rolling downgrade.
5. Replaces one node at a time: brokers first, then controllers, the active controller last.

A **dry run** ends with the plan, the scans and the loss report. **SAFE** refuses to continue if data would be lost.
**UNSAFE** lists the losses and continues. If Kafka refuses a lower metadata.version, the run **stops**, or continues
**offline**: it stops all nodes, after an approval that shows the expected outage.
"""


def downgrade_params(cluster: ClusterSpec, releases: list[str]) -> dict[str, Param]:
    """Return the fields of the form. The target release has no default: it must be chosen."""
    reactions = {
        WhereRefused.STOP.value: "stop before any change",
        WhereRefused.OFFLINE.value: "continue offline: stop all nodes, after an approval",
    }
    return {
        **release_field(releases, None, "Older release that all nodes run after the downgrade."),
        "target_level": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Target metadata.version",
            description="Level as a number, for example 25 for 4.0-IV3. Empty: the highest level that the target "
            "release supports, but not above the current level.",
        ),
        **downgrade_type_field("As in KIP-1155. The loss report lists all losses before the run changes anything."),
        "where_refused": choice(
            reactions,
            title="Refusal by Kafka",
            description="Action if Kafka refuses the lower metadata.version. Kafka refuses it if a level in between "
            "changed the format of the metadata.",
        ),
        **dry_run_field(),
        **node_gate_fields(),
        **traffic_field(),
        **approval_fields(cluster),
    }


def downgrade_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return dags_of_procedure(
        settings,
        DOWNGRADE,
        DOWNGRADE_DAG_PREFIX,
        downgrade_params,
        tag="downgrade",
        description="Downgrades the Kafka cluster {name} to an older release. Each step waits for its gate.",
        doc=DOC,
    )
