"""The Airflow plugin: the page, the links to reports and scans, and the listener of runs."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from kafka_rollout.airflow import run_listener
from kafka_rollout.airflow.common.links import CheckLink, ReportLink, ScanLink

NAME = "Kafka rollout"


async def page(scope: Any, receive: Any, send: Any) -> None:
    """The application of the page.

    Every task process loads plugins, but only the API server needs the imports of the page.
    """
    from kafka_rollout.airflow.views.app import app

    await app(scope, receive, send)


class KafkaRolloutPlugin(AirflowPlugin):
    """A page with the runs of all clusters in the navigation, and the same page in each DAG run."""

    name = "kafka_rollout"
    # The base class declares these in a way that RUF012 rejects.
    fastapi_apps = [{"app": page, "url_prefix": "/kafka-rollout", "name": NAME}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": NAME,
            "href": "/kafka-rollout/",
            "destination": "nav",
            "url_route": "kafka-rollout",
            "category": "browse",
        },
        {
            "name": "Kafka clusters",
            "href": "/kafka-rollout/fleet",
            "destination": "nav",
            "url_route": "kafka-rollout-fleet",
            "category": "browse",
        },
        {
            "name": "Progress",
            "href": "/kafka-rollout/?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "kafka-rollout-run",
        },
    ]
    operator_extra_links = [CheckLink(), ReportLink(), ScanLink()]  # noqa: RUF012
    listeners = [run_listener]  # noqa: RUF012
