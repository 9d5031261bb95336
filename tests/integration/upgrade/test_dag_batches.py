"""A DAG restarts twelve brokers in batches: the scheduler is killed in a batch, and a node fails in the next one.

A second run meets a batch whose replicas were moved after the plan, and an approver splits it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.gates.gate import GateKind
from kafka_rollout.model.plan import Batch
from kafka_rollout.run.events import events_of
from kafka_rollout.run.step_events import BatchSplit, GatePassed, Stopped, Stopping
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import (
    PATIENCE_S,
    PrivateAirflow,
    Run,
    all_run,
    held_while_it_stops,
    no_lock_left,
    nothing_lost,
    starts,
    wait_for,
)
from tests.integration.harness.faults.breaking import BREAKS_WHERE_A_FILE_IS_IN_THE_WAY
from tools.demo.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(5400)]

FORTH, BACK = "3.9.1-to-4.3.1", "4.3.1-to-3.9.1"
FORM = {"finalize": "later", "max_batch_size": 4, "rehearse": False}


def test_twelve_brokers_in_batches_with_a_killed_scheduler_and_a_failed_node_lose_nothing(
    airflow: PrivateAirflow, make_cluster: MakeCluster
) -> None:
    """Racks: a with 1, 4, 7, 10, b with 2, 5, 8, 11, c with 3, 6, 9, 12. One topic has two replicas in rack b."""
    made = make_cluster("3.9.1", name="in-batches", size=12, controllers=3, racks=3, heap="256m")
    cluster = replace(made, spec=replace(made.spec, release_overrides={"4.3.1": BREAKS_WHERE_A_FILE_IS_IN_THE_WAY}))
    admin = AdminClient({"bootstrap.servers": cluster.spec.bootstrap_servers})
    ignores = NewTopic("ignores-racks", 1, replica_assignment=[[5, 8, 1]], config={"min.insync.replicas": "2"})
    for topic in admin.create_topics([ignores]).values():
        topic.result(60)
    airflow.add(cluster)

    run = airflow.trigger(cluster, "4.3.1", **FORM, pause_after="first-batch")
    body = run.wait_for_question("approve_plan")["body"].replace("\\", "")
    assert "has a replica of ignores-racks-0 too" in body
    batches = run.store.load_plan().release_steps[0].batches
    first, second, *later = [batch for batch in batches if len(batch.node_ids) > 1]
    assert (set(first.node_ids), first.rack) == ({4, 7, 10}, "a")
    assert second.rack == "b"
    assert not {5, 8} <= set(second.node_ids)
    assert {3, 6, 9, 12} in [set(batch.node_ids) for batch in later]

    kill_the_scheduler_in(run, first)
    approval = f"roll.gate_before[{batches.index(first) + 1}]"
    question = run.wait_for_question(approval, timeout_s=2 * PATIENCE_S)
    assert "nodes 4, 7, 10, which restarted together" in question["body"].replace("\\", "")
    assert together(run, FORTH, first)
    failing = cluster.spec.node(second.node_ids[-1])
    in_the_way = Path(str(failing.directory)) / "figures"
    in_the_way.write_text("in the way")
    run.answer(approval, "Wait on", "the first batch serves")

    gate = f"roll.gate_after[{batches.index(second)}]"
    question = run.wait_for_question(gate, timeout_s=2 * PATIENCE_S)
    assert f"node {failing.node_id}" in question["body"].replace("\\", "")
    untouched = [node_id for batch in batches[batches.index(second) + 1 :] for node_id in batch.node_ids]
    assert untouched
    assert all(started(cluster, node_id) == {"3.9.1": 1} for node_id in untouched)
    run.answer(gate, "Roll back", "its metrics folder is a file")
    assert run.wait_done(timeout_s=2 * PATIENCE_S) == "failed"
    all_run(cluster, "3.9.1")
    assert together(run, BACK, first), "the rollback takes the batch together"
    report = run.report()
    assert report["outcome"] == "rolled_back"
    assert [one["node_ids"] for one in report["batches"][: len(batches)]] == [list(one.node_ids) for one in batches]
    stops = [event.node_id for event in events_of(run.store.events(), Stopped) if event.release_step == FORTH]
    assert len(stops) == len(set(stops)), "a node was stopped twice"
    assert started(cluster, 7) == {"3.9.1": 2, "4.3.1": 1}, "the killed scheduler made no second start"
    nothing_lost(report["traffic"], consumers=("classic",))
    no_lock_left(airflow, cluster)

    in_the_way.unlink()
    again = run_with_split(airflow, cluster, admin)
    print("seconds", [one.report()["duration_s"] for one in (run, again)])
    print("records", [one.report()["traffic"]["acknowledged"] for one in (run, again)])


def run_with_split(airflow: PrivateAirflow, cluster: LocalCluster, admin: AdminClient) -> Run:
    """Upgrade with a topic that has two replicas in the last batch since the plan."""
    cluster = replace(cluster, spec=replace(cluster.spec, gate_timeout_s=240.0))
    airflow.add(cluster)
    run = airflow.trigger(cluster, "4.3.1", **FORM)
    run.wait_for_question("approve_plan")
    batches = run.store.load_plan().release_steps[0].batches
    split = batches[-1]
    assert len(split.node_ids) > 2
    moved = NewTopic("moved", 1, replica_assignment=[[*split.node_ids[:2], 1]], config={"min.insync.replicas": "2"})
    for topic in admin.create_topics([moved]).values():
        topic.result(60)
    run.approve("approve_plan")
    gate = f"roll.gate_before[{len(batches) - 1}]"
    question = run.wait_for_question(gate, timeout_s=3 * PATIENCE_S)
    assert "moved-0" in question["body"].replace("\\", "")
    assert not acted(run, Stopping, FORTH) & set(split.node_ids)
    run.answer(gate, "Split the batch", "a topic has two replicas in it since the plan")
    run.wait_success(timeout_s=3 * PATIENCE_S)
    ends_right(run, split)
    return run


def ends_right(run: Run, split: Batch) -> None:
    all_run(run.cluster, "4.3.1")
    batches = run.store.load_plan().release_steps[0].batches
    assert [batch for batch in batches if not together(run, FORTH, batch)] == [split]
    (parts,) = events_of(run.store.events(), BatchSplit)
    assert sorted(node_id for part in parts.parts for node_id in part) == sorted(split.node_ids)
    assert all(together(run, FORTH, replace(split, node_ids=part)) for part in parts.parts)
    first, second = split.node_ids[:2]
    assert not [part for part in parts.parts if {first, second} <= set(part)]
    report = run.report()
    assert report["outcome"] == "rolled_not_finalized"
    assert [one["node_ids"] for one in report["batches"] if one["split"]] == [list(split.node_ids)]
    nothing_lost(report["traffic"], consumers=("classic",))


def kill_the_scheduler_in(run: Run, batch: Batch) -> None:
    """Approve the plan, and kill the scheduler while a node of the batch is stopping, which takes until this ends."""
    held_node = run.cluster.spec.node(batch.node_ids[1])
    scheduler = run.airflow.component_pid("scheduler")
    folder = Path(str(held_node.directory))
    run.approve("approve_plan")
    with held_while_it_stops(folder, timeout_s=3 * PATIENCE_S):
        wait_for(lambda: set(batch.node_ids) <= acted(run, Stopping, FORTH), timeout_s=3 * PATIENCE_S, said="the batch")
        os.kill(scheduler, signal.SIGKILL)
        assert held_node.node_id not in acted(run, Stopped, FORTH)
    run.airflow.start_component("scheduler")


def acted(run: Run, kind: type[Any], release_step: str) -> set[int]:
    return {event.node_id for event in events_of(run.store.events(), kind) if event.release_step == release_step}


def together(run: Run, release_step: str, batch: Batch) -> bool:
    """Whether the stop of every node of the batch was requested before the gate of one of them passed."""
    stops = [one.at for one in events_of(run.store.events(), Stopping) if in_batch(one, release_step, batch.node_ids)]
    passed = [
        one.at
        for one in events_of(run.store.events(), GatePassed)
        if one.ref.kind is GateKind.AFTER_START
        and one.ref.release_step == release_step
        and one.ref.node_id in batch.node_ids
    ]
    return len(passed) == len(batch.node_ids) and max(stops) < min(passed)


def in_batch(event: Any, release_step: str, node_ids: Sequence[int]) -> bool:
    return event.release_step == release_step and event.node_id in node_ids


def started(cluster: LocalCluster, node_id: int) -> dict[str, int]:
    return starts(cluster)[cluster.spec.node(node_id).name]
