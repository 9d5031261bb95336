"""One DAG per cluster of the inventory: changes feature levels (KIP-584). Text, form and procedure."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from kafka_rollout.airflow.common.dag_ids import FEATURES_DAG_PREFIX
from kafka_rollout.airflow.graphs.cluster_dags import (
    APPROVALS,
    GATES,
    approval_fields,
    choice,
    dags_of_procedure,
    downgrade_type_field,
    dry_run_field,
    gate_timeout_field,
)
from kafka_rollout.domain.features.requests import FeatureAction
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.planning.request import ApprovalPolicy
from kafka_rollout.settings import Settings
from kafka_rollout.steps.procedures.features import FEATURES

DOC = """\
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
        FeatureAction.UPGRADE_ALL.value: "raise all features to the latest stable level that every node supports",
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
        doc=DOC,
    )
