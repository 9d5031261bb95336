"""The DAGs that change a cluster, one of each kind per cluster of the inventory: text, form and procedure."""

from __future__ import annotations

from airflow.sdk import DAG

from kafka_rollout.airflow.common.dag_ids import DAG_PREFIX, DOWNGRADE_DAG_PREFIX, FEATURES_DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import dags_of_procedure
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.model.plan import RunOf
from kafka_rollout.steps.procedures.downgrade import DOWNGRADE
from kafka_rollout.steps.procedures.features import FEATURES
from kafka_rollout.steps.procedures.upgrade import UPGRADE

UPGRADE_DOC = """\
### Upgrade of the Kafka cluster {name}

1. Reads the state of the cluster, and plans the release steps to the target release.
2. Asks for an approval of the plan.
3. Replaces one node at a time. The next node is stopped after the gate of the previous node has passed. If a gate
   fails, an approver chooses: keep checking, retry, or roll back.
4. Finalizes the features after a separate approval. This is the point of no return.

A **dry run** ends with the plan and its findings. With the finalize policy *later*, the run ends when every node runs
the target release. Start the DAG again after the soak: that run replaces no node and finalizes the features.
"""


def upgrade_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return dags_of_procedure(
        settings,
        UPGRADE,
        DAG_PREFIX,
        RunOf.UPGRADE,
        tag="upgrade",
        description="Upgrades the Kafka cluster {name}, one node at a time. Each step waits for its gate.",
        doc=UPGRADE_DOC,
    )


DOWNGRADE_DOC = """\
### Downgrade of the Kafka cluster {name}

1. Checks whether the older release can read the coordinator logs and the metadata log.
2. Reports the losses of a lower metadata.version, and asks for an approval.
3. Lowers the feature levels, metadata.version last. Waits until every node reports the levels and has a snapshot.
4. Asks for an approval of the rolling downgrade.
5. Replaces one node at a time: brokers first, then controllers, the active controller last.

A **dry run** ends with the plan, the scans and the loss report. **SAFE** refuses to continue if data would be lost.
**UNSAFE** lists the losses and continues. If Kafka refuses a lower metadata.version, the run **stops**, or continues
**live**: it stops only the controllers for some seconds. **Offline** allows it to stop all nodes where live is not
possible. The approval shows what is unavailable, and for how long.
"""


def downgrade_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return dags_of_procedure(
        settings,
        DOWNGRADE,
        DOWNGRADE_DAG_PREFIX,
        RunOf.DOWNGRADE,
        tag="downgrade",
        description="Downgrades the Kafka cluster {name} to an older release. Each step waits for its gate.",
        doc=DOWNGRADE_DOC,
    )


FEATURES_DOC = """\
### Feature levels of the Kafka cluster {name} (KIP-584)

1. Reads from every node which levels it supports, and checks the request against all rules of KIP-584.
2. Sends the request to the controller for validation only.
3. Asks for an approval, changes the levels, and waits until every node reports them. No node restarts.

A **dry run** ends with the plan. A change always needs an approval if it lowers or deletes a level, or if Kafka cannot
undo it. The approval lists the users of the feature. A level that is already finalized is not sent again.
"""


def features_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return dags_of_procedure(
        settings,
        FEATURES,
        FEATURES_DAG_PREFIX,
        RunOf.FEATURES,
        tag="features",
        description="Changes the feature levels of the Kafka cluster {name}, and waits until every node reports them.",
        doc=FEATURES_DOC,
    )
