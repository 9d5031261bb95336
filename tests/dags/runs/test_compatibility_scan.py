"""The scheduled scan: what it keeps, what it tells, whom it alerts, and that not knowing is no good news."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.clusters.last_seen import read_last_seen
from kafka_rollout.coordinator_logs.comparison import ScanSummary
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange, RecordKind
from kafka_rollout.notifications.store.sent import open_notifications
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.releases.documents.catalogue import load_catalogue, release_files
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.store.opening import open_check_history
from tests.dags.conftest import spec_with_homes
from tests.dags.runs.dag_run import run_dag
from tests.fakes.cluster import R391, FakeCluster
from tests.fakes.ports import fake_ports
from tests.records import alerts_of, scan_history
from tools.demo.folder import PROJECT_ROOT

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

DAG_ID = "kafka_compatibility_scan_fake"
VARIABLE = "AIRFLOW_VAR_KAFKA_ROLLOUT_ALERT"
OFFSETS = "__consumer_offsets"
COMMITS = RecordKind(topic=OFFSETS, partition=0, key_version=1, value_version=3, count=4, first_offset=0)
CONSUMER_GROUPS = RecordKind(topic=OFFSETS, partition=0, key_version=3, value_version=0, count=2, first_offset=4)
CATALOGUE = load_catalogue(PROJECT_ROOT / "include")


def scan_of(*classes: RecordKind, releases: list[str] | None = None) -> ScanResult:
    evaluated = [release for release in CATALOGUE if releases is None or str(release) in releases]
    return ScanResult(
        cluster="fake",
        scanned_at=time.time(),
        logs=(LogRange(topic=OFFSETS, partition=0, start=0, end=sum(c.count for c in classes)),),
        classes=classes,
        verdicts=evaluate_records(CATALOGUE, classes, evaluated, partitions=[(OFFSETS, 0)]),
    )


@dataclass
class Scans:
    """Runs of the DAG in this process; `found` is what Spark finds next: a result, or what it fails with."""

    home: Path
    load: Callable[[], dict[str, Any]]
    found: ScanResult | Exception = field(default_factory=lambda: scan_of(COMMITS))
    world: FakeCluster = field(default_factory=lambda: FakeCluster(Release(3, 9, 1)))
    wanted: ScanRequest | None = None

    def run(self, **conf: Any) -> tuple[str, dict[str, str | None], str]:
        """(state of the run, states by task, the run's id)."""
        dag = self.load()[DAG_ID]
        for task in dag.tasks:
            task.retry_delay = timedelta(0)  # a run in this process waits for it by the clock
        run = run_dag(dag, conf)
        return str(run.state), {ti.task_id: ti.state for ti in run.get_task_instances()}, run.run_id

    @property
    def alerts(self) -> list[dict[str, Any]]:
        return [{**asdict(alert), "failed": alert.failed} for alert in alerts_of(self.home, "fake")]


@pytest.fixture
def scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: None, load_dags: Callable[[], dict[str, Any]]
) -> Scans:
    from kafka_rollout.airflow.common.cluster_access import ClusterAccess
    from kafka_rollout.airflow.operators import spark_scan

    made = Scans(home=tmp_path / "home", load=load_dags)
    made.world.small_scan = scan_of(COMMITS)

    def scan(task: Any, context: Any, scratch: Path) -> ScanResult:
        made.wanted = task.wanted(context, ScanRequest(cluster="fake", json_file=scratch / "x"), scratch)
        if isinstance(made.found, Exception):
            raise made.found
        return made.found

    @contextmanager
    def open_to_read(hook: ClusterAccess) -> Iterator[ClusterPorts]:
        yield replace(fake_ports(made.world, tmp_path / "unused"), catalogue=CATALOGUE)

    monkeypatch.setattr(spark_scan.SparkScanOperator, "scan", scan)
    monkeypatch.setattr(ClusterAccess, "open_to_read", open_to_read)
    return made


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A notifier that the Variable configures; it writes its messages to the file."""
    told = tmp_path / "told.txt"
    kwargs = {"file": str(told), "text": "{{ alert.cluster }}|{{ alert.subject }}|{{ alert.body }}"}
    monkeypatch.setenv(VARIABLE, json.dumps({"notifier": "tests.dags.channels.FileNotifier", "kwargs": kwargs}))
    return told


def test_a_scan_is_kept_reported_and_told_as_an_asset(scans: Scans) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    scans.found = scan_of(COMMITS, CONSUMER_GROUPS)
    state, states, run_id = scans.run()
    assert (state, states) == (
        "success",
        {"scan_coordinator_logs": "success", "check_release": "success", "alert": "success"},
    )
    (scanned,) = scan_history(scans.home, "fake").scheduled()
    assert isinstance(scanned, ScanSummary)
    assert (scanned.run_id, scanned.records) == (run_id, 6)
    verdicts = {str(release): verdict for release, verdict in scanned.verdicts.items()}
    assert verdicts == {**verdicts, "3.4.0": "fails", "3.4.1": "loads_ignoring", "4.3.1": "loads"}
    page = scan_history(scans.home, "fake").page_of_run(run_id)
    assert page is not None
    assert "unknown key version 3" in page
    with create_session() as session:
        event = session.scalars(select(AssetEvent).order_by(AssetEvent.id.desc())).first()
        assert event is not None
        assert event.asset.name == "kafka-rollout/fake/coordinator-log-scan"
        assert event.extra["verdicts"]["3.4.0"] == "fails"
        assert event.extra["records"] == 6


def test_a_first_scan_with_a_failing_verdict_alerts(scans: Scans) -> None:
    scans.found = scan_of(COMMITS, CONSUMER_GROUPS, releases=["3.4.0", "4.3.1"])
    assert scans.run()[1]["alert"] == "success"
    (alert,) = scans.alerts
    assert alert["headline"] == "It is not proved that 3.4.0 can load the coordinator logs (first scan)."
    assert any("not scanned before, now fails at offset 4" in sentence for sentence in alert["sentences"])
    assert scans.run()[1]["alert"] == "skipped"


def test_a_first_scan_without_a_failing_verdict_does_not_alert(scans: Scans) -> None:
    assert scans.run()[1]["alert"] == "skipped"
    assert scans.alerts == []


def test_a_verdict_that_got_worse_alerts_once_with_the_record_that_did_it(scans: Scans, channel: Path) -> None:
    scans.run()
    scans.found = scan_of(COMMITS, CONSUMER_GROUPS)
    state, states, _ = scans.run()
    assert (state, states["alert"]) == ("success", "success")
    (alert,) = scans.alerts
    assert "3.4.0" in alert["headline"]
    assert "4.3.1" not in alert["headline"]
    assert any("fails at offset 4: unknown key version 3" in sentence for sentence in alert["sentences"])
    assert f"fake|fake: {alert['headline']}|{alert['headline']}" in channel.read_text()
    assert "scan?run_id=" in channel.read_text()
    scans.found = scan_of(COMMITS, CONSUMER_GROUPS)
    _, states, _ = scans.run()
    assert states["alert"] == "skipped"
    assert len(scans.alerts) == 1


def test_a_scan_of_a_command_makes_a_verdict_no_old_news(scans: Scans) -> None:
    scans.run()
    scan_history(scans.home, "fake").keep(scan_of(COMMITS, CONSUMER_GROUPS), "a page")
    scans.found = scan_of(COMMITS, CONSUMER_GROUPS)
    assert scans.run()[1]["alert"] == "success"


def test_a_scan_that_could_not_be_done_is_red_and_alerts(scans: Scans, channel: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    scans.found = AirflowFailException("No broker of 127.0.0.1:19 answered within 20 s.")
    state, states, _ = scans.run()
    assert (state, states) == (
        "failed",
        {"scan_coordinator_logs": "failed", "check_release": "success", "alert": "failed"},
    )
    (alert,) = scans.alerts
    assert alert["failed"]
    assert "No broker of 127.0.0.1:19 answered" in channel.read_text()


def test_a_channel_that_does_not_answer_is_tried_again_and_the_page_tells_of_the_alert_once(
    scans: Scans, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kwargs = {"file": str(tmp_path / "none" / "told.txt"), "text": ""}
    monkeypatch.setenv(VARIABLE, json.dumps({"notifier": "tests.dags.channels.FileNotifier", "kwargs": kwargs}))
    scans.run()
    scans.found = scan_of(COMMITS, CONSUMER_GROUPS)
    state, states, _ = scans.run()
    assert (state, states["alert"]) == ("failed", "failed")
    assert len(scans.alerts) == 1


def test_a_cluster_whose_inventory_cannot_be_read_is_an_alert_every_day(
    scans: Scans, inventory: Path, channel: Path
) -> None:
    (inventory / "unread.yaml").write_text("name: unread\n")
    dag = scans.load()["kafka_compatibility_scan_unread_unreadable"]
    assert dag.timetable.expression == "0 0 * * *"
    run = run_dag(dag)
    assert str(run.state) == "failed"
    assert "unread.yaml is wrong" in channel.read_text()


def test_a_scan_of_some_releases_does_not_hide_that_another_got_worse_since(scans: Scans) -> None:
    scans.run()
    scans.found = scan_of(COMMITS, CONSUMER_GROUPS, releases=["4.3.1"])
    scans.run(releases=["4.3.1"], depth="classes")
    assert scans.wanted is not None
    assert (scans.wanted.releases, scans.wanted.classes_only) == ((Release(4, 3, 1),), True)
    assert scans.alerts == []
    scans.found = scan_of(COMMITS, CONSUMER_GROUPS)
    scans.run()
    assert len(scans.alerts) == 1


def test_a_check_is_kept_with_its_page_and_uses_the_scan_of_its_run(scans: Scans) -> None:
    scans.found = scan_of(COMMITS, CONSUMER_GROUPS)
    _, _, run_id = scans.run(check_release="3.4.0")
    (kept,) = open_check_history("fake").newest()
    assert (kept.run_id, kept.document["target"], kept.document["change"]) == (run_id, "3.4.0", "downgrade")
    (logs,) = [one for one in kept.document["checks"] if one["id"] == "coordinator-logs"]
    assert logs["result"] == "blocker"
    assert logs["reasons"] == [], "the scan has read the tagged fields"
    page = open_check_history("fake").page_of_run(run_id)
    assert page is not None
    assert "downgrade 3.9.1" in page
    seen = read_last_seen("fake", Settings.from_environment())
    assert seen is not None, "the trigger forms show it"
    assert (set(seen.releases), seen.unknown) == ({R391}, 0)
    scans.run(check_release="3.4.0", depth="classes")
    (logs,) = [one for one in open_check_history("fake").newest(1)[0].document["checks"] if one["id"] == logs["id"]]
    assert logs["result"] == "unknown", "a scan without contents does not prove them"


def test_the_target_is_the_newest_release_unless_the_inventory_names_another_one(scans: Scans, inventory: Path) -> None:
    scans.run()
    file = inventory / "fake.yaml"
    file.write_text(dump_cluster(replace(spec_with_homes(), check_release="4.0.1")))
    scans.run()
    file.write_text(dump_cluster(replace(spec_with_homes(), check_release="never")))
    _, states, _ = scans.run()
    assert states["check_release"] == "skipped"
    assert [one.document["target"] for one in open_check_history("fake").newest()] == ["4.0.1", str(max(CATALOGUE))]


def test_a_new_problem_alerts_once_with_its_object(scans: Scans, channel: Path) -> None:
    assert scans.run()[1]["alert"] == "skipped"
    scans.world.config_problems = {max(CATALOGUE): ("Invalid value 0 for num.io.threads",)}
    state, states, _ = scans.run()
    assert (state, states["alert"]) == ("success", "success")
    (alert,) = scans.alerts
    assert (alert["kind"], alert["failed"]) == ("check-worse", False)
    assert any("num.io.threads" in sentence for sentence in alert["sentences"])
    assert "check?run_id=" in channel.read_text()
    assert scans.run()[1]["alert"] == "skipped", "the same problem was reported"


def test_a_check_that_fails_alerts_and_the_run_is_red(scans: Scans) -> None:
    scans.world.silent = set(scans.world.nodes)
    state, states, _ = scans.run()
    assert (state, states["check_release"], states["alert"]) == ("failed", "failed", "failed")
    (alert,) = scans.alerts
    assert alert["kind"] == "check-failed"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ('{"notifier": "nowhere.Notifier"}', "No module named 'nowhere'"),
        ('{"notifier": "json.JSONDecoder"}', "json.JSONDecoder is not a notifier class"),
        ('{"notifier": "tests.dags.channels.FileNotifier", "kwargs": {"to": 1}}', "unexpected keyword argument"),
        ('["slack"]', "cannot be used"),
    ],
)
def test_a_channel_that_cannot_be_used_fails_with_the_way_out_after_log_and_page_were_told(
    scans: Scans, monkeypatch: pytest.MonkeyPatch, setting: str, says: str
) -> None:
    monkeypatch.setenv(VARIABLE, setting)
    scans.run()
    scans.found = scan_of(COMMITS, CONSUMER_GROUPS)
    state, states, _ = scans.run()
    assert (state, states["alert"]) == ("failed", "failed")
    assert len(scans.alerts) == 1
    assert says in " ".join(one.problem for one in open_notifications().problems("fake"))


def test_every_cluster_has_a_scan_of_its_own_on_its_own_schedule(
    inventory: Path, load_dags: Callable[[], dict[str, DAG]]
) -> None:
    (inventory / "hourly.yaml").write_text(dump_cluster(replace(spec_with_homes("hourly"), scan_schedule="7 * * * *")))
    (inventory / "never.yaml").write_text(dump_cluster(replace(spec_with_homes("never"), scan_schedule="never")))
    (inventory / "unread.yaml").write_text("name: unread\n")
    dags = {dag_id: dag for dag_id, dag in load_dags().items() if dag_id.startswith("kafka_compatibility_scan_")}
    assert {dag_id.removeprefix("kafka_compatibility_scan_") for dag_id in dags} == {
        "fake",
        "hourly",
        "never",
        "unread_unreadable",
    }
    minute, hour = dags[DAG_ID].timetable.expression.removesuffix(" * * *").split()
    assert (int(minute) in range(60), int(hour) in range(6)) == (True, True)
    assert dags["kafka_compatibility_scan_hourly"].timetable.expression == "7 * * * *"
    assert not dags["kafka_compatibility_scan_never"].timetable.can_be_scheduled
    for dag in dags.values():
        assert not dag.catchup
        assert dag.max_active_runs == 1


def test_a_cluster_that_is_new_is_scanned_at_its_next_time_and_not_at_once(
    load_dags: Callable[[], dict[str, DAG]],
) -> None:
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables.base import TimeRestriction

    dag = DagSerialization.from_dict(DagSerialization.to_dict(load_dags()[DAG_ID]))
    before = datetime.now(UTC)
    info = dag.timetable.next_dagrun_info(
        last_automated_data_interval=None, restriction=TimeRestriction(earliest=None, latest=None, catchup=False)
    )
    assert info is not None
    assert before < info.run_after <= datetime.now(UTC) + timedelta(days=1)


def test_the_form_refuses_what_makes_no_sense(load_dags: Callable[[], dict[str, DAG]]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    params = load_dags()[DAG_ID].params
    assert params.get_param("releases").resolve() == []
    assert params.get_param("releases").resolve([str(one) for one in release_files(PROJECT_ROOT / "include")])
    for name, value in (
        ("releases", ["9.9.9"]),
        ("releases", "4.3.1"),
        ("depth", "shallow"),
        ("check_release", "9.9.9"),
    ):
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(value)
