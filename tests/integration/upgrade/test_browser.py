"""A person's way through Airflow's pages in headless Chromium: form, graph, approval, and the page of our own."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from kafka_rollout.coordinator_logs.page.report import render_scan
from kafka_rollout.coordinator_logs.scan import ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.notifications.due import NotificationKind
from kafka_rollout.releases.documents.catalogue import load_catalogue
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.pages import (
    choose,
    console,
    own_page,
    run_of,
    sign_in,
)
from tests.integration.harness.airflow.server import (
    APPROVER,
    PrivateAirflow,
    Run,
    finalized,
    no_lock_left,
)
from tests.records import record_alert, scan_history
from tools.demo.folder import PROJECT_ROOT

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.timeout(1800)]

OWN_PATHS = (
    "",
    "runs",
    "scans",
    "console?cluster=nobody",
    "static/page.js",
    "dags/kafka_upgrade_nobody/report?run_id=any",
)


@pytest.mark.full
def test_a_person_changes_single_features_and_reads_what_became_of_each(
    airflow: PrivateAirflow, make_cluster: MakeCluster, page: Page, tmp_path: Path
) -> None:
    cluster = make_cluster("4.3.1", name="levels", layout="combined", size=1, metadata_version="4.2-IV1")
    dag_id = airflow.add(cluster, dag="kafka_features")
    sign_in(page, airflow, APPROVER)
    page.goto(f"{airflow.server.url}/dags/{dag_id}")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    choose(page, form, "Feature action", "change single features, or set the levels of a release")
    for parameter, lines in (("upgrade", "metadata.version=30"), ("downgrade", "streams.version=0\nshare.version=0")):
        form.locator(f"#element_{parameter}").fill(lines)
    page.screenshot(path=tmp_path / "features-form.png")
    form.get_by_role("button", name="Trigger").click()
    page.wait_for_url(re.compile(r"/runs/manual__"))
    run = Run(airflow=airflow, cluster=cluster, dag_id=dag_id, run_id=run_of(page.url), client=airflow.client())

    run.wait_for_question("approve")
    page.goto(f"{airflow.server.url}/dags/{dag_id}/runs/{run.run_id}/tasks/approve/required_actions")
    asked = page.get_by_text("Change features of levels: metadata.version 29 → 30, streams.version 1 → 0")
    expect(asked).to_be_visible()
    for feature, undo in (("metadata.version 29 → 30", "offline"), ("share.version 1 → 0", "by the controller")):
        told = page.get_by_role("heading", name=feature).locator("xpath=following-sibling::ul[1]")
        expect(told).to_contain_text(f"Undo: {undo}")
    run.approve("approve")
    run.wait_success()
    assert finalized(cluster, cluster.spec.nodes[0]).items() >= {"metadata.version": 30, "group.version": 1}.items()
    assert not {"streams.version", "share.version"} & finalized(cluster, cluster.spec.nodes[0]).keys()
    no_lock_left(airflow, cluster)

    own = console(page, airflow, "levels")
    expect(own.get_by_text("Features, on 4.3.1 · started by")).to_be_visible()
    expect(own).to_contain_text("· run 1")
    expect(own.get_by_text("finalized: metadata.version 30")).to_be_visible()
    with page.context.expect_page() as opened:
        own.get_by_role("link", name="report").click()
    report = opened.value
    expect(report.get_by_text("Every level is as requested, on every node.")).to_be_visible()
    for feature in ("metadata.version", "share.version", "streams.version"):
        row = report.get_by_role("row").filter(has=report.get_by_role("cell", name=feature, exact=True))
        expect(row).to_contain_text("OK")
    report.screenshot(path=tmp_path / "features-report.png")


@pytest.mark.full
def test_the_newest_scan_its_verdicts_and_its_report_are_shown(
    airflow: PrivateAirflow, page: Page, tmp_path: Path
) -> None:
    """Of a cluster whose scans are kept, and whose last try failed."""
    reports, scan = scan_history(airflow.home, "nobody"), scanned()
    render = render_scan(scan, load_catalogue(PROJECT_ROOT / "include"))
    reports.keep(scan, render, run_id="scheduled__1")
    sign_in(page, airflow, APPROVER)
    card = own_page(page, airflow).locator("article.scan").filter(has_text="Coordinator logs")
    expect(card.get_by_text("3.4.0 fails")).to_be_visible()
    expect(card.get_by_text("3.4.1 loads, ignores some")).to_be_visible()
    expect(card.get_by_text("4.3.1 loads", exact=True)).to_be_visible()
    expect(card.get_by_text("scanned 3 hours ago")).to_be_visible()
    failed, headline = NotificationKind.SCAN_FAILED, "The logs could not be scanned."
    record_alert(airflow.home, "nobody", "scheduled__2", failed, headline, "No broker answered.")
    expect(card.get_by_text("The logs could not be scanned. No broker answered.", exact=True)).to_be_visible()
    card.get_by_text("Alerts").click()
    page.screenshot(path=tmp_path / "scans-page.png")

    with page.context.expect_page() as opened:
        card.get_by_role("link", name="report").click()
    expect(opened.value.get_by_text("unknown key version 3").first).to_be_visible()
    opened.value.screenshot(path=tmp_path / "scan-report.png")


def scanned() -> ScanResult:
    """Three hours ago: commits, and two records of a consumer group (KIP-848)."""
    topic, catalogue = "__consumer_offsets", load_catalogue(PROJECT_ROOT / "include")
    classes = tuple(
        RecordKind(topic=topic, partition=0, key_version=key, value_version=value, count=count, first_offset=first)
        for key, value, count, first in ((1, 3, 40, 0), (3, 0, 2, 40))
    )
    return ScanResult(
        cluster="nobody",
        scanned_at=time.time() - 3 * 3600,
        logs=(LogRange(topic=topic, partition=0, start=0, end=42),),
        classes=classes,
        verdicts=evaluate_records(catalogue, classes, list(catalogue)),
    )


def test_nobody_reads_the_page_without_signing_in(airflow: PrivateAirflow, page: Page) -> None:
    for path in OWN_PATHS:
        answer = httpx.get(f"{airflow.server.url}/kafka-rollout/{path}", trust_env=False)
        assert answer.status_code == 401, path
        assert "nobody" not in answer.text
    page.goto(f"{airflow.server.url}/plugin/kafka-rollout")
    expect(page.get_by_text("Enter your username and password below")).to_be_visible()
