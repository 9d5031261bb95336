"""Time until Airflow's grid and graph of an upgrade DAG can be used, in Chromium, by the number of brokers.

    python -m bench.dag_pages [--rounds 3] [--pictures FOLDER]

A real Airflow has one cluster of 9, of 100 and of 1,000 brokers, whose nodes do not exist. Each DAG has a run that has
not begun, so the grid and the graph have all tasks. In each round a new browser context, without a cache, opens both
views of each DAG. A view can be used when its last task is drawn and a click on a task has opened that task's page. For
"expanded", the graph is open, and all task groups are opened.

Writes bench/results/dag_pages.json: seconds as median, minimum and maximum. The goal is a median of 5 s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from bench.dag_size import cluster_of
from kafka_rollout.clusters.inventory import dump_cluster
from tests.integration.harness.airflow.pages import CHROMIUM, FLAGS, PATIENCE_MS, box
from tools.demo.airflow_server import AirflowServer
from tools.demo.folder import PROJECT_ROOT

RESULTS = PROJECT_ROOT / "bench" / "results" / "dag_pages.json"
SIZES = (9, 100, 1000)
GOAL_S = 5
VIEWS = ("grid", "graph", "expanded")
FIRST, LAST = "observe", "report"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as name:
        clusters = Path(name) / "clusters"
        clusters.mkdir()
        for size in SIZES:
            (clusters / f"c{size}.yaml").write_text(dump_cluster(cluster_of(f"c{size}", size)))
        environment = {
            "KAFKA_ROLLOUT_CLUSTERS": str(clusters),
            "KAFKA_ROLLOUT_HOME": str(Path(name) / "home"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
        }
        with AirflowServer.start(Path(name) / "airflow", environment=environment, timeout_s=300) as airflow:
            client, tasks = airflow.client(), {}
            for size in SIZES:
                dag_id = f"kafka_upgrade_c{size}"
                client.wait_for_dag(dag_id, timeout_s=600)
                run_id = client.trigger(dag_id, {"target_release": "4.3.1"})
                tasks[size] = len(client.tasks(dag_id, run_id))
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)
                rounds = [_round(browser, airflow, arguments.pictures) for _ in range(arguments.rounds)]
    result: dict[str, Any] = {
        "command": " ".join(["python -m bench.dag_pages", *sys.argv[1:]]),
        "load": round(os.getloadavg()[0], 1),
        "rows": [
            {
                "brokers": size,
                "tasks": tasks[size],
                **{view: _spread([found[size, view] for found in rounds]) for view in VIEWS},
            }
            for size in SIZES
        ],
    }
    print(json.dumps(result, indent=2))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return int(any(row[view][0] > GOAL_S for row in result["rows"] for view in VIEWS))


def _round(browser: Browser, airflow: AirflowServer, pictures: Path | None) -> dict[tuple[int, str], float]:
    found = {}
    for size in SIZES:
        for view in VIEWS:
            with browser.new_context(viewport={"width": 1400, "height": 900}, locale="en-US") as context:
                context.set_default_timeout(PATIENCE_MS)
                expect.set_options(timeout=PATIENCE_MS)
                page = context.new_page()
                _sign_in(page, airflow)
                found[size, view] = _open(page, airflow, f"kafka_upgrade_c{size}", view)
                print(f"{size} brokers, {view}: {found[size, view]:.2f} s", file=sys.stderr, flush=True)
                if pictures is not None:
                    page.screenshot(path=pictures / f"{view}-{size}.png")
    return found


def _sign_in(page: Page, airflow: AirflowServer) -> None:
    (user,) = airflow.users
    page.goto(airflow.url)
    page.get_by_label("Username").fill(user.name)
    page.get_by_label("Password").first.fill(user.password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()


def _open(page: Page, airflow: AirflowServer, dag_id: str, view: str) -> float:
    """Open a view of the DAG; return the seconds until it can be used."""
    if view != "grid":  # what "Show Graph" remembers
        page.evaluate("localStorage.setItem('default_dag_view', JSON.stringify('graph'))")
    began = time.monotonic()
    page.goto(f"{airflow.url}/dags/{dag_id}")
    if view == "expanded":
        expect(box(page, LAST)).to_be_attached()
        began = time.monotonic()
        page.get_by_role("button", name="Expand all").click()
        expect(page.locator(".react-flow__node[data-id^='roll_back.']").first).to_be_attached()
        return time.monotonic() - began
    if view == "graph":
        expect(box(page, LAST)).to_be_attached()
        box(page, FIRST).get_by_role("link").dispatch_event("click")  # the graph shows the whole: its nodes are small
    else:
        expect(page.get_by_role("link", name=LAST, exact=True).last).to_be_attached()
        page.get_by_role("link", name=FIRST, exact=True).first.click()
    page.wait_for_url(re.compile(rf"/tasks/{FIRST}"))
    expect(page.get_by_role("heading", name=FIRST).first).to_be_visible()
    return time.monotonic() - began


def _spread(values: list[float]) -> list[float]:
    return [round(pick(values), 2) for pick in (statistics.median, min, max)]


if __name__ == "__main__":
    sys.exit(main())
