"""A private Airflow home and database for the DAG tests, and a fake cluster for the real tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_rollout.airflow.common.outbox import OUTBOX
from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.coordinator_logs.scan import ScanRequest, ScanResult
from kafka_rollout.coordinator_logs.verdicts import evaluate_records
from kafka_rollout.formats.log_types import LogRange
from kafka_rollout.model.state import CheckpointFile
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Catalogue
from kafka_rollout.run.store.history import SqlRunStore
from tests.dags.runs.dag_run import begin_to_wait, run_dag, state_at_once, wait_for_turn
from tests.fakes.cluster import COMBINED, R391, FakeCluster, make_spec
from tests.fakes.ports import fake_ports
from tests.records import run_history
from tools.demo.folder import PROJECT_ROOT

if TYPE_CHECKING:
    from airflow.sdk import DAG

DAG_ID = "kafka_upgrade_fake"


def coordinator_partitions(world: FakeCluster) -> list[tuple[str, int]]:
    return [(one.topic, one.partition) for one in world.topics.values() if one.topic in COORDINATOR_TOPICS]


def empty_scan(catalogue: Catalogue, partitions: Sequence[tuple[str, int]]) -> ScanResult:
    """Return the scan of logs without a record."""
    return ScanResult(
        cluster="fake",
        scanned_at=0.0,
        logs=tuple(LogRange(topic=topic, partition=number, start=0, end=0) for topic, number in partitions),
        classes=(),
        verdicts=evaluate_records(catalogue, (), list(catalogue), partitions=partitions),
    )


NOTHING_SCANNED: Mapping[str, Any] = {"cluster": "fake", "scanned_at": 0.0, "logs": (), "classes": (), "verdicts": ()}


def spec_with_homes(name: str = "fake", **options: Any) -> ClusterSpec:
    """The description of the fake cluster, with the directories that an inventory file needs."""
    spec = make_spec(name=name, **options)
    nodes = tuple(replace(node, directory=f"/nowhere/{name}/{node.name}") for node in spec.nodes)
    return replace(spec, nodes=nodes, gate_timeout_s=120.0)


def combined_spec() -> ClusterSpec:
    """Three combined nodes; node 1 is the active controller."""
    nodes = tuple(replace(node, directory=f"/nowhere/fake/{node.name}") for node in COMBINED.nodes)
    return replace(COMBINED, nodes=nodes, gate_timeout_s=120.0)


@pytest.fixture(autouse=True)
def empty_outbox() -> Iterator[None]:
    """A delivery reads the environment of its test."""
    yield
    assert OUTBOX.wait_until_empty(60)


@pytest.fixture
def inventory(empty_outbox: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory folder with the cluster `fake`, which the DAG file reads."""
    folder = tmp_path / "clusters"
    folder.mkdir()
    (folder / "fake.yaml").write_text(dump_cluster(spec_with_homes()))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(folder))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    # A fake cluster has no groups for the monitor process.
    monkeypatch.setattr("kafka_rollout.traffic.processes.of_run.start_group_monitor", lambda *_, **__: None)
    return folder


@pytest.fixture
def load_dags(inventory: Path) -> Callable[[], dict[str, DAG]]:
    """Read the DAG folder as Airflow does; fails on an import error. A DAG object keeps the params of a run."""

    def load() -> dict[str, DAG]:
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(PROJECT_ROOT / "dags")
        assert bag.import_errors == {}
        return dict(bag.dags)

    return load


@pytest.fixture(scope="session")
def quick_schemas() -> Iterator[None]:
    """Check each schema of a form field once.

    Airflow checks the schemas of all fields again for every task of a DAG, which takes a third of a run's time here.
    """
    from jsonschema import Draft202012Validator

    check, passed = Draft202012Validator.check_schema, set[str]()

    def check_once(schema: Any, **options: Any) -> None:
        if (known := repr(schema)) not in passed:
            check(schema, **options)
            passed.add(known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft202012Validator, "check_schema", check_once)
        yield


