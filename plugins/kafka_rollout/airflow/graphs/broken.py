"""The DAG of a cluster whose inventory cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.domain.model.outside_text import escape_invisible, escape_markdown

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier, Context
    from airflow.sdk.bases.timetable import BaseTimetable


class BrokenInventoryOperator(BaseOperator):
    """Fail with the sentence about the error in the inventory."""

    def __init__(self, *, why: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.why = why

    def execute(self, context: Context) -> NoReturn:
        raise AirflowFailException(self.why)


def broken_inventory_dag(
    dag_id: str,
    why: str,
    *,
    tags: Sequence[str],
    schedule: BaseTimetable | None = None,
    on_failure: BaseNotifier | None = None,
) -> DAG:
    """Return a DAG with the id of the cluster's DAG that shows why there is no such DAG."""
    with DAG(
        dag_id=dag_id,
        description=escape_invisible(why),
        doc_md=f"### The inventory of this cluster cannot be read\n\n{escape_markdown(why)}",
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        tags=[*tags, "broken inventory"],
        default_args={"owner": "kafka-platform", "retries": 1, "retry_delay": timedelta(seconds=10)},
    ) as dag:
        BrokenInventoryOperator(
            task_id="read_inventory",
            why=why,
            doc_md=escape_markdown(why),
            execution_timeout=timedelta(minutes=1),
            on_failure_callback=on_failure,
        )
    return dag
