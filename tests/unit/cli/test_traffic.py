"""`traffic`: runs until Ctrl-C or SIGTERM, then compares; its process does not outlive it."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli.app import run_main
from kafka_rollout.cli.commands import traffic
from kafka_rollout.cli.run import ShellServices
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, BackgroundProcess, BackgroundState
from kafka_rollout.run.events import START_TRAFFIC, Event, StepBegan, StepEnded, StepOutcome, events_of
from kafka_rollout.run.proofs import is_traffic_unchecked
from kafka_rollout.run.step_events import TrafficCompared
from kafka_rollout.run.store.background import SqlBackground
from kafka_rollout.run.traffic import TrafficVerdict
from kafka_rollout.traffic.processes import of_run
from tests.fakes.cluster import R391, R431, FakeCluster, make_spec
from tests.fakes.ports import fake_ports
from tests.plans import plan_upgrade
from tests.records import database_of

CLEAN = TrafficVerdict(
    acknowledged=12,
    stored=12,
    transactions={"committed": 1},
    consumed={"classic": 12},
    redelivered={},
    unavailable_s={},
    discrepancies=(),
)


class Started:
    """Calls of `start_traffic`, and the process that it registers."""

    def __init__(self, home: Path) -> None:
        self.record = SqlBackground(database_of(home))
        self.calls = list[dict[str, Any]]()
        self.process: BackgroundProcess | None = None

    def __call__(self, spec: ClusterSpec, run_id: str, **given: Any) -> BackgroundProcess:
        self.calls.append({"run_id": run_id, **given})
        key = BackgroundKey(cluster=spec.name, run_id=run_id, kind=BackgroundKind.TRAFFIC)
        self.record.register(key, replaces="", host="here", folder="/journals", settings={}, stop=False)
        self.process = self.record.read(key)
        assert self.process is not None
        return self.process


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    spec = make_spec(name="fake")
    spec = replace(spec, nodes=tuple(replace(node, directory=f"/nowhere/{node.name}") for node in spec.nodes))
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "fake.yaml").write_text(dump_cluster(spec))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    found = Started(tmp_path / "home")
    monkeypatch.setattr(of_run, "start_traffic", found)
    monkeypatch.setattr(of_run, "stop_traffic", lambda *_, **__: CLEAN)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_traffic_and_its_result_is_printed(
    started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    monkeypatch.setattr(traffic, "_wait_for_end", lambda *_: os.kill(os.getpid(), number))
    assert run_main(["traffic", "-c", "fake", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["ok"] is True
    assert "with journals in /journals" in said.err
    (call,) = started.calls
    assert (call["leased"], call["only_with"]) == (False, os.getpid())


def test_it_compares_too_if_the_process_ends_by_itself_and_a_loss_has_exit_code_3(
    started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wait = traffic._wait_for_end

    def end_and_wait(key: BackgroundKey, settings: Settings) -> None:
        assert started.process is not None
        started.record.report(started.process, BackgroundState.STOPPED, pid=1, status={}, result={})
        wait(key, settings)

    monkeypatch.setattr(traffic, "_wait_for_end", end_and_wait)
    monkeypatch.setattr(of_run, "stop_traffic", lambda *_, **__: replace(CLEAN, consumed={"classic": 0}))
    for _ in range(2):
        assert run_main(["traffic", "-c", "fake"]) == RefusedError.exit_code
        said = capsys.readouterr()
        assert said.out == "12 records acknowledged, consumed {'classic': 0}\n"
        assert "one kind of test traffic produced or consumed nothing. Read the journals in /journals." in said.err
    assert len({call["run_id"] for call in started.calls}) == 2, "a failure does not fail the next call"


@pytest.mark.parametrize(
    "event", [StepEnded(step=START_TRAFFIC, outcome=StepOutcome.DONE), StepBegan(step=START_TRAFFIC)]
)
def test_a_continued_run_compares_the_traffic_of_a_call_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: Event
) -> None:
    """The traffic is a process of its own, which the kill leaves running; the next call began none. The kill can come
    between its start and the end of the step."""
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr(of_run, "stop_traffic", lambda *_, **__: CLEAN)
    ports = fake_ports(FakeCluster(R391), tmp_path)
    plan_upgrade(ports, R431, finalize=False)
    for started in (False, True):
        if started:
            ports.run.record(event)
        for _ in range(2):
            ShellServices(ports, Settings.from_environment(), None).stop()
        assert len(events_of(ports.run.events(), TrafficCompared)) == started


def test_a_call_that_was_killed_before_its_traffic_existed_leaves_nothing_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path))
    monkeypatch.setattr(of_run, "stop_traffic", lambda *_, **__: None)
    ports = fake_ports(FakeCluster(R391), tmp_path)
    plan_upgrade(ports, R431, finalize=False)
    ports.run.record(StepBegan(step=START_TRAFFIC))
    assert is_traffic_unchecked(ports.run.events())
    ShellServices(ports, Settings.from_environment(), None).stop()
    assert not is_traffic_unchecked(ports.run.events())
