"""The DAGs that change a cluster, one of each kind per cluster of the inventory: text, form and procedure."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from kafka_rollout.airflow.common.dag_ids import DAG_PREFIX, DOWNGRADE_DAG_PREFIX, FEATURES_DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import (
    APPROVALS,
    GATES,
    approval_fields,
    choice,
    dags_of_procedure,
    downgrade_type_field,
    dry_run_field,
    gate_timeout_field,
    node_gate_fields,
    pin_min_isr_field,
    rehearse_field,
    release_field,
    traffic_field,
    unavailability_field,
)
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.features.requests import FeatureAction
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.lowering import WhereRefused
from kafka_rollout.planning.request import ApprovalPolicy, FinalizePolicy
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


def upgrade_params(cluster: ClusterSpec, releases: list[str]) -> dict[str, Param]:
    """Return the fields of the form."""
    policies = {
        FinalizePolicy.LATER.form_value: "later, in another run after the soak",
        FinalizePolicy.AFTER_APPROVAL.form_value: "in this run, after an approval",
    }
    return {
        **release_field(releases, releases[-1] if releases else "", "Release that all nodes run after the upgrade."),
        "finalize": choice(policies, title="Finalize features", description="Finalizing is the point of no return."),
        **pin_min_isr_field(),
        **rehearse_field(),
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
        **unavailability_field(),
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


def downgrade_params(cluster: ClusterSpec, releases: list[str]) -> dict[str, Param]:
    """Return the fields of the form. The target release has no default: it must be chosen."""
    reactions = {
        WhereRefused.STOP.value: "stop before any change",
        WhereRefused.LIVE.value: "continue live: stop only the controllers, after an approval",
        WhereRefused.OFFLINE.value: "continue live, else stop all nodes, after an approval",
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
        **rehearse_field(),
        **dry_run_field(),
        **node_gate_fields(),
        **unavailability_field(),
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

_FEATURE = r"^[A-Za-z][A-Za-z0-9._-]*"


def feature_params(cluster: ClusterSpec, releases: list[str]) -> dict[str, Param]:
    """Return the fields of the form."""
    actions = {
        FeatureAction.UPGRADE_ALL.value: "raise all features to the default level of the release",
        FeatureAction.DOWNGRADE_ALL.value: "lower all features to the levels of a release",
        FeatureAction.UPDATE.value: "change single features, or set the levels of a release",
    }
    policies = {
        ApprovalPolicy.ALWAYS.value: "for every change",
        ApprovalPolicy.WHERE_NEEDED.value: "only if a level is lowered or deleted, or cannot be undone",
    }
    return {
        "action": choice(
            actions,
            title="Feature action",
            description="kraft.version changes only if you name it under Single features.",
        ),
        "release_version": Param(
            None,
            type=["null", "string"],
            enum=[None, *releases],
            title="Release",
            description="Release whose levels are set. Used by the actions that set the levels of a release.",
        ),
        "upgrade": _features("Levels to raise", ":-?[0-9]{1,5}$", "feature:level, one per line."),
        "downgrade": _features(
            "Levels to lower", ":-?[0-9]{1,5}$", "feature:level, one per line. A level below 1 deletes the feature."
        ),
        "delete": _features(
            "Features to delete", "$", "Names of features whose finalized level is deleted, one per line."
        ),
        **pin_min_isr_field(),
        **downgrade_type_field("Used for levels that are lowered or deleted.", section=GATES),
        **dry_run_field(),
        **gate_timeout_field(10, "If a node has not reported the levels by then"),
        "approval": choice(policies, title="Approval", section=APPROVALS),
        **approval_fields(cluster),
    }


def _features(title: str, pattern: str, description: str) -> Param:
    return Param(
        [],
        type="array",
        items={"type": "string", "pattern": f"{_FEATURE}{pattern}"},
        title=title,
        description=f"{description} Used only if the action changes single features.",
        section="Single features",
    )


def features_dags(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG, one for every file of the inventory."""
    return dags_of_procedure(
        settings,
        FEATURES,
        FEATURES_DAG_PREFIX,
        feature_params,
        tag="features",
        description="Changes the feature levels of the Kafka cluster {name}, and waits until every node reports them.",
        doc=FEATURES_DOC,
    )
