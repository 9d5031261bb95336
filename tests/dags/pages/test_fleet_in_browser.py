"""The page of all clusters in headless Chromium, with the real routes of this process behind it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.dags.pages.page_client import PREFIX, serve_page, sign_in
from tests.fleet_scenes import R391, R431, SHELL, Fleet, make_scenes, make_twelve, observed, planned
from tests.integration.harness.airflow.pages import no_serious_violation, nothing_is_cut, open_page, sizes_and_themes

pytestmark = [pytest.mark.airflow, pytest.mark.browser, pytest.mark.usefixtures("database")]

SITE = "http://airflow.test"
HIDE = """(hidden) => { Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange")); }"""


@dataclass(kw_only=True)
class Site:
    """Airflow's address in the browser. `asked`: paths, in their order."""

    client: Any
    page: Page
    asked: list[str] = field(default_factory=list)

    def serve(self, route: Route) -> None:
        path = route.request.url.removeprefix(SITE)
        self.asked.append(path)
        found = self.client.get(path, headers=sign_in(self.client))
        route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

    def open(self, query: str = "") -> None:
        self.page.route(f"{SITE}/**", self.serve)
        self.page.goto(f"{SITE}{PREFIX}/fleet{query}")
        expect(self.page.locator("tbody tr").first).to_be_visible()

    @property
    def rows(self) -> Locator:
        return self.page.locator("tbody tr")

    def names(self) -> list[str]:
        return self.page.locator("tbody th a").all_inner_texts()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with open_page() as page:
        yield page


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    return make_scenes(tmp_path)


@pytest.fixture
def site(fleet: Fleet, tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serve_page(tmp_path, monkeypatch) as client:
        yield Site(client=client, page=page)
    page.unroute_all(behavior="wait")
    page.goto("about:blank")


def test_the_filter_chooses_rows_and_the_files_have_the_same(site: Site, page: Page) -> None:
    site.open()
    assert site.names() == ["orders", "payments", "search", "archive", "ledger"]
    expect(site.rows.first.locator(".pill.now")).to_have_text("waiting for approval")
    why = site.rows.first.locator("[data-column=why]")
    expect(why).to_have_text(re.compile(r'^=HYPERLINK\("http://evil"\)\\u202e<b> · 15 min \d\d s$'))
    assert site.rows.first.get_by_role("link").get_attribute("href") == "./?cluster=orders"
    assert "manual__" not in page.content()
    page.get_by_role("radio", name="Running (2)").check()
    expect(site.rows).to_have_count(2)
    page.get_by_role("searchbox", name="Filter").fill("mixed")
    expect(site.rows).to_have_count(1)
    assert page.url.endswith("/fleet?show=running&text=mixed")
    with page.expect_download() as begun:
        page.get_by_role("link", name="CSV").click()
    text = site.client.get(begun.value.url.removeprefix(SITE), headers=sign_in(site.client)).text
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""))] == ["Cluster", "payments"]
    page.get_by_role("searchbox", name="Filter").fill("nothing has this")
    expect(site.rows).to_have_count(0)
    expect(page.locator("#state")).to_contain_text("0 of 5 clusters · 1 needs a human · 2 running")


def test_the_address_has_the_filter(site: Site, page: Page) -> None:
    site.open("?show=needs-human&text=orders")
    assert site.names() == ["orders"]
    expect(page.get_by_role("radio", name="Needs a human (1)")).to_be_checked()
    expect(page.get_by_role("searchbox", name="Filter")).to_have_value("orders")


def test_a_refresh_keeps_the_row_and_the_selection(site: Site, page: Page, fleet: Fleet) -> None:
    site.open()
    before = page.evaluate(
        """() => {
          const [row, other] = [...document.querySelectorAll("tbody tr")].slice(3, 5);
          row.marked = true;
          const text = other.querySelector("[data-column=why] span").firstChild;
          getSelection().setBaseAndExtent(text, 0, text, 9);
          return getSelection().toString();
        }"""
    )
    spec = fleet.add("archive")
    fleet.run("archive", "plan", SHELL, observed(spec, R391, 21), planned(R391, R431), age_s=300)
    page.evaluate(HIDE, True)
    page.evaluate(HIDE, False)
    archive = site.rows.filter(has_text="archive")
    expect(archive.locator("[data-column=release]")).to_have_text("3.9.1")
    marked, after = page.evaluate("() => [document.querySelectorAll('tbody tr')[3].marked, getSelection().toString()]")
    assert (marked, after) == (True, before)


def test_a_hidden_tab_asks_nothing_until_it_is_shown_again(site: Site, page: Page) -> None:
    site.open()
    page.evaluate(HIDE, True)
    page.wait_for_timeout(1000)  # a refresh that was under way ends
    known = len(site.asked)
    page.wait_for_timeout(12_000)  # longer than the time between two refreshes
    assert len(site.asked) == known
    with page.expect_request("**/fleet/rows?**"):
        page.evaluate(HIDE, False)


def test_a_viewer_sees_the_clusters_of_its_dags_only(
    fleet: Fleet, tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_page(tmp_path, monkeypatch, dags="kafka_upgrade_orders kafka_downgrade_payments") as client:
        site = Site(client=client, page=page)
        site.open()
        assert site.names() == ["orders", "payments"]
        assert not any(name in page.content() for name in ("ledger", "archive"))
        expect(page.get_by_role("radio", name="All (2)")).to_be_checked()
        page.unroute_all(behavior="wait")
        page.goto("about:blank")


@pytest.mark.parametrize(("width", "mode"), sizes_and_themes(1700))
def test_every_width_and_color_shows_all_without_an_overflow(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch, width: int, mode: str
) -> None:
    """Twelve clusters: what needs a human first, then what runs, what is not healthy, and the others."""
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    make_twelve(tmp_path)
    with serve_page(tmp_path, monkeypatch) as client:
        shows_all(Site(client=client, page=page), tmp_path, width, mode)
    page.unroute_all(behavior="wait")
    page.goto("about:blank")


def shows_all(site: Site, tmp_path: Path, width: int, mode: str) -> None:
    page = site.page
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="dark" if mode == "dark" else "light")
    site.open()
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator("html")).to_have_attribute("data-theme", mode)
    assert site.names()[:6] == ["billing", "orders", "stock-eu", "payments", "search", "telemetry"]
    assert len(site.names()) == 12
    billing = site.rows.filter(has_text="billing").locator("[data-column=health]")
    expect(billing.locator(".bad")).to_have_text("the run has stopped nodes 1, 2, 3, 9001, 9002, 9003")
    telemetry = site.rows.filter(has_text="telemetry")
    expect(telemetry.locator("[data-column=health] .bad")).to_contain_text("did not respond")
    expect(site.rows.locator(".pill.bad")).to_have_count(2)
    no_serious_violation(page)
    if width < 700:
        title = "getComputedStyle(document.querySelector('[data-column=release]'), '::before').content"
        assert "Release" in page.evaluate(f"() => {title}")
    page.screenshot(path=tmp_path / f"fleet-{width}-{mode}.png", full_page=True)
    for small in (1024, 390):
        page.set_viewport_size({"width": small, "height": 900})
        nothing_is_cut(page)
        no_serious_violation(page)
        health = site.rows.filter(has_text="search").locator("[data-column=health]")
        assert (health.bounding_box() or {"width": 0})["width"] > 190
    page.set_viewport_size({"width": 1400, "height": 900})
    page.emulate_media(color_scheme="light")
