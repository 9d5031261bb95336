"""The page in Airflow's frame: who may see what, and that it changes nothing."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.control.approval import record_approval
from kafka_rollout.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.notifications.due import NotificationKind
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.releases.facts import Release
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import ApprovalOf, Begun, Decision, Planned
from kafka_rollout.run.store.scans import SqlCheckHistory
from tests.dags.pages.page_client import PREFIX, serve_page, sign_in
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports, in_step
from tests.plans import plan_upgrade
from tests.records import database_of, failed_step, record_alert, run_history, scan_history

pytestmark = pytest.mark.airflow

SCAN_DAG = "kafka_compatibility_scan_fake"
RUN = "manual__2026-11-21T00:00:00+00:00"


@pytest.fixture
def client(tmp_path: Path, inventory: Path, database: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Airflow's API server with our plugin, and a run under way."""
    ports = fake_ports(FakeCluster(R391), tmp_path / "home", run_id=RUN)
    plan = plan_upgrade(ports, R431, finalize=True)
    record_approval(ports, ApprovalOf.ROLL, "alice", Decision.APPROVED, "a <b>quiet</b> evening")
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, "3.9.1-to-4.3.1", 2)))
    with serve_page(tmp_path, monkeypatch) as client:
        yield client


def test_nobody_sees_anything_without_signing_in(client: Any) -> None:
    report = f"/dags/kafka_upgrade_fake/report?run_id={RUN}"
    scan = f"/dags/{SCAN_DAG}/scan?run_id={RUN}&task_id=scan_coordinator_logs"
    for path in ("/", "/runs", "/scans", "/static/page.js", report, scan):
        refused = client.get(f"{PREFIX}{path}", follow_redirects=False)
        assert refused.status_code == 401, path
        assert refused.headers["cache-control"] == "no-store"


def test_a_viewer_sees_how_far_a_run_is_and_its_report_without_any_script(client: Any, tmp_path: Path) -> None:
    signed_in = sign_in(client)
    page = client.get(f"{PREFIX}/", headers=signed_in)
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    for path in ("/", "/runs", "/scans", "/static/page.js", "/static/none"):
        headers = client.get(f"{PREFIX}{path}", headers=signed_in).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store"), path
    (cluster,) = client.get(f"{PREFIX}/runs", headers=signed_in).json()
    assert cluster["cluster"] == "fake"
    assert cluster["lock"]["holder"] == RUN
    (run,) = cluster["runs"]
    assert (run["run_id"], run["way"], run["outcome"]) == (RUN, "3.9.1 → 4.3.1", None)
    assert "node 1 of 6 (controller-2 to 4.3.1)" in run["now"]

    report = f"{PREFIX}/dags/kafka_upgrade_fake/report"
    assert client.get(report, params={"run_id": RUN}, headers=signed_in).status_code == 404
    run_history(tmp_path / "home", "fake", RUN).write_report("<h1>Report</h1>", {"outcome": "finished"})
    found = client.get(report, params={"run_id": RUN}, headers=signed_in)
    assert found.text == "<h1>Report</h1>"
    assert "sandbox" in found.headers["content-security-policy"]
    assert (found.headers["x-content-type-options"], found.headers["cache-control"]) == ("nosniff", "no-store")
    for escape in ("../../../../etc/passwd", ".."):
        assert client.get(report, params={"run_id": escape}, headers=signed_in).status_code == 404


def planned(run_of: RunOf) -> Planned:
    release = Release.parse("4.3.1")
    return Planned(run_of=run_of, plan_hash="abc", source=release, target=release, blockers=())


def test_a_run_is_shown_by_the_dag_that_it_is_of_and_by_no_other(client: Any, tmp_path: Path) -> None:
    signed_in = sign_in(client)
    run = run_history(tmp_path / "home", "fake", "features__1")
    run.record(planned(RunOf.FEATURES))
    run.write_report("<h1>Features</h1>", {"outcome": "finished"})
    down = run_history(tmp_path / "home", "fake", "down__1")
    down.record(planned(RunOf.DOWNGRADE))
    down.write_report("<h1>Down</h1>", {"outcome": "finished"})
    for dag, run_id, status in (
        ("kafka_features_fake", "features__1", 200),
        ("kafka_upgrade_fake", "features__1", 404),
        ("kafka_features_fake", RUN, 404),
        ("kafka_downgrade_fake", "down__1", 200),
        ("kafka_downgrade_fake", RUN, 404),
        ("kafka_upgrade_fake", "down__1", 404),
    ):
        found = client.get(f"{PREFIX}/dags/{dag}/report", params={"run_id": run_id}, headers=signed_in)
        assert found.status_code == status, (dag, run_id)
    (cluster,) = client.get(f"{PREFIX}/runs", headers=signed_in).json()
    assert {one["run_id"]: one["dag_id"] for one in cluster["runs"]} == {
        "features__1": "kafka_features_fake",
        "down__1": "kafka_downgrade_fake",
        RUN: "kafka_upgrade_fake",
    }


def test_a_run_that_failed_before_it_had_a_plan_says_why_and_leads_to_its_own_dag(client: Any, tmp_path: Path) -> None:
    record = run_history(tmp_path / "home", "fake", "features__2")
    record.record(Begun(dag_id="kafka_features_fake"))
    record.record(failed_step("plan", "There is no metadata.version 99."))
    (cluster,) = client.get(f"{PREFIX}/runs", headers=sign_in(client)).json()
    (run,) = (one for one in cluster["runs"] if one["run_id"] == "features__2")
    assert (run["dag_id"], run["state"]) == ("kafka_features_fake", "ended without a report")
    assert run["now"] == "Plan failed: There is no metadata.version 99."


