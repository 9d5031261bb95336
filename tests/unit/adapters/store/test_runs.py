"""FileRunStore: what is written can be read after any death of its writer, exactly as it was."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_rollout.adapters.store.runs import FileRunStore, list_runs
from kafka_rollout.domain.gates.check import BeforeStop, Condition, GateCheck
from kafka_rollout.domain.model.errors import FatalError, UserError
from kafka_rollout.domain.model.findings import Finding, Severity
from kafka_rollout.domain.model.plan import ConfigChange, Direction, FeatureChange, NodeStep, Plan, ReleaseStep, Undo
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.ports.run_store import TORN_LINE
from tests.paths import ROOT

AIRFLOW_RUN = "manual__2026-11-21T00:13:17.123456+00:00"


def _plan() -> Plan:
    old, new = Release.parse("3.9.1"), Release.parse("4.3.1")
    node_steps = (
        NodeStep(node_id=1, name="controller-1", section="controllers", active_controller=True),
        NodeStep(node_id=11, name="broker-11", section="brokers"),
    )
    return Plan(
        cluster="demo",
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        direction=Direction.UPGRADE,
        source=old,
        target=new,
        release_steps=(ReleaseStep(from_release=old, to_release=new, reason="Straight.", order=node_steps),),
        feature_changes=(
            FeatureChange(
                feature="metadata.version",
                current=21,
                target=30,
                undo=Undo.IMPOSSIBLE,
                undo_source="catalogue",
                loss="ü — “everything”",
            ),
        ),
        config_changes=(
            ConfigChange(node_id=1, release=new, key="log.message.format.version", value=None, reason="Gone."),
        ),
        findings=(
            Finding(code="RF-ONE-TOPIC", severity=Severity.WARNING, subject="topic a", sentence="One.", remedy="Two."),
        ),
    )


def _before(node_id: int = 11, *partitions: str) -> BeforeStop:
    return BeforeStop(
        node_id=node_id,
        release="3.9.1",
        at=12.5,
        in_isr=frozenset(partitions or {"orders-0", "orders-1"}),
        leads=frozenset({"orders-0"}),
        was_active_controller=False,
    )


@pytest.fixture
def store(tmp_path: Path) -> FileRunStore:
    return FileRunStore(tmp_path, "demo", AIRFLOW_RUN, clock=lambda: 100.0)


def test_a_plan_comes_back_equal_and_with_its_hash(store: FileRunStore, tmp_path: Path) -> None:
    store.save_plan(_plan())
    again = FileRunStore(tmp_path, "demo", AIRFLOW_RUN).load_plan()
    assert again == _plan()
    assert again.hash == _plan().hash


def test_an_edited_plan_has_another_hash(store: FileRunStore) -> None:
    store.save_plan(_plan())
    path = store.folder / "plan.json"
    path.write_text(path.read_text().replace('"target": 30', '"target": 29'))
    assert store.load_plan().hash != _plan().hash


def test_no_plan_and_a_damaged_plan_are_told_apart(store: FileRunStore) -> None:
    with pytest.raises(UserError, match="has no plan"):
        store.load_plan()
    store.save_plan(_plan())
    path = store.folder / "plan.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FatalError, match="damaged"):
        store.load_plan()


def test_the_first_look_before_a_stop_is_the_one_that_is_kept(store: FileRunStore) -> None:
    """The second is taken by a run that resumes after the node has left its ISRs."""
    store.save_before_stop("3.9.1-to-4.3.1", _before())
    store.save_before_stop("3.9.1-to-4.3.1", _before(11, "orders-2"))
    store.save_before_stop("4.3.1-to-3.9.1", _before(11, "orders-2"))
    assert store.load_before_stop("3.9.1-to-4.3.1", 11) == _before()
    assert store.load_before_stop("4.3.1-to-3.9.1", 11) == _before(11, "orders-2")
    assert store.load_before_stop("3.9.1-to-4.3.1", 12) is None


def test_a_damaged_look_before_a_stop_is_never_an_absent_one(store: FileRunStore) -> None:
    store.save_before_stop("hop", _before())
    next(store.folder.glob("before-stop/*/11.json")).write_text("{")
    with pytest.raises(FatalError, match="node 11"):
        store.load_before_stop("hop", 11)


def test_events_come_back_in_order_with_their_time(store: FileRunStore) -> None:
    store.record("approval", {"by": "alice", "decision": "approved", "what": {1, 2}})
    look = GateCheck(gate="before node 3", at=7.0, conditions=(Condition(name="isr", holds=False, evidence="2 of 3"),))
    store.record_check(look)
    first, second = store.events()
    assert first == {"at": 100.0, "kind": "approval", "by": "alice", "decision": "approved", "what": [1, 2]}
    assert (second["kind"], second["at"], second["holds"], second["waits_for"]) == ("gate", 7.0, False, "isr: 2 of 3")
    assert second["conditions"] == [{"name": "isr", "holds": False, "evidence": "2 of 3"}]


def test_a_run_without_events_has_none(store: FileRunStore) -> None:
    assert store.events() == ()


def test_a_line_torn_by_a_kill_is_reported_and_swallows_nothing(store: FileRunStore) -> None:
    store.record("started", {"node_id": 1})
    with (store.folder / "events.jsonl").open("ab") as file:
        file.write('{"at": 101.0, "kind": "stopped", "reason": "ü'.encode()[:-1])
    assert [event["kind"] for event in store.events()] == ["started", TORN_LINE]
    store.record("started", {"node_id": 2})
    events = store.events()
    assert [event["kind"] for event in events] == ["started", TORN_LINE, "started"]
    assert events[1]["line"] == 2
    assert events[2]["node_id"] == 2


_WRITER = """
import sys, itertools
from pathlib import Path
from kafka_rollout.adapters.store.runs import FileRunStore
store = FileRunStore(Path(sys.argv[1]), "demo", "run")
for number in itertools.count():
    store.record("tick", {"writer": sys.argv[2], "number": number, "filler": "x" * 50_000})
