"""What the DAGs of a cluster have in common: one DAG for every inventory file, and the questions of their forms."""

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

_CARE = "How carefully"
_APPROVALS = "Approvals"


def dags_of_clusters(
    settings: Settings,
    prefix: str,
    build: Callable[[ClusterSpec, list[str]], DAG],
    *,
    tags: list[str],
    alert: Callable[[str, str], Mapping[str, Any]] = lambda name, why: {},
) -> list[DAG]:
    """A DAG for every inventory file. One that cannot be read or built keeps no other from its DAG.

    `alert`: schedule and notifier of the DAG that stands in for it, by the name of the file or cluster and the reason.
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
        if wanted in (None, f"{prefix}{name}"):  # a task needs its own DAG only
            try:
                dags.append(build(cluster, releases))
            except Exception as error:
                why = f"The DAG of cluster {name} cannot be built: {type(error).__name__}: {error}."
                dags.append(stand_in(f"{prefix}{name}", name, why))
    return dags


def cluster_dag(
    cluster: ClusterSpec, prefix: str, *, description: str, doc: str, tags: list[str], params: Mapping[str, Param]
) -> DAG:
    """A DAG that changes a cluster when somebody triggers it. `doc` is a template of its Markdown."""
    dag_id = f"{prefix}{cluster.name}"
    return DAG(
        dag_id=dag_id,
        description=description,
        doc_md=doc.format(
            name=cluster.name,
            owner=escape_markdown(cluster.owner),
            dag_id=dag_id,
            nodes=", ".join(f"{node.name} ({node.node_id})" for node in cluster.nodes),
            approvers=", ".join(map(quote_markdown, cluster.approvers)) or "everyone who may trigger it",
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
            False, type="boolean", title="Dry run", description="End with the plan and all findings; change nothing."
        )
    }


def roll_care() -> dict[str, Param]:
    """How carefully nodes are rolled."""
    return {
        "canary_approval": Param(
            False,
            type="boolean",
            title="Ask after the first node",
            description="The first node is the canary: the others are rolled after an approval.",
            section=_CARE,
        ),
        "soak_seconds": Param(
            60,
            type="integer",
            minimum=0,
            maximum=7 * 24 * 3600,
            title="Soak (seconds)",
            description="How long a node's gate must keep holding before the next node's turn.",
            section=_CARE,
        ),
        "looks": Param(
            3,
            type="integer",
            minimum=1,
            maximum=100,
            title="Looks in a row",
            description="How many looks at a node's gate, one a second, must hold one after the other.",
            section=_CARE,
        ),
        **gate_timeout(30, "After this a gate that does not hold asks a person what to do."),
    }


def gate_timeout(minutes: int, description: str) -> dict[str, Param]:
    return {
        "gate_timeout_minutes": Param(
            minutes,
            type="number",
            exclusiveMinimum=0,
            maximum=7 * 24 * 60,
            title="Gate's time (minutes)",
            description=description,
            section=_CARE,
        )
    }


def ledger() -> dict[str, Param]:
    return {
        "ledger": Param(
            False,
            type="boolean",
            title="Live-traffic ledger",
            description="Produce and consume during the roll, and compare in the end. Writes to topics of its own.",
            section=_CARE,
        )
    }


def approvals(cluster: ClusterSpec) -> dict[str, Param]:
    """Who may answer, and for how long a question waits."""
    return {
        "approvers": Param(
            list(cluster.approvers),
            type="array",
            items={"type": "string", "minLength": 1},
            title="Who may approve",
            description=(
                f"User ids, one a line, out of the inventory's: {', '.join(cluster.approvers)}."
                if cluster.approvers
                else "User ids, one a line; none: everyone who may trigger this DAG."
            ),
            section=_APPROVALS,
        ),
        "approval_timeout_hours": Param(
            24,
            type="number",
            exclusiveMinimum=0,
            maximum=30 * 24,
            title="Time for an answer (hours)",
            description="After this the question fails. Time never approves.",
            section=_APPROVALS,
        ),
    }
