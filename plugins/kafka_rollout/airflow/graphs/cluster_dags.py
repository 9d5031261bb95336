"""Common parts of the DAGs of a cluster: one DAG per inventory file, and the fields of the trigger forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_parsing_context

from kafka_rollout.airflow.graphs.broken import broken_inventory_dag
from kafka_rollout.composition.clusters import list_readable_clusters, list_releases
from kafka_rollout.domain.model.outside_text import escape_markdown, quote_markdown
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.settings import Settings

_CARE = "Gates"
_APPROVALS = "Approvals"


def dags_of_clusters(
    settings: Settings,
    prefix: str,
    build: Callable[[ClusterSpec, list[str]], DAG],
    *,
    tags: list[str],
    alert: Callable[[str, str], Mapping[str, Any]] = lambda name, why: {},
) -> list[DAG]:
    """Return a DAG for every inventory file. An error in one file does not affect the DAGs of the others.

    `alert`: schedule and notifier of the replacement DAG, from the name of the file or cluster and the reason.
    """

    def stand_in(dag_id: str, name: str, why: str) -> DAG:
        return broken_inventory_dag(dag_id, why, tags=tags, **alert(name, why))

    wanted = get_parsing_context().dag_id
    releases = list_releases(settings)
    clusters, problems = list_readable_clusters(settings)
    dags = [
        stand_in(f"{prefix}{re.sub(r'[^A-Za-z0-9_.-]', '_', path.stem)[:100]}_unreadable", path.stem, str(problem))
        for path, problem in problems.items()
    ]
    for name, cluster in clusters.items():
        if wanted in (None, f"{prefix}{name}"):  # a task needs only its own DAG
            try:
                dags.append(build(cluster, releases))
            except Exception as error:
                why = f"The DAG of cluster {name} cannot be built: {type(error).__name__}: {error}."
                dags.append(stand_in(f"{prefix}{name}", name, why))
    return dags


def cluster_dag(
    cluster: ClusterSpec, prefix: str, *, description: str, doc: str, tags: list[str], params: Mapping[str, Param]
) -> DAG:
    """Return a DAG that changes a cluster when it is triggered. `doc`: template of its Markdown text."""
    dag_id = f"{prefix}{cluster.name}"
    return DAG(
        dag_id=dag_id,
        description=description,
        doc_md=doc.format(
            name=cluster.name,
            owner=escape_markdown(cluster.owner),
            dag_id=dag_id,
            nodes=", ".join(f"{node.name} ({node.node_id})" for node in cluster.nodes),
            approvers=", ".join(map(quote_markdown, cluster.approvers)) or "everyone who can trigger it",
        ),
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=[*tags, cluster.name],
        params=dict(params),
        default_args={"owner": cluster.owner, "retries": 1, "retry_delay": timedelta(seconds=10)},
    )


def dry_run() -> dict[str, Param]:
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description=("Ends with the plan and all findings; changes nothing."),
        )
    }


def roll_care() -> dict[str, Param]:
    """Fields of the gate rules for nodes."""
    return {
        "canary_approval": Param(
            False,
            type="boolean",
            title="Canary approval",
            description="Replaces the other nodes only after an approval of the first node.",
            section=_CARE,
        ),
        "soak_seconds": Param(
            60,
            type="integer",
            minimum=0,
            maximum=7 * 24 * 3600,
            title="Soak (seconds)",
            description="Seconds in which every check of a node's gate must pass before the next node.",
            section=_CARE,
        ),
        "looks": Param(
            3,
            type="integer",
            minimum=1,
            maximum=100,
            title="Consecutive checks",
            description="Number of consecutive checks that must pass after a node starts, about one per second.",
            section=_CARE,
        ),
        **gate_timeout(30, "If a gate has not passed by then, the run pauses and asks an approver how to continue."),
    }


def gate_timeout(minutes: int, description: str) -> dict[str, Param]:
    return {
        "gate_timeout_minutes": Param(
            minutes,
            type="number",
            exclusiveMinimum=0,
            maximum=7 * 24 * 60,
            title="Gate timeout (minutes)",
            description=description,
            section=_CARE,
        )
    }


def ledger() -> dict[str, Param]:
    return {
        "ledger": Param(
            False,
            type="boolean",
            title="Test traffic",
            description=(
                "Produces and consumes test records in separate topics during the run, then compares "
                "acknowledged with consumed records."
            ),
            section=_CARE,
        )
    }


def approvals(cluster: ClusterSpec) -> dict[str, Param]:
    """Fields for the approvers and the approval timeout."""
    return {
        "approvers": Param(
            list(cluster.approvers),
            type="array",
            items={"type": "string", "minLength": 1},
            title="Approvers",
            description=(
                f"User ids, one per line, from the inventory's list: {', '.join(cluster.approvers)}."
                if cluster.approvers
                else "User ids, one per line. Empty: everyone who can trigger this DAG."
            ),
            section=_APPROVALS,
        ),
        "approval_timeout_hours": Param(
            24,
            type="number",
            exclusiveMinimum=0,
            maximum=30 * 24,
            title="Approval timeout (hours)",
            description="Without an answer in this time, the task fails. A timeout never counts as approval.",
            section=_APPROVALS,
        ),
    }
