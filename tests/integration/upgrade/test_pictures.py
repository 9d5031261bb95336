"""The pictures of the documentation, from real runs: an upgrade whose second node does not start, which is rolled back
in the console, a scan, and a stop of all nodes. `make pictures` writes them to docs/images.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect

from kafka_rollout.planning.request import SELDOM
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import Stopped
from tests.fleet_scenes import Fleet, add_others
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.pages import (
    FAST,
    TASKS_MS,
    answer_in_console,
    box,
    choose,
    no_serious_violation,
    open_console,
    run_of,
    section,
    settled,
    sign_in,
    widen_the_panel,
)
from tests.integration.harness.airflow.server import (
    APPROVER,
    DONE,
    PATIENCE_S,
    PrivateAirflow,
    Run,
    all_run,
    no_lock_left,
    nothing_lost,
    starts,
)
from tests.integration.harness.faults.breaking import BREAKS_WHERE_A_FILE_IS_IN_THE_WAY
from tests.integration.harness.faults.lost_logs import put_back, take_metadata_logs_away
from tests.paths import IMAGES, PICTURES
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(3600)]

OLDER, RUNNING, TARGET = "4.2.1", "4.3.1", "4.4.0"
WIDE, PHONE = {"width": 1400, "height": 900}, {"width": 390, "height": 844}


@dataclass(kw_only=True)
class Camera:
    """Takes pictures with at most 256 colors."""

    folder: Path
    taken: set[str] = field(default_factory=set)

    def take(self, name: str, page: Page, *, only: Locator | None = None, part: FloatRect | None = None) -> None:
        from PIL import Image

        path = self.folder / f"{name}.png"
        if only is None:
            page.screenshot(path=path, clip=part)
        else:
            only.screenshot(path=path)
        with Image.open(path) as picture:
            picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
        self.taken.add(name)


def test_pictures_of_the_documentation(
    airflow: PrivateAirflow, make_cluster: MakeCluster, page: Page, tmp_path: Path
) -> None:
    made = make_cluster(RUNNING, name="orders", layout="combined")
    cluster = replace(made, spec=replace(made.spec, release_overrides={TARGET: BREAKS_WHERE_A_FILE_IS_IN_THE_WAY}))
    camera = Camera(folder=IMAGES if os.environ.get("KAFKA_ROLLOUT_PICTURES") == "1" else tmp_path)
    dag_id = airflow.add(cluster)
    sign_in(page, airflow, APPROVER)
    page.goto(f"{airflow.server.url}/dags/{dag_id}")
    trigger_by_the_form(page, camera)
    page.wait_for_url(re.compile(r"/runs/manual__"))
    run = Run(airflow=airflow, cluster=cluster, dag_id=dag_id, run_id=run_of(page.url), client=airflow.client())
    run.wait_for_question("approve_plan")
    second = cluster.spec.node(run.store.load_plan().release_steps[0].order[1].node_id)
    (Path(str(second.directory)) / "figures").write_text("in the way")
    approve_the_plan(page, airflow, run, camera)
    in_the_middle(page, airflow, run, camera)
    gate = "roll.gate_after[1]"
    run.wait_for_question(gate)
    roll_back_in_the_console(page, airflow, run, gate, camera)
    assert run.wait_done() == "failed"
    all_run(cluster, RUNNING)
    assert {name for name, by in starts(cluster).items() if TARGET in by} == {
        cluster.spec.node(one.node_id).name for one in run.store.load_plan().release_steps[0].order[:2]
    }
    report = run.report()
    assert report["outcome"] == "rolled_back"
    nothing_lost(report["traffic"])
    report_page = f"{airflow.server.url}/kafka-rollout/dags/{dag_id}/report?run_id={quote(run.run_id)}"
    page.goto(report_page)
    expect(page.get_by_role("heading", name="Node steps and test traffic")).to_be_visible()
    camera.take("report", page)
    page.set_viewport_size(PHONE)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), "the report is too wide"
    page.set_viewport_size(WIDE)

    features_form(page, airflow, camera)
    scan_the_logs(page, airflow, run, camera)
    options(page, airflow, camera)
    with_all_nodes_stopped(page, airflow, made, camera)
    no_lock_left(airflow, cluster)
    assert camera.taken == PICTURES


def trigger_by_the_form(page: Page, camera: Camera) -> None:
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    choose(page, form, "Target release", TARGET)
    expect(form.get_by_role("checkbox", name="Dry run")).not_to_be_checked()
    choose(page, form, "Pace", FAST)
    camera.take("trigger-form", page)
    section(form, SELDOM)
    # A copy has the setting that keeps the node from starting, but not the file in its way.
    form.get_by_role("checkbox", name="Rehearsal").dispatch_event("click")
    expect(form.get_by_role("checkbox", name="Rehearsal")).not_to_be_checked()
    traffic = form.get_by_role("checkbox", name="Test traffic")
    traffic.dispatch_event("click")
    expect(traffic).to_be_checked()
    form.get_by_role("button", name="Trigger").click()


def approve_the_plan(page: Page, airflow: PrivateAirflow, run: Run, camera: Camera) -> None:
    page.goto(f"{airflow.server.url}/dags/{run.dag_id}/runs/{run.run_id}/tasks/approve_plan/required_actions")
    expect(page.get_by_text(f"Upgrade orders from {RUNNING} to {TARGET}?")).to_be_visible()
    widen_the_panel(page)
    page.get_by_role("group").filter(has_text="Reason").get_by_role("textbox").fill("CHG-19, a quiet evening")
    button = page.get_by_role("button", name="Approve", exact=True)
    expect(button).to_be_enabled()
    button.scroll_into_view_if_needed()
    camera.take("approval", page)
    button.click()
    run.note_answer("approve_plan", "Approve", "CHG-19, a quiet evening")
    run.wait_for_task("approve_plan")


def in_the_middle(page: Page, airflow: PrivateAirflow, run: Run, camera: Camera) -> None:
    """The second node is replaced: the graph, and the console in both colors."""
    found = open_console(page, airflow, "orders")
    expect(found.get_by_text("1 of 3 nodes done")).to_be_visible(timeout=TASKS_MS)
    working = page.locator(".node").filter(has_text=re.compile("stopping|stopped|starting|catching up"))
    expect(working.first).to_be_visible(timeout=TASKS_MS)
    camera.take("console", page)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    camera.take("console-dark", page)
    page.emulate_media(color_scheme="light")
    page.goto(f"{airflow.server.url}/dags/{run.dag_id}/runs/{run.run_id}")
    page.get_by_role("button", name="Show Graph").click()
    box(page, "roll").get_by_role("button", name="Tasks").click()
    page.get_by_role("button", name="Collapse Details Panel").click()
    page.get_by_role("button", name="Fit View").click()
    for _ in range(6):
        to_the_middle(page, box(page, "roll"))
        page.get_by_role("button", name="Zoom In").click()
    to_the_middle(page, box(page, "roll"))
    camera.take("graph", page, part={"x": 75, "y": 330, "width": 1300, "height": 320})
    page.goto("about:blank")


def to_the_middle(page: Page, moving: Locator) -> None:
    """Drag the graph until one of its boxes is in the middle."""
    settled(moving)
    place = moving.bounding_box()
    assert place is not None
    page.mouse.move(600, 750)
    page.mouse.down()
    page.mouse.move(600 + 725 - place["x"] - place["width"] / 2, 750 + 490 - place["y"] - place["height"] / 2, steps=4)
    page.mouse.up()
    settled(moving)


def roll_back_in_the_console(page: Page, airflow: PrivateAirflow, run: Run, gate: str, camera: Camera) -> None:
    found = open_console(page, airflow, "orders")
    needed = found.get_by_role("region", name="What needs a human")
    expect(needed).to_contain_text("How to continue?")
    expect(needed).not_to_contain_text("unknown now")
    expect(needed.get_by_role("button", name="Answer")).to_be_visible()
    expect(found.get_by_role("region", name=re.compile("^Log of node"))).to_contain_text("figures")
    page.set_viewport_size(PHONE)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), "the console is too wide"
    camera.take("phone", page)
    page.set_viewport_size(WIDE)
    all_clusters(page, airflow, camera)
    needed = open_console(page, airflow, "orders").get_by_role("region", name="What needs a human")
    needed.get_by_role("radio", name="Roll back").check()
    needed.get_by_role("textbox", name="Reason").fill("The metrics folder of this node is a file.")
    answer = needed.get_by_role("button", name="Answer: Roll back")
    expect(answer).to_be_enabled()
    expect(needed).not_to_contain_text("unknown now")
    camera.take("failed-gate", page)
    answer.click()
    run.note_answer(gate, "Roll back", "The metrics folder of this node is a file.")
    expect(page.get_by_role("article", name="Cluster orders")).to_contain_text("rolling back", timeout=TASKS_MS)
    page.goto("about:blank")


def all_clusters(page: Page, airflow: PrivateAirflow, camera: Camera) -> None:
    """The table with this cluster, with one that does not respond, and with others from recorded histories."""
    others = add_others(Fleet(airflow.home.parent))
    page.goto(f"{airflow.server.url}/kafka-rollout/fleet")
    expect(page.locator("tr", has_text="orders").first).to_contain_text("waiting for")
    expect(page.locator("tr", has_text="billing").first).to_contain_text("the run has stopped nodes")
    no_serious_violation(page)
    camera.take("fleet", page)
    page.get_by_role("searchbox", name="Filter").fill("orders")
    expect(page.locator("tr", has_text="billing")).to_have_count(0)
    with page.expect_download() as begun:
        page.get_by_role("link", name="CSV").click()
    rows = [line.split(",")[0] for line in begun.value.path().read_text().splitlines()]
    assert rows == ["Cluster", *page.locator("tbody th a").all_inner_texts()]
    for name in others:
        (airflow.clusters / f"{name}.yaml").unlink()


def features_form(page: Page, airflow: PrivateAirflow, camera: Camera) -> None:
    page.goto(f"{airflow.server.url}/dags/kafka_features_orders")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    choose(page, form, "Feature action", "change single features, or set the levels of a release")
    for parameter, lines in (("upgrade", "metadata.version=30"), ("downgrade", "streams.version=0\nshare.version=0")):
        form.locator(f"#element_{parameter}").fill(lines)
    camera.take("features-form", page)


def scan_the_logs(page: Page, airflow: PrivateAirflow, run: Run, camera: Camera) -> None:
    dag_id = airflow.add(run.cluster, "kafka_compatibility_scan")
    scan = run.client.trigger(dag_id, {})
    wait_until(lambda: run.client.run_state(dag_id, scan) in DONE, timeout_s=PATIENCE_S, every_s=1.0)
    assert run.client.run_state(dag_id, scan) == "success"
    page.goto(f"{airflow.server.url}/kafka-rollout/?cluster=orders")
    card = page.locator("article.scan").filter(has_text="Coordinator logs")
    expect(card.get_by_text(f"{TARGET} loads", exact=True)).to_be_visible()
    camera.take("scans-page", page, only=card)
    own = f"{airflow.server.url}/kafka-rollout/dags/{dag_id}"
    page.goto(f"{own}/scan?run_id={quote(scan)}&task_id=scan_coordinator_logs")
    expect(page.get_by_role("heading").first).to_be_visible()
    camera.take("scan-report", page)


def options(page: Page, airflow: PrivateAirflow, camera: Camera) -> None:
    """After the scan, older releases are open; an offline downgrade is the way to a lower level of combined nodes."""
    page.goto(f"{airflow.server.url}/kafka-rollout/downgrade?cluster=orders")
    newest = page.get_by_role("rowgroup", name=re.compile("^Downgrade to 4.2"))
    expect(newest.first).to_contain_text("open")
    newest.first.locator("summary").first.click()
    offline = newest.first.get_by_role("region", name=re.compile("^Offline"))
    expect(offline.get_by_role("button", name="Start this dry run")).to_be_visible()
    camera.take("downgrade-options", page)


def with_all_nodes_stopped(page: Page, airflow: PrivateAirflow, cluster: LocalCluster, camera: Camera) -> None:
    """An offline downgrade whose next step fails, because two metadata logs are away, and its undo in the console."""
    airflow.add(cluster, "kafka_downgrade")
    run = airflow.trigger(cluster, OLDER, dag="kafka_downgrade", lowering="offline", rehearse=False)
    run.approve("approve_roll")
    wait_until(lambda: len(events_of(run.store.events(), Stopped)) == 3, timeout_s=PATIENCE_S)
    away = take_metadata_logs_away(cluster.spec.nodes[:2])
    run.wait_for_question("offline.choose_log")
    needed = open_console(page, airflow, "orders").get_by_role("region", name="What needs a human")
    expect(needed).to_contain_text("The metadata logs of 1 of 3 voters are available.")
    expect(needed).to_contain_text("No client can produce or consume")
    camera.take("offline-downgrade", page)
    put_back(away)
    answer_in_console(page, run, "offline.choose_log", "Roll back", "Two disks were away.")
    assert run.wait_done() == "failed"
    all_run(cluster, RUNNING)
