"""A downgrade that Kafka refuses online, by a person in a browser: what is asked, what is lost, and what was done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kafka_rollout.planning.request import SELDOM
from tests.integration.conftest import MakeCluster
from tests.integration.downgrade.test_dag_downgrade_offline import cordon_a_second_directory
from tests.integration.harness.airflow.pages import (
    FAST,
    box,
    choices,
    choose,
    console,
    known_releases,
    run_of,
    section,
    settled,
    sign_in,
    widen_the_panel,
)
from tests.integration.harness.airflow.server import (
    APPROVER,
    QUICK_SNAPSHOTS,
    PrivateAirflow,
    Run,
    all_run,
    finalized,
    no_lock_left,
)
from tests.integration.harness.cluster_contents import WITH_ACLS, fill

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(1800)]


def test_a_person_takes_a_cluster_back_and_reads_what_is_lost_before_and_after(
    airflow: PrivateAirflow, make_cluster: MakeCluster, page: Page, tmp_path: Path
) -> None:
    cluster = make_cluster(
        "4.3.1", name="returns", layout="combined", size=1, extra_config={**QUICK_SNAPSHOTS, **WITH_ACLS}, start=False
    )
    cordoned, second = cordon_a_second_directory(cluster)
    cluster.start()
    fill(cluster)
    dag_id = airflow.add(cluster, dag="kafka_downgrade")
    sign_in(page, airflow, APPROVER)

    page.goto(f"{airflow.server.url}/dags/{dag_id}")
    trigger_by_the_form(page, tmp_path)
    page.wait_for_url(re.compile(r"/runs/manual__"))
    run = Run(airflow=airflow, cluster=cluster, dag_id=dag_id, run_id=run_of(page.url), client=airflow.client())

    run.wait_for_question("approve_levels")
    asked_in_words(page, airflow, run, "approve_levels", "Lower the features of returns: share.version 1 → 0")
    expect(page.get_by_role("heading", name="Metadata lost: 1")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text=f"Broker {cordoned}").first).to_contain_text(f" {second} (")
    expect(page.get_by_text("metadata.version 30 → 25: with all nodes stopped, after an approval")).to_be_visible()
    run.answer("approve_levels", "Approve", "nobody shares")
    run.wait_for_question("approve_roll")
    asked_in_words(page, airflow, run, "approve_roll", "Stop all nodes of returns and take them from 4.3.1 to 4.0.1")
    expect(page.get_by_role("heading", name="All nodes will be stopped")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="Expected outage of the whole cluster")).to_be_visible()
    expect(page.get_by_role("heading", name="Metadata lost: 1")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="--as <name> --reason <text>")).to_be_visible()
    page.screenshot(path=tmp_path / "downgrade-approval.png")
    show_the_graph(page, airflow, run, tmp_path)
    run.answer("approve_roll", "Approve", "the shop is closed")
    run.wait_success()

    all_run(cluster, "4.0.1")
    assert finalized(cluster, cluster.spec.nodes[0])["metadata.version"] == 25
    no_lock_left(airflow, cluster)
    own = console(page, airflow, cluster.spec.name)
    expect(own.get_by_text("Downgrade 4.3.1 → 4.0.1 · started by")).to_be_visible()
    with page.context.expect_page() as opened:
        own.get_by_role("link", name="report").click()
    report = opened.value
    lost = report.get_by_role("heading", name="Metadata lost at level 25 1 loss")
    expect(lost).to_be_visible()
    expect(report.get_by_role("heading", name="Offline steps")).to_be_visible()
    expect(report.get_by_text(re.compile(r"outage, expected: about \d+ s"))).to_be_visible()
    expect(report.get_by_text("Measured outage: ").first).to_be_visible()
    expect(report.get_by_role("heading", name="Contents before and after")).to_be_visible()
    for gate in ("groups", "finalized", "after node 1", "levels", "final-metadata-version"):
        expect(report.locator("summary").filter(has_text=gate)).to_have_count(1)
    for settings in ("group configurations 2 2", "client-metrics subscriptions 1 1"):
        expect(report.get_by_role("row", name=settings)).to_be_visible()
    lost.evaluate("heading => heading.parentElement.scrollIntoView()")
    report.screenshot(path=tmp_path / "downgrade-report.png")


def trigger_by_the_form(page: Page, tmp_path: Path) -> None:
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    target = form.get_by_role("group").filter(has_text="Target release").first
    expect(target).not_to_contain_text(re.compile(r"\d\.\d\.\d"))  # nobody goes where they have not chosen to go
    assert choices(page, form, "Target release") == known_releases()
    choose(page, form, "Target release", "4.0.1")
    choose(
        page, form, "If Kafka refuses the level", "stop only the controllers, or all nodes if needed, after an approval"
    )
    expect(form.get_by_role("checkbox", name="Dry run")).not_to_be_checked()
    page.screenshot(path=tmp_path / "downgrade-form.png")
    choose(page, form, "Pace", FAST)
    section(form, SELDOM)
    choose(page, form, "Downgrade type", "UNSAFE: accept the losses, and list them")
    form.get_by_role("button", name="Trigger").click()


def show_the_graph(page: Page, airflow: PrivateAirflow, run: Run, tmp_path: Path) -> None:
    """In the middle of the run: what was done, and what waits for the answer."""
    page.goto(f"{airflow.server.url}/dags/{run.dag_id}/runs/{run.run_id}")
    page.get_by_role("button", name="Show Graph").click()
    expect(box(page, "approve_roll")).to_contain_text("awaiting_input")
    for done in ("report_losses", "approve_levels", "lowering"):
        expect(box(page, done)).to_contain_text("success")
    page.get_by_role("button", name="Collapse Details Panel").click()
    page.get_by_role("button", name="Fit View").click()
    for _ in range(3):
        settled(box(page, "approve_roll"))
        page.get_by_role("button", name="Zoom In").click()
    settled(box(page, "approve_roll"))
    page.screenshot(path=tmp_path / "downgrade-graph.png")


def asked_in_words(page: Page, airflow: PrivateAirflow, run: Run, task: str, question: str) -> None:
    """The task's question, as text and tables and not as Markdown's source."""
    page.goto(f"{airflow.server.url}/dags/{run.dag_id}/runs/{run.run_id}/tasks/{task}/required_actions")
    expect(page.get_by_text(question)).to_be_visible()
    widen_the_panel(page)