"""


def test_writers_killed_at_any_moment_leave_every_earlier_event_whole(tmp_path: Path) -> None:
    """And before they are killed a reader beside them never sees half an event."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins")}
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path), name], env=environment) for name in ("a", "b")
    ]
    store = FileRunStore(tmp_path, "demo", "run")
    deadline = time.monotonic() + 180
    seen: list[str] = []
    begun: set[str] = set()  # one may have written a hundred before the other is there
    while (len(seen) < 100 or begun != {"a", "b"}) and time.monotonic() < deadline:
        told = store.events()
        seen, begun = [event["kind"] for event in told], {str(event.get("writer")) for event in told}
        assert TORN_LINE not in seen
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    store.record("after", {})
    events = store.events()
    assert events[-1]["kind"] == "after"
    for name in ("a", "b"):
        numbers = [event["number"] for event in events if event.get("writer") == name]
        assert numbers == list(range(len(numbers)))
        assert numbers


def test_the_report_replaces_itself_whole(store: FileRunStore) -> None:
    store.write_report("<p>old</p>", {"a": 1})
    page, data = store.write_report("<p>neu ü</p>", {"released": Release.parse("4.3.1"), "nodes": (1, 2)})
    assert page.read_text(encoding="utf-8") == "<p>neu ü</p>"
    assert json.loads(data.read_text(encoding="utf-8"))["nodes"] == [1, 2]
    assert sorted(path.name for path in store.folder.iterdir()) == ["report.html", "report.json"]


def test_private_things_lie_outside_the_report_store_for_the_owner_alone(store: FileRunStore, tmp_path: Path) -> None:
    path = store.private_path("snapshot-00.checkpoint")
    assert tmp_path / "runs" not in path.parents
    for folder in (path.parent, path.parent.parent, tmp_path / "private"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", ".."])
def test_no_name_leads_out_of_the_store(tmp_path: Path, name: str) -> None:
    store = FileRunStore(tmp_path / "home", name, name)
    store.record("x", {})
    assert store.folder.resolve().is_relative_to(tmp_path / "home" / "runs")
    assert store.private_path(name).resolve().is_relative_to(tmp_path / "home" / "private")


def test_an_empty_run_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot name a folder"):
        FileRunStore(tmp_path, "demo", "")


def test_runs_are_listed_by_their_own_ids_the_newest_first(tmp_path: Path) -> None:
    assert list_runs(tmp_path, "demo") == ()
    ids = ["run-1", AIRFLOW_RUN, "manual__2026-11-21T00:13:17.123456 00:00"]
    for age, run_id in enumerate(ids):
        store = FileRunStore(tmp_path, "demo", run_id)
        store.record("planned", {})
        os.utime(store.folder, (1000 + age, 1000 + age))
    FileRunStore(tmp_path, "demo", "ledger").attach("ledger/settings.json", {})  # `kafka-rollout ledger start`
    assert list_runs(tmp_path, "demo") == tuple(reversed(ids))
