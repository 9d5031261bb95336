"""Common parts of the DAGs of a cluster: one DAG per inventory file, and the fields of the trigger forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NoReturn

from airflow.sdk import DAG, BaseNotifier, BaseOperator, Context, Param, get_parsing_context
from airflow.sdk.bases.timetable import BaseTimetable
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.common.dag_ids import TAG
from kafka_rollout.airflow.graphs.procedure import draw
from kafka_rollout.base.outside_text import escape_invisible, escape_markdown, quote_markdown
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import list_readable_clusters
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.planning.request import DowngradeType
from kafka_rollout.releases.documents.catalogue import list_releases
from kafka_rollout.steps.step import Procedure

GATES = "Gates"
APPROVALS = "Approvals"
_DEFAULTS = {"retries": 1, "retry_delay": timedelta(seconds=10)}

_FACTS = """
| | |
|---|---|
| Owner | {owner} |
| Nodes | {nodes} |
| Approvers | {approvers} |

Start a run from this page, with `POST /api/v2/dags/{dag_id}/dagRuns`, or with `airflow dags trigger {dag_id}`.
If a task **fails**, read the last line of its log: it names the cause and the remedy. Fix the cause, then clear the
task. The run continues with this task.
"""


_PLANS_ONLY = """
The hosts of this cluster cannot be reached (runtime `none`), so **every run is a dry run**: it ends with the plan and
its findings.
"""
# Fields of a form that a plan uses.
_OF_PLANS = frozenset(
    {
        "target_release",
        "finalize",
        "pin_min_insync_replicas",
        "target_level",
        "downgrade_type",
        "where_refused",
        "accept_unavailable",
    }
)


class BrokenInventoryOperator(BaseOperator):
    """Fail with the error in the inventory."""

    def __init__(self, *, why: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.why = why

    def execute(self, context: Context) -> NoReturn:
        raise AirflowFailException(self.why)


def broken_inventory_dag(
    dag_id: str,
    why: str,
    *,
    tags: list[str],
    schedule: BaseTimetable | None = None,
    on_failure: BaseNotifier | None = None,
) -> DAG:
    """Return a DAG that replaces the DAG of the cluster and shows the error in the inventory file."""
    with DAG(
        dag_id=dag_id,
        description=escape_invisible(why),
        doc_md=f"### The inventory of this cluster cannot be read\n\n{escape_markdown(why)}",
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        tags=[*tags, "broken inventory"],
        default_args={**_DEFAULTS, "owner": "kafka-platform"},
    ) as dag:
        BrokenInventoryOperator(
            task_id="read_inventory",
            why=why,
            doc_md=escape_markdown(why),
            execution_timeout=timedelta(minutes=1),
            on_failure_callback=on_failure,
        )
    return dag


def dags_of_clusters(
    settings: Settings,
    prefix: str,
    build: Callable[[ClusterSpec, list[str]], DAG],
    *,
    tags: list[str],
    alert: Callable[[str, str], Mapping[str, Any]] = lambda name, why: {},
) -> dict[str, DAG]:
    """DAG id → DAG for every inventory file. An error in one file does not affect the DAGs of the others.

    `alert`: schedule and notifier of the replacement DAG, from the name of the file or cluster and the reason.
    """

    def replacement(dag_id: str, name: str, why: str) -> DAG:
        return broken_inventory_dag(dag_id, why, tags=tags, **alert(name, why))

    wanted = get_parsing_context().dag_id
    releases = list_releases(settings)
    clusters, problems = list_readable_clusters(settings)
    dags = [
        replacement(f"{prefix}{re.sub(r'[^A-Za-z0-9_.-]', '_', path.stem)[:100]}_unreadable", path.stem, str(problem))
        for path, problem in problems.items()
    ]
    for name, cluster in clusters.items():
        if wanted in (None, f"{prefix}{name}"):  # a task needs only its own DAG
            try:
                dags.append(build(cluster, releases))
            except Exception as error:
                why = f"The DAG of cluster {name} cannot be built: {type(error).__name__}: {error}."
                dags.append(replacement(f"{prefix}{name}", name, why))
    return {dag.dag_id: dag for dag in dags}


def dags_of_procedure(
    settings: Settings,
    procedure: Procedure,
    prefix: str,
    params: Callable[[ClusterSpec, list[str]], dict[str, Param]],
    *,
    tag: str,
    description: str,
    doc: str,
) -> dict[str, DAG]:
    """DAG id → DAG of a procedure that changes a cluster when it is triggered.

    `params`: fields of the form, from the cluster and the names of all releases. `description` and `doc` (Markdown) are
    templates with the cluster's `name`.
    """
    tags = ["kafka", TAG, tag]

    def build(cluster: ClusterSpec, releases: list[str]) -> DAG:
        dag_id = f"{prefix}{cluster.name}"
        whole = procedure.for_cluster(cluster) is procedure
        facts = {
            "name": cluster.name,
            "owner": escape_markdown(cluster.owner),
            "dag_id": dag_id,
            "nodes": ", ".join(f"{node.name} ({node.node_id})" for node in cluster.nodes),
            "approvers": ", ".join(map(quote_markdown, cluster.approvers)) or "everyone who can trigger it",
        }
        with DAG(
            dag_id=dag_id,
            description=description.format(**facts),
            doc_md=(doc + ("" if whole else _PLANS_ONLY) + _FACTS).format(**facts),
            schedule=None,
            catchup=False,
            max_active_runs=1,
            tags=[*tags, cluster.name],
            params=params(cluster, releases) if whole else fields_of_plans(params(cluster, releases)),
            default_args={**_DEFAULTS, "owner": cluster.owner},
        ) as dag:
            draw(procedure, cluster)
        return dag

    return dags_of_clusters(settings, prefix, build, tags=tags)


def fields_of_plans(params: Mapping[str, Param]) -> dict[str, Param]:
    """Return the form of a run that is always a dry run."""
    return {
        **{name: param for name, param in params.items() if name in _OF_PLANS},
        "dry_run": Param(
            True,
            type="boolean",
            const=True,
            title="Dry run",
            description="The hosts of this cluster cannot be reached, so each run ends with the plan.",
        ),
    }


def choice(labels: Mapping[str, str], **more: Any) -> Param:
    """A field with one value of several. `labels`: value → text in the form; the first value is the default."""
    return Param(next(iter(labels)), type="string", enum=list(labels), values_display=dict(labels), **more)


def release_field(releases: list[str], default: str | None, description: str) -> dict[str, Param]:
    return {
        "target_release": Param(
            default,
            type="string",
            enum=releases or None,
            title="Target release",
            description=f"{description} If KIP-915 requires it, the run goes through another release first.",
        )
    }


def downgrade_type_field(description: str, **more: Any) -> dict[str, Param]:
    labels = {
        DowngradeType.SAFE.value: "SAFE: refuse if data would be lost",
        DowngradeType.UNSAFE.value: "UNSAFE: accept the losses, and list them",
    }
    return {"downgrade_type": choice(labels, title="Downgrade type", description=description, **more)}


def dry_run_field() -> dict[str, Param]:
    description = "The run ends with the plan and all findings. It changes nothing."
    return {"dry_run": Param(False, type="boolean", title="Dry run", description=description)}


def pin_min_isr_field(**more: Any) -> dict[str, Param]:
    description = (
        "Before the run raises eligible.leader.replicas.version, it sets the cluster-wide default of "
        "min.insync.replicas to the value that all brokers have now. Without it, the active controller writes the "
        "value of its own file, and a plan that would change a topic has a blocker."
    )
    field = Param(False, type="boolean", title="Pin min.insync.replicas", description=description, **more)
    return {"pin_min_insync_replicas": field}


def rehearse_field() -> dict[str, Param]:
    description = (
        "First tries the change on a copy of the cluster, if the worker can read the nodes' files and has enough "
        "memory. A failure blocks the plan."
    )
    return {"rehearse": Param(True, type="boolean", title="Rehearsal", description=description)}


def node_gate_fields() -> dict[str, Param]:
    return {
        "canary_approval": Param(
            False,
            type="boolean",
            title="Canary approval",
            description="After the first node, the run asks for an approval before it replaces the other nodes.",
            section=GATES,
        ),
        "soak_seconds": Param(
            60,
            type="integer",
            minimum=0,
            maximum=7 * 24 * 3600,
            title="Soak (seconds)",
            description="Time during which every check of a node's gate must pass before the next node is stopped.",
            section=GATES,
        ),
        "checks": Param(
            3,
            type="integer",
            minimum=1,
            maximum=100,
            title="Consecutive checks",
            description="Number of consecutive checks that must pass after a node starts, about one per second.",
            section=GATES,
        ),
        **gate_timeout_field(30, "If a gate has not passed by then"),
    }


def unavailability_field() -> dict[str, Param]:
    return {
        "accept_unavailable": Param(
            [],
            type="array",
            items={"type": "string", "pattern": r"^[A-Za-z0-9._*?\[\]!-]+$"},
            title="Accepted unavailable topics",
            description="Names or patterns (`tmp-*`), one per line. These topics do not block the run, and the gates "
            "before the stops do not check them. The approval lists them. A wildcard does not contain internal topics, "
            "unless the pattern begins with __.",
            section=GATES,
        )
    }


def gate_timeout_field(minutes: int, condition: str) -> dict[str, Param]:
    return {
        "gate_timeout_minutes": Param(
            minutes,
            type="number",
            exclusiveMinimum=0,
            maximum=7 * 24 * 60,
            title="Gate timeout (minutes)",
            description=f"{condition}, the run pauses and asks an approver how to continue.",
            section=GATES,
        )
    }


def traffic_field() -> dict[str, Param]:
    return {
        "traffic": Param(
            False,
            type="boolean",
            title="Test traffic",
            description=(
                "Produces and consumes test records in separate topics during the run, then compares "
                "acknowledged with consumed records."
            ),
            section=GATES,
        )
    }


def approval_fields(cluster: ClusterSpec) -> dict[str, Param]:
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
            section=APPROVALS,
        ),
        "approval_timeout_hours": Param(
            24,
            type="number",
            exclusiveMinimum=0,
            maximum=30 * 24,
            title="Approval timeout (hours)",
            description="Without an answer in this time, the task fails. A timeout never counts as approval.",
            section=APPROVALS,
        ),
    }
