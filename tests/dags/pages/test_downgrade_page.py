"""The page of the downgrade options: who sees it, and how it looks in headless Chromium with the real routes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.dags.pages.page_client import PREFIX, serve_page, sign_in
from tests.integration.harness.airflow.pages import no_serious_violation, open_page, sizes_and_themes
from tests.option_scenes import make_options

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("database")]

SITE = "http://airflow.test"
OPTIONS = f"{PREFIX}/downgrade/options"
SCANS = "/api/v2/dags/kafka_compatibility_scan_orders/dagRuns"
STARTS = "/api/v2/dags/kafka_downgrade_orders/dagRuns"
USERS = {"anna": "op", "vera": "viewer"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    make_options(tmp_path)


@pytest.mark.usefixtures("cluster")
def test_a_viewer_sees_the_options_and_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        assert client.get(OPTIONS, params={"cluster": "orders"}).status_code == 401
        assert client.get(f"{PREFIX}/downgrade").status_code == 401
        viewer, operator = (
            client.get(OPTIONS, params={"cluster": "orders"}, headers=sign_in(client, user)).json()
            for user in ("vera", "anna")
        )
        assert (viewer["can_start"], operator["can_start"]) == (False, True)
        assert viewer["options"] == operator["options"]
        assert [one["release"] for one in viewer["options"] if one["is_origin"]] == ["3.9.1"]
        assert [one["release"] for one in viewer["options"][:2]] == ["3.9.1", "4.3.0"]
        page = client.get(f"{PREFIX}/downgrade", headers=sign_in(client, "vera"))
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert client.get(OPTIONS, params={"cluster": "nobody"}, headers=sign_in(client)).status_code == 404


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("readable", "sees_runs", "sees_scans"),
    [("", False, False), ("kafka_upgrade_orders", True, False), ("kafka_compatibility_scan_orders", False, True)],
)
def test_without_a_right_its_values_are_not_in_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: str, sees_runs: bool, sees_scans: bool
) -> None:
    with serve_page(tmp_path, monkeypatch, dags=readable, users=USERS) as client:
        answer = client.get(OPTIONS, params={"cluster": "orders"}, headers=sign_in(client, "vera"))
        assert (answer.status_code == 200) is (sees_runs or sees_scans)
        assert ("manual__up" in answer.text, "scheduled__2" in answer.text) == (sees_runs, sees_scans)
        assert "manual__dry" not in answer.text  # of the downgrade DAG


@dataclass(kw_only=True)
class Site:
    """Airflow's address in the browser. `started`: bodies of the requests that start a run."""

    client: Any
    page: Page
    user: str = "anna"
    started: list[Any] = field(default_factory=list)
    refuses: bool = False

    def serve(self, route: Route) -> None:
        request = route.request
        path = request.url.removeprefix(SITE)
        if request.method == "POST":
            assert path in {STARTS, SCANS}
            self.started.append(request.post_data_json)
            if self.refuses:
                route.fulfill(status=403, json={"detail": "Forbidden"})
            else:
                route.fulfill(json={"dag_run_id": "manual__new"})
            return
        found = self.client.get(path, headers=sign_in(self.client, self.user))
        route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

    def open(self, path: str = "downgrade?cluster=orders") -> None:
        self.page.route(f"{SITE}/**", self.serve)
        self.page.goto(f"{SITE}{PREFIX}/{path}")

    def option(self, release: str) -> Locator:
        """One option, unfolded."""
        found = self.page.get_by_role("rowgroup", name=f"Downgrade to {release}", exact=True)
        found.locator("summary").first.click()
        return found


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with open_page() as page:
        yield page