def test_a_viewer_sees_the_newest_scan_its_age_and_what_alerted(client: Any, tmp_path: Path) -> None:
    signed_in = sign_in(client)
    assert client.get(f"{PREFIX}/scans", headers=signed_in).json() == []
    reports = scan_history(tmp_path / "home", "fake")
    failed = NotificationKind.SCAN_FAILED
    record_alert(tmp_path / "home", "fake", "1", failed, "The logs could not be scanned.", "No broker answered.")
    (found,) = client.get(f"{PREFIX}/scans", headers=signed_in).json()
    assert (found["scan"], found["overdue"], found["failed"]["sentences"]) == (None, True, ["No broker answered."])

    verdict = ReleaseVerdict(release=R391, topic="__consumer_offsets", partition=0, verdict=LoadVerdict.FAILS)
    scan = ScanResult(cluster="fake", scanned_at=time.time(), logs=(), classes=(), verdicts=(verdict,))
    reports.keep(scan, "<h1>Scan</h1>", run_id=RUN)
    (found,) = client.get(f"{PREFIX}/scans", headers=signed_in).json()
    assert found["scan"]["verdicts"] == {"3.9.1": "fails"}
    assert found["check"] is None
    keep_check(tmp_path / "home", "4.4.0")
    (found,) = client.get(f"{PREFIX}/scans", headers=signed_in).json()
    assert (found["check"]["target"], found["check"]["totals"]["blocker"]) == ("4.4.0", 1)
    address = f"{PREFIX}/dags/{SCAN_DAG}/check"
    assert client.get(address, params={"run_id": RUN}).status_code == 401
    assert client.get(address, params={"run_id": "other"}, headers=signed_in).status_code == 404
    checked = client.get(address, params={"run_id": RUN}, headers=signed_in)
    assert checked.text == "<h1>Check</h1>"
    assert "sandbox" in checked.headers["Content-Security-Policy"]
    upgrade = client.get(f"{PREFIX}/dags/kafka_upgrade_fake/check", params={"run_id": RUN}, headers=signed_in)
    assert upgrade.status_code == 404
    assert (found["overdue"], found["failed"], len(found["alerts"])) == (False, None, 1)

    ask = {"run_id": RUN, "task_id": "scan_coordinator_logs"}
    page = client.get(f"{PREFIX}/dags/{SCAN_DAG}/scan", params=ask, headers=signed_in)
    assert page.text == "<h1>Scan</h1>"
    assert "sandbox" in page.headers["content-security-policy"]
    for other in ({**ask, "run_id": "scheduled__1"}, {**ask, "run_id": "../../etc"}):
        assert client.get(f"{PREFIX}/dags/{SCAN_DAG}/scan", params=other, headers=signed_in).status_code == 404


def keep_check(home: Path, target: str) -> None:
    totals = {"blocker": 1, "warning": 0, "unknown": 2, "info": 0, "ok": 30, "not applicable": 0}
    change = {"change": "upgrade", "path": ["3.9.1", target], "target": target, "totals": totals, "checked_at": 1.0}
    history = SqlCheckHistory(database_of(home), "fake")
    history.keep(RUN, {**change, "sentence": "The upgrade is blocked.", "checks": []}, "<h1>Check</h1>")


def test_an_upgrade_s_scans_are_reached_from_their_tasks_and_nothing_else_is(client: Any, tmp_path: Path) -> None:
    signed_in = sign_in(client)
    run = run_history(tmp_path / "home", "fake", RUN)
    run.attach_page("scan/before-roll.html", "<h1>Before</h1>")
    for dag_id, task_id, status in (
        ("kafka_upgrade_fake", "scan_before_roll", 200),
        ("kafka_downgrade_fake", "scan_before_roll", 404),
        ("kafka_upgrade_fake", "scan_coordinator_logs", 404),
        ("kafka_upgrade_fake", "../plan", 404),
        ("fake", "scan_before_roll", 404),
    ):
        ask = {"run_id": RUN, "task_id": task_id}
        assert client.get(f"{PREFIX}/dags/{dag_id}/scan", params=ask, headers=signed_in).status_code == status, task_id


@pytest.mark.parametrize(
    ("schedule", "hours_ago", "overdue"),
    [("@daily", 1, False), ("@daily", 47, False), ("@daily", 72, True), ("@hourly", 3, True), ("never", 9999, False)],
)
def test_a_scan_is_overdue_when_a_whole_turn_went_by_without_one(schedule: str, hours_ago: int, overdue: bool) -> None:
    from kafka_rollout.airflow.views.records import is_overdue

    now = datetime(2026, 11, 21, 23, 30, tzinfo=UTC).timestamp()
    assert is_overdue(schedule, now - hours_ago * 3600, now) is overdue


def test_one_path_of_the_page_asks_a_run_and_all_others_only_read(client: Any) -> None:
    from kafka_rollout.airflow.views.app import app

    changing = [route for route in app.routes if not getattr(route, "methods", set()) <= {"GET", "HEAD"}]
    assert [getattr(route, "path", "") for route in changing] == ["/dags/{dag_id}/control"]
