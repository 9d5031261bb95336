"""The page "Kafka rollout" in Airflow's frame. Every path asks Airflow who may see it, and every one only reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse, HTMLResponse

from kafka_rollout.adapters.inventory import readable_clusters
from kafka_rollout.airflow.common.dag_ids import DAG_PREFIX, SCAN_DAG_PREFIX
from kafka_rollout.airflow.views.runs import report_page, runs_of
from kafka_rollout.airflow.views.scans import scan_page, scans_of
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.settings import Settings

STATIC = Path(__file__).parent / "static"
STATIC_FILES = {"page.js": "text/javascript", "page.css": "text/css"}

# The page runs its own script and no other; the report runs none.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-ancestors 'self'; base-uri 'none'"
)
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"

app = FastAPI(title="Kafka rollout", docs_url=None, redoc_url=None, openapi_url=None)

_may_see_airflow = Depends(requires_access_view(AccessView.WEBSITE))
_may_see_runs = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN))


@app.get("/", dependencies=[_may_see_airflow])
def page() -> FileResponse:
    """The page itself; what it shows comes from /runs."""
    return FileResponse(STATIC / "page.html", media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY})


@app.get("/static/{name}", dependencies=[_may_see_airflow])
def static(name: str) -> FileResponse:
    if name not in STATIC_FILES:
        raise HTTPException(404, f"There is no file {name}.")
    return FileResponse(STATIC / name, media_type=STATIC_FILES[name])


@app.get("/runs", dependencies=[_may_see_airflow])
def runs(user: GetUserDep) -> list[dict[str, Any]]:
    """Runs of the clusters whose DAG the user may read."""
    settings = Settings.from_environment()
    return runs_of([cluster.name for cluster in _readable(user, settings, DAG_PREFIX)], settings)


@app.get("/scans", dependencies=[_may_see_airflow])
def scans(user: GetUserDep) -> list[dict[str, Any]]:
    """The newest scan of each cluster whose scans' DAG the user may read."""
    settings = Settings.from_environment()
    return scans_of(_readable(user, settings, SCAN_DAG_PREFIX), settings)


def _readable(user: GetUserDep, settings: Settings, prefix: str) -> list[ClusterSpec]:
    manager = get_auth_manager()
    return [
        cluster
        for name, cluster in readable_clusters(settings.clusters)[0].items()
        if manager.is_authorized_dag(
            method="GET",
            access_entity=DagAccessEntity.RUN,
            details=DagDetails(id=f"{prefix}{name}"),
            user=user,
        )
    ]


@app.get("/dags/{dag_id}/report", dependencies=[_may_see_runs])
def report(dag_id: str, run_id: str) -> HTMLResponse:
    """A run's report."""
    found = report_page(dag_id, run_id, Settings.from_environment())
    if found is None:
        raise HTTPException(404, f"DAG {dag_id} has no report of run {run_id}: it is written when the run ends.")
    return HTMLResponse(found, headers={"Content-Security-Policy": REPORT_POLICY})


@app.get("/dags/{dag_id}/scan", dependencies=[_may_see_runs])
def scan(dag_id: str, run_id: str, task_id: str) -> HTMLResponse:
    """The report of a scan that a run's task made."""
    found = scan_page(dag_id, run_id, task_id, Settings.from_environment())
    if found is None:
        raise HTTPException(404, f"Run {run_id} has no scan by {task_id}.")
    return HTMLResponse(found, headers={"Content-Security-Policy": REPORT_POLICY})
