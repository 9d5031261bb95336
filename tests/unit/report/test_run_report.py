"""report.json follows the published schema; the page shows a whole run, and first what an operator must know."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kafka_rollout.base.errors import FatalError, RefusedError
from kafka_rollout.base.json_forms import json_schema
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.answers import TerminalAnswers
from kafka_rollout.cli.run import ShellServices, run_procedure
from kafka_rollout.console.cluster_status import Phase
from kafka_rollout.console.run_console import build_console
from kafka_rollout.model.pace import Pace
from kafka_rollout.model.state import PartitionState
from kafka_rollout.notifications.due import ClusterHistory, NotificationKind, RunHistory, due_notifications
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import Run
from kafka_rollout.planning.request import Request
from kafka_rollout.procedure.kinds import UPGRADE, build_report_of_run
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.builders import record_traffic
from kafka_rollout.report.page.pages import render_run
from kafka_rollout.report.run_report import Outcome, Proved, proved_by, stored_end
from kafka_rollout.run.events import Event
from kafka_rollout.run.step_events import (
    BootstrapReplaced,
    FeatureResults,
    FeatureSupport,
    IncrementalScan,
    OfflineEvent,
    SnapshotLoaded,
    Trimmed,
)
from kafka_rollout.run.store.event_json import KINDS
from kafka_rollout.run.traffic import Discrepancy
from kafka_rollout.run.view import RunView
from kafka_rollout.wiring.runs import read_run_status, write_run_report
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.fakes.runtime import FakeRuntime
from tests.golden import assert_same_as_recorded
from tests.paths import ROOT
from tests.plans import plan_upgrade
from tests.traffic import LOST, traffic_of_run

GOLDEN = Path(__file__).with_name("golden")
IN_REPORTS = (BootstrapReplaced, FeatureResults, FeatureSupport, IncrementalScan, OfflineEvent, SnapshotLoaded, Trimmed)


def test_the_keys_of_events_in_reports_stay_as_recorded() -> None:
    lines = list[str]()
    for kind, event in sorted(KINDS.items()):
        if issubclass(event, IN_REPORTS):
            lines += [f"# event {kind}", *keys_of(event)]
    assert_same_as_recorded(GOLDEN / "events.txt", lines)


def keys_of(event: type[Event]) -> Iterator[str]:
    """Yield one line for each key of the JSON form: its path, and its types."""
    schema = json_schema(event | None)
    return _keys("", schema, schema.get("$defs", {}))


def _keys(path: str, found: Mapping[str, Any], defined: Mapping[str, Any]) -> Iterator[str]:
    options = [defined[one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in found.get("anyOf", [found])]
    if path:
        yield f"{path}: {' | '.join(_type_of(one) for one in options)}"
    for one in options:
        for key, value in one.get("properties", {}).items():
            yield from _keys(f"{path}.{key}".lstrip("."), value, defined)
        if "items" in one:
            yield from _keys(f"{path}[]", one["items"], defined)
        if isinstance(one.get("additionalProperties"), dict):
            yield from _keys(f"{path}.*", one["additionalProperties"], defined)


def _type_of(schema: Mapping[str, Any]) -> str:
    values = schema.get("enum")
    return "any" if not schema else str(schema["type"]) if values is None else f"one of {', '.join(values)}"


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPorts:
    """The ports of a run that upgraded all nodes and left the features for later."""
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    ports = fake_ports(FakeCluster(R391), tmp_path)
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1 <b>", confirms=False)
    services = ShellServices(ports, Settings.from_environment(), None)
    assert run_procedure(UPGRADE, ports, Request(target=R431, scan=False, pace=Pace.FAST), answers, services) == 0
    return ports


def test_the_report_of_a_whole_upgrade(ports: ClusterPorts) -> None:
    page, data = (Path(file).read_text() for file in write_run_report(Run(ports, ports.run.load_plan()))[1:])
    report = json.loads(data)
    validate(report)
    assert report["failed_gate"] is None
    assert report["proved"][0] == "All 6 nodes run Kafka 4.3.1; 6 of them restarted in this run."
    assert report["not_proved"][0] == "No test traffic ran: whether clients lost records was not checked."
    assert report["next_action"] == "After the soak, start a run that finalizes the levels of fake."
    assert [(one["from"], one["to"], len(one["order"])) for one in report["release_steps"]] == [("3.9.1", "4.3.1", 6)]
    assert [(one["what"], one["by"], one["decision"]) for one in report["approvals"]] == [("roll", "alice", "approved")]
    assert {one["state"] for one in report["gates"]} == {"passed"}
    assert [one["release"] for one in report["nodes"]] == ["4.3.1"] * 6
    lines = lines_of(page)
    assert "fake: 3.9.1 → 4.3.1" in lines
    assert f"{report['sentence']}" in lines
    assert [line for line in lines if " | alice | approved | CHG-1 <b> | shell user " in line]
    assert len([line for line in lines if re.fullmatch(r"passed (before|after) node \d+ .*", line)]) == 12


def validate(report: Any) -> None:
    schema = json.loads((ROOT / "docs" / "run-report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(report, schema)


def test_the_report_of_a_stopped_run_begins_with_the_failed_gate_the_log_and_the_next_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    cluster = FakeCluster(R391)
    cluster.spec = replace(cluster.spec, gate_timeout_s=1.0)
    ports = fake_ports(cluster, tmp_path)
    cluster.cannot_start.add((3, R431))
    cluster.nodes[3].log += [f"[2026-11-26 03:04:0{second},000] INFO line {second} (kafka.X)" for second in range(9)]
    cluster.nodes[3].log.append("[2026-11-26 03:05:00,000] ERROR <b>password=hunter2</b> (kafka.X)")
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
    services = ShellServices(ports, Settings.from_environment(), None)
    with pytest.raises(RefusedError, match="after node 3 failed"):
        run_procedure(UPGRADE, ports, Request(target=R431, scan=False), answers, services)
    cluster.nodes[3].log.append("written after the gate failed")
    page, data = (Path(file).read_text() for file in write_run_report(Run(ports, ports.run.load_plan()))[1:])
    report = json.loads(data)
    validate(report)
    assert (report["outcome"], report["failed_gate"]["node_id"]) == ("stopped", 3)
    assert report["failed_gate"]["unmet"][0]["name"] == "process"
    assert "kafka-rollout upgrade --to 4.3.1 --cluster fake --run 1" in report["next_action"]
    assert "rollback" in report["next_action"]
    assert report["logs"][0]["lines"][-1].endswith("cannot start on 4.3.1")
    places = [page.index(text) for text in ("Next action", "Failed gate: after node 3", "Log of ", "Approvals")]
    assert places == sorted(places)
    assert "&lt;b&gt;password=[hidden]" in page
    assert "hunter2" not in page + data


@pytest.mark.parametrize("source", ["3.9.1", "4.3.0"])
def test_a_roll_whose_last_gate_failed_is_neither_rolled_nor_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """The last broker runs the target, but it does not load a partition of the coordinators."""
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    cluster = FakeCluster(Release.parse(source))
    if source == "4.3.0":  # a patch release: no level is left to raise
        features = cluster.catalogue.get(R431).features
        cluster.finalized = {name: one.default_level for name, one in features.items() if name != "kraft.version"}
    ports, starts = fake_ports(cluster, tmp_path), cluster.start

    def start(node_id: int) -> None:
        starts(node_id)
        if node_id == 13:
            cluster.topics["__consumer_offsets-0"] = PartitionState(
                topic="__consumer_offsets",
                partition=0,
                leader=13,
                replicas=(13, 11, 12),
                isr=(13, 11, 12),
                min_insync_replicas=1,
            )
            cluster.coordinator_answers["__consumer_offsets-0"] = "NOT_COORDINATOR"

    monkeypatch.setattr(cluster, "start", start)
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
    services = ShellServices(ports, Settings.from_environment(), None)
    with pytest.raises(RefusedError, match="The gate after node 13 failed"):
        run_procedure(UPGRADE, ports, Request(target=R431, scan=False, pace=Pace.FAST), answers, services)
    assert {node.running for node in cluster.nodes.values()} == {R431}
    plan = ports.run.load_plan()
    report, _, data = write_run_report(Run(ports, plan))
    assert (report.outcome, report.sentence) == (
        Outcome.STOPPED,
        "Every node runs 4.3.1, but the gate after the start has not passed for batch 6 of 6 (node 13).",
    )
    assert report.failed_gate is not None
    assert (report.failed_gate.node_id, report.logs[0].node_id) == (13, 13)
    assert "rollback" in report.next_action
    assert not [one for one in report.proved if one.startswith("After each restart")]
    assert json.loads(Path(data).read_text())["outcome"] == "stopped"
    assert proved_by(plan, report.outcome) == Proved()
    status, _ = read_run_status("fake", ports.run_id, Settings.from_environment())
    assert (status.phase, status.needs_human) == (Phase.FAILED, True)
    history = RunHistory(run_id=ports.run_id, number=1, view=RunView.of(ports.run.events()), end=stored_end(ports.run))
    due = due_notifications(ClusterHistory(cluster="fake", runs=(history,)), now=report.ended_at)
    assert {one.kind for one in due} == {NotificationKind.NODE_FAILED, NotificationKind.RUN_FAILED}


@pytest.mark.parametrize("lost", [(LOST,), ()], ids=["lost", "not compared"])
def test_a_run_whose_test_traffic_lost_records_or_was_not_compared_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: tuple[Discrepancy, ...]
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    ports = fake_ports(FakeCluster(R391), tmp_path)
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)

    class Traffic(ShellServices):
        def start_traffic(self) -> None: ...

        def stop(self) -> None:
            if lost:
                record_traffic(self.ports, traffic_of_run(self.ports.run.events(), *lost))
            raise FatalError("The traffic check failed.", remedy="Read its journals.")

    services = Traffic(ports, Settings.from_environment(), None)
    request = Request(target=R431, scan=False, rehearse=False, pace=Pace.FAST, traffic=True)
    with pytest.raises(FatalError, match="The traffic check failed"):
        run_procedure(UPGRADE, ports, request, answers, services)
    report = write_run_report(Run(ports, ports.run.load_plan()))[0]
    assert report.outcome is Outcome.STOPPED
    why = LOST.sentence if lost else "its records were not compared since the last change."
    assert report.sentence == f"Every node runs 4.3.1, but the check of the test traffic did not pass: {why}"
    assert proved_by(ports.run.load_plan(), report.outcome) == Proved()


@pytest.mark.parametrize("fails", ["install", "start"])
def test_a_run_that_stopped_its_first_node_and_cannot_start_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    ports = fake_ports(FakeCluster(R391), tmp_path)

    def fail(*given: object, **named: object) -> None:
        raise FatalError("There is no space left on the device.", remedy="Make space.")

    monkeypatch.setattr(FakeRuntime, fails, fail)
    answers = TerminalAnswers(cluster=ports.cluster, name="alice", reason="CHG-1", confirms=False)
    services = ShellServices(ports, Settings.from_environment(), None)
    with pytest.raises(FatalError, match="no space left"):
        run_procedure(UPGRADE, ports, Request(target=R431, scan=False, rehearse=False), answers, services)
    report = write_run_report(Run(ports, ports.run.load_plan()))[0]
    assert report.outcome is Outcome.STOPPED
    cause = "There is no space left on the device. Make space."
    assert report.sentence == (
        f"{cause} Node 2 is stopped and was not started. The change to 4.3.1 stopped: nodes 1, 3, 11, 12, 13: 3.9.1, "
        "node 2: no response."
    )
    assert "rollback" in report.next_action
    status, run = read_run_status("fake", ports.run_id, Settings.from_environment())
    assert (status.phase, status.needs_human, status.node and status.node.id) == (Phase.FAILED, True, 2)
    conditions = {one.type: one.message for one in status.conditions}
    assert conditions["NeedsHuman"] == build_console(run, status).why == report.sentence
    assert conditions["NodeStopped"] == "Node 2: it was asked to stop and was not started."
    history = RunHistory(run_id=run.run_id, number=run.number, view=run.view, end=run.end)
    failed, ended = due_notifications(ClusterHistory(cluster="fake", runs=(history,)), now=time.time())
    assert (failed.headline, ended.sentences[0]) == (f"Node 2: {cause}", report.sentence)


def test_the_end_of_a_run_is_read_from_its_stored_end(ports: ClusterPorts) -> None:
    write_run_report(Run(ports, ports.run.load_plan()))
    stored = stored_end(ports.run)
    assert stored is not None
    assert stored.outcome == "rolled_not_finalized"
    ports.run.attach("report.json", ["not a report"])
    assert stored_end(ports.run) is None


def lines_of(page: str) -> list[str]:
    """Return the text of a page: one line for each row, heading and paragraph, cells separated by a bar."""
    text = re.sub(r"<style>.*?</style>|<head>|\n", " ", page, flags=re.DOTALL)
    text = re.sub(r"</t[dh]>\s*<t[dh][^>]*>", " | ", text)
    text = re.sub(r"</?(?:tr|p|h\d|title|div|details|summary|section|br|text)\b[^>]*>", "\n", text)
    lines = (" ".join(html.unescape(re.sub(r"<[^>]*>", " ", line)).split()) for line in text.split("\n"))
    return [line for line in lines if line]


def test_the_page_shows_a_run_whose_first_step_has_a_reason(ports: ClusterPorts) -> None:
    """A step of a history that is not complete, such as that of a call that began in the middle."""
    plan = plan_upgrade(ports, R431, finalize=False)
    report = build_report_of_run(Run(ports, plan))
    first, second, *rest = report.steps
    reasons = (replace(first, reason="It failed."), replace(second, reason="It failed."), *rest)
    page = render_run(replace(report, steps=reasons))
    assert page.count("It failed.") == 1
