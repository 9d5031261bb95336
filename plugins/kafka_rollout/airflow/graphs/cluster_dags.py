"""Common parts of the DAGs of a cluster: one DAG per inventory file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from airflow.sdk import DAG, BaseNotifier, BaseOperator, Context, get_parsing_context
from airflow.sdk.bases.timetable import BaseTimetable
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.common.links import TAG
from kafka_rollout.airflow.graphs.forms import form_of
from kafka_rollout.airflow.graphs.procedure import draw
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.outside_text import escape_invisible, escape_markdown, quote_markdown
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.clusters.inventory import list_readable_clusters
from kafka_rollout.clusters.last_seen import last_seen_text
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.procedure.kinds import KINDS, KindOfRun
from kafka_rollout.releases.documents.catalogue import list_releases

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


class Inventories(NamedTuple):
    """What the DAGs of all clusters are drawn from."""

    clusters: Mapping[str, ClusterSpec]
    problems: Mapping[Path, UserError]
    """Inventory file → why it cannot be read."""
    releases: list[str]


def read_inventories(settings: Settings) -> Inventories:
    """Read all files once: this is most of the time of parsing a DAG file."""
    return Inventories(*list_readable_clusters(settings), list_releases(settings))


def dags_of_clusters(
    inventories: Inventories,
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
    dags = [
        replacement(f"{prefix}{re.sub(r'[^A-Za-z0-9_.-]', '_', path.stem)[:100]}_unreadable", path.stem, str(problem))
        for path, problem in inventories.problems.items()
    ]
    for name, cluster in inventories.clusters.items():
        if wanted in (None, f"{prefix}{name}"):  # a task needs only its own DAG
            try:
                dags.append(build(cluster, inventories.releases))
            except Exception as error:
                why = f"The DAG of cluster {name} cannot be built: {type(error).__name__}: {error}."
                dags.append(replacement(f"{prefix}{name}", name, why))
    return {dag.dag_id: dag for dag in dags}


_NAMED_UP_TO = 12  # nodes


def _nodes(cluster: ClusterSpec) -> str:
    if len(cluster.nodes) > _NAMED_UP_TO:
        return f"{count(len(cluster.controllers), 'controller')}, {count(len(cluster.brokers), 'broker')}"
    return ", ".join(f"{node.name} ({node.node_id})" for node in cluster.nodes)


def dags_of_changes(settings: Settings) -> dict[str, DAG]:
    """DAG id → DAG of every kind of run that changes a cluster when it is triggered, for every inventory file."""
    inventories = read_inventories(settings)
    return {
        dag_id: dag
        for run_of, kind in KINDS.items()
        for dag_id, dag in _dags_of_kind(inventories, run_of, kind, settings).items()
    }


def _dags_of_kind(inventories: Inventories, run_of: RunOf, kind: KindOfRun, settings: Settings) -> dict[str, DAG]:
    tags = ["kafka", TAG, kind.procedure.name]

    def build(cluster: ClusterSpec, releases: list[str]) -> DAG:
        dag_id = f"{kind.dag_prefix}{cluster.name}"
        whole = kind.procedure.for_cluster(cluster) is kind.procedure
        facts = {
            "name": cluster.name,
            "owner": escape_markdown(cluster.owner),
            "dag_id": dag_id,
            "nodes": _nodes(cluster),
            "approvers": ", ".join(map(quote_markdown, cluster.approvers)) or "everyone who can trigger it",
        }
        with DAG(
            dag_id=dag_id,
            description=kind.description.format(**facts),
            doc_md=(kind.doc + ("" if whole else _PLANS_ONLY) + _FACTS).format(**facts),
            schedule=None,
            catchup=False,
            max_active_runs=1,
            tags=[*tags, cluster.name],
            default_args={**_DEFAULTS, "owner": cluster.owner, **cluster.tasks},
        ) as dag:
            draw(kind.procedure, cluster)
        # Airflow copies the params that a DAG has for each task, which was most of the time to parse it.
        seen = last_seen_text(cluster.name, settings)
        dag.params.update(form_of(run_of, cluster, releases, seen, plans_only=not whole))
        return dag

    return dags_of_clusters(inventories, kind.dag_prefix, build, tags=tags)
