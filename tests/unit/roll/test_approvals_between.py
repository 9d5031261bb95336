"""The answer at a pause between batches, against a user who writes the run history and not Airflow's records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.control.approval import renew_invalid_approval, require_approval
from kafka_rollout.control.holds import HeldError
from kafka_rollout.gates.gate import GatePolicy, WatchState
from kafka_rollout.model.plan import BatchStep
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.plan_making import plan_change
from kafka_rollout.roll import loop
from kafka_rollout.roll.loop import BatchWatch
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    ApprovalRefuted,
    Begun,
    Channel,
    Decision,
    Responder,
    TakenOver,
)
from kafka_rollout.run.projections.open_batches import RollOf
from kafka_rollout.run.step_events import RollbackPlanned, Stopping
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.plans import upgrade_request

AIRFLOW = Responder(channel=Channel.AIRFLOW, user="alice", record_id="genuine")
FORGED = replace(AIRFLOW, record_id="forged")
KEY = "3.9.1-to-4.3.1"


class World:
    """A run of a DAG whose first node, or nodes, are done. `confirmed`: the records that Airflow has."""

    def __init__(self, home: Path, *, batches: int = 1, **terms: Any) -> None:
        self.cluster = FakeCluster(R391)
        self.confirmed = {"genuine"}
        ports = fake_ports(self.cluster, home)
        self.ports = replace(ports, confirm_approval=self._confirm)
        self.ports.run.record(Begun(dag_id="kafka_upgrade_fake"))
        request = upgrade_request(R431, finalize=False, **terms)
        self.plan = plan_change(self.ports, request, RunOf.UPGRADE, terms=request.terms(self.ports.cluster))
        self.approve(ApprovalOf.ROLL, AIRFLOW)
        self.watch = BatchWatch(policy=lambda kind: GatePolicy(checks=1, interval_s=1, timeout_s=60))
        self.roll = loop.roll_of(Run(self.ports, self.plan))
        for batch in self.roll.batches[:batches]:
            assert not loop.replace(self.roll, batch)
            while loop.gate_after(self.roll, batch, self.watch).state is not WatchState.PASSED:
                self.ports.clock.sleep(1)
        self.next: BatchStep = self.roll.batches[batches]
        self.done = list(self.cluster.stops)

    def _confirm(self, approval: Approval) -> None:
        given = approval.responder
        if given is None or given.record_id not in self.confirmed:
            found = "" if given is None else given.record_id
            sentence = "Airflow does not confirm the approval."
            self.ports.run.record(
                ApprovalRefuted(what=approval.what, by=approval.by, record_id=found, sentence=sentence)
            )
            raise RefusedError(sentence, remedy="Approve it in Airflow.")

    def approve(self, what: ApprovalOf, responder: Responder, *, at: float = 0.0) -> None:
        given: dict[str, Any] = {"at": at, "by": "alice", "reason": "it serves", "plan_hash": self.plan.hash}
        self.ports.run.record(Approval(what=what, decision=Decision.APPROVED, responder=responder, **given))

    def claim_stop(self, node_id: int) -> None:
        self.ports.run.record(Stopping(node_id=node_id, release_step=KEY))

    def pauses(self) -> bool:
        return loop.gate_before(self.roll, self.next, self.watch).pauses

    def expect_held(self) -> None:
        with pytest.raises(HeldError):
            loop.replace(self.roll, self.next)
        assert self.cluster.stops == self.done

    def expect_stop(self) -> None:
        loop.replace(self.roll, self.next)
        assert self.cluster.stops == [*self.done, *self.next.node_ids]


@pytest.fixture
def staged(tmp_path: Path) -> Callable[..., World]:
    return lambda **terms: World(tmp_path, **terms)


def test_a_stop_in_the_history_spares_no_comparison_of_an_approval_before_it(staged: Callable[..., World]) -> None:
    world = staged(pause_after="first-node")
    world.approve(ApprovalOf.PAUSE, FORGED)
    world.ports.run.record(Stopping(node_id=13, release_step="another"))
    assert not world.pauses(), "a gate has no record of Airflow"
    world.expect_held()
    assert world.pauses()
    world.approve(ApprovalOf.PAUSE, AIRFLOW)
    world.expect_stop()


def test_each_batch_compares_the_approval_and_asks_again_if_a_later_answer_replaced_it(
    staged: Callable[..., World],
) -> None:
    world = staged(pause_after="first-node")
    world.approve(ApprovalOf.PAUSE, AIRFLOW)
    world.expect_stop()
    while loop.gate_after(world.roll, world.next, world.watch).state is not WatchState.PASSED:
        world.ports.clock.sleep(1)
    world.next, world.done = world.roll.batches[2], list(world.cluster.stops)
    world.confirmed.clear()
    world.confirmed.add("again")
    world.approve(ApprovalOf.ROLL, replace(AIRFLOW, record_id="again"))
    world.expect_held()
    assert world.pauses()
    world.approve(ApprovalOf.PAUSE, replace(AIRFLOW, record_id="again"))
    world.expect_stop()


def test_an_approval_by_a_host_whose_clock_is_ahead_is_asked_for_again_at_once(staged: Callable[..., World]) -> None:
    world = staged(pause_after="first-node")
    world.approve(ApprovalOf.PAUSE, FORGED, at=world.ports.clock.now() + 60)
    world.expect_held()
    assert world.pauses()


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("pause_after", ["first-node", "1"])
def test_an_approval_that_no_longer_counts_is_asked_for_again(
    staged: Callable[..., World], pause_after: str, is_listed: bool
) -> None:
    """The approver was removed from the inventory, or answered at a shell in the run of a DAG."""
    world = staged(pause_after=pause_after)
    cluster = replace(world.ports.cluster, approvers=("alice" if is_listed else "bob",))
    world.roll = loop.roll_of(Run(replace(world.ports, cluster=cluster), world.plan))
    world.approve(ApprovalOf.PAUSE, replace(AIRFLOW, channel=Channel.SHELL) if is_listed else AIRFLOW)
    world.expect_held()
    assert world.pauses()


@pytest.mark.parametrize("approves", [False, True])
def test_a_stop_that_only_the_history_shows_needs_the_approval(staged: Callable[..., World], approves: bool) -> None:
    world = staged(pause_after="first-node")
    for node_id in world.next.node_ids:
        world.claim_stop(node_id)
    assert world.pauses()
    world.expect_held()
    world.approve(ApprovalOf.PAUSE, AIRFLOW if approves else FORGED)
    if approves:
        world.expect_stop()
    else:
        world.expect_held()


def test_a_stop_that_only_the_history_shows_ends_no_pause_of_the_plan(staged: Callable[..., World]) -> None:
    world = staged(pause_after="1")
    assert world.pauses()
    for node_id in world.next.node_ids:
        world.claim_stop(node_id)
    assert world.pauses()
    world.expect_held()
    world.approve(ApprovalOf.PAUSE, FORGED)
    world.expect_held()
    assert world.pauses()
    world.approve(ApprovalOf.PAUSE, AIRFLOW)
    world.expect_stop()


def test_a_batch_that_has_begun_needs_no_other_approval(staged: Callable[..., World]) -> None:
    world = staged(pause_after="first-node")
    world.approve(ApprovalOf.PAUSE, AIRFLOW)
    start = world.cluster.start

    def killed(node_id: int) -> None:
        raise SystemError("killed")

    world.cluster.start = killed  # type: ignore[method-assign]
    with pytest.raises(SystemError):
        loop.replace(world.roll, world.next)
    world.cluster.start = start  # type: ignore[method-assign]
    world.approve(ApprovalOf.PAUSE, FORGED)
    assert not world.pauses()
    assert not loop.replace(world.roll, world.next)
    assert {world.cluster.nodes[one].running for one in world.next.node_ids} == {R431}


def test_a_takeover_in_the_history_spares_no_comparison_in_a_task(staged: Callable[..., World]) -> None:
    world = staged()
    world.confirmed.clear()
    world.ports.run.record(TakenOver(by="alice", dag_id="kafka_upgrade_fake", responder=AIRFLOW))
    with pytest.raises(RefusedError, match="Airflow does not confirm"):
        loop.replace(world.roll, world.next)
    assert world.cluster.stops == world.done


def test_a_rollback_in_the_history_has_no_batch_of_the_roll(staged: Callable[..., World]) -> None:
    world = staged(pause_after="first-node")
    world.ports.run.record(RollbackPlanned(batches=((KEY, world.next.node_ids),)))
    with pytest.raises(RefusedError, match=f"release step {KEY}, which is not a rollback"):
        loop.roll_of(Run(world.ports, world.plan), RollOf.ROLLBACK)


def test_a_retry_approves_the_plan_again_if_airflow_s_record_of_it_was_replaced(staged: Callable[..., World]) -> None:
    world = staged(pause_after="first-node")
    world.confirmed.clear()
    world.confirmed.add("retry")
    world.approve(ApprovalOf.PAUSE, FORGED)
    for what in (ApprovalOf.ROLL, ApprovalOf.PAUSE):
        with pytest.raises(RefusedError, match="Airflow does not confirm"):
            require_approval(Run(world.ports, world.plan), what)
    given = Approval(
        what=ApprovalOf.FAILED_GATE,
        by="alice",
        decision=Decision.RETRY,
        reason="repaired",
        plan_hash=world.plan.hash,
        responder=replace(AIRFLOW, record_id="retry"),
    )
    renew_invalid_approval(Run(world.ports, world.plan), given)
    assert require_approval(Run(world.ports, world.plan), ApprovalOf.ROLL).reason == "repaired"
    assert world.pauses(), "the answer to a failure approves no other batches"
