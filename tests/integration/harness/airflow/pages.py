"""Steps in Airflow's pages: signing in, the trigger form of a DAG, the graph, the page *Kafka rollout*."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import FrameLocator, Locator, Page, expect, sync_playwright

from kafka_rollout.model.pace import NO_CLIENTS, Pace
from kafka_rollout.releases.documents.catalogue import load_catalogue
from tests.integration.harness.airflow.server import PrivateAirflow, Run
from tools.demo.folder import PROJECT_ROOT

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 120_000  # a page on a busy machine
TASKS_MS = 600_000  # tasks that observe and plan
# Without a graphics card, what moves on Airflow's pages takes as much CPU time as there is.
STAND_STILL = """
document.addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = "*, *::before, *::after { animation: none !important; transition: none !important; }";
  document.head.append(style);
});
"""


@contextmanager
def open_page() -> Iterator[Page]:
    """A page of a new browser, in English, light colors and UTC: tests read its words."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)
        context = browser.new_context(
            viewport={"width": 1400, "height": 900}, locale="en-US", timezone_id="UTC", color_scheme="light"
        )
        context.add_init_script(STAND_STILL)
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        yield context.new_page()
        browser.close()


def sign_in(page: Page, airflow: PrivateAirflow, user: str) -> None:
    page.goto(airflow.server.url)
    page.get_by_label("Username").fill(user)
    page.get_by_label("Password").first.fill(
        next(known.password for known in airflow.server.users if known.name == user)
    )
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()


def own_page(page: Page, airflow: PrivateAirflow, cluster: str = "") -> FrameLocator:
    """The page *Kafka rollout* in Airflow's frame. `cluster`: of one cluster."""
    page.goto(f"{airflow.server.url}/plugin/kafka-rollout")
    own = page.frame_locator("iframe")
    expect(own.get_by_role("heading", name="Kafka rollout")).to_be_visible()
    if cluster:
        (frame,) = (frame for frame in page.frames if frame.parent_frame is not None)
        frame.goto(f"{airflow.server.url}/kafka-rollout/?cluster={cluster}")
    return own


def console(page: Page, airflow: PrivateAirflow, cluster: str) -> Locator:
    """The console of a cluster, in Airflow's frame."""
    return own_page(page, airflow, cluster).get_by_role("article", name=f"Cluster {cluster}")


def open_console(page: Page, airflow: PrivateAirflow, cluster: str) -> Locator:
    """The console of a cluster without Airflow's frame around it."""
    page.goto(f"{airflow.server.url}/kafka-rollout/?cluster={cluster}")
    found = page.get_by_role("article", name=f"Cluster {cluster}")
    expect(found).to_be_visible()
    return found


def answer_in_console(page: Page, run: Run, task_id: str, option: str, reason: str) -> None:
    needed = page.get_by_role("region", name="What needs a human")
    needed.get_by_role("radio", name=option).check()
    needed.get_by_role("textbox", name="Reason").fill(reason)
    button = needed.get_by_role("button", name=f"Answer: {option}")
    expect(button).to_be_enabled()
    button.click()
    run.note_answer(task_id, option, reason)
    expect(button).to_have_count(0)


def sizes_and_themes(wide: int) -> Sequence[object]:
    """Return (width, theme) of a page: each width and each theme once, and in `make test-full` each pair."""
    others = [pytest.param(*pair, marks=pytest.mark.full) for pair in ((390, "light"), (wide, "dark"))]
    return [pytest.param(390, "dark"), pytest.param(wide, "light"), *others]


def no_serious_violation(page: Page) -> None:
    """By axe-core."""
    found = Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in {"serious", "critical"}]
    assert [(one["id"], one["nodes"][0]["html"], one["nodes"][0]["failureSummary"]) for one in serious] == []


def nothing_is_cut(page: Page) -> None:
    """Neither the page nor a part of it that scrolls, such as a list, is wider than what shows it."""
    wide = page.evaluate(
        """() => {
          const scrolls = (one) => one === document.documentElement || getComputedStyle(one).overflowX !== "visible";
          return [document.documentElement, ...document.querySelectorAll("body :not(.unseen, .unseen *)")]
            .filter((one) => one.clientWidth > 1 && one.scrollWidth > one.clientWidth + 1 && scrolls(one))
            .map((one) => `${one.outerHTML.slice(0, 100)} ${one.scrollWidth} > ${one.clientWidth}`);
        }"""
    )
    assert not wide, wide


def box(page: Page, task: str) -> Locator:
    """A task or group in the graph, by its id."""
    return page.locator(f".react-flow__node[data-id='{task}']")


def settled(moving: Locator) -> None:
    """Wait until an element keeps its place."""
    before = None
    while (now := moving.bounding_box()) != before:
        before = now
        moving.page.wait_for_timeout(100)


FAST = f"{Pace.FAST}: {NO_CLIENTS.text}"


def section(form: Locator, name: str) -> None:
    form.get_by_role("button", name=name).click()


def field_of(form: Locator, title: str) -> Locator:
    return form.get_by_role("group").filter(has_text=title).get_by_role("combobox")


def choices(page: Page, form: Locator, title: str) -> list[str]:
    field_of(form, title).click()
    expect(page.get_by_role("option").first).to_be_visible()
    found = page.get_by_role("option").all_inner_texts()
    page.keyboard.press("Tab")  # Escape would close the form
    return found


def choose(page: Page, form: Locator, title: str, choice: str) -> None:
    field_of(form, title).click()
    page.get_by_role("option", name=choice, exact=True).click()


def widen_the_panel(page: Page) -> None:
    """Move the line between graph and task to the left: the picture shows a plan as one reads it."""
    line = page.locator(".resize-handle")
    while int(line.get_attribute("aria-valuenow") or 0) > 35:
        line.press("ArrowLeft")


def run_of(url: str) -> str:
    return unquote(urlsplit(url).path.split("/runs/")[1].split("/")[0])


def known_releases() -> list[str]:
    """The catalogue's, oldest first."""
    return [str(release) for release in sorted(load_catalogue(PROJECT_ROOT / "include").releases)]
