"""A log start that moves at a broker of the new release holds the gate of this broker, not the comparison of all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.control.approval import accept_doubts, record_approval
from kafka_rollout.gates.gate import GateCheck, GateKind, GatePolicy, GateRef
from kafka_rollout.model.contents import LogStarts
from kafka_rollout.model.pace import PACES, Pace
from kafka_rollout.model.plan import Plan
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.observation.run import NodeRun, Run
from kafka_rollout.planning.findings.pending import FILE_CHANGES_DATA
from kafka_rollout.preparation.state_comparison import BEFORE, record_state
from kafka_rollout.roll.gate_checks import check_gate, wait_for_gate
from kafka_rollout.roll.node import replace_node
from kafka_rollout.run.events import ApprovalOf, Decision
from tests.fakes.cluster import FakeCluster
from tests.fakes.ports import FakeAdmin, in_step

STEP = "3.9.1-to-4.3.1"
FOREVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
POLICY = GatePolicy(checks=2, interval_s=1, timeout_s=30)


@pytest.fixture(autouse=True)
def kept_forever(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    """The broker that is replaced leads `archive-0`, another one `archive-1`."""
    for number, replicas in enumerate(([12, 11], [11, 12])):
        cluster.add_partition("archive", number, replicas, min_isr=1)
    for name, value in FOREVER.items():
        cluster.set_topic("archive", name, value)
    record_state(ports)


def replace_first(ports: ClusterPorts, plan: Plan) -> None:
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, 12)))


def after(ports: ClusterPorts, plan: Plan, node_id: int = 12, step: str = STEP) -> GateCheck:
    """The check of a broker that is back."""
    ref = GateRef(kind=GateKind.AFTER_START, release_step=step, node_id=node_id)
    for _ in range(10):
        ports.clock.sleep(1)
        seen = check_gate(Run(ports, plan), ref.resolve(plan, ports.cluster))
        if {one.name for one in seen.conditions if not one.is_met} <= {"log starts"} and "elected" not in seen.details:
            return seen
    raise AssertionError(seen.waits_for)


def test_a_start_that_moves_at_the_first_broker_holds_its_gate(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    replace_first(ports, plan)
    cluster.log_starts = {"archive-0": 300, "orders-0": 300}  # nothing is known of orders
    gate = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=12).resolve(plan, ports.cluster)
    with pytest.raises(RefusedError, match="log starts: archive-0 began at offset 0 and now begins at 300"):
        wait_for_gate(Run(ports, plan), gate, POLICY)
    doubts = ("the log start of topic archive moved above what its retention explains",)
    assert after(ports, plan).doubts == doubts
    accept_doubts(ports, doubts, "alice", "I deleted them.", text=f"- {doubts[0]}")
    wait_for_gate(Run(ports, plan), gate, POLICY)


def test_what_a_broker_before_the_roll_or_a_client_of_the_settings_moved_holds_nothing(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    replace_first(ports, plan)
    cluster.log_starts = {"archive-1": 300}  # of a broker that the run has not started
    assert after(ports, plan).passes
    ports.clock.sleep(60)
    cluster.log_starts = {"archive-0": 300}
    cluster.set_topic("archive", "retention.ms", "1000")
    assert after(ports, plan).passes


def test_a_topic_whose_clients_deleted_records_while_the_run_waited_for_its_window_holds_nothing(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.log_starts = {"archive-1": 300}
    replace_first(ports, plan)
    cluster.log_starts = {"archive-0": 300, "archive-1": 400}
    assert after(ports, plan).passes


def test_what_moves_between_two_starts_is_not_noted_as_of_clients(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    """The second stop comes after a broker of the new release could have moved it."""
    replace_first(ports, plan)
    assert after(ports, plan).passes
    cluster.log_starts = {"archive-0": 300}
    ports.clock.sleep(4000)  # what a stop needs is read again after a pause
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, 13)))
    assert "archive-0 began at offset 0" in after(ports, plan, 13).waits_for


def test_a_start_that_moves_later_holds_the_gate_of_a_later_broker(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    """A broker removes segments minutes after its start."""
    replace_first(ports, plan)
    assert after(ports, plan).passes
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, 13)))
    cluster.log_starts = {"archive-0": 300}
    assert "archive-0 began at offset 0" in after(ports, plan, 13).waits_for


def test_a_soak_reads_the_log_starts_again_after_what_a_broker_does_first_and_after_each_start(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, read = list[tuple[int, ...]](), FakeAdmin.log_starts

    def count(admin: FakeAdmin, brokers: Collection[int], above: Mapping[str, int]) -> LogStarts:
        asked.append(tuple(brokers))
        return read(admin, brokers, above)

    monkeypatch.setattr(FakeAdmin, "log_starts", count)
    replace_first(ports, plan)
    assert asked == [(11, 12, 13)], "before the first start"
    asked.clear()
    gate = GateRef(kind=GateKind.AFTER_START, release_step=STEP, node_id=12).resolve(plan, ports.cluster)
    # Kafka's log.initial.task.delay.ms is 30 s.
    wait_for_gate(Run(ports, plan), gate, replace(POLICY, soak_s=PACES[Pace.NORMAL].soak_s))
    assert asked == [(12,), (12,), (12,)]
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, 13)))
    after(ports, plan, 13)
    assert asked == [(12,), (12,), (12,), (12, 13)]


def test_a_start_that_cannot_be_read_is_not_met_and_a_lost_state_is_a_doubt(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_first(ports, plan)

    def silent(*_: object) -> LogStarts:
        raise TransientError("Broker 12 does not respond.")

    with monkeypatch.context() as patched:
        patched.setattr(FakeAdmin, "log_starts", silent)
        seen = after(ports, plan)
    assert (seen.waits_for, seen.doubts) == ("log starts: Broker 12 does not respond.", ())
    ports.run.detach(BEFORE)
    seen = after(ports, plan)
    assert "is lost, so it is unknown" in seen.waits_for
    assert len(seen.doubts) == 1


def test_a_gate_says_how_many_log_starts_it_compares_and_none_meet_nothing(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    replace_first(ports, plan)
    seen = after(ports, plan)
    led = sum(one.leader == 12 for one in cluster.topics.values())
    (condition,) = [one for one in seen.conditions if one.name == "log starts"]
    compared = f"compared for 1 of the partitions led by node 12 ({led})"
    assert condition.evidence == f"{compared}, none of them moved so"
    assert seen.details["not compared"].startswith(f"{compared}; those of the others show nothing")

    cluster.topics = {name: one for name, one in cluster.topics.items() if one.topic != "archive"}
    ports.start_readings.clear()
    seen = after(ports, plan)
    assert "log starts" not in {one.name for one in seen.conditions}
    assert f"compared for 0 of the partitions led by node 12 ({led - 1})" in seen.details["not compared"]


@pytest.mark.parametrize("lines", [{"log.retention.ms": "1000"}, {"log.retention.bytes": "1000"}], ids=str)
def test_a_started_broker_that_keeps_less_than_before_holds_its_gate_before_it_deletes(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan, lines: dict[str, str]
) -> None:
    """A line of its new file. What other brokers report of topics has their own values."""
    cluster.files_at_start[12] = {**cluster.nodes[12].config, **lines}
    replace_first(ports, plan)
    seen = after(ports, plan)
    assert "Broker 12 deletes records that it kept before the run: its retention was" in seen.waits_for
    accept_doubts(
        ports, seen.doubts, "alice", "Its records are old.", text="\n".join(f"- {one}" for one in seen.doubts)
    )
    assert after(ports, plan).passes


def test_a_line_that_the_approved_plan_names_holds_no_gate(
    ports: ClusterPorts, cluster: FakeCluster, plan: Plan
) -> None:
    cluster.files_at_start[12] = {**cluster.nodes[12].config, "log.retention.ms": "1000"}
    named = FILE_CHANGES_DATA.found("log.retention.ms=1000 of node 12", "It is 604800000 now.")
    others = (replace(named, subject=f"log.retention.ms={of}") for of in ("1000 of node 13", "2000 of node 12"))
    replace_first(ports, plan)
    assert not after(ports, replace(plan, findings=(*plan.findings, *others))).passes
    ports.start_readings.clear()
    assert after(ports, replace(plan, findings=(*plan.findings, named))).passes


def test_a_rollback_does_not_wait_for_it(ports: ClusterPorts, cluster: FakeCluster, plan: Plan) -> None:
    replace_first(ports, plan)
    cluster.log_starts = {"archive-0": 300}
    assert not after(ports, plan).passes
    record_approval(ports, ApprovalOf.ROLL_BACK, "alice", Decision.APPROVED, "Records are lost.")
    back = plan.release_steps[0].reversed()
    replace_node(NodeRun(Run(ports, plan), back, ports.cluster.node(12)))
    assert after(ports, plan, 12, back.key).passes


def test_what_was_read_is_kept_for_the_gates_of_the_newest_start_alone(ports: ClusterPorts, plan: Plan) -> None:
    """A triggerer checks the gates of many runs for months."""
    replace_first(ports, plan)
    assert after(ports, plan).passes
    assert [ref.node_id for ref in ports.start_readings] == [12]
    replace_node(NodeRun(Run(ports, plan), *in_step(ports, plan, STEP, 13)))
    assert after(ports, plan, 13).passes
    assert [ref.node_id for ref in ports.start_readings] == [13]
