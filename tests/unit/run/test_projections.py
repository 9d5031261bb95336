"""What is concluded from a run's events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.gates.gate import GateCheck, GateCondition, GateKind, GateRef
from kafka_rollout.gates.reasons import ANSWERS, CAUGHT_UP, IN_ISRS, PROCESS, UNFENCED
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    AskingEnded,
    Begun,
    Channel,
    Event,
    Planned,
    Responder,
    RollbackClosed,
    Unknown,
    Voided,
)
from kafka_rollout.run.projections import approvals, nodes, observations, offline, open_batches, runs
from kafka_rollout.run.step_events import (
    ComparedAfter,
    ContentsCompared,
    Finalized,
    Finalizing,
    GateChecked,
    GatePassed,
    OfflineInstalled,
    OfflineServed,
    OfflineStopping,
    OfflineUndone,
    Started,
    Stopping,
)
from kafka_rollout.run.view import RunView
from tests.unit.run.events_strategy import events

STEP = "3.9.1-to-4.3.1"
BACK = "4.3.1-to-3.9.1"
NEW = Release.parse("4.3.1")
AFTER = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=2)

CONCLUSIONS: tuple[Callable[[Sequence[Event]], Any], ...] = (
    runs.run_of,
    runs.find_dag_id,
    runs.has_plan,
    runs.has_acted,
    open_batches.passed_node_steps,
    open_batches.is_rollback_decided,
    open_batches.find_end,
    nodes.has_stopped_nodes,
    nodes.find_last_node_event,
    nodes.started_release_steps,
    observations.finalization,
    observations.planned_trims,
    observations.last_failing_offset,
    offline.stop_has_begun,
    offline.chosen_log,
    offline.installed_on,
    offline.restored_nodes,
    offline.can_be_undone,
)


def stopping(at: float, node_id: int = 2, release_step: str = STEP) -> Stopping:
    return Stopping(at=at, node_id=node_id, release_step=release_step)


def started(at: float, node_id: int = 2, release_step: str = STEP) -> Started:
    return Started(at=at, node_id=node_id, release_step=release_step, release=NEW, pid=7, seconds=2.0)


def approval(what: ApprovalOf, decision: str = "approved", plan_hash: str = "abc") -> Approval:
    return Approval(what=what, by="alice", decision=decision, reason="why", plan_hash=plan_hash)


def checked(at: float, is_met: bool) -> GateChecked:
    conditions = (GateCondition(name="in every ISR", is_met=is_met, evidence="2 of 3"),)
    return GateChecked(at=at, ref=AFTER, check=GateCheck(gate="after node 2", at=at, conditions=conditions))


@given(recorded=st.lists(events(), max_size=12), where=st.integers(0, 12), conclude=st.sampled_from(CONCLUSIONS))
def test_an_event_of_a_newer_version_changes_no_conclusion(
    recorded: list[Event], where: int, conclude: Callable[[Sequence[Event]], Any]
) -> None:
    newer = Unknown(at=5.0, recorded_kind="teleported", data={"node_id": 2})

    assert conclude([*recorded[:where], newer, *recorded[where:]]) == conclude(recorded)


@pytest.mark.parametrize("of", list(RunOf))
def test_a_run_is_what_its_first_plan_says(of: RunOf) -> None:
    plan = Planned(run_of=of, plan_hash="abc", source=NEW, target=NEW, blockers=())

    assert runs.run_of([Begun(dag_id="x"), plan, replace(plan, run_of=RunOf.UPGRADE)]) is of
    assert runs.run_of([]) is RunOf.UPGRADE
    assert runs.find_dag_id([Begun(dag_id="x"), plan]) == "x"
    assert not runs.find_dag_id([plan])


def test_a_blocker_makes_an_approval_void_until_it_is_given_again() -> None:
    roll, void = approval(ApprovalOf.ROLL), Voided(plan_hash="abc", blockers=("X: a node is down",))

    assert not approvals.find_invalidity([roll], roll)
    assert approvals.find_invalidity([roll, void], roll) == "invalid: X: a node is down"
    assert approvals.is_invalid([roll, void], roll)
    assert not approvals.find_invalidity([roll, void, roll], roll)
    assert not approvals.find_invalidity([roll, replace(void, plan_hash="another")], roll)


@pytest.mark.parametrize("record_id", ["record", ""])
@pytest.mark.parametrize("later", [Voided(plan_hash="abc", blockers=("X",)), Unknown(recorded_kind="void", data={})])
def test_an_answer_does_not_approve_what_was_found_after_its_text(record_id: str, later: Event) -> None:
    asked = Asked(what=ApprovalOf.ROLL, task_id="approve", record_id=record_id, text="Roll?\n\nthe plan", options=())
    by = Responder(channel=Channel.AIRFLOW if record_id else Channel.SHELL, user="alice", record_id=record_id)
    roll = replace(approval(ApprovalOf.ROLL), responder=by, text="the plan")

    assert approvals.is_invalid([asked, later, roll], roll)
    assert not approvals.find_invalidity([later, asked, roll], roll)
    assert not approvals.find_invalidity([asked, later, asked, roll], roll), "asked again"
    other = approval(ApprovalOf.FINALIZE)
    assert not approvals.find_invalidity([asked, later, other, roll], other), "its text is newer"


def test_an_answer_of_options_has_no_text_of_a_request_that_has_ended() -> None:
    asked = Asked(what=ApprovalOf.ROLL, task_id="", record_id="", text="Roll?\n\nthe plan", options=())
    roll = replace(approval(ApprovalOf.ROLL), text="the plan")
    void = Voided(plan_hash="abc", blockers=("X",))
    for ends in (roll, AskingEnded()):
        assert not approvals.find_invalidity([asked, ends, void, roll], roll)


@pytest.mark.parametrize("record_id", ["record", ""])
def test_an_approver_accepts_the_differences_of_the_text_and_none_found_meanwhile(
    record_id: str,
) -> None:
    def compared(digest: str) -> ContentsCompared:
        return ContentsCompared(counts={}, differences=1, after=ComparedAfter.ROLL, failing=1, digest=digest)

    what = ApprovalOf.DIFFERENCES
    asked = Asked(what=what, task_id="approve", record_id=record_id, text="Accept?\n\n- the first", options=())
    by = Responder(channel=Channel.AIRFLOW if record_id else Channel.SHELL, user="alice", record_id=record_id)
    given_ = replace(approval(what), responder=by, text="- the first")

    history = [compared("first"), asked, compared("second"), given_]
    assert RunView.of(history).accepted_digests("abc") == {"first"}
    assert RunView.of(history).unaccepted("abc") == compared("second")
    assert RunView.of([*history, given_, replace(given_, text="- both", responder=None)]).unaccepted("abc") is None


@pytest.mark.parametrize("what", [ApprovalOf.ROLL, ApprovalOf.PAUSE, ApprovalOf.FINALIZE, ApprovalOf.ROLL_BACK])
def test_an_unreadable_entry_makes_an_earlier_approval_invalid(what: ApprovalOf) -> None:
    given_, unreadable = approval(what), Unknown(recorded_kind="void", data={"plan_hash": 7})

    why = approvals.find_invalidity([given_, unreadable], given_)
    assert why == "invalid: a later entry of the run history (kind void) cannot be read"
    assert approvals.is_invalid([given_, unreadable], given_)
    assert not approvals.find_invalidity([unreadable, given_], given_)
    assert not approvals.find_invalidity([given_, unreadable, given_], given_), "approved again"


def test_an_approval_of_the_rollback_supersedes_that_of_the_roll_and_the_other_way_round() -> None:
    roll, back = approval(ApprovalOf.ROLL), approval(ApprovalOf.ROLL_BACK)

    assert approvals.find_invalidity([roll, back], roll) == "superseded: alice approved the rollback after it"
    assert approvals.find_invalidity([roll, back, roll], back) == "superseded: alice approved the plan after it"
    assert not approvals.find_invalidity([roll, approval(ApprovalOf.ROLL_BACK, "rejected")], roll)
    assert not approvals.find_invalidity([back, Voided(plan_hash="abc", blockers=("X",))], back)


def test_the_newest_decision_on_this_plan_counts() -> None:
    yes, no = approval(ApprovalOf.ROLL), approval(ApprovalOf.ROLL, "rejected")

    assert approvals.newest_decision([yes, no], ApprovalOf.ROLL, "abc") == no
    assert approvals.newest_decision([yes, approval(ApprovalOf.ROLL, plan_hash="new")], ApprovalOf.ROLL, "abc") == yes
    assert approvals.newest_decision([yes], ApprovalOf.FINALIZE, "abc") is None


def test_a_stop_is_unfinished_until_the_node_is_started() -> None:
    assert nodes.stop_is_unfinished([stopping(1)], STEP, 2)
    assert not nodes.stop_is_unfinished([stopping(1), started(2)], STEP, 2)
    assert nodes.stop_is_unfinished([stopping(1), started(2), stopping(3), started(4, node_id=3)], STEP, 2)
    assert not nodes.stop_is_unfinished([stopping(1), stopping(3, release_step=BACK)], STEP, 2)


def test_a_passed_gate_counts_until_the_node_is_touched_again() -> None:
    passed = GatePassed(ref=AFTER, gate="after node 2", message="passed")

    assert nodes.gate_is_passed([started(1), passed], AFTER)
    assert nodes.gate_is_passed([started(1), passed, started(2, node_id=3)], AFTER)
    assert not nodes.gate_is_passed([started(1), passed, started(2)], AFTER)
    assert not nodes.gate_is_passed([passed], replace(AFTER, release_step=BACK))


def test_a_rollback_is_refused_until_the_run_acts_again() -> None:
    assert RunView.of([started(1), RollbackClosed(release_step=BACK, sentence="closed")]).is_rollback_refused
    assert not RunView.of([RollbackClosed(release_step=BACK, sentence="closed"), started(1)]).is_rollback_refused


def test_metadata_version_dates_the_finalization_of_a_run() -> None:
    recorded = [
        Finalizing(at=1, levels={"group.version": 1}, epoch_before=10),
        Finalized(at=2, levels={"group.version": 1}, epoch_after=12),
        Finalizing(at=3, levels={"metadata.version": 25}, epoch_before=12),
        Finalized(at=4, levels={"metadata.version": 25, "group.version": 1}, epoch_after=15),
    ]

    newest = observations.Finalization(asked_at=3, epoch_before=12, epoch_after=15)
    assert observations.finalization(recorded) == newest
    assert observations.finalization(recorded[:2]) == replace(newest, asked_at=1, epoch_before=10, epoch_after=12)
    assert observations.finalization([recorded[1]]) is None, "found as it was asked: nothing was sent"


def test_an_undo_ends_a_try_and_its_outage() -> None:
    all_stop = OfflineStopping(voters=(1, 2, 3), unwritable=(), sentence="")
    installed = OfflineInstalled(node_id=1, sentence="done", had_log=True)
    undone = OfflineUndone(nodes=(1,), sentence="")
    recorded = [
        all_stop,
        stopping(10),
        installed,
        started(20),
        undone,
        OfflineServed(at=30, unserved_at=25, sentence=""),
    ]

    assert offline.stop_has_begun(recorded[:4])
    assert offline.installed_on(recorded[:4]) == {1: installed}
    assert not offline.stop_has_begun(recorded)
    assert offline.installed_on(recorded) == {}
    (outage,) = RunView.of(recorded).outages
    assert (outage.began_at, outage.unserved_at, outage.served_at) == (10, 25, 30)
    assert len(RunView.of([*recorded, stopping(40)]).outages) == 2


def passed(at: float) -> Event:
    return GatePassed(at=at, ref=AFTER, gate="", message="")


def seen_in(at: float, *, in_isrs: bool) -> Event:
    met = [PROCESS, ANSWERS, UNFENCED, CAUGHT_UP]
    conditions = [GateCondition(name=name, is_met=True, evidence="") for name in met]
    conditions.append(GateCondition(name=IN_ISRS, is_met=in_isrs, evidence=""))
    return GateChecked(at=at, ref=AFTER, check=GateCheck(gate="after node 2", at=at, conditions=tuple(conditions)))


BEHIND, IN_SYNC = partial(seen_in, in_isrs=False), partial(seen_in, in_isrs=True)
ALL_STOP = OfflineStopping(at=10, voters=(1, 2, 3), unwritable=(), sentence="")


@pytest.mark.parametrize(
    ("recorded", "seconds"),
    [
        ([stopping(10), started(40)], 990),
        ([stopping(10), started(40), BEHIND(50)], 990),
        ([stopping(10), started(40), BEHIND(50), IN_SYNC(700), IN_SYNC(760)], 690),
        ([stopping(10), started(40), IN_SYNC(700), stopping(710), started(720), IN_SYNC(730)], 690),
        ([stopping(10), started(40), IN_SYNC(700), BEHIND(710)], 690),
        ([stopping(10), started(40), IN_SYNC(100), BEHIND(110)], 900),
        ([stopping(10), started(40), stopping(500), started(510), IN_SYNC(520)], 510),
        ([stopping(10), started(40), IN_SYNC(45), passed(50), stopping(500), started(510), IN_SYNC(520)], 20),
        ([stopping(10), started(40), IN_SYNC(45), passed(50), started(510), IN_SYNC(520)], 470),
        ([stopping(10), started(40), IN_SYNC(700), passed(750)], 0),
        ([stopping(10, node_id=1), started(40, node_id=1)], 0),
        ([ALL_STOP, started(100, node_id=1), started(130), IN_SYNC(160)], 60),
        ([ALL_STOP, started(100, node_id=1), passed(150), stopping(500), started(510), IN_SYNC(520)], 20),
    ],
    ids=[
        "now",
        "catches up",
        "once",
        "restarted after a long time",
        "behind again",
        "behind again for a long time",
        "hung",
        "twice",
        "crashed",
        "passed",
        "another node",
        "stop of all",
        "after a stop of the controllers",
    ],
)
def test_a_broker_is_behind_until_a_check_has_seen_it_in_the_isrs(recorded: list[Event], seconds: float) -> None:
    """A start alone shows nothing: the cleaner of a leader can still remove tombstones that it has not read."""
    assert nodes.behind_s(recorded, 2, now=1000) == seconds