@pytest.fixture(scope="session")
def database(quick_schemas: None) -> None:
    from airflow.settings import engine
    from airflow.utils import db
    from sqlalchemy import event

    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    db.initdb()


@pytest.fixture(scope="session")
def execution_api(database: None) -> Iterator[None]:
    from tests.dags.runs.execution_api import quick_execution_api

    with quick_execution_api():
        yield


@dataclass(kw_only=True)
class Asked:
    """Approval requests of tasks; `answers`: the options to choose, in order, by task id."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    who: str = "alice"
    on_page: bool = False  # answer the newest text, as the page of the run does, and not the first one
    asked: list[str] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)  # subject and body, by the id of the record
    offered: dict[str, tuple[str, ...]] = field(default_factory=dict)
    while_asked: Callable[[str], None] = lambda task: None  # called before the answer is given
    records: dict[str, dict[str, Any]] = field(default_factory=dict)  # Airflow's own, by the task instance's id


@dataclass(kw_only=True)
class FakeRuns(Asked):
    """Runs of the DAG over a fake cluster, in this process."""

    world: FakeCluster
    home: Path
    load: Callable[[], dict[str, Any]]
    scanned: ScanResult | Exception = field(default_factory=lambda: ScanResult(**NOTHING_SCANNED))
    scan_requests: list[ScanRequest] = field(default_factory=list)

    def run(self, dag_id: str = DAG_ID, **conf: Any) -> tuple[str, dict[str, str | None], SqlRunStore]:
        """(state of the run, states by task, the run's record)."""
        from kafka_rollout.airflow.approvals.airflow_records import instance_name

        dag = self.load()[dag_id]
        params = {"target_release": "4.3.1", "pace": "fast", **conf}
        run = run_dag(dag, params)
        states = {instance_name(ti.task_id, ti.map_index): ti.state for ti in run.get_task_instances()}
        return str(run.state), states, run_history(self.home, "fake", run.run_id)


@pytest.fixture
def runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    inventory: Path,
    execution_api: None,
    load_dags: Callable[[], dict[str, Any]],
) -> FakeRuns:
    """The real DAG, tasks, steps, run history and lock on a fake cluster; approvers answer at once from `answers`."""
    world = FakeCluster(R391, spec=spec_with_homes())
    world.java = 17
    found = FakeRuns(world=world, home=tmp_path / "home", load=load_dags)
    _stand_in(monkeypatch, found)
    return found


@pytest.fixture
def combined(runs: FakeRuns, inventory: Path) -> None:
    """Three combined nodes instead of three controllers and three brokers: half the node steps, for tests of what does
    not depend on a node's role."""
    spec = combined_spec()
    (inventory / "fake.yaml").write_text(dump_cluster(spec))
    runs.world = FakeCluster(R391, spec=spec)
    runs.world.java = 17


_MOST_DEFAULTS = 10  # a gate that never passes is not waited for without an end: its task fails
ANSWERED_AT = datetime(2025, 11, 21, 4, 0, tzinfo=UTC)


def given_answer(option: str, *, who: str = "alice", request: str = "") -> dict[str, Any]:
    """The event of an answer, as Airflow's API resumes a task with it. `request`: as Airflow's form has it."""
    return {
        "chosen_options": [option],
        "params_input": {"reason": "because the test says so", "request": request},
        "responded_by_user": {"id": who, "name": who},
        "responded_at": ANSWERED_AT,
        "timedout": False,
    }


