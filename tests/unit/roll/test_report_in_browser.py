"""The report of a run in headless Chromium: it fits a phone, also with everything unfolded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_rollout.gates.gate import GatePolicy
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.procedure.kinds import build_report_of_run
from kafka_rollout.report.page.pages import render_run
from kafka_rollout.roll.walk import roll_release_steps
from tests.integration.harness.airflow.pages import open_page

pytestmark = pytest.mark.browser

LONG = "a" * 100  # a name without a place to break


@pytest.mark.parametrize("stops_after", [2, 9], ids=["stopped", "finished"])
def test_the_report_fits_a_phone(ports: ClusterPorts, plan: Plan, tmp_path: Path, stops_after: int) -> None:
    started: list[object] = []
    roll_release_steps(
        Run(ports, plan),
        GatePolicy(checks=2, interval_s=1, timeout_s=60),
        on_progress=started.append,
        stop_asked=lambda: len(started) > stops_after,
    )
    file = tmp_path / "report.html"
    report = replace(
        build_report_of_run(Run(ports, plan)), sentence=f"Node {LONG} did not start.", proved=(f"Topic {LONG}.",)
    )
    file.write_text(render_run(report), encoding="utf-8")
    with open_page() as page:
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(file.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        wide = """() => [...document.querySelectorAll("main *")].filter((one) => !one.closest(".scroll")
            && one.getBoundingClientRect().right > innerWidth).map((one) => one.outerHTML.slice(0, 80))"""
        assert page.evaluate(wide) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
