"""Downgrades that stop all nodes or all controllers, followed and decided in the console by the person on duty."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Stopped
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.pages import (
    TASKS_MS,
    answer_in_console,
    no_serious_violation,
    open_console,
    sign_in,
)
from tests.integration.harness.airflow.server import (
    APPROVER,
    PrivateAirflow,
    Run,
    all_run,
    finalized,
    no_lock_left,
    nothing_lost,
    wait_for,
)
from tests.integration.harness.cluster_contents import WITH_ACLS, fill
from tests.integration.harness.faults.lost_logs import put_back, take_metadata_logs_away

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(1800)]

PHONE, WIDE = {"width": 390, "height": 844}, {"width": 1400, "height": 900}


def look(page: Page, folder: Path, name: str) -> None:
    """Pictures in both colors and on a phone, where nothing overflows; no serious violation of accessibility."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect(page.locator("html")).to_have_attribute("data-theme", scheme)
        page.screenshot(path=folder / f"{name}-{scheme}.png", full_page=True)
        no_serious_violation(page)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PHONE)
    page.screenshot(path=folder / f"{name}-phone.png", full_page=True)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
    page.set_viewport_size(WIDE)


def step(found: Locator, label: str) -> Locator:
    return (
        found.get_by_role("region", name="Steps of the run")
        .get_by_role("listitem", include_hidden=True)
        .filter(has_text=label)
    )


def approve(page: Page, run: Run, found: Locator, question: str, folder: Path) -> None:
    run.wait_for_question("approve_roll")
    needed = found.get_by_role("region", name="What needs a human")
    expect(needed).to_contain_text(question, timeout=TASKS_MS)
    expect(needed).to_contain_text("The run has no node stopped.")
    look(page, folder, "approval")
    answer_in_console(page, run, "approve_roll", "Approve", "Low load until 06:00.")


def test_with_all_nodes_stopped_a_failed_step_is_undone_in_the_console(
    airflow: PrivateAirflow, make_cluster: MakeCluster, page: Page, tmp_path: Path
) -> None:
    cluster = make_cluster("4.3.1", name="ledger", layout="combined", extra_config=WITH_ACLS)
    fill(cluster)
    airflow.add(cluster, "kafka_downgrade")
    run = airflow.trigger(cluster, "4.2.1", dag="kafka_downgrade", lowering="offline")
    sign_in(page, airflow, APPROVER)
    found = open_console(page, airflow, "ledger")
    expect(step(found, "Loss report")).to_have_attribute("aria-current", "step", timeout=TASKS_MS)
    approve(page, run, found, "Stop all nodes of ledger and take them from 4.3.1 to 4.2.1", tmp_path)
    wait_for(lambda: len(events_of(run.store.events(), Stopped)) == 3, timeout_s=300, said="the stop of all nodes")
    away = take_metadata_logs_away(cluster.spec.nodes[:2])
    expect(found.get_by_text("No client can produce or consume: the run stopped all nodes.").first).to_be_visible()
    run.wait_for_question("offline.choose_log")
    needed = found.get_by_role("region", name="What needs a human")
    for text in (
        "The offline step choose_log failed. How to continue?",
        "The metadata logs of 1 of 3 voters are available. 2 are needed",
        "The run stopped all 3 nodes.",
        "No client can produce or consume: the run stopped all nodes. Since ",
    ):
        expect(needed).to_contain_text(text, timeout=TASKS_MS)
    expect(found.get_by_text("The downgrade can be undone from the backups.")).to_be_visible()
    expect(found.locator(".node").filter(has_text="stopped")).to_have_count(3)
    expect(step(found, "Stop all nodes")).to_contain_text("done")
    expect(step(found, "Gate after the start")).to_contain_text("open")
    look(page, tmp_path, "all-stopped")
    put_back(away)
    answer_in_console(page, run, "offline.choose_log", "Roll back", "Two disks were away.")
    expect(step(found, "Restore from backup")).to_have_attribute("aria-current", "step", timeout=TASKS_MS)
    expect(found).to_contain_text("rolling back")
    assert run.wait_done() == "failed"

    all_run(cluster, "4.3.1")
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {30}
    no_lock_left(airflow, cluster)
    nothing_lost(run.report()["traffic"])
    sentence = re.compile("Every node runs 4.3.1 again. Every level is as before the run. Measured outage: ")
    expect(found.get_by_text(sentence)).to_be_visible(timeout=TASKS_MS)
    expect(found.locator(".node").filter(has_text="rolled back")).to_have_count(3)
    expect(step(found, "running")).to_have_count(0)
    look(page, tmp_path, "undone")


def test_the_controllers_of_a_live_downgrade_are_seen_stopped_and_then_each_node(
    airflow: PrivateAirflow, make_cluster: MakeCluster, page: Page, tmp_path: Path
) -> None:
    cluster = make_cluster("4.3.1", name="stream", layout="separate", extra_config=WITH_ACLS)
    fill(cluster)
    airflow.add(cluster, "kafka_downgrade")
    run = airflow.trigger(cluster, "4.2.1", dag="kafka_downgrade", lowering="live")
    sign_in(page, airflow, APPROVER)
    found = open_console(page, airflow, "stream")
    approve(page, run, found, "Stop the controllers of stream", tmp_path)
    stopped = found.get_by_text("The run stopped all controllers. Brokers serve clients").first
    expect(stopped).to_be_visible(timeout=TASKS_MS)
    page.screenshot(path=tmp_path / "controllers-stopped.png", full_page=True)
    expect(stopped).to_have_count(0, timeout=TASKS_MS)
    expect(found.get_by_text("1 of 6 nodes done")).to_be_visible(timeout=TASKS_MS)
    expect(found.get_by_role("region", name="Gate controllers-stop")).to_have_count(0)
    expect(step(found, "Nodes 4.3.1 → 4.2.1")).to_have_attribute("aria-current", "step")
    look(page, tmp_path, "rolling")
    run.wait_success()

    all_run(cluster, "4.2.1")
    assert {finalized(cluster, node)["metadata.version"] for node in cluster.spec.nodes} == {29}
    nothing_lost(run.report()["traffic"])
    sentence = found.get_by_text(re.compile("No controller was active for at most [0-9.]+ s")).first
    expect(sentence).to_be_visible(timeout=TASKS_MS)
    expect(step(found, "Stop all nodes")).to_contain_text("skipped")
    expect(step(found, "running")).to_have_count(0)
    look(page, tmp_path, "end")