def answer_at_once(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    """Answer every request as alice with the next of `asked.answers`, by default with Approve or Wait on, ten times.

    Triggers read the answers as Airflow's records. A gate that waits for the batches before it gives way to them.
    """
    from kafka_rollout.airflow.approvals import airflow_records, asking
    from kafka_rollout.airflow.approvals.asking import frozen_hash, record_question, text_of
    from kafka_rollout.airflow.operators import ask_approval

    def answer(context: Any, ports: Any, question: Any, *, method: str, timeout: Any, **_: object) -> Any:
        task, place = context["task"], airflow_records.place_of(context)
        asked.asked.append(place)
        # Airflow keeps the text of the first request of a task instance.
        own = (question.subject, question.body)
        subject, body = asked.texts.setdefault(str(context["ti"].id), own)
        question = asking.with_changes(question, subject, body)
        asked.bodies[place] = question.body
        asked.offered[place] = tuple(option.label for option in question.options)
        record_question(context, ports, question)
        asked.while_asked(place)
        by_default = ["Approve" if "Approve" in asked.offered[place] else "Wait on"]
        option = asked.answers.setdefault(place, by_default * _MOST_DEFAULTS).pop(0)
        assert option in asked.offered[place], f"{place} offers {asked.offered[place]}"
        later = timedelta(seconds=len(asked.asked))
        text = text_of(subject, question.body if asked.on_page else body)
        name = airflow_records.request_name(ports.run.number, place, question.what, text)
        event = {**given_answer(option, who=asked.who, request=name), "responded_at": ANSWERED_AT + later}
        asked.records[str(context["ti"].id)] = event
        return task.confirm_answer(context, event, then=method, plan_hash=frozen_hash(context))

    def read_record(record_id: Any) -> Any:
        event = {**asked.records[str(record_id)]}
        del event["timedout"]
        return {**event, "responded_at": event["responded_at"].timestamp()}

    for module in (ask_approval, asking):
        monkeypatch.setattr(module, "ask", answer)
    monkeypatch.setattr(airflow_records, "read_record", read_record)
    trigger = airflow_records.AnswerTrigger
    monkeypatch.setattr(airflow_records, "AnswerTrigger", lambda **options: trigger(**{**options, "pause_s": 0.0}))
    monkeypatch.setattr("kafka_rollout.airflow.gates.part_trigger.PartTrigger.pause", wait_for_turn)
    monkeypatch.setattr("kafka_rollout.airflow.gates.part_trigger.PartTrigger.begins", begin_to_wait)
    monkeypatch.setattr("kafka_rollout.airflow.gates.part_trigger.PartTrigger.state", state_at_once)


def _stand_in(monkeypatch: pytest.MonkeyPatch, runs: FakeRuns) -> None:
    """Stand in for the brokers, the Spark job, the approver and the picture of a report."""
    from kafka_rollout.airflow.common import cluster_access as kafka_cluster
    from kafka_rollout.airflow.operators import spark_scan
    from kafka_rollout.feature_updates import levels as features

    @contextmanager
    def open_fake(cluster: str, run_id: str, *_: object, call: str, **_options: object) -> Iterator[Any]:
        yield fake_ports(runs.world, runs.home, run_id=run_id, call=call)

    finalize = features.finalize

    def finalize_and_snapshot(run: Any) -> Any:
        results = finalize(run)
        for node_id, node in runs.world.nodes.items():
            node.checkpoints.append(
                CheckpointFile(
                    node_id=node_id, path="x", end_offset=500, epoch=3, size=1, modified_at=runs.world.clock.now() + 1
                )
            )
        return results

    def scan(task: Any, context: Any, scratch: Path) -> ScanResult:
        runs.scan_requests.append(task.wanted(context, ScanRequest(cluster="fake", json_file=scratch), scratch))
        if isinstance(runs.scanned, Exception):
            raise runs.scanned
        if not runs.scanned.logs and (found := coordinator_partitions(runs.world)):
            return empty_scan(runs.world.catalogue, found)
        return runs.scanned

    monkeypatch.setattr(kafka_cluster, "open_cluster_ports", open_fake)
    monkeypatch.setattr(features, "finalize", finalize_and_snapshot)
    answer_at_once(monkeypatch, runs)
    monkeypatch.setattr(spark_scan.SparkScanOperator, "scan", scan)
    # The pictures of reports are drawn in tests/unit/report: each takes as long as planning.
    monkeypatch.setattr("kafka_rollout.report.page.pages.traffic_plot", lambda *_, **__: "")
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
