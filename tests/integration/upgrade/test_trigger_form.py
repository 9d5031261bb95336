"""The trigger form of an upgrade in a browser: what each run needs is shown, the rest is folded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kafka_rollout.model.pace import PACES
from kafka_rollout.planning.request import SELDOM
from tests.integration.harness.airflow.pages import choices, known_releases, section, sign_in
from tests.integration.harness.airflow.server import APPROVER, PrivateAirflow

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]

SHOWN = ("Target release", "Finalize features", "Dry run", "Pause after", "Pace")
FOLDED = (
    "Pin min.insync.replicas",
    "Rehearsal",
    "Maximum batch size",
    "Skipped conditions",
    "Topics that can be unavailable",
    "Test traffic",
)


def test_the_form_shows_what_each_run_needs_chooses_no_release_and_folds_the_rest(
    airflow: PrivateAirflow, page: Page, tmp_path: Path
) -> None:
    airflow.client().wait_for_dag("kafka_upgrade_nobody", timeout_s=600)
    sign_in(page, airflow, APPROVER)
    page.goto(f"{airflow.server.url}/dags/kafka_upgrade_nobody")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    for title in SHOWN:
        expect(form.get_by_text(title).first).to_be_visible()
    for title in FOLDED:
        expect(form.get_by_text(title).first).to_be_hidden()
    expect(form.get_by_role("button", name="Trigger")).to_be_disabled()  # until a release is chosen
    target = form.get_by_role("group").filter(has_text="Target release").first
    expect(target).not_to_contain_text(re.compile(r"\d\.\d\.\d"))
    assert choices(page, form, "Target release") == known_releases()
    assert choices(page, form, "Pace") == [f"{pace}: {numbers.text}" for pace, numbers in PACES.items()]
    page.screenshot(path=tmp_path / "form.png")
    section(form, SELDOM)
    for title in FOLDED:
        expect(form.get_by_text(title).first).to_be_visible()
    page.screenshot(path=tmp_path / "unfolded.png")
