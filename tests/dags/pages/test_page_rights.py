"""Who sees which run on the page, and what one cluster's damage does to the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Executable, delete, insert, select, text, update

from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.notifications.due import NotificationKind
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import ApprovalOf, Asked, Begun, LockedOut
from kafka_rollout.run.step_events import Started, Stopping
from kafka_rollout.run.store.history import SqlRunStore, sha256
from kafka_rollout.run.store.tables import alerts, events, plans, runs
from tests.dags.conftest import spec_with_homes
from tests.dags.pages.page_client import PREFIX, serve_page, sign_in
from tests.records import change_lock, database_of, record_alert, run_history

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("inventory", "database")]

DAG_IDS = ("kafka_upgrade_fake", "kafka_downgrade_fake", "kafka_features_fake", "kafka_compatibility_scan_fake")
STEP = "3.9.1-to-4.3.1"
PAGES = {"scan_before_roll": "scan/before-roll.html"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run of each DAG with a report and a scan; the features' run holds the lock."""
    home = tmp_path / "home"
    for dag_id in DAG_IDS[:3]:
        run = run_history(home, "fake", f"run-of-{dag_id}")
        run.record(Begun(dag_id=dag_id))
        run.record(Stopping(at=time.time() - 60, node_id=1, release_step=STEP))
        run.record(Started(node_id=1, release_step=STEP, release=Release(4, 3, 1), pid=7, seconds=2.0))
        run.write_report(f"<h1>{dag_id}</h1>", {"outcome": "finished"})
        run.attach_page(PAGES["scan_before_roll"], f"<h1>scan of {dag_id}</h1>")
    change_lock(home).acquire("fake", "run-of-kafka_features_fake", "Raise group.version.", for_s=600)
    record_alert(home, "fake", "scheduled__1", NotificationKind.SCAN_FAILED, "Not scanned.", "group a\u202eb")
    return home


@pytest.mark.parametrize("readable", DAG_IDS)
def test_who_may_read_one_dag_of_a_cluster_sees_its_runs_and_nothing_of_the_others(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: str
) -> None:
    with serve_page(tmp_path, monkeypatch, dags=readable) as client:
        signed_in = sign_in(client)
        clusters = client.get(f"{PREFIX}/runs", headers=signed_in).json()
        shown = [run["dag_id"] for cluster in clusters for run in cluster["runs"]]
        assert shown == ([readable] if readable in DAG_IDS[:3] else [])
        for cluster in clusters:
            mine = readable == "kafka_features_fake"
            assert cluster["lock"]["purpose"] == ("Raise group.version." if mine else "")
            assert bool(cluster["lock"]["holder"]) is mine
        scans = client.get(f"{PREFIX}/scans", headers=signed_in).json()
        assert bool(scans) is (readable == "kafka_compatibility_scan_fake")
        for dag_id in DAG_IDS[:3]:
            ask = {"run_id": f"run-of-{dag_id}"}
            for through in DAG_IDS:
                report = client.get(f"{PREFIX}/dags/{through}/report", params=ask, headers=signed_in)
                scan = client.get(
                    f"{PREFIX}/dags/{through}/scan", params={**ask, "task_id": "scan_before_roll"}, headers=signed_in
                )
                traffic = client.get(f"{PREFIX}/dags/{through}/traffic.svg", params=ask, headers=signed_in)
                may = through == dag_id == readable
                assert report.status_code == (200 if may else 404 if through == readable else 403), through
                assert scan.status_code == traffic.status_code == report.status_code, through
                assert not may or traffic.headers["content-type"].startswith("image/svg+xml")


