"""A node that will not start on the new release: the roll stops at it, says why, and goes back from there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.server import PrivateAirflow, all_run, no_lock_left, nothing_lost, starts
from tests.integration.harness.faults.breaking import BREAKS_WHERE_A_FILE_IS_IN_THE_WAY

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]


def test_a_node_that_does_not_start_holds_the_roll_also_if_a_gate_is_marked_as_passed_and_a_rollback_loses_nothing(
    airflow: PrivateAirflow, make_cluster: MakeCluster
) -> None:
    made = make_cluster("3.9.1", name="roll-back", layout="combined")
    cluster = replace(made, spec=replace(made.spec, release_overrides={"4.3.1": BREAKS_WHERE_A_FILE_IS_IN_THE_WAY}))
    airflow.add(cluster)

    run = airflow.trigger(cluster, "4.3.1", finalize="after_approval")
    run.wait_for_question("approve_plan")
    order = run.store.load_plan().release_steps[0].order
    first, second, last = (cluster.spec.node(node_step.node_id) for node_step in order)
    for node in (second, last):
        (Path(str(node.directory)) / "figures").write_text("in the way")
    run.approve("approve_plan")
    gate = "roll.gate_after[1]"
    question = run.wait_for_question(gate)
    assert "no process" in question["body"], "the question says why"
    run.wait_for_log(gate, "no process")
    assert "figures" in question["body"], "and what the node's own log names"
    assert set(question["options"]) == {"Wait on", "Accept the log", "Retry", "Roll back"}
    assert starts(cluster)[last.name] == {"3.9.1": 1}, "the roll went on past a failure"

    run.mark_success("roll.gate_before[2]")
    held = f"waits for the batches before it: batch 2 of 3 (node {second.node_id}) has not passed"
    run.wait_for_log("roll.replace[2]", held)
    run.clear(gate)
    run.wait_for_question(gate)
    assert starts(cluster)[last.name] == {"3.9.1": 1}, "a gate that was marked as passed let a stop through"
    (Path(str(second.directory)) / "figures").unlink()
    run.answer(gate, "Retry", "the file is gone")

    last_gate = "roll.gate_after[2]"  # its replacement has waited for its turn
    run.wait_for_question(last_gate)
    assert starts(cluster)[second.name] == {"3.9.1": 1, "4.3.1": 2}
    run.answer(last_gate, "Roll back", "its metrics folder is a file")

    assert run.wait_done() == "failed"
    all_run(cluster, "3.9.1")
    assert starts(cluster) == {
        first.name: {"3.9.1": 2, "4.3.1": 1},
        second.name: {"3.9.1": 2, "4.3.1": 2},
        last.name: {"3.9.1": 2, "4.3.1": 1},
    }
    report = run.report()
    assert report["outcome"] == "rolled_back"
    assert "every node runs 3.9.1" in report["sentence"].lower()
    nothing_lost(report["traffic"], consumers=("classic",))
    assert ("roll-back", "anna", "approved") in {(a["what"], a["by"], a["decision"]) for a in report["approvals"]}
    run.wait_for_log("outcome", "rolled_back")
    states = run.states()
    assert states["outcome"] == "failed"
    assert states["finalize"] not in {"success", "running"}
    configuration = Path(str(first.directory)) / "server.properties"
    assert "kafka.csv.metrics" not in configuration.read_text(), "the new release's lines went out with it"
    no_lock_left(airflow, cluster)