@pytest.fixture
def site(cluster: None, tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serve_page(tmp_path, monkeypatch, users=USERS) as client:
        yield Site(client=client, page=page)
    page.unroute_all(behavior="wait")
    page.goto("about:blank")


@pytest.mark.browser
def test_an_option_shows_its_reasons_records_methods_and_history(site: Site, page: Page) -> None:
    site.open()
    closed = site.option("3.6.2")
    expect(closed.get_by_role("list", name="Why it is not open")).to_contain_text("METADATA-VERSION-FLOOR")
    option = site.option("4.0.2")
    expect(option).to_contain_text("It loads the log")
    expect(option).to_contain_text("metadata.version 30 → 25. Kafka does not lower it online")
    live = option.get_by_role("region", name="Live downgrade to 4.0.2")
    expect(live).to_contain_text("without an active controller")
    expect(live).to_contain_text("kafka-rollout downgrade --cluster orders --to 4.0.2 --lowering live --dry-run")
    expect(option).to_contain_text("Run 1 finalized metadata.version at 30; 4.0.2 supports at most 25")
    page.get_by_text("Older patch releases").click()
    older = site.option("4.0.1")
    expect(older).to_contain_text("METADATA-LOST: a topic")
    dag = page.get_by_role("link", name="DAG", exact=True)
    expect(dag).to_have_attribute("href", "../dags/kafka_downgrade_orders")
    link = page.get_by_role("link", name="Full list with groups and remedies").first
    assert "scan?run_id=scheduled__2" in str(link.get_attribute("href"))


@pytest.mark.browser
def test_the_run_of_the_last_plan_opens_in_the_frame_of_airflow(site: Site, page: Page) -> None:
    frame = f"<iframe title=page width=900 height=900 src='{PREFIX}/downgrade?cluster=orders'></iframe>"
    page.route(f"{SITE}/**", site.serve)
    page.route(f"{SITE}/airflow", lambda route: route.fulfill(content_type="text/html", body=frame))
    page.goto(f"{SITE}/airflow")
    inside = page.frame_locator("iframe")
    inside.get_by_text("Older patch releases").click()
    option = inside.get_by_role("rowgroup", name="Downgrade to 4.0.1", exact=True)
    option.locator("summary").first.click()
    option.get_by_role("link", name="run 2", exact=True).click()
    expect(inside.get_by_role("link", name="downgrade options")).to_be_visible()
    assert page.url == f"{SITE}/airflow"


@pytest.mark.browser
def test_the_button_starts_a_dry_run_with_the_parameters_of_the_method(site: Site) -> None:
    site.open()
    live = site.option("4.2.2").get_by_role("region", name="Live downgrade to 4.2.2")
    site.refuses = True
    live.get_by_role("button", name="Start this dry run").click()
    expect(live.get_by_role("alert")).to_contain_text("HTTP status 403: Forbidden")
    site.refuses = False
    live.get_by_role("button", name="Start this dry run").click()
    expect(live.get_by_role("link", name="Open the run")).to_have_attribute(
        "href", "../dags/kafka_downgrade_orders/runs/manual__new"
    )
    conf = {"target_release": "4.2.2", "dry_run": True, "lowering": "live"}
    assert site.started[-1] == {"logical_date": None, "conf": conf}


@pytest.mark.browser
def test_the_release_that_the_cluster_came_from_is_first_and_a_row_starts_its_scan(site: Site, page: Page) -> None:
    site.open()
    table = page.get_by_role("region", name="Releases", exact=True)
    first = table.get_by_role("rowheader").first
    expect(first).to_have_text("3.9.1 the cluster came from it")
    row = page.get_by_role("rowgroup", name="Downgrade to 4.2.2", exact=True)
    row.get_by_role("button", name="Scan now").click()
    expect(row.get_by_role("link", name="Open the scan")).to_have_attribute(
        "href", "../dags/kafka_compatibility_scan_orders/runs/manual__new"
    )
    releases = site.started[-1]["conf"]["releases"]
    assert {"4.3.1", "4.2.2"} <= set(releases)
    assert len(releases) == len(set(releases))


@pytest.mark.browser
def test_a_viewer_has_no_button(site: Site) -> None:
    site.user = "vera"
    site.open()
    option = site.option("4.2.2")
    expect(option).to_contain_text("You cannot start runs of kafka_downgrade_orders.")
    expect(option.get_by_role("button")).to_have_count(0)


@pytest.mark.browser
def test_the_console_and_the_table_of_clusters_lead_to_it(site: Site, page: Page) -> None:
    site.open("?cluster=orders")
    page.get_by_role("link", name="downgrade options").click()
    expect(page.get_by_role("rowgroup", name="Downgrade to 4.3.0", exact=True)).to_be_visible()
    site.open("fleet")
    page.get_by_role("link", name="orders").click()
    page.get_by_role("link", name="downgrade options").click()
    expect(page.get_by_role("rowgroup", name="Downgrade to 4.3.0", exact=True)).to_be_visible()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "theme"), sizes_and_themes(1400))
def test_no_serious_accessibility_violation(site: Site, page: Page, tmp_path: Path, theme: str, width: int) -> None:
    """By axe-core, with everything unfolded."""
    page.set_viewport_size({"width": width, "height": 900})
    site.open()
    site.option("4.2.2")
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    page.screenshot(path=tmp_path / f"options-{width}-{theme}.png", full_page=True)
    page.get_by_text("Older patch releases").click()
    for summary in page.locator("summary").all():
        if not summary.evaluate("one => one.parentElement.open"):
            summary.click()
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    no_serious_violation(page)
    page.set_viewport_size({"width": 1400, "height": 900})
