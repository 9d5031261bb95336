"""The console in headless Chromium, with the real routes of this process behind it: no server, no cluster."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from kafka_rollout.airflow.approvals.airflow_records import request_name
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.console.run_console import summarize
from kafka_rollout.gates.gate import GateCondition, GateKind
from kafka_rollout.gates.reasons import PROCESS
from kafka_rollout.model.state import PartitionState, RegisteredNodes
from kafka_rollout.run.events import Approval, ApprovalOf, Decision
from kafka_rollout.run.step_events import GateChecked, GateFailed
from tests.console_scenes import DAG, RUN, Scene, cluster_of, failing_upgrade, stage, stopped_downgrade
from tests.dags.pages.page_client import PREFIX, serve_page, sign_in
from tests.integration.harness.airflow.pages import no_serious_violation, nothing_is_cut, open_page, sizes_and_themes
from tests.records import run_history

pytestmark = [pytest.mark.airflow, pytest.mark.browser, pytest.mark.usefixtures("database")]

REQUEST = "run 1: roll.gate_after, failed-gate"
SITE = "http://airflow.test"
USERS = {"anna": "op", "vera": "viewer"}
ANSWER = f"/api/v2/dags/{DAG}/dagRuns/{RUN.replace(':', '%3A').replace('+', '%2B')}"


def partition(number: int, isr: tuple[int, ...], leader: int = 1) -> PartitionState:
    return PartitionState(
        topic="pay", partition=number, leader=leader, replicas=(1, 2, 3), isr=isr, min_insync_replicas=2
    )


_STATE = summarize(
    observed_at=time.time(),
    partitions=[partition(number, (1, 2) if number % 2 else (1, 2, 3)) for number in range(40)],
    quorum=None,
    registered=RegisteredNodes(brokers=frozenset({1, 2}), fenced=frozenset({3}), controllers=None),
    levels={"metadata.version": 21},
    problems=("No controller responds.",),
)
KAFKA = {"state": to_json(_STATE), "problem": ""}


@dataclass(kw_only=True)
class Site:
    """Airflow's address in the browser. `asked`: paths, in their order. `answers`: bodies of PATCH requests. `first`:
    the text that Airflow keeps, if the request has changed since.
    """

    client: Any
    scene: Scene
    user: str = "anna"
    asked: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    refuses: str = ""
    first: str = ""
    kafka: Mapping[str, Any] = field(default_factory=lambda: KAFKA)

    def serve(self, route: Route) -> None:
        request = route.request
        path = request.url.removeprefix(SITE)
        self.asked.append(path)
        if path.startswith(ANSWER):
            self._answer(route)
            return
        if path.startswith(f"{PREFIX}/kafka?"):
            route.fulfill(json=self.kafka)
            return
        headers = sign_in(self.client, self.user)
        if request.method == "POST":
            found = self.client.post(path, json=request.post_data_json, headers=headers)
        else:
            found = self.client.get(path, headers=headers)
        route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

    def _answer(self, route: Route) -> None:
        asked = self.scene.events[-1]
        if route.request.method == "PATCH":
            self.answers.append(route.request.post_data_json)
            status = 409 if self.refuses else 200
            route.fulfill(status=status, json={"detail": self.refuses})
            return
        body = self.first or asked.text.partition("\n\n")[2]  # type: ignore[attr-defined]
        task = {"id": asked.record_id, "map_index": -1}  # type: ignore[attr-defined]
        form = {"request": {"value": REQUEST, "schema": {"type": "string"}}}
        route.fulfill(json={"hitl_details": [{"body": body, "task_instance": task, "params": form}]})

    def open(self, page: Page, query: str = "") -> None:
        page.route(f"{SITE}/**", self.serve)
        page.goto(f"{SITE}{PREFIX}/{query}")
        expect(page.get_by_role("article", name="Cluster orders")).to_be_visible()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with open_page() as page:
        yield page


@pytest.fixture
def site(tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    scene = stage(failing_upgrade(cluster_of(6), now=time.time(), done=4), tmp_path, monkeypatch)
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        yield Site(client=client, scene=scene)
    page.unroute_all()
    page.goto("about:blank")


def test_a_decision_names_the_process_that_is_gone_before_what_is_counted(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = failing_upgrade(cluster_of(6), now=time.time(), done=4)
    checked = next(event for event in reversed(scene.events) if isinstance(event, GateChecked))
    gone = GateCondition(name=PROCESS, is_met=False, evidence="no process", log="figures: Not a directory")
    release = GateCondition(name="release", is_met=False, evidence="app-info did not respond")
    seen = replace(checked.check, conditions=(gone, release, *checked.check.conditions))
    scene.events[scene.events.index(checked)] = replace(checked, check=seen)
    failed = next(event for event in scene.events if isinstance(event, GateFailed))
    message = f"failed after 61 s: {seen.waits_for}"
    scene.events[scene.events.index(failed)] = replace(failed, message=message, reason=seen.waits_for)
    stage(scene, tmp_path, monkeypatch)
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        Site(client=client, scene=scene).open(page)
        needed = page.get_by_role("region", name="What needs a human")
        cause = "its log shows: figures: Not a directory (no process); 2 more conditions need it"
        expect(needed.locator(".cause")).to_contain_text(f"failed after 61 s: process: {cause}")
        expect(page.locator("main, body").first.get_by_text("app-info")).to_be_hidden()
        page.unroute_all()
        page.goto("about:blank")


def test_what_needs_a_human_comes_first_with_its_trend_and_the_consequences(site: Site, page: Page) -> None:
    site.open(page)
    head = page.locator(".head").first
    expect(head.locator(".pill.fair")).to_contain_text("waiting for decision · 5 min")
    expect(head).to_contain_text(re.compile(r"Upgrade 3.9.1 → 4.3.1 · started by anna .* · run 1"))
    expect(page.get_by_text(RUN)).to_have_count(0)
    first = page.locator(".stack > section").first
    expect(first).to_have_attribute("aria-label", "What needs a human")
    expect(first.get_by_role("heading").first).to_have_text("Gate after node 102 failed. How to continue?")
    cause = "Gate after node 102 failed after 360 s: in every ISR it was in: not yet in 212 ISRs"
    expect(first.locator(".cause.fair")).to_contain_text(cause)
    expect(first).to_contain_text("212 left; 5 min 00 s before: 1,310 ↓ it decreases")
    expect(first).to_contain_text("The run stopped node 102, whose gate has not passed since.")
    expect(first.get_by_role("radio", name="Roll back: Roll back every node that left")).to_be_visible()
    expect(page).to_have_title("(1) needs you – Kafka rollout")
    page.get_by_text("Gate after node 102", exact=True).first.click()
    page.get_by_text("all 212").click()
    expect(page.get_by_text("pay-211", exact=True)).to_be_visible()


@pytest.mark.parametrize("size", [(390, 844), (1400, 900)])
def test_all_stopped_nodes_are_an_outage_whatever_kafka_reported_before(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    scene = stage(stopped_downgrade(cluster_of(3), now=time.time()), tmp_path, monkeypatch)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        well = summarize(observed_at=time.time(), partitions=[], quorum=None, registered=None, levels={})
        site = Site(client=client, scene=scene, kafka={"state": to_json(well), "problem": ""})
        site.open(page)
        needed = page.get_by_role("region", name="What needs a human")
        expect(needed).to_contain_text("No client can produce or consume: the run stopped all nodes. Since ")
        expect(needed).to_contain_text("The run stopped all 6 nodes. No gate has passed since.")
        expect(needed).to_contain_text("The metadata logs of 1 of 3 voters are available.")
        expect(needed).to_contain_text("see the key waits_for or the page Kafka rollout, not orders*1*.")
        expect(page.get_by_text("The downgrade can be undone from the backups.")).to_be_visible()
        for text in ("No client is affected", "A rollback is possible", "Pause…", "Stop…"):
            expect(page.get_by_text(text)).to_have_count(0)
        current = page.locator("[aria-current=step]")
        expect(current).to_contain_text("Choose log")
        expect(page.get_by_text("End of a dry run")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        no_serious_violation(page)
        page.screenshot(path=tmp_path / f"stopped-{size[0]}.png", full_page=True)
        page.unroute_all()
        page.goto("about:blank")


def test_a_run_with_all_nodes_stopped_is_not_called_rolling(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stopped_downgrade(cluster_of(3), now=time.time())
    scene.events.pop()  # it does not ask
    stage(scene, tmp_path, monkeypatch)
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        Site(client=client, scene=scene).open(page)
        expect(page.locator(".head").first).to_contain_text("all nodes stopped")
        expect(page.locator(".head").first).not_to_contain_text("rolling")
        page.unroute_all()
        page.goto("about:blank")


def test_a_refresh_changes_texts_and_keeps_focus_selection_open_parts_and_scroll(
    site: Site, page: Page, tmp_path: Path
) -> None:
    site.open(page)
    page.get_by_text("Gate after node 102", exact=True).first.click()
    page.get_by_text("all 212").click()
    reason = page.get_by_role("textbox", name="Reason")
    reason.fill("The ISR is")
    before = page.evaluate(
        """() => {
          const log = document.querySelector("pre").firstChild;
          getSelection().setBaseAndExtent(log, 2, log, 12);
          document.querySelector(".objects").scrollTop = 40;
          document.querySelector(".events").marked = true;
          return [getSelection().toString(), document.querySelector(".objects").scrollTop];
        }"""
    )
    reason.focus()
    asked = site.scene
    store = run_history(tmp_path / "home", "orders", RUN)
    newest = next(event for event in reversed(asked.events) if isinstance(event, GateChecked))
    asked.at = time.time()
    asked.check(
        GateKind.AFTER_START, 102, *newest.check.conditions[:-1], newest.check.conditions[-1].listing(["a", "b"])
    )
    store.record(asked.events.pop())
    expect(page.get_by_text("all 2", exact=True)).to_be_visible(timeout=20_000)
    after = page.evaluate(
        """() => [getSelection().toString(), document.querySelector(".events").marked,
                  document.activeElement.tagName, document.activeElement.value]"""
    )
    assert after == [before[0], True, "TEXTAREA", "The ISR is"]
    assert page.locator("details[open] > .objects").count() == 1


def test_a_hidden_tab_asks_nothing_until_it_is_shown_again(site: Site, page: Page) -> None:
    site.open(page)
    hide = """(hidden) => { Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
              document.dispatchEvent(new Event("visibilitychange")); }"""
    page.evaluate(hide, True)
    page.wait_for_timeout(2500)  # a refresh that was under way ends
    known = len(site.asked)
    page.wait_for_timeout(5000)
    assert len(site.asked) == known
    with page.expect_request("**/console?**"):
        page.evaluate(hide, False)


def test_the_answer_goes_to_airflow_with_its_reason_and_a_refusal_is_shown(site: Site, page: Page) -> None:
    site.refuses = "Human-in-the-loop detail has already been updated."
    site.open(page)
    send = page.get_by_role("button", name="Answer")
    expect(send).to_be_disabled()
    page.get_by_role("radio", name="Retry").check()
    command = "kafka-rollout retry --cluster orders --run 1 --take-over --as NAME --reason TEXT"
    expect(page.get_by_text(f"In a shell, which takes the run over from Airflow: {command}")).to_be_visible()
    page.get_by_role("radio", name="Wait on").check()
    expect(page.get_by_role("button", name="Answer: Wait on")).to_be_disabled()
    page.get_by_role("textbox", name="Reason").fill("The ISR grows.")
    page.get_by_role("button", name="Answer: Wait on").click()
    expect(page.get_by_role("alert").filter(has_text="already been updated")).to_be_visible()
    assert site.answers == [
        {"chosen_options": ["Wait on"], "params_input": {"reason": "The ISR grows.", "request": REQUEST}}
    ]
    assert site.asked[-1].startswith(ANSWER) or any(
        "/taskInstances/roll.gate_after/-1/hitlDetails" in one for one in site.asked
    )
    site.refuses = ""
    page.get_by_role("button", name="Answer: Wait on").click()
    expect(page.get_by_text("You answered “Wait on” at")).to_be_visible()
    expect(page.get_by_role("radio")).to_have_count(0)


def test_an_answer_names_the_newest_text_of_a_request_if_it_begins_with_the_one_that_airflow_keeps(
    site: Site, page: Page
) -> None:
    asked: Any = site.scene.events[-1]
    lines = asked.text.partition("\n\n")[2].splitlines()
    name = request_name(1, asked.task_id, asked.what, asked.text)
    for first, seen, is_named in (("\n".join(lines[:2]), "Keep checking", name), ("another", "another", REQUEST)):
        site.answers.clear()
        site.first = first
        site.open(page)
        shown = page.get_by_role("region", name="Text of the request", include_hidden=True)
        expect(shown).to_contain_text(seen)
        page.get_by_role("radio", name="Wait on").check()
        page.get_by_role("textbox", name="Reason").fill("The ISR grows.")
        page.get_by_role("button", name="Answer: Wait on").click()
        expect(page.get_by_text("You answered “Wait on” at")).to_be_visible()
        assert [one["params_input"]["request"] for one in site.answers] == [is_named]


def test_a_run_is_paused_with_a_reason_and_resumed(site: Site, page: Page) -> None:
    site.open(page)
    page.get_by_role("button", name="Pause…").click()
    form = page.get_by_role("form", name="Pause run 1")
    expect(form).to_contain_text("In a shell: kafka-rollout pause --cluster orders --run 1 --reason TEXT")
    expect(form.get_by_role("button", name="Pause run 1")).to_be_disabled()
    form.get_by_role("textbox").fill("errors of clients")
    form.get_by_role("button", name="Pause run 1").click()
    expect(page.get_by_text("was paused by").first).to_be_visible()
    expect(page.get_by_role("button", name="Pause…")).to_have_count(0)
    page.get_by_role("button", name="Stop…").click()
    expect(page.get_by_role("form", name="Stop run 1")).to_contain_text("A stop ends each wait.")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Resume…").click()
    expect(page.get_by_role("form", name="Resume run 1")).to_be_visible()


def test_a_viewer_sees_who_can_answer_and_no_form(site: Site, page: Page) -> None:
    site.user = "vera"
    site.open(page)
    expect(page.get_by_text("You cannot answer this request. It can be answered by anna.")).to_be_visible()
    for role in ("radio", "textbox", "button"):
        expect(page.get_by_role(role)).to_have_count(0)
    assert not [path for path in site.asked if path.startswith("/api/")]


def test_hostile_names_stay_text(site: Site, page: Page, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=document.title=1> \u202egnp.exe"
    given = {"what": ApprovalOf.FAILED_GATE, "decision": Decision.WAIT_ON, "plan_hash": site.scene.plan.hash}
    run_history(tmp_path / "home", "orders", RUN).record(Approval(by=hostile, reason=hostile, **given))  # type: ignore[arg-type]
    site.open(page, "?cluster=orders&run=1")
    expect(page.get_by_role("list", name="Events of the run")).to_contain_text("<img src=x onerror=document.title=1>")
    expect(page.get_by_role("list", name="Events of the run")).to_contain_text("\\u202egnp.exe")
    assert page.locator("img, script:not([src])").count() == 0
    assert page.title() != "1"
    assert json.dumps(site.asked).count("airflow.test") == 0


@pytest.mark.parametrize("size", [(390, 844), (1400, 900)])
def test_two_hundred_nodes_are_grouped_and_fit_a_phone(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    scene = stage(failing_upgrade(cluster_of(200), now=time.time(), done=100), tmp_path, monkeypatch)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        Site(client=client, scene=scene).open(page)
        expect(page.get_by_text("100 of 203 nodes done")).to_be_visible()
        expect(page.locator(".node.bad").first).to_contain_text("failed")
        assert page.locator(".node").locator("visible=true").count() < 20
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.unroute_all()
        page.goto("about:blank")


def test_the_end_of_the_roll_is_a_time_after_one_node_and_a_range_after_more(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    for done, expected in (
        (1, r"at [-\d: ]+ UTC \(in \d+ min"),
        (3, r"between [-\d: ]+ UTC and [-\d: ]+ UTC \("),
    ):  # a date after midnight
        (tmp_path / str(done)).mkdir()
        scene = failing_upgrade(cluster_of(6), now=time.time(), done=done)
        scene.events = scene.events[:-8]  # its last node has not failed
        stage(scene, tmp_path / str(done), monkeypatch)
        with serve_page(tmp_path / str(done), monkeypatch, users=USERS) as client:
            Site(client=client, scene=scene).open(page)
            expect(page.get_by_text(re.compile(f"The last node is expected {expected}"))).to_be_visible(timeout=10_000)
            page.unroute_all()
            page.goto("about:blank")


def test_a_node_that_takes_long_moves_the_end_of_the_roll(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = failing_upgrade(cluster_of(6), now=time.time() - 3600, done=1)
    scene.events = scene.events[:-8]  # its last node has not failed
    stage(scene, tmp_path, monkeypatch)
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        Site(client=client, scene=scene).open(page)
        expected = page.get_by_text(re.compile("The last node is expected"))
        expect(expected).to_be_visible(timeout=10_000)
        expect(expected).not_to_contain_text("(in 0 s)")
        page.unroute_all()
        page.goto("about:blank")


def test_the_colors_follow_airflow_s_theme(site: Site, page: Page) -> None:
    site.open(page)
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.evaluate("localStorage.setItem('theme', 'dark'); dispatchEvent(new StorageEvent('storage', { key: 'theme' }))")
    expect(root).to_have_attribute("data-theme", "dark")
    page.evaluate("localStorage.removeItem('theme')")


@pytest.mark.parametrize("make", [partial(failing_upgrade, done=4), stopped_downgrade], ids=["failed", "stopped"])
def test_every_part_fits_a_small_screen_and_has_enough_contrast_in_both_themes(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    scene = stage(make(cluster_of(6), now=time.time()), tmp_path, monkeypatch)
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        Site(client=client, scene=scene).open(page)
        page.get_by_role("radio").first.check()
        for control in page.get_by_role("button", name="Stop…").all():
            control.click()
        for summary in page.locator("summary").all():
            if not summary.evaluate("one => one.parentElement.open"):
                summary.click()
        for width, theme in itertools.product((1024, 390), ("light", "dark")):
            page.set_viewport_size({"width": width, "height": 844})
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            nothing_is_cut(page)
            no_serious_violation(page)
        page.unroute_all()
        page.goto("about:blank")


@pytest.mark.parametrize(("width", "theme"), sizes_and_themes(1400))
def test_no_serious_accessibility_violation(site: Site, page: Page, theme: str, width: int) -> None:
    """By axe-core, with everything unfolded: colors, names, roles, order of headings, scrolled parts."""
    page.set_viewport_size({"width": width, "height": 900})
    site.open(page)
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    for summary in page.locator("summary").all():
        if not summary.evaluate("one => one.parentElement.open"):
            summary.click()
    no_serious_violation(page)


def test_an_answer_is_given_with_the_keyboard_alone(site: Site, page: Page) -> None:
    site.open(page)
    page.get_by_role("radio", name="Wait on").focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="Retry")).to_be_checked()
    page.keyboard.press("Tab")
    page.keyboard.type("The disk was replaced.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("You answered “Retry” at")).to_be_visible()
    assert site.answers == [
        {"chosen_options": ["Retry"], "params_input": {"reason": "The disk was replaced.", "request": REQUEST}}
    ]


def test_a_value_that_is_old_is_not_shown_as_the_one_of_now(site: Site, page: Page) -> None:
    old = {**KAFKA["state"], "observed_at": time.time() - 313}  # type: ignore[dict-item]
    site.kafka = {"state": old, "problem": ""}
    site.open(page)
    kafka = page.get_by_role("region", name="Kafka: orders")
    heading = kafka.get_by_role("heading")
    expect(heading).to_have_text(re.compile(r"^Kafka · 5 min \d\d s ago · reading…$"))
    expect(kafka.locator(".tile .soft").first).to_have_text("20")
    expect(kafka.locator(".tile .fair, .tile .bad")).to_have_count(0)
    site.kafka = {"state": {**old, "observed_at": time.time() + 20}, "problem": ""}
    expect(heading).to_have_text(re.compile(r"^Kafka now · \d+ s ago$"), timeout=30_000)
    expect(kafka.locator(".tile .fair").first).to_have_text("20")


def test_steps_that_are_over_and_that_come_later_are_folded(site: Site, page: Page) -> None:
    site.open(page)
    steps = page.get_by_role("region", name="Steps of the run")
    expect(steps.get_by_role("listitem")).to_have_count(4)
    expect(steps.locator("[aria-current=step]")).to_contain_text("Nodes 3.9.1 → 4.3.1")
    steps.get_by_text("4 steps done, 1 not needed").click()
    expect(steps.get_by_text("The run was started without a rehearsal.")).to_be_visible()
    page.get_by_role("link", name="All clusters").click()
    expect(page.get_by_role("heading", name="Kafka clusters")).to_be_visible()


def test_the_state_of_the_cluster_is_shown_with_its_lists_and_what_is_unknown(site: Site, page: Page) -> None:
    site.open(page)
    kafka = page.get_by_role("region", name="Kafka: orders")
    expect(kafka).to_contain_text("20under-replicated partitions")
    expect(kafka).to_contain_text("unknown nodes behind the metadata quorum")
    expect(kafka).to_contain_text("No active controller is known")
    expect(kafka).to_contain_text("No controller responds.")
    kafka.get_by_text("all 20").click()
    expect(kafka.get_by_text("pay-39", exact=True)).to_be_visible()
    needs = page.get_by_role("region", name="What needs a human")
    expect(needs).to_contain_text("No client is affected: every partition has a leader and its min ISR.")
    site.kafka = {"state": None, "problem": "The broker refuses the login."}
    expect(kafka).to_contain_text("The state is unknown: The broker refuses the login.", timeout=30_000)
    expect(needs).to_contain_text("The effect on clients is unknown.")
