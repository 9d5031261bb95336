"""SqlRunStore: what is written can be read after any death of its writer, exactly as it was."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, delete, select, update

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.findings import Severity
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.gates.gate import BeforeStop, GateCheck, GateCondition, GateKind, GateRef
from kafka_rollout.model.node_log import SeenLog
from kafka_rollout.model.plan import ConfigChange, Direction, FeatureChange, NodeStep, Plan, ReleaseStep, Undo
from kafka_rollout.planning.findings.cluster_state import RF_ONE_TOPIC
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import Approval, ApprovalOf, Decision, Unknown, events_of
from kafka_rollout.run.step_events import GateChecked, LogSeen
from kafka_rollout.run.store.event_json import decode
from kafka_rollout.run.store.history import SqlRunStore, list_run_versions, list_runs
from kafka_rollout.run.store.run_names import find_number, find_run_id, name_run
from kafka_rollout.run.store.tables import before_stops, events, plans, runs
from tests.contract.store.conftest import Store
from tests.paths import ROOT

ALICE = Approval(what=ApprovalOf.ROLL, by="alice", decision=Decision.APPROVED, reason="why", plan_hash="abc")
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
        findings=(RF_ONE_TOPIC.found("topic a", "One.", "Two.", severity=Severity.WARNING),),
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
def run(store: Store) -> SqlRunStore:
    return store.run(AIRFLOW_RUN)


def _change(store: Store, table: Table, **values: object) -> None:
    with store.database().begin() as connection:
        connection.execute(update(table).values(**values))


def test_a_plan_comes_back_equal_and_with_its_hash(store: Store, run: SqlRunStore) -> None:
    run.save_plan(_plan())
    again = store.run(AIRFLOW_RUN).load_plan()
    assert again == _plan()
    assert again.hash == _plan().hash


def test_no_plan_and_a_damaged_plan_are_told_apart(store: Store, run: SqlRunStore) -> None:
    with pytest.raises(UserError, match="has no plan"):
        run.load_plan()
    run.save_plan(_plan())
    _change(store, plans, body="{")
    with pytest.raises(FatalError, match="damaged"):
        run.load_plan()


def test_the_first_check_before_a_stop_is_the_one_that_is_kept(run: SqlRunStore) -> None:
    """The second is taken by a run that resumes after the node has left its ISRs."""
    run.save_before_stop("3.9.1-to-4.3.1", _before())
    run.save_before_stop("3.9.1-to-4.3.1", _before(11, "orders-2"))
    run.save_before_stop("4.3.1-to-3.9.1", _before(11, "orders-2"))
    assert run.load_before_stop("3.9.1-to-4.3.1", 11) == _before()
    assert run.load_before_stop("4.3.1-to-3.9.1", 11) == _before(11, "orders-2")
    assert run.load_before_stop("3.9.1-to-4.3.1", 12) is None
    run.save_before_stop("3.9.1-to-4.3.1", _before(11, "orders-2"), replace=True)
    assert run.load_before_stop("3.9.1-to-4.3.1", 11) == _before(11, "orders-2")


def test_a_damaged_state_before_a_stop_is_never_an_absent_one(store: Store, run: SqlRunStore) -> None:
    run.save_before_stop("release_step", _before())
    _change(store, before_stops, body="{")
    with pytest.raises(FatalError, match="node 11"):
        run.load_before_stop("release_step", 11)


def test_events_come_back_in_order_with_their_time(run: SqlRunStore) -> None:
    check = GateCheck(
        gate="before node 3", at=7.0, conditions=(GateCondition(name="isr", is_met=False, evidence="2 of 3"),)
    )
    checked = GateChecked(at=7.0, ref=GateRef(kind=GateKind.BEFORE_STOP, release_step="a", node_id=3), check=check)
    run.record(ALICE)
    run.record(checked)
    assert run.events() == (replace(ALICE, at=100.0), checked)


def test_a_run_without_events_has_none(run: SqlRunStore) -> None:
    assert run.events() == ()
    assert run.find_damage() == ""


_DAMAGES = {
    "altered": ("UPDATE events SET body = '{' WHERE number = 2", "Event 2 of run"),
    "removed": ("DELETE FROM events WHERE number IN (2, 3)", "Of 4 events, these are missing: 2, 3."),
    "first removed": ("DELETE FROM events WHERE number = 1", "Of 4 events, these are missing: 1."),
    "last removed": ("DELETE FROM events WHERE number = 4", "Of 4 events, these are missing: 4."),
    "all removed": ("DELETE FROM events", "Of 4 events, these are missing: 1, 2, 3, 4."),
}


@pytest.mark.parametrize("damage", _DAMAGES)
def test_missing_and_damaged_events_are_found(store: Store, run: SqlRunStore, damage: str) -> None:
    for number in range(4):
        run.record(replace(ALICE, reason=f"reason {number}"))
    assert run.find_damage() == ""
    statement, found = _DAMAGES[damage]
    with store.database().begin() as connection:
        connection.exec_driver_sql(statement)
    assert run.find_damage().startswith(found)


def test_a_damaged_event_of_a_run_does_not_hide_the_others(store: Store, run: SqlRunStore) -> None:
    store.run("another", cluster="other").record(replace(ALICE, by="bob"))
    _change(store, events, body="{")
    run.record(ALICE)
    with pytest.raises(FatalError, match="Event 1 of run 1 of cluster other is damaged"):
        store.run("another", cluster="other").events()
    assert len(run.events()) == 1
    assert set(list_runs(store.database(), "demo")) == {AIRFLOW_RUN}


_WRITER = """
import sys, itertools
from pathlib import Path
from kafka_rollout.run.store.artifacts import Artifacts
from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.history import SqlRunStore
from kafka_rollout.run.events import Unknown
home = Path(sys.argv[2])
run = SqlRunStore(Database(sys.argv[1]), Artifacts(str(home)), home / "private", "demo", "run")
for number in itertools.count():
    data = {"writer": sys.argv[3], "number": number, "filler": "x" * 50_000}
    run.record(Unknown(recorded_kind="tick", data=data))
    run.attach("document.json", {"number": number, "filler": "x" * 50_000})
