"""The page "Kafka rollout" in Airflow. Every path checks the permissions in Airflow; only `control` writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.middleware.base import RequestResponseEndpoint

from kafka_rollout.airflow.common.links import SCAN_DAG_PREFIX
from kafka_rollout.airflow.own_threads import OF_PAGES
from kafka_rollout.airflow.private_api import can_answer, current_user, is_authorized, require_runs, require_website
from kafka_rollout.airflow.views.clusters import console_of, fleet_table, options_of, read_rows
from kafka_rollout.airflow.views.drawings import traffic_svg
from kafka_rollout.airflow.views.live import LIVE
from kafka_rollout.airflow.views.records import (
    NO_INVENTORY,
    check_page,
    find_run,
    page_of_run,
    runs_of,
    scan_page,
    scans_of,
    shown,
)
from kafka_rollout.base.errors import RefusedError, RolloutError, UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import list_named_clusters
from kafka_rollout.console.fleet import Show, as_csv, choose_rows
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.procedure.kinds import KINDS
from kafka_rollout.report.page.pages import INSTALL, can_plot
from kafka_rollout.run.events import Channel, Responder

STATIC = Path(__file__).parent / "static"
STATIC_FILES = {
    "common.js": "text/javascript",
    "dom.js": "text/javascript",
    "page.js": "text/javascript",
    "theme.js": "text/javascript",
    "page.css": "text/css",
    "fleet.js": "text/javascript",
    "fleet.css": "text/css",
    "downgrade.js": "text/javascript",
    "downgrade.css": "text/css",
}

# The page runs only its own script; the report runs none.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "frame-ancestors 'self'; base-uri 'none'"
)
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"

# A report is only for its reader: no proxy or browser stores it, and none guesses its content type.
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

app = FastAPI(title="Kafka rollout", docs_url=None, redoc_url=None, openapi_url=None)


def _in_own_thread(route: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(route)
    async def call(**given: Any) -> Any:
        return await OF_PAGES.run(route, **given)

    return call


class OwnRoute(APIRoute):
    """A route in a thread of this project: FastAPI's own threads are those of all requests to Airflow's API."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _in_own_thread(endpoint), **options)


app.router.route_class = OwnRoute


