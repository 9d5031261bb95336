"""The main job through Airflow: a cluster from 3.9.1 to 4.3.1, finalized in the same run.

A person triggers, reads and approves it in Chromium: form, graph, approval, and the page of our own.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kafka_rollout.base.errors import UserError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.model.plan import Plan
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.planning.request import SELDOM
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.pages import (
    FAST,
    TASKS_MS,
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
    OTHER,
    QUICK_SNAPSHOTS,
    PrivateAirflow,
    Run,
    all_run,
    each_started_once,
    every_gate_has_evidence,
    finalized,
    leadership,
    no_lock_left,
    nothing_lost,
    planned_last,
)
from tests.integration.harness.airflow.server import start_order as order_of_starts

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.timeout(1800)]

METADATA_VERSION_4_3 = 30


@pytest.mark.parametrize("layout", ["combined", pytest.param("separate", marks=pytest.mark.full)])
def test_every_node_reaches_the_target_and_every_level_is_finalized(
    airflow: PrivateAirflow, make_cluster: MakeCluster, page: Page, tmp_path: Path, layout: str
) -> None:
    """On three nodes with both roles, and with the larger matrix on six nodes."""
    cluster = make_cluster("3.9.1", name=f"orders-{layout}", layout=layout, extra_config=QUICK_SNAPSHOTS)
    dag_id = airflow.add(cluster)
    before = leadership(cluster)
    sign_in(page, airflow, APPROVER)
    page.goto(f"{airflow.server.url}/dags/{dag_id}")
    trigger_by_the_form(page, tmp_path)
    page.wait_for_url(re.compile(r"/runs/manual__"))
    run = Run(airflow=airflow, cluster=cluster, dag_id=dag_id, run_id=run_of(page.url), client=airflow.client())
    page.goto("about:blank")  # an open page asks for news all the time

    run.wait_for_question("approve_plan")
    with pytest.raises(UserError, match="403"):
        run.answer("approve_plan", "Approve", "I should not be asked", by=OTHER)
    assert "approve_plan" in run.client.questions(run.dag_id, run.run_id), "the wrong person's answer counted"
    planned_run = run.store.load_plan()
    active = planned_last(planned_run, cluster, before)
    the_run_waits(page, run)
    approve_the_plan(page, run, planned_run, tmp_path)
    run.note_answer("approve_plan", "Approve", "a quiet evening")
    run.wait_for_task("approve_plan")
    expect(box(page, "approve_plan")).to_contain_text("success", timeout=TASKS_MS)
    page.goto("about:blank")
    run.wait_for_task("batches")
    the_roll_goes_on(page, run, tmp_path)
    finalize_on_the_page(page, run, tmp_path)
    run.wait_success()

    all_run(cluster, "4.3.1")
    each_started_once(cluster, "3.9.1", "4.3.1")
    controllers = {node.node_id for node in cluster.spec.controllers}
    order = order_of_starts(cluster, "4.3.1")
    assert set(order[:3]) == controllers, "controllers come first"
    assert order[2] == active, "the active controller comes last of them"

    plan = run.store.load_plan()
    planned = {change.feature: change.target for change in plan.feature_changes}
    assert planned["metadata.version"] == METADATA_VERSION_4_3
    assert planned["group.version"] == 1
    assert planned["transaction.version"] == 2
    for node in cluster.spec.nodes:
        levels = finalized(cluster, node)
        assert {feature: levels.get(feature) for feature in planned} == planned, node.name
        metrics = NodeMetricsReader().read(node)
        assert metrics.current_metadata_version_prometheus == METADATA_VERSION_4_3
        assert metrics.current_metadata_version_jolokia == METADATA_VERSION_4_3

    the_report_has_all_of_it(run)
    min_isr = KafkaAdmin(cluster.spec).setting("min.insync.replicas")
    assert (min_isr.default, set(min_isr.brokers.values())) == ("2", {"2"}), "finalizing changed the durability"

    the_snapshots_are_private(airflow.home)
    no_lock_left(airflow, cluster)


def the_snapshots_are_private(home: Path) -> None:
    copies = list((home / "private").rglob("*.checkpoint"))
    assert copies
    for path in copies:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not list((home / "runs").rglob("*.checkpoint")), "the documents hold a snapshot"


def the_report_has_all_of_it(run: Run) -> None:
    """Gates with their evidence, approvals, test traffic, groups, snapshot and scan."""
    report = run.report()
    assert report["outcome"] == "finished"
    every_gate_has_evidence(report)
    gates = {(gate["kind"], gate["node_id"]) for gate in report["gates"] if gate["state"] == "passed"}
    wanted = {(kind, node.node_id) for kind in ("before-stop", "after-start") for node in run.cluster.spec.nodes}
    assert gates == wanted | {
        ("groups", None),
        ("finalized", None),
        ("snapshot", None),
        ("metadata-version", None),
        ("nodes", None),
    }
    assert {(approval["what"], approval["by"]) for approval in report["approvals"]} == {
        ("roll", "anna"),
        ("finalize", "anna"),
    }
    assert report["approvals"][-1]["reason"] == "No error for a week."
    nothing_lost(report["traffic"])
    watched = {each["group"].rsplit("-", 1)[-1]: each for each in report["groups"]["groups"] if each["partitions"]}
    assert watched["classic"]["partitions"] == 12
    assert report["groups"]["checks"] > 10
    assert report["snapshot"]["proved"]
    assert report["snapshot"]["features"]["metadata.version"] == METADATA_VERSION_4_3
    assert report["scan"] is not None
    assert run.store.page("report.html")


def trigger_by_the_form(page: Page, tmp_path: Path) -> None:
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    assert choices(page, form, "Target release") == known_releases()
    choose(page, form, "Target release", "4.3.1")
    choose(page, form, "Finalize features", "in this run, after an approval")
    choose(page, form, "Pace", FAST)
    pin = form.get_by_role("checkbox", name="Pin min.insync.replicas")
    expect(pin).to_be_hidden()  # few runs need it
    expect(form.get_by_role("checkbox", name="Dry run")).not_to_be_checked()
    expect(form.get_by_text("After finalizing, a rollback is not possible")).to_be_visible()
    page.screenshot(path=tmp_path / "trigger-form.png")

    section(form, SELDOM)
    pin.dispatch_event("click")
    expect(pin).to_be_checked()
    traffic = form.get_by_role("checkbox", name="Test traffic")
    traffic.dispatch_event("click")
    expect(traffic).to_be_checked()
    form.get_by_role("button", name="Trigger").click()


def the_run_waits(page: Page, run: Run) -> None:
    """In the graph, and on the page of our own, which leads to the question."""
    page.goto(f"{run.airflow.server.url}/dags/{run.dag_id}/runs/{run.run_id}")
    page.get_by_role("button", name="Show Graph").click()
    expect(box(page, "approve_plan")).to_contain_text("awaiting_input")
    for task in ("observe", "plan"):
        expect(box(page, task)).to_contain_text("success")
    own = console(page, run.airflow, run.cluster.spec.name)
    needed = own.get_by_role("region", name="What needs a human")
    expect(needed.get_by_text(f"Upgrade {run.cluster.spec.name} from 3.9.1 to 4.3.1?", exact=True)).to_be_visible()
    needed.get_by_role("link", name="Airflow's form").click()
    page.wait_for_url(re.compile(r"/tasks/approve_plan/required_actions"))


def approve_the_plan(page: Page, run: Run, plan: Plan, tmp_path: Path) -> None:
    """What is decided on stands in front of the person, as text and tables and not as Markdown's source."""
    expect(page.get_by_text(f"Upgrade {run.cluster.spec.name} from 3.9.1 to 4.3.1?")).to_be_visible()
    widen_the_panel(page)
    expect(page.get_by_role("heading", name="3.9.1 → 4.3.1, one node at a time")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text=", active controller)")).to_have_count(1)  # of the batches
    expect(page.get_by_role("heading", name=f"Findings: {len(plan.findings)}")).to_be_visible()
    pinned = page.get_by_role("listitem").filter(has_text="ELR-CHANGES-MIN-ISR")
    expect(pinned).to_contain_text("sets the cluster-wide default of min.insync.replicas to 2")
    clients = page.get_by_role("listitem").filter(has_text=re.compile("CLIENTS"))
    expect(clients).to_contain_text("apache-kafka-java 3.9.1")
    changed = page.get_by_role("listitem").filter(has_text="log.message.timestamp.after.max.ms")
    expect(changed).to_contain_text("release_overrides of 4.3.1")
    level = page.get_by_role("listitem").filter(has_text="metadata.version")
    expect(level).to_have_text("undo by the controller impossible: metadata.version 21 → 30")

    button = page.get_by_role("button", name="Approve", exact=True)
    expect(button).to_be_disabled()  # not without a reason
    page.get_by_role("group").filter(has_text="Reason").get_by_role("textbox").fill("a quiet evening")
    expect(button).to_be_enabled()
    button.scroll_into_view_if_needed()
    page.screenshot(path=tmp_path / "approval.png")
    button.click()