"""


def test_writers_killed_at_any_moment_leave_every_earlier_event_whole(store: Store) -> None:
    """Before they are killed a reader beside them never sees half an event, or half a document."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins")}
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, store.url, str(store.home), name], env=environment)
        for name in ("a", "b")
    ]
    run = store.run()
    deadline = time.monotonic() + 180
    begun: set[str] = set()  # one may have written many before the other is there
    ticks: tuple[Unknown, ...] = ()
    while (len(ticks) < 60 or begun != {"a", "b"}) and time.monotonic() < deadline:
        ticks = events_of(run.events(), Unknown)
        begun = {str(tick.data["writer"]) for tick in ticks}
        run.attachment("document.json")
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    run.record(ALICE)
    found = run.events()
    assert isinstance(found[-1], Approval)
    assert run.find_damage() == ""
    for name in ("a", "b"):
        numbers = [tick.data["number"] for tick in events_of(found, Unknown) if tick.data["writer"] == name]
        assert numbers == list(range(len(numbers)))
        assert numbers
    assert len(run.attachment("document.json")["filler"]) == 50_000


def test_a_document_is_part_of_the_run_with_its_row_and_no_sooner(
    store: Store, run: SqlRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.attachment("scan/verdict.json") is None
    run.attach("scan/verdict.json", {"a": 1})
    with monkeypatch.context() as patch:  # killed between the document and its row
        patch.setattr("kafka_rollout.run.store.history.put", _killed)
        with pytest.raises(KeyboardInterrupt):
            run.attach("scan/other.json", {"a": 2})
    assert run.attachment("scan/other.json") is None
    assert run.attachment("scan/verdict.json") == {"a": 1}
    with monkeypatch.context() as patch:  # killed between the removal of the row and of the document
        patch.setattr(run._documents, "remove", _killed)
        with pytest.raises(KeyboardInterrupt):
            run.detach("scan/verdict.json")
    assert run.attachment("scan/verdict.json") is None


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_missing_document_is_named(run: SqlRunStore) -> None:
    run.attach("a.json", {})
    Path(run.location("a.json")).unlink()
    with pytest.raises(FatalError, match=r"a\.json is missing, although the run history lists it"):
        run.attachment("a.json")


def test_a_document_that_was_changed_outside_the_tool_is_refused_and_found(run: SqlRunStore) -> None:
    run.attach("scan.json", {"failing": ["__consumer_offsets-3"]})
    assert run.find_damage() == ""
    path = Path(run.location("scan.json"))
    written = path.read_bytes()
    path.write_text('{"failing": []}')
    with pytest.raises(FatalError, match=r"scan\.json .* was changed after the run wrote it"):
        run.attachment("scan.json")
    assert "its SHA-256 is another one" in run.find_damage()
    path.write_bytes(written)
    assert run.attachment("scan.json") == {"failing": ["__consumer_offsets-3"]}
    assert run.find_damage() == ""


def test_an_earlier_content_of_a_document_is_refused(run: SqlRunStore) -> None:
    run.attach("scan.json", {"attempt": 1})
    first = Path(run.location("scan.json")).read_bytes()
    run.attach("scan.json", {"attempt": 2})
    Path(run.location("scan.json")).write_bytes(first)
    with pytest.raises(FatalError, match="was changed"):
        run.attachment("scan.json")


@pytest.mark.parametrize("written", [True, False], ids=["after the write", "before the write"])
def test_a_writer_killed_while_it_replaces_a_document_leaves_one_that_can_be_read(
    run: SqlRunStore, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    run.attach("scan.json", {"attempt": 1})
    with monkeypatch.context() as patch:
        if written:
            patch.setattr("kafka_rollout.run.store.history.put", _killed)
        else:
            patch.setattr(run._documents, "write", _killed)
        with pytest.raises(KeyboardInterrupt):
            run.attach("scan.json", {"attempt": 2})
    assert run.attachment("scan.json") == {"attempt": 2 if written else 1}
    assert run.find_damage() == ""
    run.attach("scan.json", {"attempt": 3})
    assert run.attachment("scan.json") == {"attempt": 3}


def test_a_removed_document_is_absent_and_can_be_written_again(run: SqlRunStore) -> None:
    run.attach("scan.json", {"attempt": 1})
    run.detach("scan.json")
    assert run.attachment("scan.json") is None
    assert run.find_damage() == ""
    run.attach("scan.json", {"attempt": 2})
    assert run.attachment("scan.json") == {"attempt": 2}


@pytest.mark.parametrize("written", [True, False], ids=["after the write", "before the write"])
@pytest.mark.parametrize("lost", [False, True], ids=["", "and the document is lost"])
def test_a_second_writer_killed_after_a_killed_one_leaves_a_document_that_can_be_read(
    run: SqlRunStore, monkeypatch: pytest.MonkeyPatch, written: bool, lost: bool
) -> None:
    run.attach("scan.json", {"attempt": 1})
    with monkeypatch.context() as patch:
        if written:
            patch.setattr("kafka_rollout.run.store.history.put", _killed)
        else:
            patch.setattr(run._documents, "write", _killed)
        with pytest.raises(KeyboardInterrupt):
            run.attach("scan.json", {"attempt": 2})
    if lost:
        Path(run.location("scan.json")).unlink()
        run.attach("scan.json", {"attempt": 3})
        assert run.attachment("scan.json") == {"attempt": 3}
        return
    with monkeypatch.context() as patch:
        patch.setattr(run._documents, "write", _killed)
        with pytest.raises(KeyboardInterrupt):
            run.attach("scan.json", {"attempt": 3})
    assert run.attachment("scan.json") == {"attempt": 2 if written else 1}
    assert run.find_damage() == ""


def test_findings_that_were_removed_from_a_stored_plan_are_missed(store: Store, run: SqlRunStore) -> None:
    """The plan's hash does not include them, because they are evaluated again."""
    run.save_plan(_plan())
    changed = replace(_plan(), findings=())
    assert changed.hash == _plan().hash
    _change(store, plans, body=json.dumps(to_json(changed), ensure_ascii=False))
    with pytest.raises(FatalError, match="was changed after it was made"):
        run.load_plan()
    assert "was changed after it was made" in run.find_damage()


def test_a_document_has_no_event_and_gives_the_run_another_version(store: Store, run: SqlRunStore) -> None:
    run.record(ALICE)
    versions = [list_run_versions(store.database(), "demo")]
    for act in (
        lambda: run.save_plan(_plan()),
        lambda: run.attach("scan.json", {}),
        lambda: run.attach("scan.json", {"failing": []}),
        lambda: run.detach("scan.json"),
    ):
        act()
        versions.append(list_run_versions(store.database(), "demo"))
    assert all(before != after for before, after in pairwise(versions))
    run.detach("scan.json")
    assert list_run_versions(store.database(), "demo") == versions[-1]
    assert run.events() == (replace(ALICE, at=100.0),)


def test_the_report_replaces_itself_whole(run: SqlRunStore) -> None:
    run.write_report("<p>old</p>", {"a": 1})
    page, data = run.write_report("<p>neu ü</p>", {"released": Release.parse("4.3.1"), "nodes": (1, 2)})
    assert Path(page).read_text(encoding="utf-8") == run.page("report.html") == "<p>neu ü</p>"
    assert json.loads(Path(data).read_text(encoding="utf-8"))["nodes"] == [1, 2]


def test_private_things_cannot_be_read_by_others(run: SqlRunStore, tmp_path: Path) -> None:
    path = run.private_path("snapshot-00.checkpoint")
    assert tmp_path / "runs" not in path.parents
    for folder in (path.parent, path.parent.parent, tmp_path / "private"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_fingerprints_are_those_of_the_newest_plan(run: SqlRunStore) -> None:
    assert run.load_fingerprints() == {}
    run.save_fingerprints({1: "a", 2: "b"})
    run.save_fingerprints({1: "c"})
    assert run.load_fingerprints() == {1: "c"}


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", ".."])
def test_no_name_leads_out_of_the_store(store: Store, name: str) -> None:
    run = store.run(name, cluster=name)
    run.attach("x.json", {})
    assert Path(run.location("x.json")).resolve().is_relative_to(store.home / "runs")
    assert run.private_path(name).resolve().is_relative_to(store.home / "private")


def test_an_empty_run_id_is_refused(store: Store) -> None:
    with pytest.raises(UserError, match="cannot name a folder"):
        store.run("")


def test_runs_are_listed_by_their_own_ids_the_newest_first(store: Store) -> None:
    assert list_runs(store.database(), "demo") == ()
    ids = ["run-1", AIRFLOW_RUN, "manual__2026-11-21T00:13:17.123456 00:00"]
    for run_id in ids:
        store.run(run_id).record(ALICE)
    store.run("traffic").attach("traffic/verdict.json", {})  # `kafka-rollout traffic`: no events, no run
    assert list_runs(store.database(), "demo") == tuple(reversed(ids))


def test_a_run_is_called_by_its_number_which_each_cluster_counts(store: Store) -> None:
    ids = ("manual__a", "20261130T190000Z-shell-a", "3")
    first, second, third = (store.run(run_id) for run_id in ids)
    assert (first.number, second.number) == (1, 2), "before the first event"
    assert list_runs(store.database(), "demo") == ()
    for run in (third, second, first):
        run.record(ALICE)
    assert [run.number for run in (first, second, third)] == [1, 2, 3]
    assert (store.run(ids[1]).number, store.run(ids[1]).read_history().number) == (2, 2)
    found = [find_run_id(store.database(), "demo", name) for name in ("1", "2", "3", ids[0])]
    assert found == [*ids, ids[0]]
    assert [find_run_id(store.database(), cluster, "1") for cluster in ("other", "demo")] == [None, ids[0]]
    for name in ("4", "0", "-1", "²", "9" * 40, "manual__b"):
        assert find_run_id(store.database(), "demo", name) is None, name


def test_who_reads_the_name_of_a_run_creates_no_run(store: Store) -> None:
    with store.database().reading() as connection:
        names = find_number(connection, "demo", "manual__a"), name_run(connection, "demo", "manual__a")
    assert names == (None, "manual__a")
    assert store.run("manual__b").number == 1, "the other one took no number"


def test_runs_that_are_created_at_the_same_time_have_different_numbers(store: Store) -> None:
    runs_of = [store.run(f"run-{number}") for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda run: run.record(ALICE), runs_of))
    assert sorted(run.number for run in runs_of) == [1, 2, 3, 4, 5, 6]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the events that were decoded."""
    kinds: list[str] = []

    def counted(kind: str, *rest: Any) -> Any:
        kinds.append(kind)
        return decode(kind, *rest)

    monkeypatch.setattr("kafka_rollout.run.store.history.decode", counted)
    return kinds


def test_of_a_history_that_grew_only_the_new_events_are_decoded(run: SqlRunStore, decoded: list[str]) -> None:
    run.record(ALICE)
    run.save_plan(_plan())
    first = run.read_history()
    assert (len(first.events), first.has_documents) == (1, True)
    run.record(replace(ALICE, by="bob"))
    decoded.clear()
    second = run.read_history(first)
    assert [event.by for event in events_of(second.events, Approval)] == ["alice", "bob"]
    assert (decoded, second.has_documents) == (["approval"], False)
    decoded.clear()
    assert run.read_history(second) == second
    assert decoded == []
    run.attach("x.json", {})
    assert run.read_history(second).has_documents
    assert run.read_history().events == run.events() == second.events


def test_the_events_of_a_run_are_decoded_once_in_a_process(run: SqlRunStore, decoded: list[str]) -> None:
    run.record(ALICE)
    assert len(run.events()) == 1
    decoded.clear()
    run.record(replace(ALICE, by="bob"))
    assert [event.by for event in events_of(run.events(), Approval)] == ["alice", "bob"]
    assert decoded == ["approval"]


def test_a_history_that_does_not_continue_the_known_one_is_read_whole(store: Store, run: SqlRunStore) -> None:
    for by in ("alice", "bob"):
        run.record(replace(ALICE, by=by))
    known = run.read_history()
    with store.database().begin() as connection:  # a backup from before the second event, and the run went on
        connection.execute(delete(events).where(events.c.number == 2))
        connection.execute(update(runs).values(event_count=1, version=1))
    for by in ("carol", "dave"):
        run.record(replace(ALICE, by=by))
    found = run.read_history(known)
    assert [event.by for event in events_of(found.events, Approval)] == ["alice", "carol", "dave"]
    assert found.has_documents


def test_the_events_of_one_kind_in_the_other_runs_of_a_cluster(store: Store) -> None:
    seen = SeenLog(pid=7, started_at=1.0, loaded=('x-0 "kind":"approval"}',))
    store.run("first").record(LogSeen(node_id=1, seen=replace(seen, pid=6)))
    store.run("second").record(ALICE)
    store.run("second").record(LogSeen(at=200.0, node_id=1, seen=seen))
    store.run("elsewhere", "another").record(LogSeen(node_id=1, seen=seen))
    own = store.run("own")
    own.record(LogSeen(node_id=1, seen=seen))
    assert [event.seen.pid for event in own.events_of_other_runs(LogSeen)] == [6, 7]
    assert [event.by for event in own.events_of_other_runs(Approval)] == ["alice"]


@pytest.mark.parametrize("known_by", ["plan", "lock", "nothing"])
def test_the_other_runs_of_a_cluster_are_found_by_its_id_under_each_name(store: Store, known_by: str) -> None:
    """The entry of the inventory is renamed, and its name is given to another cluster."""
    plan = _plan()
    ids = {"former": plan.cluster_id, "demo": plan.cluster_id, "rebuilt": "another", "unplanned": ""}
    for name, cluster_id in ids.items():
        earlier = store.run(name, "old" if name == "former" else "demo")
        earlier.record(replace(ALICE, by=name))
        if cluster_id:
            earlier.save_plan(replace(plan, cluster_id=cluster_id))
    store.run("own", "old").record(replace(ALICE, by="same id of a run"))
    store.run("own", "old").save_plan(plan)
    store.run("own", "elsewhere").save_plan(replace(plan, cluster_id="another"))
    own = store.run("own", "demo")
    if known_by == "plan":
        own.save_plan(plan)
    elif known_by == "lock":
        store.lock().acquire("demo", "own", "upgrade", for_s=60.0, cluster_id=plan.cluster_id)
    by_name = {"demo", "unplanned"}
    found = {"2"} if known_by == "nothing" else {"1 of cluster old", "2 of cluster old"}
    assert own.events_by_other_run(Approval).keys() == {"1", "3"} | found
    by_id = {"former", "same id of a run"}
    approvers = by_name | ({"rebuilt"} if known_by == "nothing" else by_id)
    assert {event.by for event in own.events_of_other_runs(Approval)} == approvers


def test_the_events_of_some_kinds_by_other_run_with_those_that_cannot_be_read(store: Store) -> None:
    seen = LogSeen(node_id=1, seen=SeenLog(pid=7, started_at=1.0, loaded=('x "kind":"approval"}',)))
    for name in ("first", "damaged", "moved", "newer", "short", "own"):
        store.run(name).record(seen)
        store.run(name).record(ALICE)
    store.run("first").record(replace(ALICE, by="bob", reason="ü\n" * 200))
    store.run("elsewhere", "another").record(ALICE)
    store.run("empty").save_fingerprints({1: "x"})
    with store.database().begin() as connection:
        ids = {row.run_id: row.id for row in connection.execute(select(runs))}
        connection.execute(update(events).where(events.c.run == ids["damaged"], events.c.number == 2).values(body="{"))
        other_kind = (events.c.run == ids["moved"], events.c.number == 1)
        connection.execute(update(events).where(*other_kind).values(kind=Approval.kind))
        changed = '{"at":1.0,"data":{"who":"alice"},"kind":"approval"}'
        of_newer = (events.c.run == ids["newer"], events.c.number == 2)
        connection.execute(update(events).where(*of_newer).values(body=changed))
        connection.execute(delete(events).where(events.c.run == ids["short"], events.c.number == 1))
    found = store.run("own").events_by_other_run(Approval, GateChecked)
    assert {number for number, known in found.items() if known is None} == {"2", "3", "4", "5"}
    assert [one.by for one in events_of(found["1"] or (), Approval)] == ["alice", "bob"]
    assert found["7"] == ()
    assert found.keys() == {"1", "2", "3", "4", "5", "7"}