@app.middleware("http")
async def add_headers(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Add the headers to every response, also to a refusal."""
    response = await call_next(request)
    response.headers.update(HEADERS)
    return response


@app.exception_handler(RolloutError)
async def report_problem(request: Request, error: RolloutError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=503)


_may_see_airflow = require_website()
_may_see_runs = require_runs("GET")
_may_control = require_runs("PUT")
_user = current_user()
_settings = Depends(Settings.from_environment)


@app.get("/", dependencies=[_may_see_airflow])
def page() -> FileResponse:
    """Return the page. Its script reads /console, /runs and /scans."""
    return _page("page.html")


def _page(name: str) -> FileResponse:
    return FileResponse(STATIC / name, media_type="text/html", headers={"Content-Security-Policy": PAGE_POLICY})


@app.get("/static/{name}", dependencies=[_may_see_airflow])
def static(name: str) -> FileResponse:
    if name not in STATIC_FILES:
        raise HTTPException(404, f"File {name} does not exist.")
    return FileResponse(STATIC / name, media_type=STATIC_FILES[name])


@app.get("/runs", dependencies=[_may_see_airflow])
def runs(user: Any = _user, settings: Settings = _settings) -> Any:
    """Return the runs, by cluster, whose own DAG the user can read."""
    return shown(runs_of(list_named_clusters(settings), settings, may_read=_reader(user)))


@app.get("/console", dependencies=[_may_see_airflow])
def console(
    *,
    cluster: str = "",
    run: str = "",
    run_id: str = "",
    dag_id: str = "",
    user: Any = _user,
    settings: Settings = _settings,
) -> Any:
    """Return the console of a cluster, of its run with the number `run`, or of the run `run_id` of the DAG `dag_id`.

    A cluster that the user cannot see is answered as one that does not exist, here and in the routes below.
    """
    from kafka_rollout.run.store.history import list_clusters_of_run
    from kafka_rollout.run.store.opening import database_of
    from kafka_rollout.run.store.run_names import find_run_id

    if run:
        run_id = find_run_id(database_of(settings), cluster, run) or run
    clusters = list_named_clusters(settings)
    rights: dict[str, Any] = {
        "may_read": _reader(user),
        "may_answer": partial(can_answer, user),
        "may_control": partial(is_authorized, user, "PUT"),
    }
    for name in (cluster,) if cluster else list_clusters_of_run(database_of(settings), run_id):
        found = console_of(name, clusters[name], settings, run_id=run_id, **rights) if name in clusters else None
        if found is not None and (cluster or (found["run"] or {}).get("dag_id") == dag_id):
            return shown(found)
    raise HTTPException(404, "There is no such cluster or run, or you cannot read the runs of its DAGs.")


@app.get("/kafka", dependencies=[_may_see_airflow])
def kafka(cluster: str, user: Any = _user, settings: Settings = _settings) -> Any:
    """Return the state of a cluster as Kafka shows it, at once; for users who can read one of its DAGs."""
    spec, may_read = list_named_clusters(settings).get(cluster), _reader(user)
    if spec is None or not any(may_read(f"{kind.dag_prefix}{cluster}") for kind in KINDS.values()):
        raise HTTPException(404, "There is no such cluster, or you cannot read its DAGs.")
    state, problem = None, "The page does not query clusters here (KAFKA_ROLLOUT_LIVE_STATE is 0)."
    if isinstance(spec, UserError):
        problem = NO_INVENTORY
    elif settings.live_state:
        state, problem = LIVE.get(spec)
    return shown({"state": None if state is None else to_json(state), "problem": problem})


@app.get("/status.json", dependencies=[_may_see_airflow])
def status(cluster: str, user: Any = _user, settings: Settings = _settings) -> Any:
    """Return the status of a cluster for machines, from the runs whose own DAG the user can read."""
    from kafka_rollout.wiring.runs import read_status

    is_listed = cluster in list_named_clusters(settings)
    found = read_status(cluster, settings, may_read=_reader(user)) if is_listed else None
    if found is None:
        raise HTTPException(404, "There is no such cluster, or you cannot read the runs of its DAGs.")
    return shown(found.to_json())


@app.get("/downgrade", dependencies=[_may_see_airflow])
def downgrade() -> FileResponse:
    """Return the page of the downgrade options of a cluster. Its script reads /downgrade/options."""
    return _page("downgrade.html")


@app.get("/downgrade/options", dependencies=[_may_see_airflow])
def downgrade_options(cluster: str, user: Any = _user, settings: Settings = _settings) -> Any:
    """Return the downgrade options of a cluster, from the runs and scans whose own DAG the user can read."""
    spec, may_read = list_named_clusters(settings).get(cluster), _reader(user)
    found = None
    if isinstance(spec, ClusterSpec):
        found = options_of(spec, settings, may_read=may_read, may_trigger=partial(is_authorized, user, "POST"))
    elif spec is not None and may_read(f"{KINDS[RunOf.DOWNGRADE].dag_prefix}{cluster}"):
        raise HTTPException(503, NO_INVENTORY)
    if found is None:
        raise HTTPException(404, "There is no such cluster, or you cannot read its DAGs.")
    return shown(found)


@app.get("/fleet", dependencies=[_may_see_airflow])
def fleet() -> FileResponse:
    """Return the page of all clusters. Its script reads /fleet/rows."""
    return _page("fleet.html")


@app.get("/fleet/rows", dependencies=[_may_see_airflow])
def fleet_rows(show: Show = Show.ALL, text: str = "", user: Any = _user) -> Any:
    """Return the rows of a filter, as the page shows them, from the DAGs that the user can read."""
    rows, problems = read_rows(_reader(user))
    return shown(fleet_table(rows, problems, choose_rows(rows, show, text)))


@app.get("/fleet/rows.json", dependencies=[_may_see_airflow])
def fleet_json(show: Show = Show.ALL, text: str = "", user: Any = _user) -> Response:
    """Return the same rows as a file for programs."""
    chosen = choose_rows(read_rows(_reader(user))[0], show, text)
    return JSONResponse(shown([to_json(row) for row in chosen]), headers=_file("kafka-clusters.json"))


@app.get("/fleet/rows.csv", dependencies=[_may_see_airflow])
def fleet_csv(show: Show = Show.ALL, text: str = "", user: Any = _user) -> Response:
    """Return the same rows as a file for spreadsheets."""
    chosen = choose_rows(read_rows(_reader(user))[0], show, text)
    return Response(as_csv(chosen), media_type="text/csv; charset=utf-8", headers=_file("kafka-clusters.csv"))


def _file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


@app.get("/scans", dependencies=[_may_see_airflow])
def scans(user: Any = _user, settings: Settings = _settings) -> Any:
    """Return the newest scan of each cluster whose scan DAG the user can read."""
    may_read = _reader(user)
    clusters = list_named_clusters(settings)
    return shown(
        scans_of({name: of for name, of in clusters.items() if may_read(f"{SCAN_DAG_PREFIX}{name}")}, settings)
    )


def _reader(user: Any) -> Callable[[str], bool]:
    """Return a function: whether the user can read the runs of a DAG. It queries Airflow once per DAG."""
    return cache(partial(is_authorized, user, "GET"))


def _report(page: str | None, missing: str, media_type: str = "text/html") -> Response:
    """Return a page without scripts; 404 with the sentence `missing` if there is none."""
    if page is None:
        raise HTTPException(404, missing)
    return Response(page, media_type=media_type, headers={"Content-Security-Policy": REPORT_POLICY})


@app.get("/dags/{dag_id}/report", dependencies=[_may_see_runs])
def report(dag_id: str, run_id: str) -> Response:
    """Return the report of a run."""
    found = page_of_run(dag_id, run_id, "report.html", Settings.from_environment())
    return _report(found, f"DAG {dag_id} has no report of this run yet: it is written when the run ends.")


class Control(BaseModel, extra="forbid"):
    run_id: str
    action: str
    """Pause, resume or stop."""
    reason: str = Field(max_length=2000)


@app.post("/dags/{dag_id}/control", dependencies=[_may_control])
def control(
    dag_id: str, asked: Control, request: Request, user: Any = _user, settings: Settings = _settings
) -> dict[str, str]:
    """Pause, resume or stop a run of the DAG before its next node.

    The user needs the right to change the runs of the DAG. Only a JSON body is read, which a page of another site
    cannot send with the session of the user.
    """
    from kafka_rollout.clusters.inventory import get_cluster
    from kafka_rollout.wiring.runs import control_request, request_control

    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "Send the body as application/json.")
    found = find_run(dag_id, asked.run_id, settings)
    if found is None:
        raise HTTPException(404, f"DAG {dag_id} has no such run.")
    responder = Responder(channel=Channel.AIRFLOW, user=str(user.get_id()), name=str(user.get_name()))
    try:
        wanted = control_request(get_cluster(found[0], settings), asked.action, asked.reason, responder)
        sentence = request_control(found[0], asked.run_id, wanted, settings)
    except UserError as error:
        raise HTTPException(422, str(error)) from None
    except RefusedError as error:
        raise HTTPException(409, str(error)) from None
    return {"run_id": asked.run_id, "action": asked.action, "message": str(shown(sentence))}


@app.get("/dags/{dag_id}/check", dependencies=[_may_see_runs])
def check(dag_id: str, run_id: str, settings: Settings = _settings) -> Response:
    """Return the report of the check that a scheduled run made."""
    return _report(check_page(dag_id, run_id, settings), f"This run of DAG {dag_id} has no check.")


@app.get("/dags/{dag_id}/traffic.svg", dependencies=[_may_see_runs])
def traffic(dag_id: str, run_id: str, settings: Settings = _settings) -> Response:
    """Return the plot of a run's node steps and test traffic, also while the run is in progress."""
    if not can_plot():
        raise HTTPException(404, INSTALL)
    missing = f"DAG {dag_id} has no such run with test traffic or node steps yet."
    return _report(traffic_svg(dag_id, run_id, settings), missing, "image/svg+xml")


@app.get("/dags/{dag_id}/scan", dependencies=[_may_see_runs])
def scan(dag_id: str, run_id: str, task_id: str, settings: Settings = _settings) -> Response:
    """Return the report of a scan that a task of the run made."""
    return _report(scan_page(dag_id, run_id, task_id, settings), f"This run has no scan by {task_id}.")