def test_a_run_of_an_embedding_dag_is_shown_to_who_may_read_that_dag_and_to_nobody_else(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = "run-of-kafka_upgrade_fake"  # the clusters' own DAG has a run with this id
    for cluster, dag_id in (("another", "kafka_upgrade_another"), ("fake", "own")):
        run = run_history(home, cluster, run_id if cluster == "another" else "nightly-1")
        run.record(Begun(dag_id=dag_id))
        run.write_report(f"<h1>{dag_id}</h1>", {"outcome": "finished"})
        run.attach_page(PAGES["scan_before_roll"], f"<h1>scan of {dag_id}</h1>")
    paths = [
        (f"{PREFIX}/dags/{through}/{page}", {"run_id": run, "task_id": "scan_before_roll"})
        for through in ("own", "kafka_upgrade_fake")
        for run in ("nightly-1", run_id)
        for page in ("report", "scan")
    ]
    for readable, status in (
        ("own", (200, 200, 404, 404, 403, 403, 403, 403)),
        ("kafka_upgrade_fake", (403, 403, 403, 403, 404, 404, 200, 200)),
    ):
        with serve_page(tmp_path, monkeypatch, dags=readable) as client:
            signed_in = sign_in(client)
            (cluster,) = client.get(f"{PREFIX}/runs", headers=signed_in).json()
            assert [run["dag_id"] for run in cluster["runs"]] == [readable]
            assert (cluster["cluster"], cluster["lock"]["holder"]) == ("fake", "")
            found = tuple(client.get(path, params=ask, headers=signed_in).status_code for path, ask in paths)
            assert found == status, readable


@pytest.mark.parametrize("readable", [*DAG_IDS, "kafka_upgrade_another"])
def test_the_status_has_only_runs_that_the_user_can_read(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: str
) -> None:
    path = f"{PREFIX}/status.json"
    with serve_page(tmp_path, monkeypatch, dags=readable) as client:
        assert client.get(path, params={"cluster": "fake"}).status_code == 401
        signed_in = sign_in(client)
        answer = client.get(path, params={"cluster": "fake"}, headers=signed_in)
        missing = client.get(path, params={"cluster": "typo"}, headers=signed_in)
    assert missing.status_code == 404
    if readable not in DAG_IDS[:3]:
        assert (answer.status_code, answer.json()) == (404, missing.json())
        return
    found = answer.json()
    assert (found["format"], found["run"]) == (1, f"run-of-{readable}")
    assert found["lock"]["purpose"] == ("Raise group.version." if readable == "kafka_features_fake" else "")


def test_a_run_that_asks_stays_on_the_page_after_many_plans(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_history(home, "fake", "asks")
    run.record(Begun(dag_id="kafka_upgrade_fake"))
    run.record(Asked(what=ApprovalOf.ROLL, task_id="t", record_id="r", text="Upgrade?", options=("Approve", "Reject")))
    for number in range(60):
        run_history(home, "fake", f"plan-{number}").record(LockedOut(sentence="No."))
    with serve_page(tmp_path, monkeypatch) as client:
        (cluster,) = client.get(f"{PREFIX}/runs", headers=sign_in(client)).json()
    shown = [one["run_id"] for one in cluster["runs"]]
    assert {"asks", "run-of-kafka_features_fake"} <= set(shown)
    assert cluster["lock"]["purpose"] == "Raise group.version."


def _sql(home: Path, statement: Executable) -> None:
    with database_of(home).begin() as connection:
        connection.execute(statement)


def _forget_damaged(home: Path) -> None:
    _sql(home, delete(runs).where(runs.c.cluster == "damaged"))


def _damage_events(home: Path, run: SqlRunStore) -> None:
    ours = select(runs.c.id).where(runs.c.cluster == "damaged").scalar_subquery()
    _sql(home, update(events).where(events.c.run == ours).values(body="{"))


def _damage_later_events(home: Path, run: SqlRunStore) -> None:
    run.record(LockedOut(sentence="No."))
    ours = select(runs.c.id).where(runs.c.cluster == "damaged").scalar_subquery()
    body = '{"at":"yesterday","data":{},"kind":"locked-out"}'
    _sql(home, update(events).where(events.c.run == ours, events.c.number == 2).values(body=body))


def _damage_plan(home: Path, run: SqlRunStore) -> None:
    ours = select(runs.c.id).where(runs.c.cluster == "damaged").scalar_subquery()
    _sql(home, insert(plans).values(run=ours, body="{", sha256=sha256(b"{")))


def _damage_report(home: Path, run: SqlRunStore) -> None:
    run.attach("report.json", {"ended_at": "now"})


def _damage_scans(home: Path, run: SqlRunStore) -> None:
    _sql(home, insert(alerts).values(cluster="damaged", run_id="x", at=0.0, body="{}"))


def _damage_lease(home: Path, run: SqlRunStore) -> None:
    change_lock(home).acquire("damaged", "run-1", "Upgrade.", for_s=600)
    _sql(home, text("UPDATE leases SET expires_at = 'later' WHERE cluster = 'damaged'"))


DAMAGES = (
    _damage_events,
    _damage_later_events,
    _damage_plan,
    _damage_report,
    _damage_scans,
    _damage_lease,
)


def test_damage_to_one_cluster_s_record_scans_or_lease_leaves_the_others_on_the_page(
    inventory: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inventory / "damaged.yaml").write_text(dump_cluster(spec_with_homes("damaged")))
    with serve_page(tmp_path, monkeypatch) as client:
        signed_in = sign_in(client)
        for damage in DAMAGES:
            _forget_damaged(home)
            run = run_history(home, "damaged", "run-1")
            run.record(Begun(dag_id="kafka_upgrade_damaged"))
            damage(home, run)
            answer = client.get(f"{PREFIX}/runs", headers=signed_in)
            assert answer.status_code == 200, damage.__name__
            shown = {cluster["cluster"]: cluster for cluster in answer.json()}
            assert len(shown["fake"]["runs"]) == 3, damage.__name__
            assert not shown["fake"]["problem"]
            assert shown["damaged"]["runs"], damage.__name__
            if "lease" in damage.__name__:
                assert shown["damaged"]["problem"]
            scans = client.get(f"{PREFIX}/scans", headers=signed_in)
            assert scans.status_code == 200, damage.__name__
            assert {"fake"} <= {found["cluster"] for found in scans.json()}
            path = f"{PREFIX}/dags/kafka_upgrade_damaged/report"
            assert client.get(path, params={"run_id": "run-1"}, headers=signed_in).status_code == 404


@pytest.mark.parametrize(
    "text",
    ["name: [", "? [a, b]\n: 1\n", "[" * 20_000, "\x00", "nodes: {}", "a: &a [*a]"],
    ids=["no YAML", "a complex key", "deep nesting", "a control character", "no nodes", "itself"],
)
def test_a_damaged_inventory_leaves_the_other_clusters_their_dags_and_their_page(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load_dags: Callable[[], dict[str, object]], text: str
) -> None:
    (tmp_path / "clusters" / "other one.yaml").write_text(text)
    dags = set(load_dags())
    assert set(DAG_IDS) <= dags
    assert "kafka_upgrade_other_one_unreadable" in dags
    with serve_page(tmp_path, monkeypatch) as client:
        signed_in = sign_in(client)
        (cluster,) = client.get(f"{PREFIX}/runs", headers=signed_in).json()
        assert len(cluster["runs"]) == 3
        (scan,) = client.get(f"{PREFIX}/scans", headers=signed_in).json()
        assert scan["failed"]["sentences"] == ["group a\\u202eb"]