def finalize_on_the_page(page: Page, run: Run, tmp_path: Path) -> None:
    """The approver answers in the console, through Airflow's own API and in Airflow's frame."""
    run.wait_for_question("approve_finalize")
    own = console(page, run.airflow, run.cluster.spec.name)
    needed = own.get_by_role("region", name="What needs a human")
    expect(needed.get_by_text("This is the point of no return.").first).to_be_visible()
    expect(needed.get_by_role("heading", name=re.compile("^Findings"))).to_be_visible()  # of Airflow's own text
    nodes = len(run.cluster.spec.nodes)
    expect(own.get_by_text(f"{nodes} of {nodes} nodes done")).to_be_visible()
    needed.get_by_role("radio", name="Approve:").check()
    needed.get_by_role("textbox", name="Reason").fill("No error for a week.")
    page.screenshot(path=tmp_path / "console-approval.png")
    needed.get_by_role("button", name="Answer: Approve").click()
    run.note_answer("approve_finalize", "Approve", "No error for a week.")
    expect(needed).to_have_count(0)  # the run goes on
    page.goto("about:blank")


def the_roll_goes_on(page: Page, run: Run, tmp_path: Path) -> None:
    """The first node step begins: in the graph, and on the page of our own."""
    page.goto(f"{run.airflow.server.url}/dags/{run.dag_id}/runs/{run.run_id}")
    box(page, "roll").get_by_role("button", name="Tasks").click()
    page.mouse.move(0, 0)  # no tooltip in the way of what comes next
    expect(box(page, "batches")).to_contain_text("success", timeout=TASKS_MS)
    node_steps = page.locator(".react-flow__node[data-id^='roll.']")
    expect(node_steps.filter(has_text=re.compile("running|deferred")).first).to_be_visible(timeout=TASKS_MS)
    page.get_by_role("link", name="Progress").click()
    events = page.frame_locator("iframe").get_by_role("list", name="Events of the run")
    expect(events).to_contain_text("anna approved the upgrade.")
    page.get_by_role("button", name="Collapse Details Panel").click()
    page.get_by_role("button", name="Fit View").click()
    for _ in range(3):
        settled(box(page, "roll"))
        page.get_by_role("button", name="Zoom In").click()
    settled(box(page, "roll"))
    page.screenshot(path=tmp_path / "graph.png")

    own = console(page, run.airflow, run.cluster.spec.name)
    expect(own.get_by_text("Upgrade 3.9.1 → 4.3.1 · started by anna")).to_be_visible()
    working = own.locator(".node").filter(has_text=re.compile("stopping|stopped|starting|catching up"))
    expect(working.first).to_be_visible(timeout=TASKS_MS)
    expect(own.get_by_text("anna approved the upgrade. Reason: a quiet evening")).to_be_visible()
    page.screenshot(path=tmp_path / "runs-page.png")
    page.goto("about:blank")  # an open page asks for news all the time
