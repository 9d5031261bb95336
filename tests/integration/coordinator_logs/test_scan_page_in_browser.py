"""The page of a scan in a real browser: nothing runs, nothing is fetched, and it fits narrow and wide windows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from kafka_rollout.coordinator_logs.page.report import render_scan
from kafka_rollout.releases.documents.catalogue import load_catalogue
from tests.paths import INCLUDE
from tests.unit.scan_examples import large_scan

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (390, "light")])
def test_the_page_fits_its_window_and_does_nothing_by_itself(tmp_path: Path, width: int, scheme: str) -> None:
    catalogue = load_catalogue(INCLUDE)
    page_file = tmp_path / "report.html"
    page_file.write_text(render_scan(large_scan(catalogue), catalogue), encoding="utf-8")
    happened: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page.on("console", lambda message: happened.append(message.text))
        page.on("dialog", lambda dialog: happened.append(dialog.message))
        page.on("request", lambda request: happened.append(request.url))
        page.goto(page_file.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("svg.plot rect").count() > 100
        browser.close()
    assert happened == [page_file.as_uri()]
